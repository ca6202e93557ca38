// CheckpointReader: lists what a checkpoint holds without loading it, and reads single values.
//
//   CheckpointReader reader = (*checkpointer)->open_checkpoint(1000).value();
//   for (const TensorMetadata& value : reader.metadata().state_dict_metadata) ...     // names, types, shapes
//   Bytes embedding = reader.read("wte.weight").value();                              // all of a tensor
//   Bytes rows = reader.read("wte.weight", Box{{128, 0}, {4, 768}}).value();           // four rows of it
//
// Opening reads the manifest alone. A read computes which digest blocks it needs, reads these alone, and
// verifies each against its digest. The checkpoint stays pinned while the reader lives, so that retention
// does not delete it. The thread of the Checkpointer uses the reader; destroy the reader before the
// Checkpointer. If the node ends, the next node opens the checkpoint again.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/checkpointer.h"
#include "shoal/status.h"

namespace shoal::client {
struct OpenedCheckpoint;
}  // namespace shoal::client

namespace shoal {

class CheckpointReader {
 public:
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  // The checkpoint's key and values, ascending by fqn. The first call of metadata or find makes the list.
  const Metadata& metadata() const;
  // The roster and the layout of every rank of the job that saved the checkpoint.
  const World& world() const;
  const SaveOptions& save_options() const;
  // Newer attempts that were passed over when this one was chosen as the latest: LoadResult::passed_over.
  const PassedOver& passed_over() const;
  const TensorMetadata* find(std::string_view fqn) const;  // nullptr: the checkpoint has no such value
  // The boxes of a value that a rank of the saving job held, in global coordinates. Empty: it held nothing.
  // An object is one box without dimensions. Code::key_mismatch: there is no such value.
  // Code::invalid_argument: there is no such rank.
  Result<std::vector<Box>> boxes_of(std::string_view fqn, Rank rank) const;

  // Read the row-major elements of a box, or of the whole tensor; `bytes` must be their exact size.
  // Code::key_mismatch and Code::invalid_argument name the value, Code::corrupt names the damage. After an
  // error, `data` may be partly overwritten.
  Status read(std::string_view fqn, const Box& box, void* data, uint64_t bytes);
  Status read(std::string_view fqn, void* data, uint64_t bytes);
  Result<Bytes> read(std::string_view fqn, const Box& box);
  Result<Bytes> read(std::string_view fqn);  // also reads an object
  // Reads all values of a state by one request: faster than one call for each of many small values. In a job
  // of several ranks this rank reads by itself, unlike load. Code::key_mismatch: the checkpoint lacks a value
  // of the state. Code::invalid_argument: a value is const, or in the memory of a device. After an error,
  // values may be partly overwritten.
  Status read(const StateDict& state);
  // Fills a state of any sharding, like Checkpointer::load.
  Result<LoadResult> load(const StateDict& state, const KeyPolicies& policies = {});

  struct Value {
    TensorMetadata about;
    Bytes bytes;
  };
  // Reads all values, or those of a subtree ("model.layers", as in KeyPolicies), into a dictionary.
  // Code::key_mismatch: no key is in that subtree. Code::no_space: the values do not fit into memory.
  Result<std::map<std::string, Value>> read_all(std::string_view subtree = {});

 private:
  friend class Checkpointer;
  CheckpointReader(Checkpointer::Impl& client, std::unique_ptr<client::OpenedCheckpoint> opened);
  Result<const LayoutEntry*> tensor(std::string_view fqn, const Box* box, uint64_t* bytes) const;
  Status fill(const StateDict& state);  // its meshes have the ranks of this Checkpointer, not the launcher's

  Checkpointer::Impl* client_;
  std::unique_ptr<client::OpenedCheckpoint> opened_;
};

}  // namespace shoal
