#include "tests/gpu/kernels/kernel_runner.h"

namespace shoal::gpu {

std::unique_ptr<KernelRunner> make_device_runner(std::string* reason) {
  *reason = "this build has no CUDA";
  return nullptr;
}

}  // namespace shoal::gpu
