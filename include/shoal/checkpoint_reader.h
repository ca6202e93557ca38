// CheckpointReader: what a checkpoint holds, without loading it, and its values one by one.
//
//   CheckpointReader reader = (*checkpointer)->open_checkpoint(1000).value();
//   for (const TensorMetadata& value : reader.metadata().state_dict_metadata) ...     // names, types, shapes
//   Bytes embedding = reader.read("wte.weight").value();                              // all of a tensor
//   Bytes rows = reader.read("wte.weight", Box{{128, 0}, {4, 768}}).value();           // four rows of it
//
// Opening reads the manifest alone; a read reads the digest blocks that it touches, finds them by arithmetic,
// and verifies each against its digest. The checkpoint stays pinned while the reader lives, so that no
// retention deletes it. A reader is used by the thread of its Checkpointer, and ends before that does; where
// the node goes away, the next one opens the checkpoint again.
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

  // Which one it is, and its values, ascending by fqn: listed by the first call of this or find.
  const Metadata& metadata() const;
  // Who held what when it was saved: the layout of every rank. Its ranks are those of the saving job.
  const World& world() const;
  const SaveOptions& save_options() const;
  // Newer attempts, passed over when this one was chosen as the latest: LoadResult::passed_over.
  const PassedOver& passed_over() const;
  const TensorMetadata* find(std::string_view fqn) const;  // nullptr: there is none
  // What a rank of the saving job held of a value, in global coordinates; none: nothing. An object: one box
  // without dimensions. Code::key_mismatch: there is no such value; Code::invalid_argument: no such rank.
  Result<std::vector<Box>> boxes_of(std::string_view fqn, Rank rank) const;

  // Row-major elements of the box, or of all of the tensor, which must be `bytes` bytes. Code::key_mismatch,
  // Code::invalid_argument name the value; Code::corrupt what was damaged. After an error, memory may hold
  // some of it.
  Status read(std::string_view fqn, const Box& box, void* data, uint64_t bytes);
  Status read(std::string_view fqn, void* data, uint64_t bytes);
  Result<Bytes> read(std::string_view fqn, const Box& box);
  Result<Bytes> read(std::string_view fqn);  // an object's bytes too
  // A state of any sharding, as Checkpointer::load fills it.
  Result<LoadResult> load(const StateDict& state, const KeyPolicies& policies = {});

  struct Value {
    TensorMetadata about;
    Bytes bytes;
  };
  // A plain dictionary of everything, or of a subtree ("model.layers", as KeyPolicies has them).
  // Code::key_mismatch: no key is in that subtree. Code::no_space: it does not fit into memory.
  Result<std::map<std::string, Value>> read_all(std::string_view subtree = {});

 private:
  friend class Checkpointer;
  CheckpointReader(Checkpointer::Impl& client, std::unique_ptr<client::OpenedCheckpoint> opened);
  Result<const LayoutEntry*> tensor(std::string_view fqn, const Box* box, uint64_t* bytes) const;
  Status fill(const StateDict& state);

  Checkpointer::Impl* client_;
  std::unique_ptr<client::OpenedCheckpoint> opened_;
};

}  // namespace shoal
