// Loader: one a node. Chooses a checkpoint, works out what to read of it, and passes verified bytes to the
// clients through their windows. docs/protocol.md, "A load".
#include <algorithm>
#include <map>
#include <set>

#include "actors/attempt_choice.h"
#include "actors/attempt_watch.h"
#include "actors/held_pins.h"
#include "actors/open_checkpoints.h"
#include "actors/read_plan.h"
#include "gpu/digest.h"

namespace shoal {
namespace {

class Loader final : public Role {
 public:
  explicit Loader(const NodeFacts& facts)
      : facts_(facts),
        watch_(operations_, timers_, facts.times.poll_ms * kMillisecond),
        pins_(operations_, timers_, facts_,
              [this](const AttemptKey& key, const Status& why, EffectWriter& out) {
                pin_lost(key, why, out);
              }) {}

  RoleKind kind() const override { return RoleKind::loader; }

  void handle(TimeNs now, const Event& event, Effects& effects) override {
    EffectWriter out(kind(), effects);
    if (const auto* from_client = std::get_if<event::FromClient>(&event)) {
      on_client(now, from_client->client, *from_client->message, out);
    } else if (const auto* done = std::get_if<event::OperationDone>(&event)) {
      operations_.done(now, *done, out);
    } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
      timers_.fired(now, *timer, out);
    } else if (const auto* lost = std::get_if<event::ClientLost>(&event)) {
      slabs_.erase(slabs_.lower_bound({lost->client, 0}), slabs_.lower_bound({lost->client + 1, 0}));
      for (auto load = loads_.lower_bound({lost->client, 0});
           load != loads_.end() && load->first.first == lost->client;) {
        load = end_load(load, out);
      }
      for (const AttemptKey& key : open_.close_all(lost->client)) pins_.release(key, out);
    } else if (std::get_if<event::Drain>(&event)) {
      out.drained();
    }
  }

 private:
  using LoadKey = OpenCheckpoints::RequestKey;
  struct Load {
    local::Load request;
    bool tried_set = false;  // to complete a rank-local save of its step
    uint64_t part_bytes = 0;
    std::optional<AttemptKey> pinned;  // so that nobody deletes it meanwhile
    std::shared_ptr<StoredCheckpoint> stored;
    std::vector<ReadBatchPlan> batches;
    size_t next_batch = 0;
    std::set<uint32_t> reading;          // batches whose bytes are still on their way into the window
    std::map<uint32_t, uint32_t> parts;  // batch being read, or loaded and not yet placed -> its part
    std::vector<uint32_t> free_parts;
    Status failure;  // the first; told once nothing is being read
  };

  void on_client(TimeNs now, ClientId client, const LocalMessage& message, EffectWriter& out) {
    if (const auto* slab = std::get_if<local::Slab>(&message)) {
      slabs_[{client, slab->slab_id}] = slab->bytes;
    } else if (const auto* latest = std::get_if<local::Latest>(&message)) {
      on_latest(client, latest->request_id, true, out);
    } else if (const auto* load = std::get_if<local::Load>(&message)) {
      on_load(now, client, *load, out);
    } else if (const auto* placed = std::get_if<local::Placed>(&message)) {
      on_placed({client, placed->request_id}, placed->batch, out);
    } else if (const auto* closed = std::get_if<local::Close>(&message)) {
      const auto key = open_.close({client, closed->request_id});
      if (key) pins_.release(*key, out);
    }
  }

  // --- which checkpoint ---

  void on_latest(ClientId client, uint32_t request_id, bool completes_sets, EffectWriter& out) {
    operations_.start(operation::ListNewestAttempts{}, out,
                      [=, this](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                        auto list = result_as<AttemptList>(std::move(result));
                        if (!list.ok()) return not_found(client, request_id, list.status(), then_out);
                        auto best = newest(*list);
                        if (!best.ok()) return not_found(client, request_id, best.status(), then_out);
                        if (auto set = newest_set(*list, *best); set && completes_sets) {
                          return operations_.start(
                              operation::CompleteRankLocal{*set}, then_out,
                              [=, this](TimeNs, Result<OperationResult>, EffectWriter& last_out) {
                                on_latest(client, request_id, false, last_out);
                              });
                        }
                        if (!*best) return not_found(client, request_id, no_checkpoint(), then_out);
                        read_metadata(client, request_id, **best, then_out);
                      });
  }

