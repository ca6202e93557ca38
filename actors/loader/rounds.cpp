// Loader: rounds, in which several nodes, and the clients of one node, load together.
#include <algorithm>
#include <utility>

#include "actors/loader/loader.h"
#include "base/rare_path.h"

namespace shoal::actors {

namespace {

// A node waits a part of load_gather_quiet_ms for further ranks of its host before each JoinLoad.
constexpr uint32_t kLocalWaitShare = 4;
// Typical rate of a host's storage, from which quiet_ms follows.
constexpr uint64_t kReadBytesPerMs = uint64_t{4} << 20;

uint64_t bytes_of(const local::Load& request) {
  uint64_t bytes = 0;
  local::LoadTarget target;
  for (size_t t = 0; t < request.targets.size(); ++t) {
    request.targets.read(t, target);
    const Result<uint64_t> element_bytes = dtype_bytes(target.dtype);
    for (const Box& box : target.boxes) bytes += box.elements() * (element_bytes.ok() ? *element_bytes : 1);
  }
  return bytes;
}

}  // namespace

bool Loader::is_worth_asking(Load& load) {
  const local::Load& request = load.request;
  if (!request.sharing || request.sharing->world_size < 2) return false;
  load.bytes = bytes_of(request);
  if (request.sharing->world_size >= kAskFromRanks) return true;
  return !request.targets.empty() && is_worth_sharing(load);
}

bool Loader::is_worth_sharing(const Load& load) {
  return load.request.sharing->method == LoadMethod::two_stage || load.bytes >= kShareFromBytes;
}

// Ranks with equal layouts share, unless they restrict sharing to certain ranks.
LayoutId Loader::shared_by(const local::Load::Sharing& sharing) {
  if (sharing.among.empty()) return sharing.layout->id();
  std::string text(as_text(sharing.layout->id().bytes));
  for (Rank rank : sharing.among) text += ' ' + std::to_string(rank);
  return xxh3_128(as_view(text));
}

void Loader::enter_round(TimeNs now, const LoadKey& id, EffectWriter& out) {
  Load& load = loads_.at(id);
  const local::Load::Sharing& sharing = *load.request.sharing;
  wire::LoadId round_id{load.request.latest, load.request.step, load.request.ordinal, sharing.round,
                        load.request.attempt};
  if (load.fixed) round_id = {false, load.fixed->step, 0, sharing.round, 0};
  load.round = round_id;
  Round& round = rounds_.try_emplace(round_id, round_counts_).first->second;
  if (round.is_answered()) {
    round.late.insert(id);
    if (round.chosen && !load.fixed) {
      load.passed_over = round.chosen->passed_over;
      return hold(now, id, round.chosen->key, out);
    }
    return choose(now, id, out);
  }
  load.on(LoadTrigger::shares);
  if (round.awaits_answer()) {
    if (!round.shares || sharing.method == LoadMethod::direct) {
      round.late.insert(id);
      return;
    }
    join_round(round, id);
    return ask_again(now, round_id, out);
  }
  join_round(round, id);
  if (are_all_here(round)) {
    timers_.cancel(&round.timer, out);
    return begin_asking(now, round_id, out);
  }
  if (round.timer != 0) return;
  const TimeNs wait = TimeNs{config_.timeouts.load_gather_quiet_ms} * kMillisecond / kLocalWaitShare;
  round.timer = timers_.set(now + wait, out, [this, round_id](TimeNs then_now, EffectWriter& then_out) {
    auto found = rounds_.find(round_id);
    if (found == rounds_.end() || !found->second.is(RoundState::gathering)) return;
    found->second.timer = 0;
    begin_asking(then_now, round_id, then_out);
  });
}

void Loader::join_round(Round& round, const LoadKey& id) {
  const Load& load = loads_.at(id);
  const local::Load::Sharing& sharing = *load.request.sharing;
  round.loads.push_back(id);
  round.world_size = sharing.world_size;
  if (sharing.method == LoadMethod::direct) return;
  round.ranks[sharing.rank] = shared_by(sharing);
  if (!is_worth_sharing(load)) return;
  round.shares = true;
  round.insists = round.insists || sharing.method == LoadMethod::two_stage;
  round.bytes += load.bytes;
}

bool Loader::are_all_here(const Round& round) const {
  return round.loads.size() >= round.world_size ||
         (round.loads.size() >= config_.expected_ranks.size() && !config_.expected_ranks.empty());
}

// The time in which this host alone would read everything.
uint32_t Loader::quiet_ms_of(const Round& round) const {
  const Timeouts& timeouts = config_.timeouts;
  const uint64_t longest = std::max(timeouts.load_gather_quiet_ms, timeouts.load_gather_longest_ms);
  if (round.insists) return static_cast<uint32_t>(longest);
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(round.bytes / kReadBytesPerMs, timeouts.load_gather_quiet_ms, longest));
}

