// Checks the models, and shows what breaks if a rule is switched off.
//
//   model_check                       every model within small bounds: states, transitions, depth, seconds
//   model_check --large               every model within larger bounds: about a minute, 1 GB of memory
//   model_check MODEL [MUTATION]      one model, or the shortest trace to what the mutation breaks
//   model_check --mutations           every mutation of every model, with its trace
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/model/models.h"

using namespace shoal::model;

namespace {

constexpr int kUnknownName = 2;  // exit status

bool has_mutation(const NamedModel& model, const std::string& name) {
  return std::any_of(model.mutations.begin(), model.mutations.end(),
                     [&](const Mutation& mutation) { return mutation.name == name; });
}

int show(const NamedModel& model, const std::string& mutation) {
  const Outcome outcome = model.check(mutation);
  fmt::print("{}: {}{}{}: {} states, {} transitions, depth {}, {:.1f} s: {}\n", model.name, model.bounds,
             mutation.empty() ? "" : ", ", mutation, outcome.states, outcome.transitions, outcome.depth,
             outcome.seconds,
             outcome.violation  ? "VIOLATED"
             : outcome.complete ? "holds"
                                : "not exhausted");
  if (outcome.violation) {
    fmt::print("  broken: {}\n", outcome.violation->property);
    int number = 0;
    for (const std::string& line : outcome.violation->trace) fmt::print("  {:3} {}\n", ++number, line);
  }
  std::fflush(stdout);
  return !outcome.violation && outcome.complete ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names;
  Size size = Size::small;
  bool mutations = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--large") {
      size = Size::large;
    } else if (argument == "--mutations") {
      mutations = true;
    } else {
      names.push_back(argument);
    }
  }
  int worst = names.empty() ? 0 : kUnknownName;
  for (const NamedModel& model : all_models(size)) {
    if (!names.empty() && names[0] != model.name) continue;
    if (names.size() > 1 && !has_mutation(model, names[1])) {
      fmt::print(stderr, "model {} has no mutation '{}'. It has:\n", model.name, names[1]);
      for (const Mutation& mutation : model.mutations) fmt::print(stderr, "  {}\n", mutation.name);
      return kUnknownName;
    }
    if (!mutations) {
      worst = show(model, names.size() > 1 ? names[1] : "");
      if (worst != 0) return worst;
      continue;
    }
    worst = 0;
    for (const Mutation& mutation : model.mutations) show(model, mutation.name);
  }
  if (worst == kUnknownName) fmt::print(stderr, "there is no model '{}'\n", names[0]);
  return worst;
}
