#include "storage/retention/unfinished_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "storage/decisions/decision.h"
#include "storage/retention/marks.h"
#include "storage/root/attempt_listing_internal.h"
#include "storage/root/attempt_marks.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

namespace {

bool has_object(const std::vector<ObjectInfo>& listed, std::string_view name) {
  return std::ranges::any_of(listed, [&](const ObjectInfo& object) { return object.name == name; });
}

Result<std::vector<Mark>> readable_pins(Storage& storage) {
  SHOAL_ASSIGN_OR_RETURN(MarkList pins, list_marks(storage, MarkKind::pin));
  if (!pins.damaged.empty()) return pins.damaged.front().second;
  return std::move(pins.marks);
}

constexpr uint64_t kMostMarkBytes = 1024;  // the mark is a hash, or kRemovedCopyText

bool is_leased(const std::vector<Mark>& pins, const AttemptKey& key) {
  return std::ranges::any_of(pins, [&](const Mark& pin) { return pin.key == key; });
}

}  // namespace

Result<std::vector<UnfinishedCopy>> list_unfinished_copies(Storage& storage) {
  std::vector<UnfinishedCopy> out;
  if (storage.moves_folders() || !storage.lists_trees()) return out;
  SHOAL_ASSIGN_OR_RETURN(const ListedAttempts listed, list_tree_of_attempts(storage, TreeDepth::objects));
  for (const auto& [key, files] : listed.files) {
    if (!has_object(files, kCopyMarkName) || has_object(files, kDecisionName)) continue;
    UnfinishedCopy copy{key};
    for (const ObjectInfo& file : files) {
      copy.files += file.name != kCopyMarkName;
      copy.bytes += file.size;
    }
    out.push_back(copy);
  }
  if (out.empty()) return out;
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Mark> pins, readable_pins(storage));
  for (UnfinishedCopy& copy : out) copy.is_leased = is_leased(pins, copy.key);
  std::ranges::sort(out, {}, &UnfinishedCopy::key);
  return out;
}

// A copy pins the attempt and then reads the mark. This changes the mark and then reads the pins. So one of
// the two sees the other. If this sees a pin, it writes the mark again as it was, so that the copy can go on.
Result<uint64_t> remove_unfinished_copy(Storage& storage, const AttemptKey& key) {
  const std::string folder = attempt_folder(key), described = storage.describe() + "/" + folder;
  const auto check_unpinned = [&]() -> Status {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<Mark> pins, readable_pins(storage));
    if (!is_leased(pins, key)) return ok_status();
    return Status(Code::busy, described + ": a copy of it runs, or ended less than a lease ago");
  };
  const auto why_not = [&](const std::vector<ObjectInfo>& objects) {
    if (has_object(objects, kDecisionName))
      return Status(Code::busy, described + ": it was completed meanwhile");
    if (has_object(objects, kCopyMarkName)) return ok_status();
    return Status(Code::not_found, described + " is no unfinished copy");
  };
  SHOAL_RETURN_IF_ERROR(check_unpinned());
  SHOAL_ASSIGN_OR_RETURN(std::vector<ObjectInfo> listed, storage.list(folder));
  SHOAL_RETURN_IF_ERROR(why_not(listed));
  uint64_t bytes = 0;
  for (const ObjectInfo& object : listed) bytes += object.name == kCopyMarkName ? object.size : 0;
  const std::string mark = folder + "/" + std::string(kCopyMarkName);
  SHOAL_ASSIGN_OR_RETURN(const Bytes before, storage.read(mark, kMostMarkBytes));
  SHOAL_RETURN_IF_ERROR(storage.replace(mark, as_view(kRemovedCopyText)));
  if (Status unpinned = check_unpinned(); !unpinned.ok()) {
    if (unpinned.code() == Code::busy) SHOAL_RETURN_IF_ERROR(storage.replace(mark, before));
    return unpinned;
  }
  SHOAL_ASSIGN_OR_RETURN(listed, storage.list(folder));
  SHOAL_RETURN_IF_ERROR(why_not(listed));
  for (const ObjectInfo& object : listed) {
    if (object.name == kCopyMarkName) continue;
    bytes += object.size;
    SHOAL_RETURN_IF_ERROR(storage.remove(folder + "/" + object.name));
  }
  // What a copy that runs after all has written meanwhile stays visible by the mark.
  SHOAL_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> left, storage.list(folder));
  SHOAL_RETURN_IF_ERROR(why_not(left));
  if (left.size() > 1) return Status(Code::busy, described + ": a copy of it runs");
  SHOAL_RETURN_IF_ERROR(storage.remove(mark));
  return bytes;
}

}  // namespace shoal::storage
