// Loader: events, choosing, planning and reading.
#include <algorithm>
#include <utility>

#include "actors/loader/attempt_choice.h"
#include "actors/loader/loader.h"
#include "base/digest/digest.h"

namespace shoal::actors {

void Loader::handle(TimeNs now, const Event& event, Effects& effects) {
  EffectWriter out(kind(), effects);
  if (const auto* from_client = std::get_if<event::FromClient>(&event)) {
    on_client(now, from_client->client, *from_client->message, out);
  } else if (const auto* received = std::get_if<event::Received>(&event)) {
    on_message(now, received->from, *received->message.body, out);
  } else if (const auto* done = std::get_if<event::OperationDone>(&event)) {
    operations_.done(now, *done, out);
  } else if (const auto* timer = std::get_if<event::TimerFired>(&event)) {
    timers_.fired(now, *timer, out);
  } else if (const auto* left = std::get_if<event::SendDone>(&event)) {
    sends_.done(now, *left, out);
  } else if (const auto* lost = std::get_if<event::ClientLost>(&event)) {
    slabs_.erase(slabs_.lower_bound({lost->client, 0}), slabs_.lower_bound({lost->client + 1, 0}));
    for (auto load = loads_.lower_bound({lost->client, 0});
         load != loads_.end() && load->first.first == lost->client;) {
      load = end_load(now, load, out);
    }
    budget_.forget_client(lost->client);
    for (const AttemptKey& key : open_.close_all(lost->client)) pins_.release(key, out);
  } else if (const auto* peer = std::get_if<event::PeerLost>(&event)) {
    if (peer->node != kCoordinatorNode) return;
    std::vector<wire::LoadId> asking;
    for (const auto& [id, round] : rounds_) {
      if (round.phase == Round::Phase::asking) asking.push_back(id);
    }
    for (const wire::LoadId& id : asking) read_without_sharing(now, id, out);
  } else if (std::get_if<event::Drain>(&event)) {
    out.drained();
  }
  forget_rounds();
  give_windows(now, out);
}

void Loader::on_client(TimeNs now, ClientId client, const local::LocalMessage& message, EffectWriter& out) {
  if (const auto* slab = std::get_if<local::Slab>(&message)) {
    slabs_[{client, slab->slab_id}] = slab->bytes;
    budget_.replace_window({client, slab->slab_id});
  } else if (const auto* latest = std::get_if<local::Latest>(&message)) {
    on_latest(client, latest->request_id, {}, out);
  } else if (const auto* list = std::get_if<local::List>(&message)) {
    on_list(client, *list, out);
  } else if (const auto* load = std::get_if<local::Load>(&message)) {
    on_load(now, client, *load, out);
  } else if (const auto* placed = std::get_if<local::Placed>(&message)) {
    on_placed(now, {client, placed->request_id}, placed->batch, out);
  } else if (const auto* read = std::get_if<local::FilesRead>(&message)) {
    on_files_read(now, {client, read->request_id}, *read, out);
  } else if (const auto* closed = std::get_if<local::Close>(&message)) {
    const auto key = open_.close({client, closed->request_id});
    if (key) pins_.release(*key, out);
  }
}

void Loader::on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out) {
  if (const auto* roster = std::get_if<wire::LoadRoster>(&body)) {
    on_roster(now, *roster, out);
  } else if (const auto* wanted = std::get_if<wire::ChunkRequest>(&body)) {
    on_request(now, from, *wanted, out);
  } else if (const auto* chunk = std::get_if<wire::ChunkData>(&body)) {
    auto round = rounds_.find(chunk->id);
    if (round != rounds_.end() && round->second.exchange) round->second.exchange->came(now, *chunk, out);
  } else if (const auto* not_here = std::get_if<wire::ChunksUnavailable>(&body)) {
    auto round = rounds_.find(not_here->id);
    if (round != rounds_.end() && round->second.exchange)
      round->second.exchange->not_there(now, *not_here, out);
  } else if (const auto* cancelled = std::get_if<wire::ChunksCancelled>(&body)) {
    on_cancelled(now, *cancelled, out);
  } else if (const auto* coming = std::get_if<wire::ChunksPending>(&body)) {
    auto round = rounds_.find(coming->id);
    if (round != rounds_.end() && round->second.exchange) round->second.exchange->coming(now, *coming);
  }
}

