// The models of the protocol's rules, and the mutations that show what each rule is for.
//
// docs/reference/protocol.md, "What the rules rest on", says which rule rests on which property. The models
// know the rules, not the code: they share nothing with the roles.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/model/checker.h"

namespace shoal::model {

// One rule switched off, or replaced by the mistake that it is there to prevent.
struct Mutation {
  std::string name;
  std::string what;      // in words: what is done instead
  std::string violates;  // the property that breaks first
};
struct NamedModel {
  std::string name;
  std::string bounds;  // in words
  std::vector<Mutation> mutations;
  std::function<Outcome(const std::string& mutation)> check;  // "": the rules as they are
};

// tiny: under sanitizers; small: what every run of the tests visits; large: for about a minute.
enum class Size { tiny, small, large };
std::vector<NamedModel> all_models(Size size);

NamedModel decisions_model(int coordinators, int attempts, int nodes);
NamedModel claims_model(int processes);
NamedModel completion_model();
NamedModel fallback_model();
NamedModel loads_model(int ranks);
NamedModel readers_model(int readers, int loads);  // of a job that only reads beside the live one
NamedModel retention_model(int retainers, int loaders);
NamedModel rosters_model(int saves, int in_flight);

}  // namespace shoal::model
