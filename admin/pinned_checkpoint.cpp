#include "admin/pinned_checkpoint.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::admin {

namespace {

Result<storage::AttemptView> newest_chosen(const OpenRoot& root, AttemptChoice choice) {
  choice.newest_only = true;
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> views, choose_attempts(root, choice));
  std::erase_if(views,
                [](const storage::AttemptView& view) { return !view.committed() && view.damage.ok(); });
  if (views.empty()) {
    return Status(Code::not_found, fmt::format("root {} has no such checkpoint", root.storage->describe()));
  }
  if (!views.back().damage.ok()) return views.back().damage;
  return views.back();
}

}  // namespace

// Retention may delete the checkpoint before it is pinned: then this chooses again.
Result<PinnedCheckpoint> pin_checkpoint(const OpenRoot& root, const AttemptChoice& choice,
                                        const std::string& holder) {
  constexpr int kTries = 10;
  for (int i = 0;; ++i) {
    SHOAL_ASSIGN_OR_RETURN(storage::AttemptView view, newest_chosen(root, choice));
    auto pin = PinLease::take(*root.storage, view.key, holder);
    if (!pin.ok()) return PinnedCheckpoint{std::move(view), nullptr, pin.status()};
    SHOAL_ASSIGN_OR_RETURN(storage::AttemptView again, newest_chosen(root, choice));
    if (again.key == view.key || i == kTries) {
      return PinnedCheckpoint{std::move(again), std::move(*pin), ok_status()};
    }
  }
}

}  // namespace shoal::admin