// --- which checkpoint ---

namespace {
// Code::not_found is for an empty listing alone.
Status not_of_none(const Status& why) {
  return why.code() == Code::not_found ? Status(Code::corrupt, why.message()) : why;
}

// The checkpoint was committed when it was chosen or listed, and is not any more. `chooses_next`: the next
// load of the latest is a new choice in any case.
Status no_longer_committed(const AttemptKey& key, const storage::Tombstone& tombstone, bool is_latest,
                           bool chooses_next) {
  if (tombstone.reason == storage::Tombstone::Reason::aborted) {
    return Status(Code::aborted, to_string(key) +
                                     " was committed when it was chosen; its manifest was lost "
                                     "since, and it was aborted: " +
                                     tombstone.cause);
  }
  if (is_latest && chooses_next) {
    return Status(Code::aborted, to_string(key) + " was deleted since it was chosen: " + tombstone.cause +
                                     "; load again, which chooses what is the newest then");
  }
  return Status(Code::unavailable,
                to_string(key) + " was deleted since it was chosen: " + tombstone.cause +
                    (is_latest ? "; the latest is chosen again after the next save or start of the job, "
                                 "until then load another checkpoint by its step"
                               : "; load again"));
}

Status lost_decision(const AttemptKey& key, const Status& why) {
  return Status(Code::corrupt, to_string(key) + " was committed when it was chosen, and its decision " +
                                   storage::decision_path(key) + " is missing now (" + why.message() +
                                   "): start the job again, which restores it from the shards, or load "
                                   "another checkpoint by its step");
}
}  // namespace

void Loader::on_latest(ClientId client, uint32_t request_id, std::optional<AttemptKey> tried,
                       EffectWriter& out) {
  operations_.start(
      operation::ListNewestAttempts{}, out,
      [=, this](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
        auto list = result_as<storage::AttemptList>(std::move(result));
        if (!list.ok()) return refuse(client, request_id, not_of_none(list.status()), then_out);
        auto best = newest(*list);
        if (!best.ok()) return refuse(client, request_id, not_of_none(best.status()), then_out);
        const auto left = config_.read_only ? std::optional<AttemptKey>()
                                            : newest_left(*list, *best, config_.generation, tried);
        if (left) {
          return operations_.start(operation::CompleteAttempt{*left}, then_out,
                                   [=, this](TimeNs, Result<OperationResult>, EffectWriter& last_out) {
                                     on_latest(client, request_id, left, last_out);
                                   });
        }
        if (!*best) return refuse(client, request_id, LoadChooser::no_checkpoint(), then_out);
        read_metadata(client, request_id, **best, then_out);
      });
}

void Loader::on_list(ClientId client, const local::List& wanted, EffectWriter& out) {
  operations_.start(
      operation::ListCheckpoints{std::min(wanted.newest, kMaxListedCheckpoints)}, out,
      [client, id = wanted.request_id](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
        auto list = result_as<std::shared_ptr<const CheckpointList>>(std::move(result));
        if (!list.ok()) return then_out.to_client(client, local::Listing{id, list.status(), nullptr});
        then_out.to_client(client, local::Listing{id, ok_status(), std::move(*list)});
      });
}

void Loader::refuse(ClientId client, uint32_t request_id, Status why, EffectWriter& out) {
  out.to_client(client, local::Found{request_id, std::move(why), {}});
}

