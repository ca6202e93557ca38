// Conversion of elements among f32, f16, bf16, f8_e4m3 and f8_e5m2, on the host. The kernel of gpu/kernels/
// converts with the same source.
//
// A result is rounded to the nearest value, and to the even one of two that are equally near. It has the bits
// of PyTorch's Tensor.to() (2.13, x86-64 with AVX2):
//
//   f32, f16, bf16, f8_e5m2   what is too large becomes infinite
//   f8_e4m3                   has no infinity: what is too large, infinities too, becomes the largest finite
//                             value, 448 (PyTorch before 2.13 may give NaN)
//   NaN                       becomes NaN. PyTorch's bits of a NaN depend on the processor, and from f16 to
//   f32
//                             on the element's place in the tensor; here they are those of its AVX2 code.
#pragma once

#include <cstdint>

#include "shoal/bytes.h"
#include "shoal/dtype.h"
#include "shoal/status.h"

namespace shoal::gpu {

// True if both are among the five dtypes above. A dtype converts to itself.
bool converts_between(DType from, DType to);

// Converts source.size() / dtype_bytes(from) elements. Any addresses; the ranges must not overlap. Any
// thread. Code::invalid_argument, and nothing is written: converts_between() is false, or the sizes are not
// those of the same number of whole elements.
Status convert_elements(DType from, ByteView source, DType to, MutableByteView target);

}  // namespace shoal::gpu
