// ReceivedValues: which elements of the tensors that it wants a simulated trainer has received in one load.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "local/messages/messages.h"

namespace shoal::sim {

class ReceivedValues {
 public:
  void clear() { received_.clear(); }
  // The trainer has received this range. Ignores objects and tensors of more than 2^20 elements.
  void add(const local::LoadTarget& target, const local::StoredRange& range);
  // The name of a tensor of which the trainer has not received all that it wants. None: it has everything.
  // Tensors of more than 2^20 elements are not checked.
  std::optional<std::string> incomplete(const local::LoadTargets& targets) const;

 private:
  std::map<uint32_t, std::vector<bool>> received_;  // by target, then by element of the tensor
};

}  // namespace shoal::sim
