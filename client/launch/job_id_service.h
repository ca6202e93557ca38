// How ranks come to one job id that is new, where no launcher has one to say: under torchrun the run's id
// stays the same over restarts, and its restart count does when hosts come and go. Rank 0's process makes a
// random one and tells it for as long as it lives. torchrun ends every worker of a rendezvous before it
// starts the next one's, so that whoever asks hears of its own.
//
// On several hosts strangers may come to that port: rank 0 answers those who prove that they know the job's
// token, and listens at the address by which the others know its host.
#pragma once

#include <chrono>
#include <string>

#include "shoal/checkpointer.h"
#include "shoal/status.h"

namespace shoal::client {

inline constexpr size_t kMaxRunBytes = 256;
inline constexpr size_t kMaxJobIdTextBytes = 512;

// Rank 0: its process's id, told from now on. Others: asks until `deadline`. Code::unavailable names the
// address and the last cause, also where rank 0 has another token; Code::refused: rank 0 there is of another
// run, or of another world size; Code::invalid_argument: there are several hosts and no token.
Result<std::string> agree_on_job_id(const CheckpointerOptions& options,
                                    std::chrono::steady_clock::time_point deadline);

}  // namespace shoal::client
