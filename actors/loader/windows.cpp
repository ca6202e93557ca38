// Loader: memory of loads.
#include <algorithm>
#include <set>
#include <utility>

#include "actors/loader/loader.h"

namespace shoal::actors {

static_assert(kMinLoadMemoryBytes / 2 >= least_buffer_bytes(1) && kMinLoadMemoryBytes >= kLeastWindowBytes);

WindowBudget::Window Loader::part_in(uint64_t bytes, const LoadKey& id) const {
  std::set<ClientId> clients;
  for (const auto& [slab, size] : slabs_) clients.insert(slab.first);
  const uint64_t ranks = std::max<uint64_t>({1, clients.size(), config_.expected_ranks.size()});
  const Load& load = loads_.at(id);
  const uint64_t wanted = std::max(kLeastWindowBytes, std::min(load.slab_bytes, bytes / ranks));
  return {window_of(id, load), wanted, std::max(kLeastWindowBytes, wanted / kWindowParts)};
}

void Loader::read_directly(TimeNs now, const LoadKey& id, std::shared_ptr<const ReadPlan> plan,
                           EffectWriter& out) {
  Load& load = loads_.at(id);
  if (plan->reads.empty()) {
    load.on(LoadTrigger::transfer_begins);
    return proceed(now, id, out);
  }
  load.request.targets = {};  // targets of many small tensors take more memory than the window
  load.request.sharing.reset();
  if (!load.reads_files) return wait_for_window(id, load, std::move(plan));
  load.on(LoadTrigger::transfer_begins);
  load.own.batches = config_.plans->batches(plan, kFilesBatchBytes);
  proceed(now, id, out);
}

void Loader::wait_for_window(const LoadKey& id, Load& load, std::shared_ptr<const ReadPlan> plan) {
  load.on(LoadTrigger::window_needed);
  load.plan = std::move(plan);
  load.ticket = budget_.ask({{part_in(budget_.bytes(), id)}, 0, 0});
  waiting_[*load.ticket] = id;
}

// Half of the budget is for chunks, if the windows leave that much.
void Loader::request_gathering(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Round& round = rounds_.at(id);
  const std::optional<uint32_t> host = own_host_in(*round.roster);
  if (!host) {
    wire::LoadRoster only_this;
    only_this.addresses = {""};
    round.roster = std::make_shared<const wire::LoadRoster>(std::move(only_this));
  }
  round.own_host = host.value_or(0);
  round.users = round.loads;
  round.reads = reads_of_users(round, round.own_host);
  std::set<std::vector<uint32_t>> groups;
  for (const UserReads& user : round.reads) {
    const std::vector<uint32_t>* last = nullptr;
    for (const HostGroup& hosts : user.hosts) {
      if (hosts == nullptr || hosts.get() == last) continue;
      last = hosts.get();
      groups.insert(*hosts);
    }
  }
  if (round.users.size() > 1) groups.insert({});  // for chunks that only ranks of this host share
  WindowBudget::Ask ask;
  ask.buffer_least = least_buffer_bytes(groups.size());
  ask.buffer_wanted = std::max(ask.buffer_least, budget_.bytes() / 2);
  const uint64_t for_windows = budget_.bytes() - std::min(budget_.bytes(), ask.buffer_wanted);
  for (const LoadKey& user : round.users) ask.windows.push_back(part_in(for_windows, user));
  if (!budget_.fits(ask)) return go_direct(now, id, out);
  round.on(RoundTrigger::all_planned);
  round.ticket = budget_.ask(std::move(ask));
  waiting_[*round.ticket] = id;
}

// The minimums of all windows exceed the budget of this node: the loads run one after the other.
void Loader::go_direct(TimeNs now, const wire::LoadId& id, EffectWriter& out) {
  Round& round = rounds_.at(id);
  out.info("this node does not share a load: " + std::to_string(round.users.size()) +
           " ranks of this host are too many for a load memory of " + human_bytes(budget_.bytes()));
  round.on(RoundTrigger::too_little_memory);
  round.reads.clear();
  refuse_early(round, out);
  round.late.insert(round.loads.begin(), round.loads.end());
  round.loads.clear();
  for (auto& [user, plan] : std::exchange(round.planned, {})) read_directly(now, user, std::move(plan), out);
}

void Loader::stop_waiting(std::optional<WindowBudget::Ticket>& ticket) {
  if (!ticket) return;
  budget_.withdraw(*ticket);
  waiting_.erase(*ticket);
  ticket.reset();
}

void Loader::give_windows(TimeNs now, EffectWriter& out) {
  for (auto grant = budget_.next(); grant; grant = budget_.next()) {
    const auto asked = waiting_.extract(grant->ticket).mapped();
    if (const auto* round_id = std::get_if<wire::LoadId>(&asked)) {
      Round& round = rounds_.at(*round_id);
      for (size_t user = 0; user < round.users.size(); ++user) {
        give_window(round.users[user], grant->windows[user]);
        const Load& load = loads_.at(round.users[user]);
        round.reads[user].part_bytes = load.part_bytes;
        if (load.reads_files) round.reads[user].own_bytes = kFilesBatchBytes;
      }
      build_exchange(now, *round_id, grant->buffer, out);
      continue;
    }
    const LoadKey& id = std::get<LoadKey>(asked);
    Load& load = loads_.at(id);
    give_window(id, grant->windows.front());
    load.ticket.reset();
    load.on(LoadTrigger::transfer_begins);
    load.own.batches = config_.plans->batches(std::exchange(load.plan, nullptr), load.part_bytes);
    proceed(now, id, out);
  }
  release_windows(out);
}

void Loader::give_window(const LoadKey& id, uint64_t bytes) {
  Load& load = loads_.at(id);
  const WindowParts parts = window_parts(std::min(bytes, load.slab_bytes));
  load.has_window = true;
  load.part_bytes = parts.bytes;
  for (uint32_t part = parts.count; part-- > 0;) load.free_parts.push_back(part);
}

void Loader::release_windows(EffectWriter& out) {
  for (const WindowBudget::WindowId& window : budget_.to_release()) {
    operations_.start(operation::ReleaseWindow{window.first, window.second}, out,
                      [this, window](TimeNs, Result<operation::Done> result, EffectWriter& then_out) {
                        const bool is_gone = result.status().code() == Code::not_found;  // its client is gone
                        if (!result.ok() && !is_gone) then_out.warning(result.status().to_string());
                        budget_.released(window);
                      });
  }
}

}  // namespace shoal::actors