  static Status no_checkpoint() {
    return Status(Code::not_found, "there is no committed checkpoint in this root");
  }

  void not_found(ClientId client, uint32_t request_id, Status why, EffectWriter& out) {
    out.to_client(client, local::Found{request_id, std::move(why), {}});
  }

  void read_metadata(ClientId client, uint32_t request_id, const AttemptKey& key, EffectWriter& out) {
    operations_.start(
        operation::ReadDecision{key}, out,
        [this, client, request_id](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
          auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
          if (!decision.ok()) return not_found(client, request_id, decision.status(), then_out);
          out_found(client, request_id, **decision, then_out);
        });
  }

  static void out_found(ClientId client, uint32_t request_id, const Decision& decision, EffectWriter& out) {
    out.to_client(client, local::Found{request_id, ok_status(), metadata_of(decision)});
  }

  void on_load(TimeNs now, ClientId client, const local::Load& request, EffectWriter& out) {
    const LoadKey id{client, request.request_id};
    auto slab = slabs_.find({client, request.slab_id});
    const bool reads = !request.targets.empty();
    if (reads && (slab == slabs_.end() || slab->second < kMinWindowBytes)) {
      return not_found(
          client, request.request_id,
          Status(Code::invalid_argument,
                 "a load window of at least " + human_bytes(kMinWindowBytes) + " must be given first"),
          out);
    }
    for (auto other = loads_.lower_bound({client, 0}); other != loads_.end() && other->first.first == client;
         ++other) {
      if (other->first == id) return;
      if (!reads || other->second.request.targets.empty()) continue;
      if (other->second.request.slab_id != request.slab_id) continue;
      // Its reads would overwrite what this load has verified.
      return not_found(client, request.request_id,
                       Status(Code::busy, "an earlier load still fills that window"), out);
    }
    auto [found, fresh] = loads_.try_emplace(id);
    SHOAL_CHECK(fresh);
    found->second.request = request;
    if (reads) {
      found->second.part_bytes = slab->second / kWindowParts / kDigestBlockBytes * kDigestBlockBytes;
      for (uint32_t part = kWindowParts; part-- > 0;) found->second.free_parts.push_back(part);
    }
    if (request.of != 0) {
      if (const auto kept = open_.kept({client, request.of})) return hold(now, id, *kept, out);
      return fail(id, Status(Code::unavailable, "this node has no such checkpoint open"), out);
    }
    if (request.keeps_open && open_.is_full(client)) {
      return fail(
          id, Status(Code::busy, std::to_string(kMaxOpenCheckpoints) + " checkpoints are open already"), out);
    }
    if (!request.latest) return choose_step(id, out);
    operations_.start(operation::ReadLoadChoice{facts_.generation, request.ordinal}, out,
                      [this, id](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
                        auto choice = result_as<LoadChoice>(std::move(result));
                        if (choice.ok()) return chosen(then_now, id, *choice, then_out);
                        if (choice.status().code() != Code::not_found)
                          return fail(id, choice.status(), then_out);
                        decide_earlier(then_now, id, then_out);
                      });
  }

  void choose_step(const LoadKey& id, EffectWriter& out) {
    operations_.start(
        operation::ListAttemptsOfStep{loads_.at(id).request.step}, out,
        [this, id](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
          auto found = loads_.find(id);
          if (found == loads_.end()) return;
          const uint64_t step = found->second.request.step;
          auto list = result_as<AttemptList>(std::move(result));
          if (!list.ok()) return fail(id, list.status(), then_out);
          std::optional<AttemptKey> best;
          for (const AttemptInfo& info : list->attempts) {
            if (info.key.step == step && info.state == AttemptInfo::State::committed &&
                (!best || *best < info.key)) {
              best = info.key;
            }
          }
          const std::optional<AttemptKey> set = newest_set(*list, best);
          if (set && !found->second.tried_set) return complete_step(id, *set, best.has_value(), then_out);
          for (const auto& [key, why] : list->damaged) {
            if (key.step == step && !best) return fail(id, why, then_out);
          }
          if (!best) {
            return fail(id,
                        Status(Code::not_found,
                               "step " + std::to_string(step) + " has no committed checkpoint in this root"),
                        then_out);
          }
          hold(now, id, *best, then_out);
        });
  }

