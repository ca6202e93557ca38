// Damages bytes at random, for tests of decoders.
#pragma once

#include <random>

#include "shoal/bytes.h"

namespace shoal {

// One to three edits of at least one word: a flipped bit, another byte, or a word from elsewhere.
inline void edit_at_random(Bytes& bytes, std::mt19937_64& random) {
  for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
    switch (random() % 3) {
      case 0:
        bytes[random() % bytes.size()] ^= std::byte(1u << random() % 8);
        break;
      case 1:
        bytes[random() % bytes.size()] = std::byte(random());
        break;
      default:
        store_le64(&bytes[random() % (bytes.size() / 8) * 8],
                   load_le64(&bytes[random() % (bytes.size() / 8) * 8]));
    }
  }
}

}  // namespace shoal
