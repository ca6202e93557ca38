// Places what a load brings: ranges of stored pieces into the caller's tensors and objects.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "client/state_dict_internal.h"
#include "local/messages/messages.h"
#include "shoal/bytes.h"

namespace shoal::client {

class Placer {
 public:
  // Targets of all values of `state` whose layout entries are in `wanted`, ascending. `state` outlives it.
  Placer(const BoundState& state, std::vector<uint32_t> wanted);

  // Told when all elements of a tensor have arrived, and at least one has; once each. Its error is place()'s.
  void on_arrival(std::function<Status(const std::string& fqn)> told) { told_ = std::move(told); }

  local::LoadTargets targets() const;
  // Copies one range out of the window into every local box that it touches. Tensors are written in place,
  // objects when finish() says so. Code::corrupt: the node says what cannot be.
  Status place(const local::LoadedPiece& piece, ByteView window);
  // The same in three steps. expect() checks the range and makes room for an object; then copy(), by any
  // thread and by several of different bytes, copies `bytes`, which begin at piece_offset, lie within the
  // range and cut no element, and says how many elements of the target that were (of an object: bytes); then
  // arrived() counts them.
  Status expect(const local::StoredRange& range);
  uint64_t copy(const local::StoredRange& range, uint64_t piece_offset, ByteView bytes);
  Status arrived(uint32_t target, uint64_t count);
  // OK if every element of every target has arrived exactly once; then objects get their new bytes.
  // Code::internal names the value.
  Status finish();
  void note_damage(DamageList damaged) { damaged_ = std::move(damaged); }
  DamageList take_damage() { return std::move(damaged_); }
  uint64_t bytes_wanted() const;  // of tensors: how long objects are, nobody knows yet
  uint64_t bytes_placed() const { return bytes_placed_; }

 private:
  struct Target {
    uint32_t entry = 0;
    bool seen = false;              // of an object: a piece came, though it may be empty
    uint64_t arrived_elements = 0;  // of a tensor; bytes of an object
  };
  uint64_t wanted_elements(const Target& target) const;  // of a tensor
  Status expect_object(uint32_t number, uint64_t bytes);
  Status replace_objects();
  uint64_t copy_part(const Target& target, uint32_t local_box, const Box& held, const Box& part,
                     const std::byte* source) const;

  const BoundState& state_;
  std::vector<Target> targets_;
  std::map<uint32_t, std::string> objects_;  // by target: what has come of it
  std::function<Status(const std::string& fqn)> told_;
  uint64_t bytes_placed_ = 0;
  DamageList damaged_;
};

}  // namespace shoal::client
