// ReadDamage: what a load found damaged, and read elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/box.h"
#include "plan/mesh.h"

namespace shoal {

// Bytes of a checkpoint that could not be read where they should lie, and were read from a copy.
struct ReadDamage {
  std::string fqn;
  Box box;                      // of the stored piece, in global coordinates; no dimensions for an object
  Rank rank = 0;                // that wrote the damaged file
  std::string file;             // under the root
  uint64_t begin = 0, end = 0;  // bytes of that file; both 0 where the file itself cannot be read
  std::string cause;            // one line
  std::string read_instead;     // the file, under the root, that the bytes came from
  friend bool operator==(const ReadDamage&, const ReadDamage&) = default;
};
std::string to_string(const ReadDamage& damage);  // one line
inline constexpr size_t kMaxDamageNamed = 256;
// The first kMaxDamageNamed of them, and how many there were.
struct DamageList {
  std::vector<ReadDamage> named;
  uint64_t count = 0;
  void add(ReadDamage damage);
  void add(DamageList others);
  friend bool operator==(const DamageList&, const DamageList&) = default;
};

}  // namespace shoal
