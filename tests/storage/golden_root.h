// A tiny complete root in which every byte is determined: the contents of tests/storage/golden/v1.
#pragma once

#include <memory>
#include <string>

#include "shoal/bytes.h"
#include "shoal/roster.h"
#include "shoal/save_plan.h"
#include "storage/storage.h"

namespace shoal::storage {

// Byte k of element e of a value. e is row-major in the whole tensor; for an object e is 0 and k is its byte.
// peers_read_us.py uses the same function.
inline std::byte golden_byte(std::string_view fqn, DType dtype, uint64_t e, uint64_t k) {
  uint64_t sum = 0;
  for (char c : fqn) sum += static_cast<unsigned char>(c);
  uint64_t value = (sum + 7 * e + 3 * k) % 251;
  return static_cast<std::byte>(dtype == DType::boolean ? value % 2 : value);
}
inline uint64_t golden_object_bytes(std::string_view fqn) {
  return 10 + fqn.size();
}

// Four ranks on two hosts: values of every dtype that PyTorch's reader supports; uneven, replicated, strided
// and empty shards; scalars; objects.
std::shared_ptr<const World> golden_world();
// Dtypes that the safetensors package supports and PyTorch's reader does not, on one rank.
std::shared_ptr<const World> golden_rare_world();
inline constexpr SaveOptions kGoldenOptions = {Dedupe::balanced, 1024};

// Writes the root: ROOT_ID; epochs 1 and 2; generations 1 and 2 with rosters; load choices; step 1 committed;
// step 2 aborted with a leftover; step 3 deleted; step 4 committed with the rare types; step 5 undecided.
Status write_golden_root(Storage& storage);

}  // namespace shoal::storage
