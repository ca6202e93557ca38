#include "gpu/dtype_conversion.h"

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
  for (size_t i = 0; i < elements; ++i) {
    convert_element(from, source.data() + i * source_bytes, to, target.data() + i * target_bytes);
  }
  return ok_status();
}

}  // namespace shoal::gpu