void Loader::read_metadata(ClientId client, uint32_t request_id, const AttemptKey& key, EffectWriter& out) {
  operations_.start(
      operation::ReadDecision{key}, out,
      [client, request_id, key](TimeNs, Result<OperationResult> result, EffectWriter& then_out) {
        auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
        if (decision.status().code() == Code::not_found) {
          return refuse(client, request_id, lost_decision(key, decision.status()), then_out);
        }
        if (!decision.ok()) return refuse(client, request_id, decision.status(), then_out);
        if (!(*decision)->committed()) {
          return refuse(client, request_id, no_longer_committed(key, (*decision)->tombstone(), false, false),
                        then_out);
        }
        out_found(client, request_id, **decision, then_out);
      });
}

void Loader::out_found(ClientId client, uint32_t request_id, const storage::Decision& decision,
                       EffectWriter& out) {
  out.to_client(client, local::Found{request_id, ok_status(), storage::metadata_of(decision, false),
                                     std::nullopt, decision.manifest().world});
}

void Loader::on_load(TimeNs now, ClientId client, const local::Load& request, EffectWriter& out) {
  const LoadKey id{client, request.request_id};
  auto slab = slabs_.find({client, request.slab_id});
  const bool reads = !request.targets.empty();
  if (reads && (slab == slabs_.end() || slab->second < kMinWindowBytes)) {
    return refuse(client, request.request_id,
                  Status(Code::invalid_argument, "a load window of at least " + human_bytes(kMinWindowBytes) +
                                                     " must be given first"),
                  out);
  }
  for (auto other = loads_.lower_bound({client, 0}); other != loads_.end() && other->first.first == client;
       ++other) {
    if (other->first == id) return;
    if (!reads || !other->second.reads) continue;
    if (other->second.request.slab_id != request.slab_id) continue;
    // Reads of the earlier load would overwrite what this load has verified.
    return refuse(client, request.request_id, Status(Code::busy, "an earlier load still fills that window"),
                  out);
  }
  auto [found, fresh] = loads_.try_emplace(id);
  SHOAL_CHECK(fresh);
  found->second.request = request;
  found->second.reads = reads;
  found->second.reads_files = reads && request.reads_files;
  // The layout of many small tensors takes more memory than the window.
  if (!is_worth_asking(request)) found->second.request.sharing.reset();
  if (reads) found->second.slab_bytes = slab->second;
  found->second.began = now;
  if (request.of != 0) {
    if (const auto kept = open_.kept({client, request.of})) {
      found->second.fixed = kept;
      return is_worth_asking(request) ? enter_round(now, id, out) : hold(now, id, *kept, out);
    }
    return fail(now, id, Status(Code::unavailable, "this node has no such checkpoint open"), out);
  }
  if (request.keeps_open && open_.is_full(client)) {
    return fail(now, id,
                Status(Code::busy, std::to_string(kMaxOpenCheckpoints) + " checkpoints are open already"),
                out);
  }
  if (is_worth_asking(request)) return enter_round(now, id, out);
  choose(now, id, out);
}

void Loader::choose(TimeNs now, const LoadKey& id, EffectWriter& out) {
  auto chosen = [this, id](TimeNs then_now, Result<LoadChooser::Chosen> choice, EffectWriter& then_out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) return;
    if (!choice.ok()) return fail(then_now, id, choice.status(), then_out);
    found->second.passed_over = choice->passed_over;
    hold(then_now, id, choice->key, then_out);
  };
  const local::Load& request = loads_.at(id).request;
  if (const auto fixed = loads_.at(id).fixed) return hold(now, id, *fixed, out);
  if (request.latest) return chooser_.choose_latest(request.ordinal, out, chosen);
  chooser_.choose_step(request.step, out, chosen);
}

