#include "actors/loader/window_budget.h"

#include <algorithm>

namespace shoal::actors {

namespace {

uint64_t whole_blocks(uint64_t bytes) {
  return bytes / base::kDigestBlockBytes * base::kDigestBlockBytes;
}

// `more` * `rest` / `all`, computed in digest blocks so that the product does not overflow.
uint64_t assignment_of(uint64_t more, uint64_t rest, uint64_t all) {
  const uint64_t blocks = all / base::kDigestBlockBytes;
  if (blocks == 0) return 0;
  return (more / base::kDigestBlockBytes) * (rest / base::kDigestBlockBytes) / blocks *
         base::kDigestBlockBytes;
}

}  // namespace

WindowParts window_parts(uint64_t window_bytes) {
  const uint64_t blocks = window_bytes / base::kDigestBlockBytes;
  SHOAL_CHECK(blocks > 0);
  const uint64_t count = std::min<uint64_t>(kWindowParts, blocks);
  return {static_cast<uint32_t>(count), blocks / count * base::kDigestBlockBytes};
}

uint64_t WindowBudget::promised() const {
  uint64_t bytes = 0;
  for (const auto& [id, held] : windows_) bytes += held.bytes;
  for (const auto& [ticket, held] : buffers_) bytes += held;
  return bytes;
}

bool WindowBudget::fits(const Ask& ask) const {
  uint64_t least = ask.buffer_least;
  for (const Window& window : ask.windows) least += window.least;
  return least <= bytes_;
}

WindowBudget::Ticket WindowBudget::ask(Ask ask) {
  SHOAL_CHECK(fits(ask));
  for (Window& window : ask.windows) {
    SHOAL_CHECK(window.least >= kLeastWindowBytes && window.least <= window.wanted);
    window.wanted = whole_blocks(window.wanted);
    window.least = whole_blocks(window.least);
  }
  line_.push_back({++last_ticket_, std::move(ask)});
  return last_ticket_;
}

void WindowBudget::withdraw(Ticket ticket) {
  line_.remove_if([ticket](const Waiting& waiting) { return waiting.ticket == ticket; });
}

uint64_t WindowBudget::kept_of(const WindowId& id) const {
  const auto found = windows_.find(id);
  return found == windows_.end() ? 0 : found->second.bytes;
}

std::optional<WindowBudget::Grant> WindowBudget::next() {
  if (line_.empty()) return std::nullopt;
  const Ask& ask = line_.front().ask;
  uint64_t least = ask.buffer_least, wanted = ask.buffer_wanted;  // in addition to what the windows have kept
  bool keeps_more = false;                                        // than its minimum
  for (const Window& window : ask.windows) {
    const uint64_t kept = kept_of(window.id);
    least += std::max(window.least, kept) - kept;
    wanted += std::max(window.wanted, kept) - kept;
    keeps_more = keeps_more || kept > window.least;
  }
  const uint64_t promised_before = promised();
  SHOAL_CHECK(promised_before <= bytes_);
  const uint64_t free = bytes_ - promised_before;
  if (free < wanted) release_unused(wanted - free, true);
  if (free < least && keeps_more) release_unused(least - free, false);
  const bool is_releasing = std::any_of(windows_.begin(), windows_.end(),
                                        [](const auto& each) { return each.second.is_releasing; });
  if (is_releasing || free < least) return std::nullopt;

  const uint64_t rest = std::min(free, wanted) - least;
  Grant grant{line_.front().ticket, {}, ask.buffer_least};
  grant.buffer += rest == wanted - least
                      ? ask.buffer_wanted - ask.buffer_least
                      : assignment_of(ask.buffer_wanted - ask.buffer_least, rest, wanted - least);
  for (const Window& window : ask.windows) {
    const uint64_t kept = kept_of(window.id), base = std::max(window.least, kept);
    const uint64_t more = std::max(window.wanted, base) - base;
    grant.windows.push_back(base +
                            (rest == wanted - least ? more : assignment_of(more, rest, wanted - least)));
  }
  for (size_t i = 0; i < ask.windows.size(); ++i) {
    HeldWindow& held = windows_[ask.windows[i].id];
    SHOAL_CHECK(!held.is_used);
    held.bytes = grant.windows[i];
    held.is_used = true;
  }
  if (grant.buffer != 0) buffers_[grant.ticket] = grant.buffer;
  SHOAL_CHECK(promised() <= bytes_);
  line_.pop_front();
  return grant;
}

// Releases the windows first that have been unused for longest.
void WindowBudget::release_unused(uint64_t lacking, bool spares_own) {
  const std::vector<Window>& own = line_.front().ask.windows;
  std::vector<std::map<WindowId, HeldWindow>::iterator> unused;
  for (auto each = windows_.begin(); each != windows_.end(); ++each) {
    if (each->second.is_releasing) lacking -= std::min(lacking, each->second.bytes);
    if (each->second.is_used || each->second.is_releasing) continue;
    const bool is_own =
        std::any_of(own.begin(), own.end(), [&](const Window& window) { return window.id == each->first; });
    if (!is_own || !spares_own) unused.push_back(each);
  }
  std::sort(unused.begin(), unused.end(),
            [](const auto& a, const auto& b) { return a->second.since < b->second.since; });
  for (const auto& each : unused) {
    if (lacking == 0) return;
    lacking -= std::min(lacking, each->second.bytes);
    each->second.is_releasing = true;
    to_release_.push_back(each->first);
  }
}

std::vector<WindowBudget::WindowId> WindowBudget::to_release() {
  return std::exchange(to_release_, {});
}

void WindowBudget::released(const WindowId& id) {
  const auto found = windows_.find(id);
  if (found != windows_.end() && found->second.is_releasing) windows_.erase(found);
}

void WindowBudget::end_window(const WindowId& id) {
  const auto found = windows_.find(id);
  if (found == windows_.end()) return;
  found->second.is_used = false;
  found->second.since = ++ended_;
}

void WindowBudget::replace_window(const WindowId& id) {
  const auto found = windows_.find(id);
  if (found != windows_.end() && !found->second.is_used && !found->second.is_releasing) windows_.erase(found);
}

void WindowBudget::forget_client(ClientId client) {
  windows_.erase(windows_.lower_bound({client, 0}), windows_.lower_bound({client + 1, 0}));
}

void WindowBudget::shrink_buffer(Ticket ticket, uint64_t bytes) {
  const auto found = buffers_.find(ticket);
  if (found == buffers_.end()) return;
  found->second = std::min(found->second, bytes);
  if (bytes == 0) buffers_.erase(found);
}

}  // namespace shoal::actors
