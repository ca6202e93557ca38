// ReadDamage: bytes that a load found damaged and read from a copy instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/box.h"
#include "shoal/mesh.h"

namespace shoal {

// One damage: adjacent digest blocks of a stored piece, or a whole file that cannot be read.
struct ReadDamage {
  std::string fqn;              // the first value, if the whole file is damaged
  Box box;                      // the stored piece, in global coordinates; no dimensions for an object
  Rank rank = 0;                // the rank that wrote the damaged file
  std::string file;             // relative to the root
  uint64_t begin = 0, end = 0;  // range of bytes in that file; both 0 if the whole file is damaged
  std::string cause;            // one line, for the first block
  std::string read_instead;     // the file that the first block was read from, relative to the root
  uint64_t bytes = 0;           // number of bytes that were read from copies
  friend bool operator==(const ReadDamage&, const ReadDamage&) = default;
};
std::string to_string(const ReadDamage& damage);  // one line
inline constexpr size_t kMaxDamageNamed = 256;
// The first kMaxDamageNamed damages, and the number of all. A damage that is added merges with a named one if
// both have the same file and cause and are either adjacent in one piece or the whole file.
struct DamageList {
  std::vector<ReadDamage> named;
  uint64_t count = 0;
  bool add(ReadDamage damage);                     // returns whether `named` has a new element
  std::vector<ReadDamage> add(DamageList others);  // returns those for which it has
  friend bool operator==(const DamageList&, const DamageList&) = default;
};

}  // namespace shoal
