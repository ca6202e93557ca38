// A Loader without a host, of generation 2: the test is its clients and its root.
#pragma once

#include "tests/sim/role_by_itself.h"

namespace shoal {

class LoaderByItself : public RoleByItself {
 public:
  LoaderByItself() : RoleByItself(make_loader(facts())) {}

  // Carries out the oldest operation that is under way.
  void finish(Result<OperationResult> result) {
    SHOAL_CHECK(!starts.empty());
    const OperationId id = starts.front().id;
    starts.erase(starts.begin());
    handle(event::OperationDone{id, std::move(result)});
  }

 private:
  static NodeFacts facts() {
    NodeFacts facts;
    facts.generation = 2;
    facts.host = "a";
    return facts;
  }
};

}  // namespace shoal
