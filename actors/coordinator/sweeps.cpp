#include "actors/coordinator/sweeps.h"

#include "base/rare_path.h"

namespace shoal::actors {

void Sweeps::sweep(const AttemptKey& key, EffectWriter& out) {
  if (auto [running, fresh] = running_.try_emplace(key, false); !fresh) {
    base::rare_path<"coordinator: a sweep is requested while it runs">();
    running->second = true;
    return;
  }
  operations_.start(
      operation::SweepAttempt{key}, out, [this, key](TimeNs, Result<uint64_t> bytes, EffectWriter& then_out) {
        if (!bytes.ok()) {
          then_out.warning("cannot sweep " + to_string(key) + ": " + bytes.status().to_string());
        } else if (*bytes != 0) {
          then_out.info("the sweep of " + to_string(key) + " freed " + human_bytes(*bytes));
        }
        auto swept = running_.find(key);
        const bool once_more = swept->second;
        running_.erase(swept);
        if (once_more) sweep(key, then_out);
      });
}

void Sweeps::sweep_later(TimeNs now, const AttemptKey& key, EffectWriter& out) {
  if (late_ >= kMaxLateSweeps) return;
  ++late_;
  timers_.set(now + config_.timeouts.node_deadline_ms * kMillisecond, out,
              [this, key](TimeNs, EffectWriter& then_out) {
                --late_;
                base::rare_path<"coordinator: sweeps an attempt again">();
                sweep(key, then_out);
              });
}

}  // namespace shoal::actors
