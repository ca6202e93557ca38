// What this build can do with GPUs. Whether the machine has one is another question.
#pragma once

#include <string_view>

namespace shoal::gpu {

std::string_view cuda_build();  // "CUDA 13.0 for sm 80, 90, 100", or "not built in"

}  // namespace shoal::gpu
