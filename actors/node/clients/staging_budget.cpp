#include "actors/node/clients/staging_budget.h"

#include <algorithm>
#include <iterator>

#include "shoal/bytes.h"

namespace shoal::actors {

namespace {

uint64_t whole_part_slabs(uint64_t bytes) {
  return bytes / kLeastPartSlabBytes * kLeastPartSlabBytes;
}

uint64_t times(uint64_t bytes, uint64_t count) {
  return count != 0 && bytes > UINT64_MAX / count ? UINT64_MAX : bytes * count;
}

uint64_t sum(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t less(uint64_t a, uint64_t b) {
  return a - std::min(a, b);
}

// The number of whole slabs within `limit`, at most `most`.
uint32_t slabs_within(uint64_t limit, uint64_t slab_bytes, uint32_t most) {
  return static_cast<uint32_t>(std::min<uint64_t>(most, limit / std::max<uint64_t>(1, slab_bytes)));
}

}  // namespace

uint64_t StagingBudget::Holder::resident() const {
  uint64_t bytes = 0;
  for (const auto& [id, of_slab] : slabs) {
    if (id < slabs_wanted) bytes = sum(bytes, of_slab);  // else a window of loads
  }
  return bytes;
}

void StagingBudget::attach(ClientId client, const local::Attach& message) {
  holders_[client].rank = message.rank;
  ranks_stated_ = std::max(ranks_stated_, message.ranks_on_host);
}

void StagingBudget::lose(ClientId client) {
  auto found = holders_.find(client);
  if (found == holders_.end()) return;
  found->second.is_here = false;
  found->second.wanted.reset();
  found->second.granted = 0;  // it allocates no more; its slabs are in memory
  found->second.is_making = found->second.is_giving_back = false;
}

void StagingBudget::forget(ClientId client) {
  holders_.erase(client);
}

void StagingBudget::want(TimeNs now, ClientId client, const local::StagingRequest& wanted) {
  auto found = holders_.find(client);
  if (found == holders_.end() || !found->second.is_here) return;
  Holder& holder = found->second;
  holder.wanted = wanted;
  holder.slabs_wanted = wanted.slabs;
  holder.since = now;
  holder.is_making = holder.is_giving_back = false;
  holder.used = now;
}

void StagingBudget::add_slab(ClientId client, const local::Slab& slab) {
  auto found = holders_.find(client);
  if (found == holders_.end() || slab.slab_id >= local::kMaxSlabsPerClient) return;
  found->second.slabs[slab.slab_id] = slab.bytes;
  if (slab.slab_id < found->second.slabs_wanted) found->second.is_making = false;
}

void StagingBudget::keep(ClientId client, const local::StagingKept& kept) {
  auto found = holders_.find(client);
  if (found == holders_.end()) return;
  Holder& holder = found->second;
  std::erase_if(holder.slabs, [&](const auto& slab) {
    return slab.first < kept.slabs &&
           std::find(kept.slab_ids.begin(), kept.slab_ids.end(), slab.first) == kept.slab_ids.end();
  });
  holder.slabs_wanted = std::min(kept.slabs, local::kMaxSlabsPerClient);
  holder.granted = kept.bytes;
  holder.is_making = false;
  if (kept.bytes == 0) holder.is_giving_back = false;
}

void StagingBudget::use(TimeNs now, ClientId client) {
  auto found = holders_.find(client);
  if (found != holders_.end()) found->second.used = now;
}

bool StagingBudget::has_waiting() const {
  return std::any_of(holders_.begin(), holders_.end(), [](const auto& each) { return each.second.wanted; });
}

bool StagingBudget::holds_any() const {
  return std::any_of(holders_.begin(), holders_.end(),
                     [](const auto& each) { return each.second.granted != 0 || !each.second.slabs.empty(); });
}

uint32_t StagingBudget::ranks() const {
  const auto here =
      std::count_if(holders_.begin(), holders_.end(), [](const auto& each) { return each.second.is_here; });
  return std::max({1u, limits_.ranks, ranks_stated_, static_cast<uint32_t>(here)});
}

uint32_t StagingBudget::missing() const {
  const auto known = std::count_if(holders_.begin(), holders_.end(), [](const auto& each) {
    return each.second.is_here && (each.second.wanted || each.second.granted != 0);
  });
  return ranks() - std::min(ranks(), static_cast<uint32_t>(known));
}

uint64_t StagingBudget::least_bytes() const {
  return std::max(kLeastPartSlabBytes, whole_part_slabs(kLeastStagingBytes / ranks()));
}

// Ordered by the age of their requests, then by client id.
std::vector<StagingBudget::Place> StagingBudget::waiting() {
  std::vector<Place> places;
  for (auto& [client, holder] : holders_) {
    if (holder.wanted) places.push_back({client, &holder});
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.holder->since < b.holder->since; });
  return places;
}

// The memory that all clients with requests may have together, including what they have already.
uint64_t StagingBudget::free_for_waiting(const HostMemory& memory) const {
  uint64_t resident = 0, outstanding = 0, own = 0;
  for (const auto& [client, holder] : holders_) {
    resident = sum(resident, holder.resident());
    if (holder.wanted) {
      own = sum(own, holder.resident());
    } else {
      outstanding = sum(outstanding, less(holder.granted, holder.resident()));
    }
  }
  uint64_t free = memory.free_bytes;
  if (limits_.bytes_max != 0) free = std::min(free, less(limits_.bytes_max, resident));
  return sum(less(free, outstanding), own);
}

void StagingBudget::grant(TimeNs now, Place place, uint32_t slabs, uint64_t slab_bytes,
                          const HostMemory& memory, std::vector<Decision>& out) {
  Holder& holder = *place.holder;
  const local::StagingRequest wanted = *holder.wanted;
  const bool in_parts = slab_bytes < wanted.bytes;
  std::string news;
  if (in_parts) {
    news = "a save of " + human_bytes(wanted.bytes) + " is staged in parts of up to " +
           human_bytes(slab_bytes / 2) + ", and save returns when it is written";
  } else if (slabs < wanted.slabs) {
    news = std::to_string(slabs) + " save(s) of " + human_bytes(wanted.bytes) + " in flight instead of " +
           std::to_string(wanted.slabs);
  }
  // The figures do not count: a rank that stages in parts requests memory before every save, and its share
  // varies.
  const Shortage shortage = news.empty() ? Shortage() : Shortage{in_parts, slabs};
  const bool is_known = shortage == holder.notified;
  holder.notified = shortage;
  if (!news.empty()) news = "memory for staging is short: " + news + ": " + memory.because;
  holder.wanted.reset();
  holder.granted = times(slab_bytes, slabs);
  holder.in_parts = in_parts;
  holder.is_making = holder.granted > holder.resident();
  holder.since = now;
  out.push_back({place.client, local::StagingGranted{slabs, slab_bytes, in_parts, ok_status(), wanted.number},
                 is_known ? "" : std::move(news)});
}

Status StagingBudget::too_little(const Part& part, const HostMemory& memory) const {
  const local::StagingRequest& wanted = *part.place.holder->wanted;
  const bool is_own_limit = wanted.bytes_max < part.portion;
  return Status(Code::no_space, "a save of this rank takes " + human_bytes(wanted.bytes) +
                                    " of memory to stage, or at least " + human_bytes(least_bytes()) +
                                    " to stage in parts; only " +
                                    human_bytes(std::min(part.portion, wanted.bytes_max)) +
                                    " are left for it: " + (is_own_limit ? wanted.because : memory.because) +
                                    "; free memory on this host, or raise that limit");
}

void StagingBudget::refuse(Place place, Status why, std::vector<Decision>& out) {
  const uint64_t number = place.holder->wanted->number;
  place.holder->wanted.reset();
  place.holder->granted = place.holder->resident();
  out.push_back({place.client, local::StagingGranted{0, 0, false, std::move(why), number}, ""});
}

// Grants the first request that is at most an equal share of the free memory.
bool StagingBudget::grant_portions(TimeNs now, uint64_t free, const HostMemory& memory,
                                   std::vector<Decision>& out) {
  std::vector<Place> places = waiting();
  const uint64_t portion = free / (places.size() + missing());
  for (const Place& place : places) {
    const local::StagingRequest& wanted = *place.holder->wanted;
    const uint64_t all = times(wanted.bytes, wanted.slabs);
    if (all > portion || all > wanted.bytes_max) continue;
    grant(now, place, wanted.slabs, wanted.bytes, memory, out);
    return true;
  }
  return false;
}

// Grants all requests: as many slabs each as fit for all.
bool StagingBudget::grant_whole(TimeNs now, uint64_t free, const HostMemory& memory,
                                std::vector<Decision>& out) {
  const std::vector<Place> places = waiting();
  uint32_t most = 0;
  for (const Place& place : places) most = std::max(most, place.holder->wanted->slabs);
  for (uint32_t slabs = most; slabs > 0; --slabs) {
    uint64_t all = 0;
    std::vector<uint32_t> of_each;
    for (const Place& place : places) {
      const local::StagingRequest& wanted = *place.holder->wanted;
      of_each.push_back(slabs_within(wanted.bytes_max, wanted.bytes, std::min(slabs, wanted.slabs)));
      all = of_each.back() == 0 ? UINT64_MAX : sum(all, times(wanted.bytes, of_each.back()));
    }
    if (all > free) continue;
    for (size_t i = 0; i < places.size(); ++i) {
      grant(now, places[i], of_each[i], places[i].holder->wanted->bytes, memory, out);
    }
    return true;
  }
  return false;
}

// Whether more memory may become free. A rank that stages in parts must give back only if the waiting ranks
// could not even stage in parts (have_parts). It requests memory before each of its saves anyway, and is then
// given an equal share.
bool StagingBudget::wait_for_others(TimeNs now, uint64_t free, bool have_parts, std::vector<Decision>& out) {
  TimeNs since = now;
  for (const Place& place : waiting()) since = std::min(since, place.holder->since);
  const TimeNs waited = now - since;
  if (waited >= limits_.patience_ms * kMillisecond) return false;
  uint64_t all = free;
  for (const auto& [client, holder] : holders_) {
    if (!holder.wanted) all = sum(all, std::max(holder.granted, holder.resident()));
  }
  bool is_waiting = waited < limits_.gather_ms * kMillisecond && missing() > 0;
  for (auto& [client, holder] : holders_) {
    if (!holder.is_here || holder.wanted) continue;
    const uint64_t held = std::max(holder.granted, holder.resident());
    const bool may_keep = holder.in_parts && have_parts;
    if (held > all / ranks() && !may_keep && !holder.is_giving_back) {
      holder.is_giving_back = true;
      out.push_back({client, std::nullopt, ""});
    }
    is_waiting = is_waiting || holder.is_giving_back || holder.is_making;
  }
  return is_waiting;
}

// One slab for each client that waits. The smallest request comes first: what it leaves of its share goes to
// the others.
std::vector<StagingBudget::Part> StagingBudget::parts_of(uint64_t free) {
  std::vector<Place> places = waiting();
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::min(a.holder->wanted->bytes, a.holder->wanted->bytes_max) <
           std::min(b.holder->wanted->bytes, b.holder->wanted->bytes_max);
  });
  std::vector<Part> parts;
  for (size_t i = 0; i < places.size(); ++i) {
    const local::StagingRequest& wanted = *places[i].holder->wanted;
    const uint64_t portion = free / (places.size() - i);
    const uint64_t most = std::min(portion, wanted.bytes_max);
    uint64_t bytes =
        wanted.bytes <= most ? wanted.bytes : whole_part_slabs(std::min(most, kMostPartSlabBytes));
    if (bytes < wanted.bytes && bytes < least_bytes()) bytes = 0;
    parts.push_back({places[i], portion, bytes});
    free -= bytes != 0 ? bytes : portion;
  }
  return parts;
}

