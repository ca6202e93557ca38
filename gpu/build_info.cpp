#include "gpu/build_info.h"

namespace shoal::gpu {

std::string_view cuda_build() {
  return SHOAL_CUDA_BUILD;
}

}  // namespace shoal::gpu
