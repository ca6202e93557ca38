// What ls, show and verify read of a root. They read its files, never a catalog, and write nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/status.h"
#include "storage/decisions/decision.h"
#include "storage/files/file_system.h"
#include "storage/retention/marks.h"
#include "storage/root/attempt_views.h"
#include "storage/root/run_root.h"
#include "storage/storage.h"

namespace shoal::admin {

struct OpenRoot {
  std::unique_ptr<storage::FileSystem> file_system;  // null for a root in an object store
  std::unique_ptr<storage::Storage> storage;
  RootId id;
};
// Code::not_found if the folder or bucket does not exist or holds no run.
Result<OpenRoot> open_root_for_reading(const std::string& path);

// The attempts to which a command applies.
struct AttemptChoice {
  std::optional<uint64_t> step;
  std::string attempt;       // "g3a1"; empty: any attempt
  std::string tag;           // given instead of a step; empty: none
  bool newest_only = false;  // without step and tag: the newest checkpoint and the attempts above it

  bool names_one() const { return step || !tag.empty(); }
};
// `text` is a step (0 to 2^64 - 1) or a tag; otherwise Code::invalid_argument.
Status choose_step(const std::string& text, AttemptChoice* choice);
// Code::invalid_argument for an attempt without a step, or for a name that is not an attempt's.
Status validate_choice(const AttemptChoice& choice);
// The matching attempts, ascending. Code::not_found names what does not exist.
Result<std::vector<storage::AttemptView>> choose_attempts(const OpenRoot& root, const AttemptChoice& choice);
// Merges the complete but unmerged rank-local saves among them, for commands that change the root.
Status merge_attempts(const OpenRoot& root, const std::vector<storage::AttemptView>& views);

// The newest one that is a checkpoint, or that may be one because its decision cannot be read; nullptr if
// there is none. If that one is damaged, the latest checkpoint is unknown, and `load latest` fails.
const storage::AttemptView* newest_checkpoint(const std::vector<storage::AttemptView>& views);
// OK if `newest` is a checkpoint or nullptr; otherwise its damage, and what to do about it.
Status check_reads_back(const storage::AttemptView* newest);

int64_t unix_time_now_ns();
int64_t monotonic_now_ns();

uint64_t file_bytes_of(const storage::Manifest& manifest);
// "1 file", "2 files"; `things` is the plural if it is not thing + "s".
std::string counted(uint64_t count, std::string_view thing, std::string_view things = {});
std::string attempt_name(const AttemptKey& key);  // "g3a1"
std::string utc_time(int64_t unix_time_ns);       // "2026-11-21 04:56:44"; "-" for 0

}  // namespace shoal::admin