bool Loader::hold_all_alone(const Round& round) const {
  std::map<LayoutId, std::pair<LayoutPtr, std::set<Rank>>> ranks;
  for (const LoadKey& id : round.loads) {
    const local::Load::Sharing& sharing = *loads_.at(id).request.sharing;
    auto& [layout, of_layout] = ranks[sharing.layout->id()];
    layout = sharing.layout;
    of_layout.insert(sharing.rank);
  }
  return std::ranges::all_of(
      ranks, [](const auto& each) { return hold_alone(*each.second.first, each.second.second); });
}

// A node that shares first opens the address at which peers reach it. If no other node needs any of its
// bytes, it asks for the checkpoint alone: a roster of many hosts would be of no use to it.
void Loader::begin_asking(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Round& round = rounds_.at(id);
  if (round.shares && !round.insists && are_all_here(round) && hold_all_alone(round)) round.shares = false;
  round.asked_since = now;
  round.backoff.emplace(config_.timeouts);
  if (!round.shares || address_) {
    round.on(RoundTrigger::gathered);
    return ask(now, id, out);
  }
  round.on(RoundTrigger::gathered_to_share);
  operations_.start(
      operation::ListenToPeers{}, out,
      [this, id](TimeNs then_now, Result<std::string> address, EffectWriter& then_out) {
        if (!address_) {
          address_ = address.ok() ? *address : "";
          if (!address.ok()) {
            then_out.info("this node shares no loads with other nodes: " + address.status().message());
          }
        }
        auto found = rounds_.find(id);
        if (found == rounds_.end() || !found->second.is(RoundState::opening_address)) return;
        found->second.on(RoundTrigger::address_known);
        ask(then_now, id, then_out);
      });
}

void Loader::ask(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  auto found = rounds_.find(id);
  if (found == rounds_.end() || !found->second.is(RoundState::asking)) return;
  Round& round = found->second;
  timers_.cancel(&round.timer, out);
  round.asks_again = false;
  wire::JoinLoad join{id, round.world_size, "", {}, 0};
  if (round.shares && address_ && !address_->empty()) {
    join.address = *address_;
    join.quiet_ms = quiet_ms_of(round);
  }
  // Also of a node that does not share, so that nobody waits for its ranks.
  for (const auto& [rank, shared_by] : round.ranks) join.ranks.push_back({rank, shared_by});
  out.send(kCoordinatorNode, RoleKind::coordinator, std::move(join));
  ask_later(now, id, out);
}

// For ranks that came during the wait: the new JoinLoad replaces the one before.
void Loader::ask_again(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Round& round = rounds_.at(id);
  if (!round.is(RoundState::asking)) return;  // no JoinLoad was sent yet
  if (are_all_here(round)) return ask(now, id, out);
  if (std::exchange(round.asks_again, true)) return;
  const TimeNs wait = TimeNs{config_.timeouts.load_gather_quiet_ms} * kMillisecond / kLocalWaitShare;
  timers_.set(now + wait, out, [this, id](TimeNs then_now, EffectWriter& then_out) {
    auto found = rounds_.find(id);
    if (found != rounds_.end() && found->second.asks_again) ask(then_now, id, then_out);
  });
}

