// The models of the protocol's rules, and mutations that show what each rule is for.
//
// docs/reference/protocol.md, "What the rules rest on", lists which property depends on which rule. The
// models describe the rules, not the code: they share no code with the roles.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/model/checker.h"

namespace shoal::model {

// One rule that is switched off, or replaced by the mistake that it prevents.
struct Mutation {
  std::string name;
  std::string what;      // what happens instead, for reports
  std::string violates;  // the property that is violated first
};
struct NamedModel {
  std::string name;
  std::string bounds;  // for reports
  std::vector<Mutation> mutations;
  std::function<Outcome(const std::string& mutation)> check;  // "": no mutation
};

// tiny: for runs under sanitizers; small: for every run of the tests; large: takes about a minute.
enum class Size { tiny, small, large };
std::vector<NamedModel> all_models(Size size);

NamedModel decisions_model(int coordinators, int attempts, int nodes);
NamedModel claims_model(int processes);
NamedModel completion_model();
NamedModel fallback_model();
NamedModel loads_model(int ranks);
NamedModel readers_model(int readers, int loads);  // readers: ranks of a job that only reads
NamedModel retention_model(int retainers, int loaders);
NamedModel rosters_model(int saves, int in_flight);

}  // namespace shoal::model
