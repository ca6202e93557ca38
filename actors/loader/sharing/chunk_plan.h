// ChunkPlan: cuts what the clients of one node read together with other hosts into chunks, alike on every
// host of a group, and lists what each client reads alone. The header of a file that a group reads is a chunk
// of the group too. It comes some chunks before the first that needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/loader/read_plan.h"
#include "actors/loader/sharing/load_groups.h"
#include "actors/messages/chunk.h"

namespace shoal::actors {

struct ChunkPlan {
  struct Part {  // of a chunk, for one batch of a user
    uint32_t user = 0, batch = 0;
    uint64_t batch_offset = 0;  // from the start of the batch's part of the window
    uint64_t chunk_offset = 0;
    uint64_t bytes = 0;
  };
  struct PlannedChunk {
    uint32_t group = 0;              // index into groups
    uint64_t ordinal = 0;            // among the chunks of its group
    uint64_t number = 0;             // its name between hosts: a hash of what it contains
    uint64_t bytes = 0;              // for a header: upper bound
    std::vector<PlannedRead> reads;  // of `pieces`, one after the other; their targets do not matter
    std::vector<Part> parts;
    std::optional<uint32_t> header_of;  // piece whose file's header it is; then reads and parts are empty
    // Chunks that are the headers of the files it is read from, if these are shared. They come before it.
    std::vector<uint32_t> headers;
  };
  struct PartAt {
    uint32_t chunk = 0, part = 0;  // index of a chunk, and of one of its parts
  };
  struct User {
    ReadBatches own;                            // read straight into the window
    ReadBatches shared;                         // copied from chunks
    std::vector<std::vector<PartAt>> parts_of;  // by shared batch: the parts that make it up
  };
  std::shared_ptr<const PieceTable> pieces;  // pieces that are read together
  std::vector<PlannedChunk> chunks;          // in the order in which they are needed, alike on all hosts
  std::vector<HostGroup> groups;             // nullptr: only this host
  std::vector<User> users;
  std::vector<std::pair<uint64_t, uint32_t>> by_number;  // number -> index into chunks; ascending

  std::optional<uint32_t> find(uint64_t number) const;
};

// A buffer of this size lets an exchange of so many groups of hosts always make progress.
constexpr uint64_t least_buffer_bytes(size_t groups) {
  return (groups + 1) * kChunkBytes;
}

struct UserReads {
  std::shared_ptr<const ReadPlan> plan;
  std::vector<HostGroup> hosts;  // by target: hosts that read the same of it; nullptr: only this host
  uint64_t part_bytes = 0;       // of its window
  // Bound of a batch that the client reads itself; 0: own batches go into the window too.
  uint64_t own_bytes = 0;
};
// What one user here needs and no other host is read by that user alone. Precondition: users that need the
// same piece name the same hosts for it. The number of this host does not matter.
ChunkPlan plan_chunks(const std::vector<UserReads>& users);

}  // namespace shoal::actors
