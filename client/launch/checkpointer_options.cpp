#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "client/launch/checkpointer_options.h"
#include "client/launch/job_environment.h"
#include "client/launch/job_id_service.h"
#include "client/launch/settings.h"
#include "client/loading/file_reads.h"
#include "client/session/node_process.h"
#include "client/state_dict.h"
#include "local/messages/messages.h"

namespace shoal::client {

namespace {

Status bad(std::string what) {
  return Status(Code::invalid_argument, std::move(what));
}

// Replaces rank and world size of the launcher's world by those of the group.
Status enter_process_group(CheckpointerOptions& options) {
  const std::vector<Rank>& group = options.process_group;
  for (size_t i = 0; i < group.size(); ++i) {
    if (group[i] >= options.world_size) {
      return bad(fmt::format("the process group has rank {}, which is not in a world of {}", group[i],
                             options.world_size));
    }
    if (i > 0 && group[i] <= group[i - 1])
      return bad("the ranks of a process group must be in ascending order, each once");
  }
  const auto own = std::lower_bound(group.begin(), group.end(), options.rank);
  if (own == group.end() || *own != options.rank) {
    return bad(fmt::format("rank {} is not in the process group", options.rank));
  }
  if (options.job_id.empty() && options.job_id_exchange && group.size() > 1 && group.front() != 0) {
    return bad("job_id is empty, and rank 0, which would draw it, is not in the process group: set job_id");
  }
  options.rank = static_cast<Rank>(own - group.begin());
  options.world_size = static_cast<uint32_t>(group.size());
  return ok_status();
}

// Converts ranks of the launcher's world to positions in the group.
class Renumbering {
 public:
  explicit Renumbering(const std::vector<Rank>& group) : group_(group) {}

  Result<Rank> number_of(Rank rank) const {
    const auto found = std::lower_bound(group_.begin(), group_.end(), rank);
    if (found != group_.end() && *found == rank) return static_cast<Rank>(found - group_.begin());
    return bad(fmt::format("rank {} is not in the process group", rank));
  }

  Result<Mesh> of(const Mesh& mesh) {
    if (auto known = meshes_.find(mesh); known != meshes_.end()) return known->second;
    std::vector<Rank> ranks = mesh.ranks();
    for (Rank& rank : ranks) {
      SHOAL_ASSIGN_OR_RETURN(rank, number_of(rank));
    }
    SHOAL_ASSIGN_OR_RETURN(Mesh own, Mesh::from_ranks(mesh.shape(), std::move(ranks)));
    return meshes_.emplace(mesh, std::move(own)).first->second;
  }

  // The map leaves out devices of ranks that are not in the group; a sharding that uses one is an error.
  Result<TileSharding> of(const TileSharding& tiles) const {
    std::vector<DeviceMap::Owner> owners;
    for (const DeviceMap::Owner& owner : tiles.device_map().owners()) {
      Result<Rank> rank = number_of(owner.rank);
      if (rank.ok()) {
        owners.push_back({owner.device, *rank});
      } else if (tiles.type() == TileSharding::Type::replicated) {
        return rank.status();
      }
    }
    SHOAL_ASSIGN_OR_RETURN(const DeviceMap devices, DeviceMap::make(std::move(owners)));
    switch (tiles.type()) {
      case TileSharding::Type::replicated:
        return TileSharding::replicated(devices);
      case TileSharding::Type::maximal:
        return TileSharding::maximal(devices, tiles.assignment().front());
      case TileSharding::Type::tiled:
        break;
    }
    return TileSharding::tiled(devices, tiles.tiles(), tiles.assignment(),
                               tiles.replicate_on_last_tile_dim());
  }

 private:
  const std::vector<Rank>& group_;
  std::map<Mesh, Mesh> meshes_;
};

Status renumber(Renumbering& numbers, StateDict::Entry& entry) {
  if (entry.mesh && entry.mesh->status().ok()) {  // otherwise it is rejected later, as without a group
    SHOAL_ASSIGN_OR_RETURN(entry.mesh, numbers.of(*entry.mesh));
  }
  if (entry.tiles) {
    SHOAL_ASSIGN_OR_RETURN(entry.tiles, numbers.of(*entry.tiles));
  }
  return ok_status();
}

}  // namespace

Status complete_options(CheckpointerOptions& options) {
  if (options.root.empty()) return bad("CheckpointerOptions::root is empty");
  if (options.world_size == 0 || options.world_size > kMaxWorldSize || options.rank >= options.world_size) {
    return bad(fmt::format("rank {} is not in a world of {}", options.rank, options.world_size));
  }
  SHOAL_RETURN_IF_ERROR(settle_settings(options));
  if (!options.process_group.empty()) SHOAL_RETURN_IF_ERROR(enter_process_group(options));
  if (options.coordinator_rank >= options.world_size) {
    return bad(fmt::format("coordinator_rank {} is not in a world of {}", options.coordinator_rank,
                           options.world_size));
  }
  if (options.max_in_flight == 0 || options.max_in_flight >= local::kMaxSlabsPerClient) {
    return bad(fmt::format("max_in_flight is {}: from 1 to {} are allowed", options.max_in_flight,
                           local::kMaxSlabsPerClient - 1));
  }
  if (options.load_window_bytes < kMinWindowBytes || options.load_window_bytes > local::kMaxSlabBytes) {
    return bad(fmt::format("load_window_bytes is {}: from {} to {} are allowed", options.load_window_bytes,
                           kMinWindowBytes, local::kMaxSlabBytes));
  }
  if (options.load_threads > kMaxLoadThreads) {
    return bad(
        fmt::format("load_threads is {}: from 0 to {} are allowed", options.load_threads, kMaxLoadThreads));
  }
  if (!options.read_only) {
    SHOAL_ASSIGN_OR_RETURN(options.read_only, read_only_of(environment_variable));
  }
  if (options.job_id.size() > base::kMaxJobIdBytes || !is_clean_utf8(options.job_id)) {
    return bad(fmt::format("a job id must have at most {} bytes of UTF-8 without control characters",
                           base::kMaxJobIdBytes));
  }
  if (options.job_id.empty()) {
    if (options.job_id_exchange && options.world_size > 1) {
      const auto deadline = std::chrono::steady_clock::now() + options.attach_timeout;
      SHOAL_ASSIGN_OR_RETURN(options.job_id, agree_on_job_id(options, deadline));
    } else if (options.world_size != 1) {
      return bad(
          "job_id (SHOAL_JOB_ID) is empty: set it to one value on all ranks, and to a new one at each start "
          "of the job");
    } else {
      options.job_id = "single-" + random_128().to_hex();
    }
  }
  if (const char* may = std::getenv("SHOAL_START_NODE"); may && std::string_view(may) == "0") {
    options.start_node = false;
  }
  // A rank that does not know the others writes everything it holds.
  if (options.save.mode == SaveMode::rank_local) options.save.dedupe = Dedupe::none;
  return validate_options(options.save);
}

Result<StateDict> in_process_group(const CheckpointerOptions& options, const StateDict& state) {
  if (options.process_group.empty()) return state;
  Renumbering numbers(options.process_group);
  StateDict out;
  for (const auto& entry : state.entries()) {
    auto own = std::make_shared<StateDict::Entry>(*entry);
    if (Status status = renumber(numbers, *own); !status.ok()) {
      return status.with_context(fmt::format("'{}'", entry->fqn));
    }
    out.add(std::move(own));
  }
  return out;
}

}  // namespace shoal::client
