#include "client/staging/memory_budget.h"

#include <fmt/format.h>

#include "shoal/bytes.h"

namespace shoal::client {

Status check_budget(uint64_t wanted, uint64_t held, uint64_t staging_bytes_max,
                    const base::MemoryFiles& files) {
  if (staging_bytes_max != 0) {
    if (held <= staging_bytes_max && wanted <= staging_bytes_max - held) return ok_status();
    return Status(Code::no_space,
                  fmt::format("staging needs {} more while it holds {}, and staging_bytes_max is {}",
                              human_bytes(wanted), human_bytes(held), human_bytes(staging_bytes_max)));
  }
  const base::MemoryHeadroom headroom = base::memory_headroom(files);
  if (wanted <= headroom.bytes) return ok_status();
  return Status(Code::no_space, fmt::format("staging needs {} more while it holds {}, and {} are free: {}",
                                            human_bytes(wanted), human_bytes(held),
                                            human_bytes(headroom.bytes), headroom.because));
}

}  // namespace shoal::client
