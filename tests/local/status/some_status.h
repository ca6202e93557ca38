// A NodeStatus in which no field has its default, so that one that is forgotten on the way differs.
#pragma once

#include "local/status/job_status.h"
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

inline HostStatus some_host_status() {
  return {.host = "b",
          .pid = 78,
          .state = HostState::lost,
          .answered_ms_ago = 900,
          .coordinates = true,
          .is_stopping = true,
          .uptime_ms = 6000,
          .restarts = 2,
          .ranks = {2, 3},
          .ranks_count = 2,
          .stopped_ranks = {3},
          .saves = some_status().saves,
          .saves_count = 1,
          .last_commit = some_status().last_commit,
          .slow_calls = {{"fsync of /root/step-00000001", 7000}},
          .last_error = ErrorStatus{5000, "step 800 (g3a1) aborted"},
          .bytes_staged = 24,
          .bytes_written = 25,
          .bytes_read = 12,
          .saves_committed = 22,
          .saves_aborted = 23};
}

inline JobStatus some_job_status() {
  return {.world_size = 4,
          .gathered_ms_ago = 20,
          .hosts = {some_host_status()},
          .hosts_count = 1,
          .hosts_silent = 1,
          .hosts_lost = 1,
          .saves = {{.save = some_status().saves[0],
                     .waits = {{.host = "b",
                                .reason = WaitReason::deciding,
                                .ranks = {3},
                                .ranks_count = 1,
                                .detail = "the trainer of rank 3 is stopped"}},
                     .waits_count = 1}},
          .saves_count = 1,
          .last_commit = some_status().last_commit,
          .incomplete = "the coordinator is not connected"};
}

}  // namespace shoal::local