void Loader::ask_later(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Round& round = rounds_.at(id);
  const bool is_verified_first = id.latest && may_fall_back(id.ordinal);
  const TimeNs patience = kMillisecond * (is_verified_first ? TimeNs{config_.timeouts.load_verify_patience_ms}
                                                            : TimeNs{config_.timeouts.load_join_patience_ms});
  const TimeNs again = std::min(now + round.backoff->next(), round.asked_since + patience);
  round.timer = timers_.set(again, out, [this, id, patience](TimeNs then_now, EffectWriter& then_out) {
    auto then = rounds_.find(id);
    if (then == rounds_.end() || !then->second.is(RoundState::asking)) return;
    then->second.timer = 0;
    if (then_now - then->second.asked_since >= patience) return read_without_sharing(then_now, id, then_out);
    base::rare_path<"loader: asks the coordinator again">();
    ask(then_now, id, then_out);
  });
}

void Loader::read_without_sharing(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Round& round = rounds_.at(id);
  timers_.cancel(&round.timer, out);
  base::rare_path<"loader: reads without sharing because nobody answers">();
  round.on(RoundTrigger::no_answer);
  out.info("this node does not share a load with other nodes: the coordinator does not answer");
  round.late.insert(round.loads.begin(), round.loads.end());
  round.loads.clear();
  refuse_early(round, out);
  for (const LoadKey& load : std::set<LoadKey>(round.late)) choose(now, load, out);
}

// False for a rank that came after the coordinator had answered: its peers do not know of it.
bool Loader::is_named(const LoadKey& id, const wire::LoadRoster& roster) const {
  const local::Load& request = loads_.at(id).request;
  const std::optional<uint32_t> host = own_host_in(roster);
  if (!host || !request.sharing || request.sharing->method == LoadMethod::direct) return true;
  const Rank rank = request.sharing->rank;
  return std::any_of(roster.members.begin(), roster.members.end(), [&](const wire::LoadMembers& members) {
    return members.host == *host && members.first <= rank && rank - members.first < members.count;
  });
}

void Loader::on_roster(TimeNs now, const std::shared_ptr<const wire::LoadRoster>& answer, EffectWriter& out) {
  const wire::LoadRoster& roster = *answer;
  auto found = rounds_.find(roster.id);
  if (found == rounds_.end() || !found->second.awaits_answer()) return;
  Round& round = found->second;
  timers_.cancel(&round.timer, out);
  round.on(RoundTrigger::answered);
  std::vector<LoadKey> loads = round.loads;
  loads.insert(loads.end(), round.late.begin(), round.late.end());
  if (!roster.outcome.ok()) {
    for (const LoadKey& load : loads) {
      if (loads_.at(load).fixed) {
        std::erase(round.loads, load);
        round.late.insert(load);
        hold(now, load, *loads_.at(load).fixed, out);
      } else {
        fail(now, load, roster.outcome, out);
      }
    }
    return consider_exchange(now, roster.id, out);
  }
  round.chosen = LoadChooser::Chosen{roster.key, roster.passed_over};
  round.roster = answer;
  for (const LoadKey& load : loads) {
    loads_.at(load).passed_over = roster.passed_over;
    const AttemptKey key = loads_.at(load).fixed.value_or(roster.key);
    // The client keeps another attempt at this step open, the roster does not name it, or it reads nothing.
    const bool reads_nothing = loads_.at(load).request.targets.empty();
    if (key != roster.key || !is_named(load, roster) || reads_nothing) {
      std::erase(round.loads, load);
      round.late.insert(load);
    }
    hold(now, load, key, out);
  }
  consider_exchange(now, roster.id, out);  // loads of an open checkpoint are planned already
}

void Loader::leave_round(TimeNs now, const LoadKey& id, Load& load, EffectWriter& out) {
  const wire::LoadId round_id = *load.round;
  Round& round = rounds_.at(round_id);
  std::erase(round.loads, id);
  round.late.erase(id);
  round.planned.erase(id);
  if (round.is(RoundState::awaiting_memory)) {
    stop_waiting(round.ticket);
    round.on(RoundTrigger::member_left);
  }
  if (load.user) round.exchange->forget_user(now, *load.user, out);
  consider_exchange(now, round_id, out);
}

