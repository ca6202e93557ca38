#include "sim/failures/failure_injector.h"

#include <memory>
#include <set>
#include <utility>

namespace shoal::sim {

namespace {

// Interval at which clients without a node look for one.
constexpr actors::TimeNs kLookAgainNs = 1000 * actors::kMillisecond;
// The text of a launcher about a trainer that it killed.
constexpr const char* kHowItEnded = "signal 9 (Killed)";

}  // namespace

// Its scheduled actions keep it alive.
class FailureInjector::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(EventHeap& events, VirtualCluster& cluster, CountedTrainers& trainers)
      : events_(events), cluster_(cluster), trainers_(trainers) {}

  void begin(const Failure& failure) {
    switch (failure.kind) {
      case Failure::Kind::ends:
        if (failure.rank >= trainers_.ranks()) return;
        return trainers_.lose_rank(static_cast<Rank>(failure.rank), kHowItEnded);
      case Failure::Kind::vanishes:
        if (failure.rank >= trainers_.ranks()) return;
        return trainers_.lose_rank(static_cast<Rank>(failure.rank), "");
      case Failure::Kind::reconnects:
        if (failure.rank >= trainers_.ranks()) return;
        return trainers_.reconnect(static_cast<Rank>(failure.rank),
                                   static_cast<actors::TimeNs>(failure.for_ms) * actors::kMillisecond);
      case Failure::Kind::reopens:
        if (failure.rank >= trainers_.ranks()) return;
        return trainers_.reopen(static_cast<Rank>(failure.rank),
                                static_cast<actors::TimeNs>(failure.for_ms) * actors::kMillisecond);
      case Failure::Kind::twins:
        if (failure.rank >= trainers_.ranks() || failure.host >= cluster_.nodes()) return;
        return trainers_.attach_twin(static_cast<Rank>(failure.rank), failure.host,
                                     static_cast<actors::TimeNs>(failure.for_ms) * actors::kMillisecond);
      case Failure::Kind::flips:
        if (failure.rank < trainers_.ranks()) trainers_.flip(static_cast<Rank>(failure.rank));
        return;
      case Failure::Kind::dies:
      case Failure::Kind::stalls:
      case Failure::Kind::restarts:
      case Failure::Kind::stops:
      case Failure::Kind::coordinates:
        for (size_t host = 0; host < cluster_.nodes(); ++host) {
          if (is_of(failure, host)) begin_on(host, failure);
        }
        return;
      case Failure::Kind::sweeps:
        if (failure.host < cluster_.nodes()) cluster_.sweep_attempts(failure.host);
        return;
      case Failure::Kind::pins:
      case Failure::Kind::tags:
        return mark(failure);
      case Failure::Kind::removes:
        return cluster_.remove_checkpoint(failure.behind);
      case Failure::Kind::collects:
        return cluster_.collect_garbage(static_cast<uint32_t>(failure.keep));
      case Failure::Kind::rots:
        return rot(failure);
      case Failure::Kind::job_restarts:
        return;  // end_run
      default:
        return cluster_.begin_hazard(failure);
    }
  }

  void end_run(const Failure& restart) {
    has_ended_ = true;
    for (size_t host = 0; host < cluster_.nodes(); ++host) {
      const bool dies = is_of(restart, host) || down_.contains(host) || !cluster_.alive(host);
      if (!dies || !dark_.insert(host).second) continue;
      cluster_.kill(host);
      trainers_.lose_host(host);
    }
  }

 private:
  static bool is_of(const Failure& failure, size_t host) {
    return failure.hosts == 0 || (host >= failure.host && host < failure.host + failure.hosts);
  }

  void mark(const Failure& failure) {
    const auto kind = failure.kind == Failure::Kind::pins ? storage::MarkKind::pin : storage::MarkKind::tag;
    const auto name = cluster_.mark_checkpoint(kind, failure.behind);
    if (!name || failure.for_ms == 0) return;
    later(failure.for_ms, [self = shared_from_this(), kind, name] { self->cluster_.unmark(kind, *name); });
  }

  // A node that has not read the decision of its save yet would report that it cannot.
  void rot(const Failure& failure) {
    const auto is_read = [this](const AttemptKey& key) {
      const auto& saves = trainers_.times();
      if (key.step > saves.size()) return true;
      const std::vector<actors::TimeNs>& notified = saves[key.step - 1].committed;
      for (Rank rank = 0; rank < notified.size(); ++rank) {
        if (notified[rank] < 0 && trainers_.alive(rank)) return false;
      }
      return true;
    };
    cluster_.rot(failure.behind, failure.part, failure.permille, is_read);
  }

  void begin_on(size_t host, const Failure& failure) {
    if (failure.kind == Failure::Kind::dies) {
      dark_.insert(host);
      cluster_.kill(host);
      trainers_.lose_host(host);
      if (failure.back_after_ms == 0) return;
      return later(failure.back_after_ms, [self = shared_from_this(), host] {
        self->dark_.erase(host);
        self->start(host, false);
      });
    }
    if (dark_.contains(host)) return;
    if (failure.kind == Failure::Kind::stalls) {
      cluster_.stall(host, static_cast<actors::TimeNs>(failure.for_ms) * actors::kMillisecond);
    } else if (failure.kind == Failure::Kind::restarts) {
      cluster_.crash(host);
      fails_now(host);
      later(failure.for_ms, [self = shared_from_this(), host] { self->start(host, false); });
    } else if (failure.kind == Failure::Kind::stops) {
      cluster_.stop(host, trainers_.has_living(host),
                    [self = shared_from_this(), host, for_ms = failure.for_ms] {
                      self->fails_now(host);
                      self->later(for_ms, [self, host] { self->start(host, false); });
                    });
    } else {
      fails_now(host);
      start(host, true);
    }
  }

  // Clients look for the next node, and report an error if there is none.
  void fails_now(size_t host) {
    if (down_.insert(host).second) look_for_node(host);
  }
  void look_for_node(size_t host) {
    events_.schedule(events_.now() + kLookAgainNs, [self = shared_from_this(), host] {
      if (!self->down_.contains(host)) return;
      self->trainers_.give_up(host);
      self->look_for_node(host);
    });
  }

  void start(size_t host, bool coordinates) {
    if (dark_.contains(host) || has_ended_) return;
    if (!coordinates && cluster_.alive(host)) return;  // another failure has already started a node
    cluster_.start_again(host, coordinates, [self = shared_from_this(), host] {
      self->down_.erase(host);
      self->trainers_.trainers_return(host);
    });
  }

  void later(uint64_t ms, std::function<void()> action) {
    events_.schedule(events_.now() + static_cast<actors::TimeNs>(ms) * actors::kMillisecond,
                     std::move(action));
  }

  EventHeap& events_;
  VirtualCluster& cluster_;
  CountedTrainers& trainers_;
  std::set<size_t> dark_;  // hosts without power
  bool has_ended_ = false;
  std::set<size_t> down_;  // hosts whose node has ended and is not replaced yet
};

FailureInjector::FailureInjector(EventHeap& events, VirtualCluster& cluster, CountedTrainers& trainers)
    : impl_(std::make_shared<Impl>(events, cluster, trainers)) {}

void FailureInjector::begin(const Failure& failure) {
  impl_->begin(failure);
}

void FailureInjector::end_run(const Failure& restart) {
  impl_->end_run(restart);
}

}  // namespace shoal::sim
