#include "gpu/build_info.h"

namespace shoal::gpu {

bool built_with_cuda() {
  return SHOAL_WITH_CUDA != 0;
}

std::string_view cuda_build() {
  return SHOAL_CUDA_BUILD;
}

}  // namespace shoal::gpu
