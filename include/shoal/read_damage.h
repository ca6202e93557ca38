// ReadDamage: what a load found damaged, and read elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shoal/box.h"
#include "shoal/mesh.h"

namespace shoal {

// Bytes of a checkpoint that could not be read where they should lie, and were read from a copy: digest
// blocks of a stored piece that follow each other, or all that was read of a file that itself cannot be read.
struct ReadDamage {
  std::string fqn;              // the first, where several values of a file are meant
  Box box;                      // of the stored piece, in global coordinates; no dimensions for an object
  Rank rank = 0;                // that wrote the damaged file
  std::string file;             // under the root
  uint64_t begin = 0, end = 0;  // bytes of that file; both 0 where the file itself cannot be read
  std::string cause;            // one line, of the first block
  std::string read_instead;     // the file, under the root, that the bytes came from; of the first block
  uint64_t bytes = 0;           // how many were read from copies
  friend bool operator==(const ReadDamage&, const ReadDamage&) = default;
};
std::string to_string(const ReadDamage& damage);  // one line
inline constexpr size_t kMaxDamageNamed = 256;
// The first kMaxDamageNamed of them, and how many there were. What is added joins one that is named where it
// is of the same file and cause and, unless that is the whole file, follows or precedes it in the same piece.
struct DamageList {
  std::vector<ReadDamage> named;
  uint64_t count = 0;
  bool add(ReadDamage damage);                     // whether it is named, and new
  std::vector<ReadDamage> add(DamageList others);  // those of them that are
  friend bool operator==(const DamageList&, const DamageList&) = default;
};

}  // namespace shoal
