// OperationRunner: carries out the operations that roles start.
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

// Bytes of a save in parts, while its client waits. Used by one thread.
class PartSource {
 public:
  virtual ~PartSource() = default;
  // Requests that the client copies these bytes into its slab. Does not block. Returns the number for wait().
  virtual uint64_t ask(std::vector<local::PartRange> ranges) = 0;
  // Blocks until the bytes are in the slab. An error: they will not come.
  virtual Status wait(uint64_t number) = 0;
};

// The slabs of the clients of one node. All methods may be called on any thread.
class Slabs {
 public:
  virtual ~Slabs() = default;
  struct View {
    std::shared_ptr<void> keep;  // keeps the mapping
    MutableByteView bytes;
  };
  virtual Result<View> find(ClientId client, uint32_t slab_id) = 0;  // Code::not_found
  // Returns the slab's pages to the system; they read as zeros until somebody writes to them.
  // Code::not_found.
  virtual Status release(ClientId client, uint32_t slab_id) = 0;
  // Reserves the slab for this caller, as long as the result exists. Blocks while another caller has it.
  virtual Result<std::unique_ptr<PartSource>> parts_of(ClientId client, uint32_t slab_id,
                                                       const AttemptKey& key) {
    (void)client, (void)slab_id, (void)key;
    return Status(Code::unavailable, "this node does not support staging in parts");
  }
};

// Carries out each operation before run returns. All methods may be called on any thread, concurrently.
class OperationRunner {
 public:
  struct Surroundings {
    std::function<Nonce()> nonce;  // live: random_128
    std::function<int64_t()> unix_time_ns;
    // If set, called before a manifest is published; an error prevents the commit.
    storage::BeforeCommit before_commit = nullptr;
    // For a job that only reads: an operation with RootUse::writes returns Code::refused.
    bool read_only = false;
  };
  // catalog may be null (a node without a coordinator). RecordDecision then returns Code::unavailable.
  OperationRunner(storage::Storage& storage, storage::Catalog* catalog, Slabs& slabs, RootId root_id,
                  Surroundings surroundings);
  ~OperationRunner();
  Result<OperationResult> run(const Operation& operation);

 private:
  struct Impl;  // holds a bounded number of open shards
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::actors
