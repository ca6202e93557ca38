// ChunkPlan: what the loads of one node's clients read together with other hosts, cut into chunks that every
// host of a group cuts alike; and what they read for themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/load_groups.h"
#include "actors/read_plan.h"

namespace shoal {

struct ChunkPlan {
  struct Part {  // of a chunk, for one batch of a user
    uint32_t user = 0, batch = 0;
    uint64_t batch_offset = 0;  // from the start of the batch's part of the window
    uint64_t chunk_offset = 0;
    uint64_t bytes = 0;
  };
  struct PlannedChunk {
    uint32_t group = 0;    // into groups
    uint64_t ordinal = 0;  // among the chunks of its group
    uint64_t number = 0;   // by which hosts know it: a hash of what it is
    uint64_t bytes = 0;
    std::vector<PlannedRead> reads;  // one after the other; their targets are of no account
    std::vector<Part> parts;
  };
  struct User {
    std::vector<ReadBatchPlan> own;     // to be read straight into the window
    std::vector<ReadBatchPlan> shared;  // to be filled from chunks
    std::vector<uint32_t> parts_of;     // of each shared batch, how many parts make it up
  };
  std::vector<PlannedChunk> chunks;  // in the order in which they are wanted
  std::vector<HostGroup> groups;
  std::vector<User> users;
};

// A read of one user, and the hosts that read the same of this piece (`own_host` among them).
struct GroupedRead {
  PlannedRead read;
  HostGroup hosts;
};
struct UserReads {
  std::vector<GroupedRead> reads;
  uint64_t part_bytes = 0;  // of its window
};
// What is needed by one user here and by no other host is its own. Of a piece that several users need, reads
// name the same hosts.
ChunkPlan plan_chunks(const std::vector<UserReads>& users);

}  // namespace shoal
