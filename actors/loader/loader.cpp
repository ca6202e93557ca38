// Loader: events, choosing, planning and reading.
#include <algorithm>
#include <utility>

#include "actors/loader/attempt_choice.h"
#include "actors/loader/loader.h"
#include "base/digest/digest.h"
#include "base/rare_path.h"
#include "storage/decisions/rank_manifest_set.h"

namespace shoal::actors {

std::vector<TransitionsTaken> Loader::transitions() const {
  return {{"load", load_counts_.list()},
          {"round", round_counts_.list()},
          {"chunk", exchange_counts_.chunks.list()},
          {"storage trial", exchange_counts_.trials.list()}};
}

void Loader::handle(TimeNs now, const Event& event, Effects& effects) {
  EffectWriter out(kind(), effects);
  std::visit(
      Overloaded{[&](const event::FromClient& from) { on_client(now, from.client, *from.message, out); },
                 [&](const event::ClientLost& lost) { on_client_lost(now, lost.client, out); },
                 [&](const event::Received& received) {
                   on_message(now, received.from, received.message.body, out);
                 },
                 [&](const event::OperationDone& done) { operations_.done(now, done, out); },
                 [&](const event::TimerFired& timer) { timers_.fired(now, timer, out); },
                 [&](const event::SendDone& sent) { sends_.done(now, sent, out); },
                 [&](const event::PeerLost& peer) {
                   if (peer.node == kCoordinatorNode) on_coordinator_lost(now, out);
                 },
                 [&](const event::Drain&) { out.drained(); },
                 [](const OneOf<event::Started, event::WorldKnown, event::PlanningFailed, event::PeerUp,
                                event::CoordinatorSuperseded, event::TrainerEnded, event::NextRunStarts,
                                event::Stopping, event::RanksLost> auto&) {}},
      event);
  forget_rounds();
  give_windows(now, out);
}

void Loader::on_client_lost(TimeNs now, ClientId client, EffectWriter& out) {
  slabs_.erase(slabs_.lower_bound({client, 0}), slabs_.lower_bound({client + 1, 0}));
  for (auto load = loads_.lower_bound({client, 0}); load != loads_.end() && load->first.first == client;) {
    load = end_load(now, load, LoadTrigger::client_left, out);
  }
  budget_.forget_client(client);
  for (const AttemptKey& key : open_.close_all(client)) pins_.release(key, out);
}

void Loader::on_coordinator_lost(TimeNs now, EffectWriter& out) {
  std::vector<wire::LoadId> asking;
  for (const auto& [id, round] : rounds_) {
    if (round.awaits_answer()) asking.push_back(id);
  }
  for (const wire::LoadId& id : asking) read_without_sharing(now, id, out);
}

void Loader::on_client(TimeNs now, ClientId client, const local::LocalMessage& message, EffectWriter& out) {
  std::visit(
      Overloaded{
          [&](const local::Slab& slab) {
            slabs_[{client, slab.slab_id}] = slab.bytes;
            budget_.replace_window({client, slab.slab_id});
          },
          [&](const local::Latest& latest) { on_latest(client, latest.request_id, {}, out); },
          [&](const local::List& list) { on_list(client, list, out); },
          [&](const local::Load& load) { on_load(now, client, load, out); },
          [&](const local::Placed& placed) {
            on_placed(now, {client, placed.request_id}, placed.batch, out);
          },
          [&](const local::FilesRead& read) {
            on_files_read(now, {client, read.request_id}, read, out);
          },
          [&](const local::Close& close) {
            const LoadKey id{client, close.request_id};
            if (const auto key = open_.close(id)) pins_.release(*key, out);
            const auto load = loads_.find(id);  // the client does not wait until it is open
            if (load != loads_.end()) load->second.request.keeps_open = false;
          },
          // Messages to other roles or to the node itself (actors/client_routes.h).
          [](const OneOf<local::Attach, local::LayoutUpdate, local::Staged, local::Written, local::NotStaged,
                         local::PlanRequest, local::PlanGathering, local::Ping, local::Detach,
                         local::StatusRequest, local::JobStatusRequest, local::StagingRequest,
                         local::StagingKept, local::PartStaged, local::SaveReturned> auto&) {},
          // Messages of a node to its clients.
          [](const OneOf<local::Attached, local::Failed, local::RosterUpdate, local::SlabFree, local::Decided,
                         local::Found, local::Loaded, local::LoadDone, local::Refused, local::Pong,
                         local::StatusReport, local::JobStatusReport, local::PlanUpdate, local::FilesToRead,
                         local::StagingGranted, local::GiveBack, local::PartRequest, local::Listing,
                         local::StillWriting> auto&) {}},
      message);
}

void Loader::on_message(TimeNs now, NodeId from, const std::shared_ptr<const WireBody>& body,
                        EffectWriter& out) {
  const auto exchange_of = [&](const wire::LoadId& id) -> ChunkExchange* {
    auto round = rounds_.find(id);
    return round == rounds_.end() ? nullptr : round->second.exchange.get();
  };
  std::visit(
      Overloaded{[&](const wire::LoadRoster& roster) {
                   on_roster(now, std::shared_ptr<const wire::LoadRoster>(body, &roster), out);
                 },
                 [&](const wire::ChunkRequest& request) { on_request(now, from, request, out); },
                 [&](const wire::ChunkData& chunk) {
                   if (ChunkExchange* exchange = exchange_of(chunk.id)) exchange->on_data(now, chunk, out);
                 },
                 [&](const wire::ChunksUnavailable& chunks) {
                   if (ChunkExchange* exchange = exchange_of(chunks.id))
                     exchange->on_unavailable(now, chunks, out);
                 },
                 [&](const wire::ChunksCancelled& chunks) { on_cancelled(now, chunks, out); },
                 [&](const wire::ChunksPending& chunks) {
                   if (ChunkExchange* exchange = exchange_of(chunks.id)) exchange->on_pending(now, chunks);
                 },
                 // Messages to the other roles.
                 [](const OneOf<wire::JoinRanks, wire::LayoutRequest, wire::Layouts, wire::RosterUpdate,
                                wire::JoinRejected, wire::ShardsWritten, wire::SaveFailed, wire::Pending,
                                wire::Decided, wire::Undecided, wire::LayoutsStaged, wire::AttemptRoster,
                                wire::Superseded, wire::RanksEnded, wire::LocalPlans, wire::GlobalPlan,
                                wire::PlanGathering, wire::JoinLoad, wire::SaveProgress,
                                wire::ManifestsPublished> auto&) {}},
      *body);
}

Load* Loader::find(const LoadRef& ref) {
  auto found = loads_.find(ref.key);
  return found == loads_.end() || found->second.number() != ref.number ? nullptr : &found->second;
}

// --- which checkpoint ---

namespace {
// Code::not_found must mean only that the root has no checkpoint.
Status not_of_none(const Status& why) {
  return why.code() == Code::not_found ? Status(Code::corrupt, why.message()) : why;
}

// The checkpoint was committed when it was chosen or listed, and is not any more. `chooses_next`: the next
// load of the latest is a new choice in any case.
Status no_longer_committed(const AttemptKey& key, const storage::Tombstone& tombstone, bool is_latest,
                           bool chooses_next) {
  if (tombstone.reason == storage::Tombstone::Reason::aborted) {
    return Status(Code::aborted, to_string(key) +
                                     " was committed when this load chose it; since then its manifest was "
                                     "lost, and the attempt was aborted: " +
                                     tombstone.cause);
  }
  if (is_latest && chooses_next) {
    return Status(Code::aborted, to_string(key) +
                                     " was deleted after this load chose it: " + tombstone.cause +
                                     "; load again to choose what is now the newest checkpoint");
  }
  return Status(Code::unavailable,
                to_string(key) + " was deleted after this load chose it: " + tombstone.cause +
                    (is_latest ? "; the latest is chosen again after the next save or start of the job; "
                                 "until then, load another checkpoint by its step"
                               : "; load again"));
}

Status lost_decision(const AttemptKey& key, const Status& why) {
  return Status(
      Code::corrupt,
      to_string(key) + " was committed when this load chose it, but its decision " +
          storage::decision_path(key) + " is missing now (" + why.message() +
          "): start the job again to restore it from the shards, or load another checkpoint by its step");
}
}  // namespace

void Loader::on_latest(ClientId client, uint32_t request_id, std::optional<AttemptKey> tried,
                       EffectWriter& out) {
  operations_.start(
      operation::ListNewestAttempts{}, out,
      [=, this](TimeNs, Result<storage::AttemptList> list, EffectWriter& then_out) {
        if (!list.ok()) return refuse(client, request_id, not_of_none(list.status()), then_out);
        auto best = newest(*list);
        if (!best.ok()) return refuse(client, request_id, not_of_none(best.status()), then_out);
        const auto left = config_.read_only ? std::optional<AttemptKey>()
                                            : newest_left(*list, *best, config_.generation, tried);
        if (left) {
          return operations_.start(operation::CompleteAttempt{*left}, then_out,
                                   [=, this](TimeNs, Result<DecisionPtr>, EffectWriter& last_out) {
                                     on_latest(client, request_id, left, last_out);
                                   });
        }
        if (!*best) return refuse(client, request_id, LoadChooser::no_checkpoint(), then_out);
        read_metadata(client, request_id, **best, then_out);
      });
}

void Loader::on_list(ClientId client, const local::List& wanted, EffectWriter& out) {
  operations_.start(operation::ListCheckpoints{std::min(wanted.newest, kMaxListedCheckpoints)}, out,
                    [client, id = wanted.request_id](
                        TimeNs, Result<std::shared_ptr<const CheckpointList>> list, EffectWriter& then_out) {
                      if (!list.ok())
                        return then_out.to_client(client, local::Listing{id, list.status(), nullptr});
                      then_out.to_client(client, local::Listing{id, ok_status(), std::move(*list)});
                    });
}

void Loader::refuse(ClientId client, uint32_t request_id, Status why, EffectWriter& out) {
  out.to_client(client, local::Found{request_id, std::move(why), {}});
}

void Loader::read_metadata(ClientId client, uint32_t request_id, const AttemptKey& key, EffectWriter& out) {
  operations_.start(operation::ReadDecision{key}, out,
                    [=, this](TimeNs, Result<DecisionPtr> decision, EffectWriter& then_out) {
                      if (decision.status().code() == Code::not_found) {
                        return explain_lost_decision(
                            key, decision.status(), false, then_out,
                            [client, request_id](TimeNs, const Status& why, EffectWriter& last_out) {
                              refuse(client, request_id, why, last_out);
                            });
                      }
                      if (!decision.ok()) return refuse(client, request_id, decision.status(), then_out);
                      if (!(*decision)->committed()) {
                        return refuse(client, request_id,
                                      no_longer_committed(key, (*decision)->tombstone(), false, false),
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
                  Status(Code::invalid_argument, "the client must first give a load window of at least " +
                                                     human_bytes(kMinWindowBytes)),
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
  auto [found, fresh] = loads_.try_emplace(id, ++loads_begun_, request, now, load_counts_);
  SHOAL_CHECK(fresh);
  found->second.reads = reads;
  found->second.reads_files = reads && request.reads_files && config_.clients_read_files;
  const bool asks = is_worth_asking(found->second);
  // The layout of many small tensors takes more memory than the window.
  if (!asks) found->second.request.sharing.reset();
  if (reads) found->second.slab_bytes = slab->second;
  if (request.of != 0) {
    if (const auto kept = open_.kept({client, request.of})) {
      found->second.fixed = kept;
      return asks ? enter_round(now, id, out) : hold(now, id, *kept, out);
    }
    return fail(now, id, Status(Code::unavailable, "this node has no such checkpoint open"), out);
  }
  if (request.keeps_open && open_.is_full(client)) {
    return fail(now, id,
                Status(Code::busy, std::to_string(kMaxOpenCheckpoints) +
                                       " checkpoints are open, which is the most that this node keeps open"),
                out);
  }
  if (asks) return enter_round(now, id, out);
  choose(now, id, out);
}

void Loader::choose(TimeNs now, const LoadKey& id, EffectWriter& out) {
  auto chosen = [this, ref = ref_of(id)](TimeNs then_now, Result<LoadChooser::Chosen> choice,
                                         EffectWriter& then_out) {
    Load* load = find(ref);
    if (load == nullptr) return;
    if (!choice.ok()) return fail(then_now, ref.key, choice.status(), then_out);
    load->passed_over = choice->passed_over;
    hold(then_now, ref.key, choice->key, then_out);
  };
  const local::Load& request = loads_.at(id).request;
  if (const auto fixed = loads_.at(id).fixed) return hold(now, id, *fixed, out);
  loads_.at(id).on(LoadTrigger::chooses);
  if (request.latest) {
    const AttemptKey last_save = {config_.generation, request.step, request.attempt};
    return chooser_.choose_latest(request.ordinal, last_save, out, chosen);
  }
  chooser_.choose_step(request.step, out, chosen);
}

void Loader::hold(TimeNs now, const LoadKey& id, const AttemptKey& key, EffectWriter& out) {
  Load& load = loads_.at(id);
  load.on(LoadTrigger::chosen);
  load.chosen = now;
  load.times.choosing_ns = static_cast<uint64_t>(now - load.began);
  pins_.hold(now, key, out,
             [this, ref = ref_of(id), key](TimeNs then_now, const Status& status, EffectWriter& then_out) {
               Load* pinning = find(ref);
               if (pinning == nullptr) {
                 if (status.ok()) pins_.release(key, then_out);
                 return;
               }
               if (!status.ok()) {
                 return fail(then_now, ref.key, status.with_context("cannot pin the checkpoint"), then_out);
               }
               pinning->pinned = key;
               pinning->on(LoadTrigger::pinned);
               read_decision(then_now, ref.key, key, then_out);
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
    const auto load = loads_.find(id);
    if (load == loads_.end()) continue;  // it had nothing to read, and waited for one that has failed
    fail(load->second.chosen, id,
         Status(Code::unavailable, "this node was suspended for so long that its pin lease on " +
                                       to_string(key) + " has ended; load again (" + why.message() + ")"),
         out);
  }
}

Loader::Loads::iterator Loader::end_load(TimeNs now, Loads::iterator load, LoadTrigger how,
                                         EffectWriter& out) {
  const LoadKey id = load->first;
  load->second.on(how);
  if (load->second.round) leave_round(now, id, load->second, out);
  const std::optional<AttemptKey> pinned = load->second.pinned;
  stop_waiting(load->second.ticket);
  if (load->second.has_window) budget_.end_window(window_of(id, load->second));
  auto next = loads_.erase(loads_.find(id));
  if (pinned) pins_.release(*pinned, out);
  return next;
}

// --- what to read ---

// `shoal gc` removes the folders of deleted checkpoints.
void Loader::explain_lost_decision(const AttemptKey& key, const Status& why, bool is_latest,
                                   EffectWriter& out, Explained then) {
  const bool chooses_next = is_latest && config_.read_only;
  operations_.start(operation::InspectAttempt{key}, out,
                    [key, why, is_latest, chooses_next, then = std::move(then)](
                        TimeNs now, Result<storage::AttemptInfo> info, EffectWriter& then_out) {
                      if (info.status().code() != Code::not_found)
                        return then(now, lost_decision(key, why), then_out);
                      base::rare_path<"loader: the folder of the chosen checkpoint is gone">();
                      const storage::Decision gone = storage::folder_gone(key, {});
                      then(now, no_longer_committed(key, gone.tombstone(), is_latest, chooses_next),
                           then_out);
                    });
}

void Loader::read_decision(TimeNs begun, const LoadKey& id, const AttemptKey& key, EffectWriter& out) {
  if (auto known = open_.known(key)) return begin(begun, id, std::move(known), out);
  operations_.start(
      operation::ReadDecision{key, loads_.at(id).request.wants_layouts}, out,
      [this, ref = ref_of(id), key](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
        const Load* load = find(ref);
        if (load == nullptr) return;
        if (decision.status().code() == Code::not_found) {
          return explain_lost_decision(
              key, decision.status(), load->request.latest, then_out,
              [this, ref](TimeNs then_now, const Status& why, EffectWriter& last_out) {
                if (find(ref) != nullptr) fail(then_now, ref.key, why, last_out);
              });
        }
        if (!decision.ok()) return fail(now, ref.key, decision.status(), then_out);
        if (!(*decision)->committed()) {
          return fail(
              now, ref.key,
              no_longer_committed(key, (*decision)->tombstone(), load->request.latest, config_.read_only),
              then_out);
        }
        if ((*decision)->manifest().world == nullptr) return decode(ref.key, *decision, then_out);
        begin(now, ref.key, config_.plans->stored(*decision), then_out);
      });
}

// The client decodes the manifest at the same time as the node.
void Loader::decode(const LoadKey& id, const std::shared_ptr<const storage::Decision>& encoded,
                    EffectWriter& out) {
  Load& load = loads_.at(id);
  load.on(LoadTrigger::manifest_encoded);
  out.to_client(id.first,
                found_by(load.request, *encoded, storage::metadata_of(*encoded, false), load.passed_over));
  operations_.start(
      operation::DecodeDecision{encoded}, out,
      [this, ref = ref_of(id)](TimeNs now, Result<DecisionPtr> decision, EffectWriter& then_out) {
        if (find(ref) == nullptr) return;
        if (!decision.ok()) return fail(now, ref.key, decision.status(), then_out);
        begin(now, ref.key, config_.plans->stored(*decision), then_out);
      });
}

void Loader::begin(TimeNs now, const LoadKey& id, std::shared_ptr<StoredCheckpoint> fresh,
                   EffectWriter& out) {
  Load& load = loads_.at(id);
  load.stored = open_.share(std::move(fresh));
  StoredCheckpoint& stored = *load.stored;
  const bool was_found = load.is_found();
  load.on(LoadTrigger::manifest_known);
  if (!was_found) {
    out.to_client(id.first, found_by(load.request, stored.decision(), stored.metadata(), load.passed_over));
  }
  const storage::Manifest& manifest = stored.manifest();
  if (load.request.sharing) {  // usually the layout that was saved: keep one copy
    for (const LayoutPtr& layout : manifest.world->layouts) {
      if (layout->id() == load.request.sharing->layout->id()) load.request.sharing->layout = layout;
    }
  }
  if (manifest.rule_version != kRuleVersion) {
    return fail(
        now, id,
        Status(Code::version, to_string(stored.key()) + " was planned by rule version " +
                                  std::to_string(manifest.rule_version) +
                                  ", but this program supports only version " + std::to_string(kRuleVersion)),
        out);
  }
  const local::LoadTargets& targets = load.request.targets;
  if (targets.empty()) return read_all(now, id, std::make_shared<const ReadPlan>(), out);
  auto plan = config_.plans->reads(stored, targets);
  if (!plan.ok()) return fail(now, id, plan.status(), out);
  if ((*plan)->objects.empty()) return read_all(now, id, std::move(*plan), out);
  operation::MeasureObjects measure;
  for (const PlannedObject& object : (*plan)->objects) {
    measure.pieces.push_back((*plan)->pieces->ref(object.piece));
  }
  load.on(LoadTrigger::lengths_needed);
  operations_.start(std::move(measure), out,
                    [this, ref = ref_of(id), planned = std::move(*plan)](
                        TimeNs then_now, Result<std::vector<uint64_t>> lengths, EffectWriter& then_out) {
                      if (find(ref) == nullptr) return;
                      if (!lengths.ok()) return fail(then_now, ref.key, lengths.status(), then_out);
                      auto with_objects = std::make_shared<ReadPlan>(*planned);
                      for (PlannedRead& read : object_reads(planned->objects, *lengths)) {
                        with_objects->reads.push_back(std::move(read));
                      }
                      read_all(then_now, ref.key, std::move(with_objects), then_out);
                    });
}

// --- reading ---

void Loader::read_all(TimeNs now, const LoadKey& id, std::shared_ptr<const ReadPlan> plan,
                      EffectWriter& out) {
  Load& load = loads_.at(id);
  load.times.planning_ns = static_cast<uint64_t>(now - load.chosen);
  if (load.round) {
    Round& round = rounds_.at(*load.round);
    if (std::find(round.loads.begin(), round.loads.end(), id) != round.loads.end()) {
      load.on(LoadTrigger::planned_in_round);
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
  if (load.has_failed()) return;
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
    load.parts[Load::number_of_shared(at)] = part;
    rounds_.at(*load.round)
        .exchange->give_room(now, *load.user, at,
                             {id.first, load.request.slab_id, part * load.part_bytes, load.part_bytes}, out);
  }
  if (load.own.has_next() || load.own.in_progress > 0) return;
  if (!load.unread.empty()) return read_unread(now, id, load, out);
  if (!load.shared.has_next() && load.parts.empty()) end_complete(now, found, out);
}

void Loader::end_complete(TimeNs now, Loads::iterator found, EffectWriter& out) {
  const LoadKey id = found->first;
  Load& load = found->second;
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
  end_load(now, found, LoadTrigger::transferred, out);
  out.to_client(id.first, local::LoadDone{id.second, ok_status(), times, std::move(damaged)});
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
      [this, ref = ref_of(id), batch](TimeNs then_now, Result<DamageList> damaged, EffectWriter& then_out) {
        if (find(ref) == nullptr) return;
        if (damaged.ok()) note_damage(ref.key, *damaged, then_out);
        batch_read(then_now, ref.key, batch, damaged.status(), then_out);
      });
}

void Loader::note_damage(const LoadKey& id, const DamageList& damaged, EffectWriter& out) {
  for (const ReadDamage& one : loads_.at(id).damaged.add(damaged)) {
    out.warning("load: " + to_string(one));
  }
}

void Loader::batch_read(TimeNs now, const LoadKey& id, uint32_t batch, const Status& outcome,
                        EffectWriter& out) {
  Load& load = loads_.at(id);
  load.reading.erase(batch);
  load.busy.end(now);
  if (!outcome.ok()) return fail(now, id, outcome, out);
  if (load.has_failed()) return fail(now, id, load.failure, out);
  loaded(id, batch, load, out);
}

void Loader::loaded(const LoadKey& id, uint32_t batch, Load& load, EffectWriter& out) {
  local::Loaded message{id.second, batch, {}};
  const uint64_t part_offset = load.parts.at(batch) * load.part_bytes;
  const ReadBatches& batches = *load.queue_of(batch).batches;
  const ReadBatchPlan planned = load.batch(batch);
  message.pieces.reserve(planned.reads.size());
  for (size_t i = 0; i < planned.reads.size(); ++i) {
    const PlannedRead& read = planned.reads[i];
    message.pieces.push_back(
        {{read.target, batches.pieces().box(read.piece), read.begin, read.end - read.begin, read.piece_bytes},
         part_offset + planned.offsets[i]});
  }
  load.loaded.insert(batch);
  out.to_client(id.first, std::move(message));
}

void Loader::on_placed(TimeNs now, const LoadKey& id, uint32_t batch, EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  if (load.loaded.erase(batch) == 0) return;  // the client does not have this batch
  const auto part = load.parts.find(batch);
  --load.queue_of(batch).in_progress;
  load.free_parts.push_back(part->second);
  load.parts.erase(part);
  proceed(now, id, out);
}

void Loader::fail(TimeNs now, const LoadKey& id, Status why, EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  // Whether the client has Found. A load that failed before and still exists was transferring.
  const bool was_found = load.has_failed() || load.is_found();
  if (!load.has_failed()) {
    load.failure = load.is_chosen() ? not_of_none(why) : why;
    load.on(LoadTrigger::failed);
  }
  if (!load.reading.empty()) return;
  if (load.user) {
    ChunkExchange& exchange = *rounds_.at(*load.round).exchange;
    exchange.forget_user(now, *load.user, out);
    if (exchange.is_copying(*load.user)) return;  // it calls `quiet` when it has finished
  }
  why = load.failure;
  const bool is_none = why.code() == Code::not_found;
  end_load(now, found, LoadTrigger::ended, out);
  // A job that starts with an empty root expects this.
  const std::string line = "the load of client " + std::to_string(id.first) + " failed: " + why.to_string();
  is_none ? out.info(line) : out.warning(line);
  if (was_found) {
    out.to_client(id.first, local::LoadDone{id.second, std::move(why)});
  } else {
    refuse(id.first, id.second, std::move(why), out);
  }
}

std::unique_ptr<Role> make_loader(const NodeConfig& config) {
  return std::make_unique<Loader>(config);
}

}  // namespace shoal::actors