// Grants all requests or none: if one rank cannot stage, there is no save.
void StagingBudget::grant_parts(TimeNs now, uint64_t free, const HostMemory& memory,
                                std::vector<Decision>& out) {
  const std::vector<Part> parts = parts_of(free);
  const auto lacking = std::find_if(parts.begin(), parts.end(), [](const Part& p) { return p.bytes == 0; });
  if (lacking == parts.end()) {
    for (const Part& part : parts) grant(now, part.place, 1, part.bytes, memory, out);
    return;
  }
  const Status first = too_little(*lacking, memory)
                           .with_context("rank " + std::to_string(lacking->place.holder->rank) +
                                         " of this host cannot stage its part of the save");
  std::vector<Status> causes;
  for (const Part& part : parts) causes.push_back(part.bytes == 0 ? too_little(part, memory) : first);
  for (size_t i = 0; i < parts.size(); ++i) refuse(parts[i].place, std::move(causes[i]), out);
}

// Requests the slabs of ranks that have saved nothing for a while.
void StagingBudget::relieve(TimeNs now, const HostMemory& memory, std::vector<Decision>& out) {
  if (memory.free_bytes >= limits_.pressure_bytes) return;
  for (auto& [client, holder] : holders_) {
    const bool is_idle = now - holder.used >= limits_.idle_ms * kMillisecond;
    if (!holder.is_here || holder.wanted || holder.is_giving_back || !is_idle) continue;
    if (holder.resident() == 0) continue;
    holder.is_giving_back = true;
    out.push_back({client, std::nullopt,
                   "the host is short of memory: " + human_bytes(holder.resident()) +
                       " of staging memory that was not used for a while is given back: " + memory.because});
  }
}

std::vector<StagingBudget::Decision> StagingBudget::decide(TimeNs now, const HostMemory& memory) {
  std::vector<Decision> out;
  while (has_waiting() && grant_portions(now, free_for_waiting(memory), memory, out)) {
  }
  if (has_waiting()) {
    const uint64_t free = free_for_waiting(memory);
    const uint64_t count = waiting().size();
    // Ranks without a request yet may want as much.
    const uint64_t of_these = missing() == 0 ? free : free / (count + missing()) * count;
    const bool all_are_known = missing() == 0;
    const std::vector<Part> parts = parts_of(of_these);
    const bool have_parts = std::none_of(parts.begin(), parts.end(), [&](const Part& part) {
      // Else the limit of the process itself is too low.
      return part.bytes == 0 && part.portion < least_bytes();
    });
    const bool is_granted = all_are_known && grant_whole(now, free, memory, out);
    if (!is_granted && !wait_for_others(now, free, have_parts, out) &&
        !grant_whole(now, of_these, memory, out)) {
      grant_parts(now, of_these, memory, out);
    }
  }
  relieve(now, memory, out);
  return out;
}

}  // namespace shoal::actors
