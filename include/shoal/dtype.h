// DType: the element types of the safetensors format (safetensors 0.6, `Dtype` in tensor.rs), under its
// names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shoal/status.h"

namespace shoal {

// Layouts contain these numbers and their ids are hashes of them: only append.
enum class DType : uint8_t {
  boolean = 0,
  u8 = 1,
  i8 = 2,
  i16 = 3,
  u16 = 4,
  f16 = 5,
  bf16 = 6,
  i32 = 7,
  u32 = 8,
  f32 = 9,
  f64 = 10,
  i64 = 11,
  u64 = 12,
  f8_e4m3 = 13,
  f8_e5m2 = 14,
  f8_e8m0 = 15,
  f8_e4m3fnuz = 16,
  f8_e5m2fnuz = 17,
  c64 = 18,
  f4 = 19,
  f6_e2m3 = 20,
  f6_e3m2 = 21,
};
inline constexpr uint8_t kDTypeCount = 22;

std::string_view dtype_name(DType dtype);              // "BF16", as in a safetensors header; "no dtype"
Result<DType> dtype_from_name(std::string_view name);  // Code::invalid_argument
Result<DType> dtype_from_number(uint8_t number);       // Code::corrupt
unsigned dtype_bits(DType dtype);                      // 0: it is none
// Bytes per element. Code::invalid_argument, which names the type: a sub-byte type (F4, F6_*), because a box
// of it need not begin at a byte; or a number that is no DType.
Result<uint64_t> dtype_bytes(DType dtype);

}  // namespace shoal
