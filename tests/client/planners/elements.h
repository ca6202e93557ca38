// elements_of: the elements of a tensor where the value of an element is its row-major number, counted
// from 1.
#pragma once

#include <cstdint>
#include <vector>

#include "shoal/box.h"

namespace shoal {

// Of a box of a tensor of that shape, row by row.
inline std::vector<uint32_t> elements_of(const Box& box, const Dims& shape) {
  std::vector<uint32_t> out;
  for_each_run(box, whole(shape), [&](uint64_t, uint64_t at, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<uint32_t>(at + i + 1));
  });
  return out;
}

}  // namespace shoal