void Loader::hold(TimeNs now, const LoadKey& id, const AttemptKey& key, EffectWriter& out) {
  Load& load = loads_.at(id);
  load.chosen = now;
  load.is_chosen = true;
  load.times.choosing_ns = static_cast<uint64_t>(now - load.began);
  pins_.hold(now, key, out, [this, id, key](TimeNs then_now, const Status& status, EffectWriter& then_out) {
    auto found = loads_.find(id);
    if (found == loads_.end()) {
      if (status.ok()) pins_.release(key, then_out);
      return;
    }
    if (!status.ok())
      return fail(then_now, id, status.with_context("the checkpoint could not be pinned"), then_out);
    found->second.pinned = key;
    read_decision(then_now, id, key, then_out);
  });
}

void Loader::pin_lost(const AttemptKey& key, const Status& why, EffectWriter& out) {
  std::vector<LoadKey> lost;
  for (auto& [id, load] : loads_) {
    if (load.pinned != key) continue;
    load.pinned.reset();
    lost.push_back(id);
  }
  open_.forget(key);
  for (const LoadKey& id : lost) {
    fail(loads_.at(id).chosen, id,
         Status(Code::unavailable, "this node stood still for so long that its hold on " + to_string(key) +
                                       " has ended; load again (" + why.message() + ")"),
         out);
  }
}

Loader::Loads::iterator Loader::end_load(TimeNs now, Loads::iterator load, EffectWriter& out) {
  const LoadKey id = load->first;
  if (load->second.round) leave_round(now, id, load->second, out);
  const std::optional<AttemptKey> pinned = load->second.pinned;
  stop_waiting(load->second.ticket);
  if (load->second.has_window) budget_.end_window(window_of(id, load->second));
  auto next = loads_.erase(loads_.find(id));
  if (pinned) pins_.release(*pinned, out);
  return next;
}

// --- what to read ---

void Loader::read_decision(TimeNs begun, const LoadKey& id, const AttemptKey& key, EffectWriter& out) {
  if (auto known = open_.known(key)) return begin(begun, id, std::move(known), out);
  operations_.start(operation::ReadDecision{key, loads_.at(id).request.wants_layouts}, out,
                    [this, id, key](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
                      if (decision.status().code() == Code::not_found) {
                        return fail(now, id, lost_decision(key, decision.status()), then_out);
                      }
                      if (!decision.ok()) return fail(now, id, decision.status(), then_out);
                      if (!(*decision)->committed()) {
                        const auto load = loads_.find(id);
                        const bool is_latest = load != loads_.end() && load->second.request.latest;
                        return fail(
                            now, id,
                            no_longer_committed(key, (*decision)->tombstone(), is_latest, config_.read_only),
                            then_out);
                      }
                      if ((*decision)->manifest().world == nullptr) return decode(id, *decision, then_out);
                      begin(now, id, config_.plans->stored(*decision), then_out);
                    });
}

// The client decodes the manifest at the same time as the node.
void Loader::decode(const LoadKey& id, const std::shared_ptr<const storage::Decision>& encoded,
                    EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  found->second.is_notified = true;
  out.to_client(id.first, found_by(found->second.request, *encoded, found->second.passed_over));
  operations_.start(operation::DecodeDecision{encoded}, out,
                    [this, id](TimeNs now, Result<OperationResult> result, EffectWriter& then_out) {
                      auto decision = result_as<std::shared_ptr<const storage::Decision>>(std::move(result));
                      if (!decision.ok()) return fail(now, id, decision.status(), then_out);
                      begin(now, id, config_.plans->stored(*decision), then_out);
                    });
}

