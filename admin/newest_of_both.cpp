#include "admin/newest_of_both.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "storage/open_storage.h"
#include "storage/root/run_claims.h"

namespace shoal::admin {

namespace {

constexpr const char* kNextRunJobId = "shoal launch";

Result<std::optional<AttemptKey>> newest_of(const OpenRoot& root) {
  AttemptChoice newest;
  newest.newest_only = true;
  SHOAL_ASSIGN_OR_RETURN(const std::vector<storage::AttemptView> views, choose_attempts(root, newest));
  const storage::AttemptView* view = newest_checkpoint(views);
  return view == nullptr ? std::nullopt : std::optional<AttemptKey>(view->key);
}

// A copy keeps the nonce of the claim of its run (CheckpointCopier). So two roots that both have a claim of a
// generation show by it whether they mean one run.
std::optional<Nonce> run_of(const std::vector<storage::GenerationRecord>& claims, uint32_t generation,
                            bool counts_launcher) {
  const auto found = std::ranges::find(claims, generation, &storage::GenerationRecord::generation);
  if (found == claims.end() || (!counts_launcher && found->job_id == kNextRunJobId)) return std::nullopt;
  return found->nonce;
}

Status not_one_line(const OpenRoot& fast, const std::optional<AttemptKey>& of_fast, const OpenRoot& other,
                    const AttemptKey& newest) {
  return Status(
      Code::refused,
      fmt::format(
          "{0} and {1} have gone on without each other: run {2} of {1}, which has {3}, is another one "
          "than run {2} of {0}, which has {4}. To go on from {1}, drain to it from a new folder; to go "
          "on from {0}, drain to a new folder or prefix",
          fast.storage->describe(), other.storage->describe(), newest.generation, to_string(newest),
          of_fast ? to_string(*of_fast) : "no checkpoint"));
}

}  // namespace

Result<OpenRoot> open_maybe_root(const std::string& path) {
  OpenRoot root;
  SHOAL_ASSIGN_OR_RETURN(storage::OpenedStorage opened, storage::open_storage(path, random_128()));
  root.file_system = std::move(opened.disk);
  root.storage = std::move(opened.storage);
  auto id = storage::open_root(*root.storage, false, RootId{});
  if (id.status().code() == Code::not_found) return root;
  SHOAL_ASSIGN_OR_RETURN(root.id, std::move(id));
  return root;
}

Result<NewestOfBoth> compare_newest(const OpenRoot& fast, const OpenRoot& other) {
  NewestOfBoth out;
  SHOAL_ASSIGN_OR_RETURN(out.newest, newest_of(other));
  SHOAL_ASSIGN_OR_RETURN(const auto of_fast, newest_of(fast));
  out.is_newer = out.newest && (!of_fast || *out.newest > *of_fast);
  SHOAL_ASSIGN_OR_RETURN(const auto claims_of_other, storage::list_generations(*other.storage));
  SHOAL_ASSIGN_OR_RETURN(const auto claims, storage::list_generations(*fast.storage));
  if (out.newest) {
    // The launcher claims a number in the fast root only before it copies back a newer checkpoint.
    const auto here = run_of(claims, out.newest->generation, !out.is_newer);
    const auto there = run_of(claims_of_other, out.newest->generation, true);
    if (here && there && *here != *there) out.is_one_line = not_one_line(fast, of_fast, other, *out.newest);
  }
  uint32_t highest_of_other = claims_of_other.empty() ? 0 : claims_of_other.back().generation;
  if (out.newest) highest_of_other = std::max(highest_of_other, out.newest->generation);
  const uint32_t highest = claims.empty() ? 0 : claims.back().generation;
  const bool takes_copies =
      !out.is_newer || storage::check_for_copies(*fast.storage, claims, out.newest->generation).ok();
  if (highest_of_other > highest || !takes_copies) {
    out.generation_to_claim = std::max(highest, highest_of_other) + 1;
  }
  return out;
}

Status claim_for_next_run(const OpenRoot& fast, uint32_t generation) {
  const storage::GenerationRecord claim{generation, kNextRunJobId, random_128()};
  return storage::restore_claims(*fast.storage, {fast.id, claim, std::nullopt}).status();
}

}  // namespace shoal::admin
