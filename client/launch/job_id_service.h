// How ranks agree on a new job id if the launcher provides none. torchrun keeps its run id over restarts, and
// keeps its restart count when hosts join or leave. Rank 0's process therefore makes a random id and serves
// it as long as it lives. torchrun ends all workers of a rendezvous before it starts those of the next, so
// that a rank gets the id of its own run.
//
// On several hosts any process may connect to that port. Rank 0 only answers processes that prove that they
// know the job token. It listens at the address that the other ranks use for its host.
#pragma once

#include <chrono>
#include <string>

#include "shoal/checkpointer.h"
#include "shoal/status.h"

namespace shoal::client {

inline constexpr size_t kMaxRunBytes = 256;
inline constexpr size_t kMaxJobIdTextBytes = 512;

// Rank 0 returns the id of its process and serves it from now on: on one host at an address for each root,
// and at all of them the same id. Other ranks request it until `deadline`. Code::unavailable names the
// address and the last cause; a different token is such a cause. Code::refused: that rank 0 has another run
// or world size. Code::invalid_argument: there are several hosts and no token.
Result<std::string> agree_on_job_id(const CheckpointerOptions& options,
                                    std::chrono::steady_clock::time_point deadline);

}  // namespace shoal::client