void Loader::begin(TimeNs now, const LoadKey& id, std::shared_ptr<StoredCheckpoint> fresh,
                   EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  load.stored = open_.share(std::move(fresh));
  StoredCheckpoint& stored = *load.stored;
  if (!std::exchange(load.is_notified, true)) {
    out.to_client(id.first, found_by(load.request, stored.decision(), load.passed_over));
  }
  const storage::Manifest& manifest = stored.manifest();
  if (load.request.sharing) {  // usually the layout that was saved: keep one copy
    for (const LayoutPtr& layout : manifest.world->layouts) {
      if (layout->id() == load.request.sharing->layout->id()) load.request.sharing->layout = layout;
    }
  }
  if (manifest.rule_version != kRuleVersion) {
    return fail(now, id,
                Status(Code::version, to_string(stored.key()) + " was planned by rule version " +
                                          std::to_string(manifest.rule_version) + ", this program knows " +
                                          std::to_string(kRuleVersion)),
                out);
  }
  const local::LoadTargets& targets = load.request.targets;
  if (targets.empty()) return read_all(now, id, std::make_shared<const ReadPlan>(), out);
  if (Status status = compare_targets(stored.locator(), targets); !status.ok()) {
    return fail(now, id, status.with_context(to_string(stored.key()) + " does not hold what is asked of it"),
                out);
  }
  auto plan = config_.plans->reads(stored, targets);
  if (!plan.ok()) return fail(now, id, plan.status(), out);
  if ((*plan)->objects.empty()) return read_all(now, id, std::move(*plan), out);
  operation::MeasureObjects measure;
  for (const PlannedObject& object : (*plan)->objects) {
    measure.pieces.push_back((*plan)->pieces->ref(object.piece));
  }
  operations_.start(std::move(measure), out,
                    [this, id, planned = std::move(*plan)](TimeNs then_now, Result<OperationResult> result,
                                                           EffectWriter& then_out) {
                      auto lengths = result_as<std::vector<uint64_t>>(std::move(result));
                      if (!lengths.ok()) return fail(then_now, id, lengths.status(), then_out);
                      auto with_objects = std::make_shared<ReadPlan>(*planned);
                      for (PlannedRead& read : object_reads(planned->objects, *lengths)) {
                        with_objects->reads.push_back(std::move(read));
                      }
                      read_all(then_now, id, std::move(with_objects), then_out);
                    });
}

// --- reading ---

void Loader::read_all(TimeNs now, const LoadKey& id, std::shared_ptr<const ReadPlan> plan,
                      EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  load.times.planning_ns = static_cast<uint64_t>(now - load.chosen);
  if (load.round) {
    Round& round = rounds_.at(*load.round);
    if (std::find(round.loads.begin(), round.loads.end(), id) != round.loads.end()) {
      round.planned[id] = std::move(plan);
      return consider_exchange(now, wire::LoadId(*load.round), out);
    }
  }
  read_directly(now, id, std::move(plan), out);
}

void Loader::proceed(TimeNs now, const LoadKey& id, EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  if (!load.failure.ok()) return;
  if (load.reads_files) give_files(id, load, now, out);
  const auto own_waits = [&] { return !load.reads_files && load.own.has_next(); };
  while (!load.free_parts.empty() && (own_waits() || load.shared.has_next())) {
    const uint32_t part = load.free_parts.back();
    load.free_parts.pop_back();
    // Both kinds run side by side: one waits for storage, the other for peers.
    const bool is_own =
        own_waits() && (!load.shared.has_next() || load.own.in_progress <= load.shared.in_progress);
    if (is_own) {
      read_own(now, id, load, part, out);
      continue;
    }
    const uint32_t at = load.shared.next++;
    ++load.shared.in_progress;
    load.parts[number_of_shared(at)] = part;
    rounds_.at(*load.round)
        .exchange->give_room(now, *load.user, at,
                             {id.first, load.request.slab_id, part * load.part_bytes, load.part_bytes}, out);
  }
  if (load.own.has_next() || load.own.in_progress > 0) return;
  if (!load.unread.empty()) return read_unread(now, id, load, out);
  if (!load.shared.has_next() && load.parts.empty()) {
    LoadTimes times = load.times;
    times.reading_ns += load.busy.until(now);
    DamageList damaged = std::move(load.damaged);
    if (load.user) {
      rounds_.at(*load.round).exchange->add_times(now, *load.user, times);
      damaged.add(rounds_.at(*load.round).exchange->damaged());
    }
    if (load.request.keeps_open && load.pinned) {
      load.pinned.reset();
      open_.keep(id, load.stored);
    }
    end_load(now, found, out);
    out.to_client(id.first, local::LoadDone{id.second, ok_status(), times, std::move(damaged)});
  }
}

