// A NodeStatus in which no field has its default, so that one that is forgotten on the way differs.
#pragma once

#include "local/status/node_status.h"

namespace shoal::local {

inline NodeStatus some_status() {
  return {.version = "1.2.3",
          .host = "a",
          .pid = 77,
          .root = "/root",
          .root_id = "0123",
          .job_id = "job",
          .generation = 3,
          .epoch = 5,
          .coordinates = true,
          .coordinator = "a:7100",
          .world_size = 4,
          .uptime_ms = 6000,
          .is_stopping = true,
          .read_only = true,
          .ranks = {0, 1},
          .trainers = {{0, 4711, true}, {1, 4712, false}},
          .peers = {{"b:78", true}},
          .peers_count = 1,
          .saves = {{.key = {3, 1000, 2},
                     .phase = SavePhase::waiting,
                     .age_ms = 700,
                     .ranks_here = 9,
                     .ranks_staged = 8,
                     .ranks_written = 7,
                     .bytes_staged = uint64_t{1} << 40,
                     .bytes_to_write = 20,
                     .bytes_written = 19,
                     .ranks_reported = 6,
                     .bytes_reported = 18,
                     .awaited = {2, 3},
                     .awaited_count = 2,
                     .trouble = "rank 3: its trainer ended"}},
          .saves_count = 1,
          .last_commit = CommitStatus{{3, 900, 1}, 1'700'000'000'000'000'000, 1500, 99, Rank{3}},
          .errors = {{5000, "step 800 (g3a1) aborted"}},
          .slow_calls = {{"fsync of /root/step-00000001", 7000}},
          .counts = {.saves_begun = 21,
                     .saves_committed = 22,
                     .saves_aborted = 23,
                     .bytes_staged = 24,
                     .bytes_written = 25,
                     .bytes_read = 12,
                     .loads_begun = 26,
                     .loads_done = 27,
                     .loads_failed = 1,
                     .bytes_to_peers = 13,
                     .bytes_from_peers = 14}};
}

}  // namespace shoal::local
