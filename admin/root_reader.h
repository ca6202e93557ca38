// What ls, show and verify read of a root: from its files, never from a catalog, and nothing is written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shoal/status.h"
#include "storage/decisions/decision.h"
#include "storage/files/local_storage.h"
#include "storage/files/posix_file_system.h"
#include "storage/retention/marks.h"
#include "storage/root/attempt_views.h"
#include "storage/root/run_root.h"

namespace shoal::admin {

struct OpenRoot {
  std::unique_ptr<storage::PosixFileSystem> file_system;
  std::unique_ptr<storage::LocalStorage> storage;
  RootId id;
};
// Code::not_found where the folder is missing or holds no run.
Result<OpenRoot> open_root_for_reading(const std::string& path);

// Which attempts a command is about.
struct AttemptChoice {
  std::optional<uint64_t> step;
  std::string attempt;       // "g3a1"; empty: any
  std::string tag;           // given in the place of a step; empty: none
  bool newest_only = false;  // without step and tag: the newest checkpoint, and what stands above it

  bool names_one() const { return step || !tag.empty(); }
};
// `text` is a step, a number from 0 to 2^64 - 1, or a tag. Code::invalid_argument: it is neither.
Status choose_step(const std::string& text, AttemptChoice* choice);
// Code::invalid_argument for an attempt without a step, or one that is no name of an attempt.
Status validate_choice(const AttemptChoice& choice);
// Those that match, ascending; Code::not_found names what is not there.
Result<std::vector<storage::AttemptView>> choose_attempts(const OpenRoot& root, const AttemptChoice& choice);
// Merges those of them that nobody has merged, for commands that change what is there.
Status merge_attempts(const OpenRoot& root, const std::vector<storage::AttemptView>& views);

// The newest of them that is a checkpoint, or may be one since its decision does not read back; nullptr
// without either. Where that one is damaged nobody knows which is the latest, and `load latest` refuses.
const storage::AttemptView* newest_checkpoint(const std::vector<storage::AttemptView>& views);
// OK where `newest` is a checkpoint or nullptr; otherwise its damage, and what to do.
Status check_reads_back(const storage::AttemptView* newest);

int64_t unix_time_now_ns();

uint64_t file_bytes_of(const storage::Manifest& manifest);
// "1 file", "2 files"; `things` where that is not thing + "s".
std::string counted(uint64_t count, std::string_view thing, std::string_view things = {});
std::string attempt_name(const AttemptKey& key);  // "g3a1"
std::string utc_time(int64_t unix_time_ns);       // "2026-11-21 04:56:44"; "-" for 0
std::string_view dedupe_name(Dedupe dedupe);

}  // namespace shoal::admin
