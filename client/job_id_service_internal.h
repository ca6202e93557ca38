// How ranks come to one job id that is new, where no launcher has one to say: under torchrun the run's id
// stays the same over restarts, and its restart count does when hosts come and go. Rank 0's process makes a
// random one and tells it for as long as it lives. torchrun ends every worker of a rendezvous before it
// starts the next one's, so that whoever asks hears of its own.
#pragma once

#include <chrono>
#include <string>

#include "base/status.h"
#include "client/checkpointer.h"

namespace shoal {

inline constexpr size_t kMaxRunBytes = 256;
inline constexpr size_t kMaxJobIdTextBytes = 512;

// Rank 0: its process's id, told from now on. Others: asks until `deadline`. Code::unavailable names the
// address and the last cause; Code::refused: rank 0 there is of another run, or of another world size.
Result<std::string> agree_on_job_id(const CheckpointerOptions& options,
                                    std::chrono::steady_clock::time_point deadline);

}  // namespace shoal
