#include "admin/newest_of_both.h"

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