  // A complete set counts; of one that is not the error says what is missing, unless there is another.
  void complete_step(const LoadKey& id, const AttemptKey& key, bool has_other, EffectWriter& out) {
    loads_.at(id).tried_set = true;
    operations_.start(operation::CompleteRankLocal{key}, out,
                      [this, id, has_other](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                        if (!loads_.contains(id)) return;
                        if (!result.ok() && !has_other) return fail(id, result.status(), then_out);
                        choose_step(id, then_out);
                      });
  }

  // load(latest): every attempt above the newest committed one is decided first, so that the choice cannot be
  // overtaken by what had begun before it.
  void decide_earlier(TimeNs now, const LoadKey& id, EffectWriter& out) {
    (void)now;
    operations_.start(operation::ListNewestAttempts{}, out,
                      [this, id](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
                        if (!loads_.contains(id)) return;
                        auto list = result_as<AttemptList>(std::move(result));
                        if (!list.ok()) return fail(id, list.status(), then_out);
                        auto best = newest(*list);
                        if (!best.ok()) return fail(id, best.status(), then_out);
                        std::vector<AttemptKey> undecided;
                        for (const AttemptInfo& info : list->attempts) {
                          if (info.state != AttemptInfo::State::undecided) continue;
                          if (!*best || **best < info.key) undecided.push_back(info.key);
                        }
                        if (!undecided.empty()) return await_decisions(then_now, id, undecided, then_out);
                        confirm(then_now, id, *best, decided_from(*list, *best), then_out);
                      });
  }

  // A listing shows decisions that may not last yet. A choice rests on them: each is read again, which syncs
  // it, one after another; if one is not what it was, the load looks again.
  void confirm(TimeNs now, const LoadKey& id, const std::optional<AttemptKey>& best,
               std::vector<AttemptInfo> decided, EffectWriter& out) {
    if (!loads_.contains(id)) return;
    if (decided.empty()) return publish_choice(id, best, out);
    const AttemptInfo last = decided.back();
    decided.pop_back();
    (void)now;
    operations_.start(operation::ReadDecision{last.key}, out,
                      [this, id, best, last, decided = std::move(decided)](
                          TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
                        auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
                        const bool vanished = decision.status().code() == Code::not_found;
                        if (!decision.ok() && !vanished) return fail(id, decision.status(), then_out);
                        if (vanished || state_of(**decision) != last.state)
                          return decide_earlier(then_now, id, then_out);
                        confirm(then_now, id, best, decided, then_out);
                      });
  }

  // All at once, so that a load waits for the last of them, not for each in turn; then looks again.
  void await_decisions(TimeNs now, const LoadKey& id, const std::vector<AttemptKey>& keys,
                       EffectWriter& out) {
    auto left = std::make_shared<size_t>(keys.size());
    for (const AttemptKey& key : keys) {
      // An attempt of this generation has its own deadlines; one of an earlier generation is abandoned once
      // nobody writes it.
      const uint32_t patience_ms = key.generation < facts_.generation ? facts_.times.abandoned_after_ms
                                                                      : facts_.times.node_deadline_ms;
      watch_.watch(
          now, key, patience_ms * kMillisecond, "left undecided until a later load", out,
          [this, id, left](TimeNs then_now, Result<AttemptInfo::State> state, EffectWriter& then_out) {
            if (!state.ok()) return fail(id, state.status(), then_out);
            if (--*left == 0) decide_earlier(then_now, id, then_out);
          });
    }
  }

  void publish_choice(const LoadKey& id, const std::optional<AttemptKey>& key, EffectWriter& out) {
    LoadChoice choice;
    choice.found = key.has_value();
    if (key) choice.key = *key;
    const uint32_t ordinal = loads_.at(id).request.ordinal;
    operations_.start(operation::PublishLoadChoice{facts_.generation, ordinal, choice}, out,
                      [this, id](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                        auto stands = result_as<LoadChoice>(std::move(result));
                        if (!stands.ok()) return fail(id, stands.status(), then_out);
                        chosen(now, id, *stands, then_out);
                      });
  }

