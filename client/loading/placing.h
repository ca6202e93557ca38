// Placer: copies loaded ranges of stored pieces into the caller's tensors and objects.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/state_dict.h"
#include "gpu/device_stager.h"
#include "local/messages/messages.h"
#include "shoal/bytes.h"

namespace shoal::client {

class Placer {
 public:
  // Makes targets of all values of `state` whose layout entries are in `wanted`, which is ascending. `state`
  // must outlive the Placer.
  Placer(const BoundState& state, std::vector<uint32_t> wanted);

  // Needed if `state` uses devices: the copies to them. finish() waits for them.
  void use(std::unique_ptr<gpu::DeviceUpload> upload) { upload_ = std::move(upload); }
  // place() calls `notified` once for each tensor that has elements, when all of them have arrived, and
  // returns its error.
  void on_arrival(std::function<Status(const std::string& fqn)> notified) {
    on_verified_ = std::move(notified);
  }

  // copy() adds the bytes that it copies to `bytes_done`, which must outlive the Placer.
  void count_in(std::atomic<uint64_t>* bytes_done) { bytes_done_ = bytes_done; }

  local::LoadTargets targets() const;
  // Copies one range from the window into every local box that intersects it. Writes tensors in place, but
  // objects only in finish(). Code::corrupt: the node's message contradicts the targets.
  Status place(const local::LoadedPiece& piece, ByteView window);
  // The three steps of place(). First, expect() checks the range and allocates an object. Second, copy()
  // copies `bytes`, which begin at piece_offset, lie within the range and cut no element. It returns the
  // number of elements of the target that it copied, or of bytes for an object. Several threads may copy
  // different bytes at once. Third, arrived() counts that number.
  Status expect(const local::StoredRange& range);
  uint64_t copy(const local::StoredRange& range, uint64_t piece_offset, ByteView bytes);
  Status arrived(uint32_t target, uint64_t count);
  // Waits for copies to devices. If every element of every target has arrived exactly once, replaces the
  // objects' bytes and returns OK. Otherwise Code::internal names the value.
  Status finish();
  void note_damage(DamageList damaged) { damaged_ = std::move(damaged); }
  DamageList take_damage() { return std::move(damaged_); }
  uint64_t bytes_wanted() const;  // of tensors only: the length of objects is not known yet
  uint64_t bytes_placed() const { return bytes_placed_; }

 private:
  struct Target {
    uint32_t entry = 0;
    bool seen = false;              // for an object: a piece has arrived, which may be empty
    uint64_t arrived_elements = 0;  // elements of a tensor, or bytes of an object
  };
  uint64_t wanted_elements(const Target& target) const;  // requires a tensor
  Status expect_object(uint32_t number, uint64_t bytes);
  Status replace_objects();
  uint64_t copy_part(const Target& target, uint32_t local_box, const Box& held, const Box& part,
                     const std::byte* source) const;

  const BoundState& state_;
  std::unique_ptr<gpu::DeviceUpload> upload_;
  std::vector<Target> targets_;
  std::map<uint32_t, std::string> objects_;  // the bytes that have arrived, by target
  std::function<Status(const std::string& fqn)> on_verified_;
  uint64_t bytes_placed_ = 0;
  std::atomic<uint64_t>* bytes_done_ = nullptr;
  DamageList damaged_;
};

}  // namespace shoal::client