// Runs when every load of the round is planned.
void Loader::consider_exchange(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Round& round = rounds_.at(id);
  if (!round.is(RoundState::planning)) return;
  if (round.loads.empty()) return refuse_early(round, out);  // only loads that read directly are left
  if (round.planned.size() < round.loads.size()) return;
  request_gathering(now, id, out);
}

std::optional<uint32_t> Loader::own_host_in(const wire::LoadRoster& roster) const {
  for (uint32_t host = 0; host < roster.addresses.size(); ++host) {
    if (address_ && roster.addresses[host] == *address_) return host;
  }
  return std::nullopt;
}

std::vector<UserReads> Loader::reads_of_users(const Round& round, uint32_t own_host) const {
  std::map<LayoutId, std::unique_ptr<LoadGroups>> groups;
  std::vector<UserReads> users;
  for (const LoadKey& id : round.users) {
    const Load& load = loads_.at(id);
    const local::Load::Sharing& sharing = *load.request.sharing;
    const LayoutId shared = shared_by(sharing);
    const auto& named = round.roster->groups;
    const auto group = std::find(named.begin(), named.end(), shared);
    std::unique_ptr<LoadGroups>& of_layout = groups[shared];
    if (of_layout == nullptr && group != named.end() && sharing.method != LoadMethod::direct) {
      of_layout = std::make_unique<LoadGroups>(sharing.layout, round.roster,
                                               static_cast<uint32_t>(group - named.begin()), own_host);
    }
    UserReads user{round.planned.at(id), {}, 0};
    const local::LoadTargets& targets = load.request.targets;
    const std::vector<LayoutEntry>& entries = sharing.layout->entries();
    size_t next = 0;  // targets are usually in the order of the layout
    user.hosts.reserve(targets.size());
    for (size_t t = 0; t < targets.size(); ++t) {
      const bool is_next = next < entries.size() && entries[next].fqn == targets.fqn(t);
      const std::optional<size_t> entry = is_next ? next : sharing.layout->find(targets.fqn(t));
      if (entry) next = *entry + 1;
      const bool has_group = of_layout != nullptr && entry && targets.kind(t) == LayoutEntry::Kind::tensor;
      HostGroup hosts = has_group ? of_layout->hosts_of(*entry) : nullptr;
      user.hosts.push_back(hosts != nullptr && hosts->size() > 1 ? std::move(hosts) : nullptr);
    }
    users.push_back(std::move(user));
  }
  return users;
}

void Loader::build_exchange(TimeNs now, const wire::LoadId& id, uint64_t buffer_bytes, EffectWriter& out) {
  Round& round = rounds_.at(id);
  round.on(RoundTrigger::memory_granted);
  const std::shared_ptr<const ChunkPlan> plan = config_.plans->chunks(std::exchange(round.reads, {}));
  round.planned.clear();
  bool may_go_direct = true;
  for (uint32_t user = 0; user < round.users.size(); ++user) {
    Load& load = loads_.at(round.users[user]);
    load.own.batches = std::shared_ptr<const ReadBatches>(plan, &plan->users[user].own);
    load.shared.batches = std::shared_ptr<const ReadBatches>(plan, &plan->users[user].shared);
    load.user = user;
    load.on(LoadTrigger::transfer_begins);
    if (load.request.sharing->method == LoadMethod::two_stage) may_go_direct = false;
    load.request.targets = {};
    load.request.sharing.reset();
  }
  ChunkExchange::Settings settings{id,
                                   {round.roster, &round.roster->addresses},
                                   round.own_host,
                                   buffer_bytes,
                                   may_go_direct,
                                   TimeNs{config_.timeouts.chunk_deadline_ms} * kMillisecond};
  ChunkExchange::Hooks hooks;
  hooks.batch_complete = [this, id](TimeNs, uint32_t user, uint32_t batch, EffectWriter& then_out) {
    const LoadKey key = rounds_.at(id).users[user];
    auto found = loads_.find(key);
    if (found == loads_.end() || found->second.has_failed()) return;
    loaded(key, Load::number_of_shared(batch), found->second, then_out);
  };
  hooks.failed = [this, id](TimeNs then_now, uint32_t user, const Status& why, EffectWriter& then_out) {
    fail(then_now, LoadKey(rounds_.at(id).users[user]), why, then_out);
  };
  hooks.quiet = [this, id](TimeNs then_now, uint32_t user, EffectWriter& then_out) {
    const LoadKey key = rounds_.at(id).users[user];
    auto found = loads_.find(key);
    if (found != loads_.end() && found->second.has_failed()) {
      fail(then_now, key, found->second.failure, then_out);
    }
  };
  round.exchange =
      std::make_unique<ChunkExchange>(ChunkExchange::Pendings{operations_, timers_, sends_, exchange_counts_},
                                      plan, std::move(settings), std::move(hooks));
  round.exchange->begin(now, out);
  for (const auto& [from, wanted] : std::exchange(round.early, {})) {
    round.exchange->on_request(now, from, wanted, out);
  }
  for (const wire::ChunksCancelled& received : std::exchange(round.early_cancelled, {})) {
    round.exchange->on_cancelled(now, received, out);
  }
  for (const LoadKey& user : std::vector<LoadKey>(round.users)) proceed(now, user, out);
}