void Loader::read_own(TimeNs now, const LoadKey& id, Load& load, uint32_t part, EffectWriter& out) {
  const uint32_t batch = load.own.next++;
  ++load.own.in_progress;
  load.parts[batch] = part;
  load.reading.insert(batch);
  load.busy.begin(now);
  operation::ReadBatch read{id.first, load.request.slab_id,
                            load.own.batches->ranges_of(batch, part * load.part_bytes)};
  for (const operation::ReadRange& range : read.ranges) load.times.bytes_read += range.end - range.begin;
  operations_.start(
      std::move(read), out,
      [this, id, batch](TimeNs then_now, Result<OperationResult> result, EffectWriter& then_out) {
        note_damage(id, result, then_out);
        batch_read(then_now, id, batch, result.status(), then_out);
      });
}

void Loader::note_damage(const LoadKey& id, const Result<OperationResult>& result, EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end() || !result.ok() || !std::holds_alternative<DamageList>(*result)) return;
  for (const ReadDamage& one : found->second.damaged.add(std::get<DamageList>(*result))) {
    out.warning("load: " + to_string(one));
  }
}

void Loader::batch_read(TimeNs now, const LoadKey& id, uint32_t batch, const Status& outcome,
                        EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  load.reading.erase(batch);
  load.busy.end(now);
  if (!outcome.ok()) return fail(now, id, outcome, out);
  if (!load.failure.ok()) return fail(now, id, load.failure, out);
  loaded(id, batch, load, out);
}

void Loader::loaded(const LoadKey& id, uint32_t batch, Load& load, EffectWriter& out) {
  local::Loaded message{id.second, batch, {}};
  const uint64_t part_offset = load.parts.at(batch) * load.part_bytes;
  const ReadBatches& batches = *queue_of(load, batch).batches;
  const ReadBatchPlan planned = batch_of(load, batch);
  message.pieces.reserve(planned.reads.size());
  for (size_t i = 0; i < planned.reads.size(); ++i) {
    const PlannedRead& read = planned.reads[i];
    message.pieces.push_back(
        {{read.target, batches.pieces().box(read.piece), read.begin, read.end - read.begin, read.piece_bytes},
         part_offset + planned.offsets[i]});
  }
  load.notified.insert(batch);
  out.to_client(id.first, std::move(message));
}

void Loader::on_placed(TimeNs now, const LoadKey& id, uint32_t batch, EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  if (load.notified.erase(batch) == 0) return;  // the client does not have this batch
  const auto part = load.parts.find(batch);
  --queue_of(load, batch).in_progress;
  load.free_parts.push_back(part->second);
  load.parts.erase(part);
  proceed(now, id, out);
}

void Loader::fail(TimeNs now, const LoadKey& id, Status why, EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  if (load.failure.ok()) load.failure = load.is_chosen ? not_of_none(why) : why;
  if (!load.reading.empty()) return;
  if (load.user) {
    ChunkExchange& exchange = *rounds_.at(*load.round).exchange;
    exchange.forget_user(now, *load.user, out);
    if (exchange.is_copying(*load.user)) return;  // it calls `quiet` when it has finished
  }
  why = load.failure;
  const bool was_notified = load.is_notified;
  const bool is_none = why.code() == Code::not_found;
  end_load(now, found, out);
  // A job that starts with an empty root expects this.
  const std::string line = "load for client " + std::to_string(id.first) + ": " + why.to_string();
  is_none ? out.info(line) : out.warning(line);
  if (was_notified) {
    out.to_client(id.first, local::LoadDone{id.second, std::move(why)});
  } else {
    refuse(id.first, id.second, std::move(why), out);
  }
}

std::unique_ptr<Role> make_loader(const NodeConfig& config) {
  return std::make_unique<Loader>(config);
}

}  // namespace shoal::actors