  void chosen(TimeNs now, const LoadKey& id, const LoadChoice& choice, EffectWriter& out) {
    if (!choice.found) return fail(id, no_checkpoint(), out);
    hold(now, id, choice.key, out);
  }

  // The pin stands before the manifest is read: then whoever deletes sees the pin, or we see the tombstone.
  void hold(TimeNs now, const LoadKey& id, const AttemptKey& key, EffectWriter& out) {
    pins_.hold(now, key, out, [this, id, key](TimeNs, const Status& status, EffectWriter& then_out) {
      auto found = loads_.find(id);
      if (found == loads_.end()) {
        if (status.ok()) pins_.release(key, then_out);
        return;
      }
      if (!status.ok()) return fail(id, status.with_context("the checkpoint could not be pinned"), then_out);
      found->second.pinned = key;
      read_decision(id, key, then_out);
    });
  }

  void pin_lost(const AttemptKey& key, const Status& why, EffectWriter& out) {
    std::vector<LoadKey> lost;
    for (auto& [id, load] : loads_) {
      if (load.pinned != key) continue;
      load.pinned.reset();
      lost.push_back(id);
    }
    open_.forget(key);
    for (const LoadKey& id : lost) {
      fail(id,
           Status(Code::unavailable, "this node stood still for so long that its hold on " + to_string(key) +
                                         " has ended; load again (" + why.message() + ")"),
           out);
    }
  }

  std::map<LoadKey, Load>::iterator end_load(std::map<LoadKey, Load>::iterator load, EffectWriter& out) {
    std::optional<AttemptKey> pinned = load->second.pinned;
    auto next = loads_.erase(load);
    if (pinned) pins_.release(*pinned, out);
    return next;
  }

  // --- what to read ---

  void read_decision(const LoadKey& id, const AttemptKey& key, EffectWriter& out) {
    if (auto known = open_.known(key)) return begin(id, std::move(known), out);
    operations_.start(
        operation::ReadDecision{key}, out,
        [this, id, key](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
          auto decision = result_as<std::shared_ptr<const Decision>>(std::move(result));
          if (!decision.ok()) return fail(id, decision.status(), then_out);
          if (!(*decision)->committed()) {
            return fail(
                id, Status(Code::not_found, to_string(key) + " is gone: " + (*decision)->tombstone().cause),
                then_out);
          }
          begin(id, std::make_shared<StoredCheckpoint>(*decision), then_out);
        });
  }

  void begin(const LoadKey& id, std::shared_ptr<StoredCheckpoint> fresh, EffectWriter& out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) return;
    Load& load = found->second;
    load.stored = open_.share(std::move(fresh));
    StoredCheckpoint& stored = *load.stored;
    out.to_client(id.first, found_by(load.request, stored.decision()));
    const Manifest& manifest = stored.manifest();
    if (manifest.rule_version != kRuleVersion) {
      return fail(id,
                  Status(Code::version, to_string(stored.key()) + " was planned by rule version " +
                                            std::to_string(manifest.rule_version) + ", this program knows " +
                                            std::to_string(kRuleVersion)),
                  out);
    }
    if (load.request.targets.empty()) return read_all(id, {}, out);
    if (Status status = compare_targets(stored.locator(), load.request.targets); !status.ok()) {
      return fail(id, status.with_context(to_string(stored.key()) + " does not hold what is asked of it"),
                  out);
    }
    auto plan = plan_reads(stored, load.request.targets);
    if (!plan.ok()) return fail(id, plan.status(), out);
    if (plan->objects.empty()) return read_all(id, std::move(plan->reads), out);
    operation::MeasureObjects measure;
    for (const PlannedObject& object : plan->objects) measure.pieces.push_back(object.piece);
    operations_.start(std::move(measure), out,
                      [this, id, shared = std::make_shared<ReadPlan>(std::move(*plan))](
                          TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                        auto lengths = result_as<std::vector<uint64_t>>(std::move(result));
                        if (!lengths.ok()) return fail(id, lengths.status(), then_out);
                        std::vector<PlannedRead> reads = std::move(shared->reads);
                        for (PlannedRead& read : object_reads(shared->objects, *lengths)) {
                          reads.push_back(std::move(read));
                        }
                        read_all(id, std::move(reads), then_out);
                      });
  }

