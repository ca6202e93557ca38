// Session: the progress of a save, as the status of the node shows it.
#include <algorithm>

#include "client/session/session.h"
#include "local/status/node_query.h"

namespace shoal {

namespace {

constexpr int kAnswerTimeoutMs = 200;

ProgressPhase phase_of(local::SavePhase phase) {
  switch (phase) {
    case local::SavePhase::staging:
    case local::SavePhase::planning:
      return ProgressPhase::staging;
    case local::SavePhase::writing:
      return ProgressPhase::writing;
    case local::SavePhase::waiting:
    case local::SavePhase::committing:
      return ProgressPhase::committing;
  }
  return ProgressPhase::writing;
}

}  // namespace

std::optional<Progress> client::Session::save_progress() const {
  Progress out;
  {
    std::lock_guard lock(mutex_);
    const auto oldest = std::find_if(undecided_.begin(), undecided_.end(),
                                     [](const auto& each) { return each.second.save != nullptr; });
    if (oldest == undecided_.end()) return std::nullopt;
    const Record& record = oldest->second;
    out.key = record.save->key;
    out.bytes_total = record.save->stats.bytes_staged;
    if (std::holds_alternative<Copying>(record.offer)) return out;
    const bool is_written = std::holds_alternative<local::Written>(record.offer);
    out.phase = is_written ? ProgressPhase::committing : ProgressPhase::writing;
    out.bytes_done = is_written ? out.bytes_total : 0;
  }
  const auto status = local::ask_node(finder_.socket_file(), kAnswerTimeoutMs);
  if (!status.ok()) return out;
  for (const local::SaveStatus& save : status->saves) {
    if (save.key != out.key) continue;
    out.phase = phase_of(save.phase);
    out.bytes_total = std::max(save.bytes_to_write, save.bytes_staged);
    out.bytes_done = std::min(save.bytes_written, out.bytes_total);
  }
  return out;
}

}  // namespace shoal
