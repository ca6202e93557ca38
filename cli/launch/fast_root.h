// What `shoal launch --drain-to` does before it starts a node, and `shoal drain --copy-back` by itself: the
// fast root gets the newest checkpoint of the other root, if that is newer than all of its own, so that
// `latest` is the latest of both.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "shoal/bytes.h"
#include "shoal/metadata.h"
#include "shoal/status.h"

namespace shoal::cli {

struct FastRoot {
  std::string root, other;
  std::string job_id;
  Bytes token;             // of the job
  bool create = false;     // make `other`
  bool take_over = false;  // a live job of the fast root is no hindrance
};

// On the coordinator's host. Returns what it has copied back. The folder `root` must exist. Code::refused:
// another job uses the fast root.
Result<std::optional<AttemptKey>> prepare_fast_root(const FastRoot& fast_root);
// On every other host: waits until the coordinator's host has done so. Code::deadline_exceeded if nothing
// happens there for `patience`.
Status wait_for_fast_root(const FastRoot& fast_root, std::chrono::milliseconds patience);

}  // namespace shoal::cli