  // --- reading ---

  void read_all(const LoadKey& id, std::vector<PlannedRead> reads, EffectWriter& out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) return;
    if (!reads.empty()) found->second.batches = make_batches(reads, found->second.part_bytes);
    proceed(id, out);
  }

  void proceed(const LoadKey& id, EffectWriter& out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) return;
    Load& load = found->second;
    if (!load.failure.ok()) return;
    while (load.next_batch < load.batches.size() && !load.free_parts.empty()) {
      const uint32_t batch = static_cast<uint32_t>(load.next_batch++);
      const uint32_t part = load.free_parts.back();
      load.free_parts.pop_back();
      load.parts[batch] = part;
      load.reading.insert(batch);
      operation::ReadBatch read{id.first, load.request.slab_id, {}};
      for (size_t i = 0; i < load.batches[batch].reads.size(); ++i) {
        const PlannedRead& planned = load.batches[batch].reads[i];
        read.ranges.push_back({planned.piece, planned.begin, planned.end,
                               part * load.part_bytes + load.batches[batch].offsets[i]});
      }
      operations_.start(std::move(read), out,
                        [this, id, batch](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
                          batch_read(id, batch, result.status(), then_out);
                        });
    }
    if (load.next_batch == load.batches.size() && load.parts.empty()) {
      if (load.request.keeps_open && load.pinned) {
        load.pinned.reset();
        open_.keep(id, load.stored);
      }
      end_load(found, out);
      out.to_client(id.first, local::LoadDone{id.second, ok_status()});
    }
  }

  void batch_read(const LoadKey& id, uint32_t batch, const Status& outcome, EffectWriter& out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) return;
    Load& load = found->second;
    load.reading.erase(batch);
    if (!outcome.ok()) return fail(id, outcome, out);
    if (!load.failure.ok()) return fail(id, load.failure, out);
    loaded(id, batch, load, out);
  }

  void loaded(const LoadKey& id, uint32_t batch, Load& load, EffectWriter& out) {
    local::Loaded message{id.second, batch, {}};
    const uint64_t part_offset = load.parts.at(batch) * load.part_bytes;
    for (size_t i = 0; i < load.batches[batch].reads.size(); ++i) {
      const PlannedRead& read = load.batches[batch].reads[i];
      message.pieces.push_back({read.target, read.piece->box, read.begin, read.end - read.begin,
                                part_offset + load.batches[batch].offsets[i], read.piece_bytes});
    }
    load.batches[batch] = {};
    out.to_client(id.first, std::move(message));
  }

  void on_placed(const LoadKey& id, uint32_t batch, EffectWriter& out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) return;
    auto part = found->second.parts.find(batch);
    if (part == found->second.parts.end() || found->second.reading.contains(batch)) return;
    found->second.free_parts.push_back(part->second);
    found->second.parts.erase(part);
    proceed(id, out);
  }

  // Before the checkpoint was found: Found carries the error; after: LoadDone does, and only once no read is
  // under way, for the client's next load has a window of the same number.
  void fail(const LoadKey& id, Status why, EffectWriter& out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) return;
    if (found->second.failure.ok()) found->second.failure = why;
    if (!found->second.reading.empty()) return;
    why = found->second.failure;
    const bool was_found = found->second.stored != nullptr;
    end_load(found, out);
    out.warning("load for client " + std::to_string(id.first) + ": " + why.to_string());
    if (was_found) {
      out.to_client(id.first, local::LoadDone{id.second, std::move(why)});
    } else {
      not_found(id.first, id.second, std::move(why), out);
    }
  }

  const NodeFacts facts_;
  PendingOperations operations_;
  PendingTimers timers_;
  AttemptWatch watch_;
  HeldPins pins_;
  std::map<std::pair<ClientId, uint32_t>, uint64_t> slabs_;  // bytes of each slab
  std::map<LoadKey, Load> loads_;
  OpenCheckpoints open_;
};

}  // namespace

std::unique_ptr<Role> make_loader(const NodeFacts& facts) {
  return std::make_unique<Loader>(facts);
}

}  // namespace shoal
