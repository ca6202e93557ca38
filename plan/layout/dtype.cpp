#include "shoal/dtype.h"

#include <fmt/format.h>

#include <array>

namespace shoal {

namespace {
struct Properties {
  std::string_view name;
  unsigned bits;
};
constexpr std::array<Properties, kDTypeCount> kProperties = {{
    {"BOOL", 8},  {"U8", 8},      {"I8", 8},      {"I16", 16},    {"U16", 16},        {"F16", 16},
    {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},    {"F64", 64},        {"I64", 64},
    {"U64", 64},  {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
    {"C64", 64},  {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

constexpr Properties kNone = {"unknown dtype", 0};

const Properties& properties(DType dtype) {
  const auto number = static_cast<uint8_t>(dtype);
  return number < kDTypeCount ? kProperties[number] : kNone;
}
}  // namespace

std::string_view dtype_name(DType dtype) {
  return properties(dtype).name;
}

Result<DType> dtype_from_name(std::string_view name) {
  for (uint8_t i = 0; i < kDTypeCount; ++i) {
    if (kProperties[i].name == name) return static_cast<DType>(i);
  }
  return Status(Code::invalid_argument, fmt::format("'{}' is not a safetensors dtype", name.substr(0, 32)));
}

Result<DType> dtype_from_number(uint8_t number) {
  if (number >= kDTypeCount) return Status(Code::corrupt, fmt::format("dtype number {} is unknown", number));
  return static_cast<DType>(number);
}

unsigned dtype_bits(DType dtype) {
  return properties(dtype).bits;
}

Result<uint64_t> dtype_bytes(DType dtype) {
  unsigned bits = dtype_bits(dtype);
  if (bits == 0) {
    return Status(Code::invalid_argument,
                  fmt::format("dtype number {} is unknown", static_cast<unsigned>(dtype)));
  }
  if (bits % 8 != 0) {
    return Status(
        Code::invalid_argument,
        fmt::format("dtype {} is smaller than a byte: Shoal does not support it", dtype_name(dtype)));
  }
  return uint64_t{bits / 8};
}

}  // namespace shoal
