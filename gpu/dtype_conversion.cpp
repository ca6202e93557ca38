#include "gpu/dtype_conversion.h"

#include <type_traits>

#include "gpu/kernels/element_conversion.h"

namespace shoal::gpu {

namespace {
bool converts(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return true;
    default:
      return false;
  }
}

// The names of dtypes are plan/'s, which this library does not link.
std::string number_of(DType dtype) {
  return "dtype " + std::to_string(static_cast<unsigned>(dtype));
}

// Calls body with the dtype as a type, so that each pair has a loop of its own. The dtype converts.
template <class Body>
void with_dtype(DType dtype, Body body) {
  switch (dtype) {
    case DType::f32:
      return body(std::integral_constant<DType, DType::f32>());
    case DType::f16:
      return body(std::integral_constant<DType, DType::f16>());
    case DType::bf16:
      return body(std::integral_constant<DType, DType::bf16>());
    case DType::f8_e4m3:
      return body(std::integral_constant<DType, DType::f8_e4m3>());
    default:
      return body(std::integral_constant<DType, DType::f8_e5m2>());
  }
}

}  // namespace

bool converts_between(DType from, DType to) {
  return converts(from) && converts(to);
}

Status convert_elements(DType from, ByteView source, DType to, MutableByteView target) {
  if (!converts_between(from, to)) {
    return {Code::invalid_argument,
            "elements of " + number_of(from) + " cannot be converted to " + number_of(to)};
  }
  const size_t source_bytes = element_bytes(from);
  const size_t target_bytes = element_bytes(to);
  const size_t elements = source.size() / source_bytes;
  if (source.size() % source_bytes != 0 || target.size() % target_bytes != 0 ||
      target.size() / target_bytes != elements) {
    return {Code::invalid_argument, std::to_string(source.size()) + " bytes of " + number_of(from) + " and " +
                                        std::to_string(target.size()) + " bytes of " + number_of(to) +
                                        " are not the same number of whole elements"};
  }
  with_dtype(from, [&](auto known_from) {
    with_dtype(to, [&](auto known_to) {
      constexpr DType kFrom = known_from.value;
      constexpr DType kTo = known_to.value;
      for (size_t i = 0; i < elements; ++i) {
        convert_element(kFrom, source.data() + i * source_bytes, kTo, target.data() + i * target_bytes);
      }
    });
  });
  return ok_status();
}

}  // namespace shoal::gpu
