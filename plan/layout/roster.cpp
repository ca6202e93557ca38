#include "shoal/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/layout/codec.h"
#include "shoal/bytes.h"

namespace shoal {

namespace {

Status validate_world_size(uint64_t size) {
  if (size >= 1 && size <= kMaxWorldSize) return ok_status();
  return Status(Code::invalid_argument,
                fmt::format("the world has {} ranks: 1 to {} are allowed", size, kMaxWorldSize));
}

void append(std::vector<Run>& runs, uint32_t value) {
  if (runs.empty() || runs.back().value != value) runs.push_back({0, value});
  ++runs.back().count;
}

std::vector<uint32_t> starts_of(const std::vector<Run>& runs) {
  std::vector<uint32_t> starts;
  starts.reserve(runs.size());
  uint32_t next = 0;
  for (const Run& run : runs) {
    starts.push_back(next);
    next += run.count;
  }
  return starts;
}

uint32_t value_at(const std::vector<Run>& runs, const std::vector<uint32_t>& starts, Rank rank) {
  auto after = std::upper_bound(starts.begin(), starts.end(), rank);
  return runs[static_cast<size_t>(after - starts.begin()) - 1].value;
}

// Checks that the runs cover all ranks, that neighbours differ, and that values are numbered by first
// appearance. Returns the number of values.
Result<uint32_t> check_runs(const std::vector<Run>& runs, uint32_t world_size, const char* what) {
  auto corrupt = [&](const char* why) {
    return Status(Code::corrupt, fmt::format("roster: the runs of {} {}", what, why));
  };
  uint64_t ranks = 0;
  uint32_t values = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].count == 0) return corrupt("include an empty run");
    if (i > 0 && runs[i].value == runs[i - 1].value) return corrupt("include two equal neighbours");
    if (runs[i].value > values) return corrupt("are not numbered in the order of their first ranks");
    if (runs[i].value == values) ++values;
    ranks += runs[i].count;
  }
  if (ranks != world_size) return corrupt("do not add up to the world size");
  return values;
}

}  // namespace

Result<Roster> Roster::make(std::span<const LayoutId> layout, std::span<const uint32_t> host) {
  SHOAL_RETURN_IF_ERROR(validate_world_size(layout.size()));
  if (layout.size() != host.size()) {
    return Status(Code::invalid_argument,
                  fmt::format("{} layouts and {} hosts are given for one roster: the numbers must be equal",
                              layout.size(), host.size()));
  }
  std::map<LayoutId, uint32_t> layout_numbers;
  std::map<uint32_t, uint32_t> host_numbers;
  std::vector<LayoutId> ids;
  std::vector<Run> layout_runs, host_runs;
  uint32_t layout_number = 0, host_number = 0;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    if (rank == 0 || layout[rank] != layout[rank - 1]) {
      auto [found, is_new] = layout_numbers.emplace(layout[rank], static_cast<uint32_t>(ids.size()));
      if (is_new) ids.push_back(layout[rank]);
      layout_number = found->second;
    }
    if (rank == 0 || host[rank] != host[rank - 1]) {
      host_number =
          host_numbers.emplace(host[rank], static_cast<uint32_t>(host_numbers.size())).first->second;
    }
    append(layout_runs, layout_number);
    append(host_runs, host_number);
  }
  return from_runs(static_cast<uint32_t>(layout.size()), std::move(ids), std::move(layout_runs),
                   std::move(host_runs));
}

Result<Roster> Roster::from_runs(uint32_t world_size, std::vector<LayoutId> layout_ids,
                                 std::vector<Run> layout_runs, std::vector<Run> host_runs) {
  if (Status status = validate_world_size(world_size); !status.ok())
    return Status(Code::corrupt, status.message());
  SHOAL_ASSIGN_OR_RETURN(uint32_t layouts, check_runs(layout_runs, world_size, "layouts"));
  SHOAL_ASSIGN_OR_RETURN(uint32_t hosts, check_runs(host_runs, world_size, "hosts"));
  if (layouts != layout_ids.size()) return Status(Code::corrupt, "roster: no rank has one of the layouts");
  if (std::set<LayoutId>(layout_ids.begin(), layout_ids.end()).size() != layout_ids.size()) {
    return Status(Code::corrupt, "roster: a layout occurs twice");
  }
  Roster roster;
  roster.world_size_ = world_size;
  roster.hosts_ = hosts;
  roster.layout_starts_ = starts_of(layout_runs);
  roster.host_starts_ = starts_of(host_runs);
  roster.layout_ids_ = std::move(layout_ids);
  roster.layout_runs_ = std::move(layout_runs);
  roster.host_runs_ = std::move(host_runs);
  roster.id_ = xxh3_128(plan::encode_roster(roster));
  return roster;
}

uint32_t Roster::layout_of(Rank rank) const {
  SHOAL_CHECK(rank < world_size_);
  return value_at(layout_runs_, layout_starts_, rank);
}

uint32_t Roster::host_of(Rank rank) const {
  SHOAL_CHECK(rank < world_size_);
  return value_at(host_runs_, host_starts_, rank);
}

}  // namespace shoal
