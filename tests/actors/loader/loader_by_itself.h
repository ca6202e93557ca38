// A Loader without a host, of generation 2 or of a job that only reads. The test plays its clients and its
// root.
#pragma once

#include "tests/actors/role_by_itself.h"

namespace shoal::actors {

class LoaderByItself : public RoleByItself {
 public:
  explicit LoaderByItself(bool read_only = false, bool clients_read_files = true)
      : RoleByItself(make_loader(config(read_only, clients_read_files))) {}

  // Carries out the oldest pending operation.
  void finish(Result<OperationResult> result) {
    SHOAL_CHECK(!starts.empty());
    const OperationId id = starts.front().id;
    starts.erase(starts.begin());
    handle(event::OperationDone{id, std::move(result)});
  }

 private:
  static NodeConfig config(bool read_only, bool clients_read_files) {
    NodeConfig config;
    config.read_only = read_only;
    config.clients_read_files = clients_read_files;
    config.generation = 2;
    config.host = "a";
    return config;
  }
};

}  // namespace shoal::actors