void Loader::on_request(TimeNs now, NodeId from, const wire::ChunkRequest& received, EffectWriter& out) {
  auto found = rounds_.find(received.id);
  if (found != rounds_.end() && found->second.exchange) {
    return found->second.exchange->on_request(now, from, received, out);
  }
  const bool comes = found != rounds_.end() && !found->second.is_settled() && !found->second.loads.empty();
  if (comes && found->second.early.size() < kMaxEarlyRequests) {
    Round& round = found->second;
    round.early.emplace_back(from, received);
    if (round.early.size() == 1) {
      round.early_since = now;
      send_pending_later(now, received.id, out);
    }
    return;
  }
  out.send(from, RoleKind::loader, wire::ChunksUnavailable{received.id, received.chunks});
}

void Loader::on_cancelled(TimeNs now, const wire::ChunksCancelled& received, EffectWriter& out) {
  auto found = rounds_.find(received.id);
  if (found == rounds_.end()) return;
  Round& round = found->second;
  if (round.exchange) return round.exchange->on_cancelled(now, received, out);
  if (!round.is_settled() && round.early_cancelled.size() < kMaxEarlyRequests) {
    round.early_cancelled.push_back(received);
  }
}

// Informs peers that are ahead that this node is about to begin. Not while it waits for memory, and only for
// a limited time.
void Loader::send_pending_later(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  const TimeNs deadline = TimeNs{config_.timeouts.chunk_deadline_ms} * kMillisecond;
  timers_.set(now + deadline / 5 * 2, out, [this, id, deadline](TimeNs then_now, EffectWriter& then_out) {
    auto found = rounds_.find(id);
    if (found == rounds_.end() || found->second.is_settled()) return;
    const Round& round = found->second;
    if (then_now - round.early_since > kMostDeadlinesEarly * deadline) return;
    const std::optional<uint32_t> own_host = own_host_in(*round.roster);
    for (const auto& [from, wanted] : round.early) {
      if (!round.is(RoundState::awaiting_memory))
        then_out.send(from, RoleKind::loader, wire::ChunksPending{id, wanted.chunks, own_host});
    }
    send_pending_later(then_now, id, then_out);
  });
}

// The node shares nothing in this round: peers that are ahead read these chunks themselves.
void Loader::refuse_early(Round& round, EffectWriter& out) {
  for (const auto& [from, wanted] : std::exchange(round.early, {})) {
    out.send(from, RoleKind::loader, wire::ChunksUnavailable{wanted.id, wanted.chunks});
  }
  round.early_cancelled.clear();
}

void Loader::forget_rounds() {
  std::erase_if(rounds_, [this](const auto& each) {
    const Round& round = each.second;
    if (!round.loads.empty() || !round.late.empty()) return false;
    const bool is_over = round.exchange == nullptr || round.exchange->is_over();
    // Peers may still request these bytes.
    if (round.ticket) budget_.shrink_buffer(*round.ticket, is_over ? 0 : round.exchange->bytes_held());
    return is_over;
  });
}

}  // namespace shoal::actors
