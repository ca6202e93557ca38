// Takes the place of gpu/cuda/ in a build without CUDA.
#include "gpu/device_stager.h"

namespace shoal::gpu {

Result<std::unique_ptr<DeviceStager>> make_device_stager(const DeviceStagerOptions&) {
  return Status(Code::unavailable,
                "this program was built without CUDA, so it cannot use memory of a device");
}

}  // namespace shoal::gpu
