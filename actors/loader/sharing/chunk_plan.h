// ChunkPlan: what the loads of one node's clients read together with other hosts, cut into chunks that every
// host of a group cuts alike; and what they read for themselves. The header of each file that a group of
// hosts reads is a chunk of theirs too, some chunks before the first that needs it.
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
    uint32_t group = 0;              // into groups
    uint64_t ordinal = 0;            // among the chunks of its group
    uint64_t number = 0;             // by which hosts know it: a hash of what it is
    uint64_t bytes = 0;              // of a header: at most
    std::vector<PlannedRead> reads;  // of `pieces`, one after the other; their targets are of no account
    std::vector<Part> parts;
    std::optional<uint32_t> header_of;  // of `pieces`: the header of its file, without reads and parts
    std::vector<uint32_t> headers;  // of the files that it is read from, where they are passed on; before it
  };
  struct PartAt {
    uint32_t chunk = 0, part = 0;  // into chunks, and into that one's parts
  };
  struct User {
    ReadBatches own;                            // to be read straight into the window
    ReadBatches shared;                         // to be filled from chunks
    std::vector<std::vector<PartAt>> parts_of;  // that make up each shared batch
  };
  std::shared_ptr<const PieceTable> pieces;  // that are read together
  std::vector<PlannedChunk> chunks;          // in the order in which they are wanted, on all hosts
  std::vector<HostGroup> groups;             // nullptr: this host alone
  std::vector<User> users;
  std::vector<std::pair<uint64_t, uint32_t>> by_number;  // ascending, and into chunks

  std::optional<uint32_t> find(uint64_t number) const;
};

// A buffer by which an exchange of so many groups of hosts always goes on.
constexpr uint64_t least_buffer_bytes(size_t groups) {
  return (groups + 1) * kChunkBytes;
}

struct UserReads {
  std::shared_ptr<const ReadPlan> plan;
  std::vector<HostGroup> hosts;  // by target: who reads the same of it; nullptr: this host alone
  uint64_t part_bytes = 0;       // of its window
  uint64_t own_bytes = 0;  // of a batch that its client reads itself; 0: own ones go into the window too
};
// What is needed by one user here and by no other host is its own. Of a piece that several users need, they
// name the same hosts. Which host this is does not matter.
ChunkPlan plan_chunks(const std::vector<UserReads>& users);

}  // namespace shoal::actors
