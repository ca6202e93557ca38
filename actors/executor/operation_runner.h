// OperationRunner carries out the operations that roles start.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/operation.h"
#include "local/messages/messages.h"
#include "shoal/bytes.h"
#include "shoal/hash.h"
#include "shoal/status.h"
#include "storage/catalog/catalog.h"
#include "storage/storage.h"

namespace shoal::actors {

// Bytes of a save that is staged in parts, while its client waits. One thread.
class PartSource {
 public:
  virtual ~PartSource() = default;
  // Asks the client to copy these bytes into its slab. Does not wait. The number of the answer.
  virtual uint64_t ask(std::vector<local::PartRange> ranges) = 0;
  // Until they lie there. An error: they do not, nor will they.
  virtual Status wait(uint64_t number) = 0;
};

// Slabs of the clients of one node. Any thread.
class Slabs {
 public:
  virtual ~Slabs() = default;
  struct View {
    std::shared_ptr<void> keep;  // the mapping lives as long as this
    MutableByteView bytes;
  };
  virtual Result<View> find(ClientId client, uint32_t slab_id) = 0;  // Code::not_found
  // Its pages go back to the system, and read as zeros until somebody writes to them. Code::not_found.
  virtual Status release(ClientId client, uint32_t slab_id) = 0;
  // The slab is this caller's alone while it has what this returns; waits for an earlier one.
  virtual Result<std::unique_ptr<PartSource>> parts_of(ClientId client, uint32_t slab_id,
                                                       const AttemptKey& key) {
    (void)client, (void)slab_id, (void)key;
    return Status(Code::unavailable, "no client stages in parts here");
  }
};

// Carries out operations, each to its end before run returns. Any thread, concurrently.
class OperationRunner {
 public:
  struct Surroundings {
    std::function<Nonce()> nonce;  // live: random_128
    std::function<int64_t()> unix_time_ns;
    // Called before a manifest is published, if it is set: an error refuses the commit.
    storage::BeforeCommit before_commit = nullptr;
    // Of a job that only reads: what root_use says writes is Code::refused.
    bool read_only = false;
  };
  // catalog may be null (a node without a coordinator): RecordDecision is then Code::unavailable.
  OperationRunner(storage::Storage& storage, storage::Catalog* catalog, Slabs& slabs, RootId root_id,
                  Surroundings surroundings);
  ~OperationRunner();
  Result<OperationResult> run(const Operation& operation);

 private:
  struct Impl;  // holds a bounded number of open shards
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
