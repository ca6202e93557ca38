#include "actors/coordinator/replica_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <tuple>

#include "base/digest/digest.h"

namespace shoal::actors {

struct ReplicaComparison::Sighting {  // one block of one class
  Hash128 id;
  uint64_t digest = 0;
  uint32_t of_class = 0;
  uint32_t block = 0;
};

void ReplicaComparison::take(Rank rank, const plan::ReplicaDigestsPtr& digests) {
  if (digests == nullptr) return;
  policy_ = std::max(policy_, digests->policy);
  if (!first_window_) first_window_.emplace(rank, digests->window);
  if (first_window_->second != digests->window && unequal_windows_.empty()) {
    unequal_windows_ = fmt::format(
        "rank {} digested window {} of its replicas, and rank {} window {}: these ranks have called save a "
        "different number of times, so their replicas are not compared",
        first_window_->first, first_window_->second, rank, digests->window);
  }
  const Hash128 contents = xxh3_128(std::as_bytes(std::span(digests->digests)));
  Class& same = classes_.try_emplace({digests->blocks, contents}, Class{digests, {}}).first->second;
  const auto place = std::lower_bound(same.ranks.begin(), same.ranks.end(), rank);
  if (place == same.ranks.end() || *place != rank) same.ranks.insert(place, rank);
}

Result<std::optional<ReplicaComparison::Difference>> ReplicaComparison::compare(const World& world) const {
  std::vector<const Class*> classes;
  std::vector<Sighting> sightings;
  // The blocks of a rank, of which only those that differ are needed again.
  const auto blocks_of = [&world](const Class& of_class) {
    const Rank rank = of_class.ranks.front();
    const uint32_t layout = world.roster.layout_of(rank);
    plan::ReplicaBlocks blocks(world.layouts[layout], rank);
    std::vector<plan::ReplicaBlock> window = blocks.window(of_class.digests->window);
    return std::pair(std::move(blocks), std::move(window));
  };
  for (const auto& [hashes, of_class] : classes_) {
    const auto [blocks, window] = blocks_of(of_class);
    if (window.size() != of_class.digests->digests.size() || blocks.hash_of(window) != hashes.first) {
      return Status(Code::aborted, fmt::format("rank {} digested other blocks for replica_check than its "
                                               "layout gives it: do all ranks run one version of Shoal?",
                                               of_class.ranks.front()));
    }
    for (uint32_t i = 0; i < window.size(); ++i) {
      const uint64_t digest = of_class.digests->digests[i];
      if (digest == 0) continue;  // not digested
      sightings.push_back({blocks.id_of(window[i]), digest, static_cast<uint32_t>(classes.size()), i});
    }
    classes.push_back(&of_class);
  }
  std::sort(sightings.begin(), sightings.end(), [](const Sighting& a, const Sighting& b) {
    return std::tie(a.id, a.digest, a.of_class) < std::tie(b.id, b.digest, b.of_class);
  });

  struct Differing {  // the sightings of one block
    uint32_t of_class = 0;
    size_t begin = 0, end = 0;
  };
  std::vector<Differing> differing;
  for (size_t begin = 0, end = 0; begin < sightings.size(); begin = end) {
    while (end < sightings.size() && sightings[end].id == sightings[begin].id) ++end;
    if (sightings[begin].digest == sightings[end - 1].digest) continue;
    differing.push_back({sightings[begin].of_class, begin, end});
  }
  if (differing.empty()) return std::optional<Difference>();
  std::stable_sort(differing.begin(), differing.end(),
                   [](const Differing& a, const Differing& b) { return a.of_class < b.of_class; });

  std::optional<Difference> first;
  std::optional<Differing> first_at;
  std::optional<std::pair<plan::ReplicaBlocks, std::vector<plan::ReplicaBlock>>> of_class;
  for (size_t i = 0; i < differing.size(); ++i) {
    const Differing& at = differing[i];
    if (i == 0 || at.of_class != differing[i - 1].of_class) of_class = blocks_of(*classes[at.of_class]);
    const auto& [blocks, window] = *of_class;
    const plan::ReplicaBlock& block = window[sightings[at.begin].block];
    const plan::ReplicaBlocks::HeldBox& held = blocks.held()[block.held];
    const bool is_first = !first || std::tie(blocks.fqn_of(block), held.box, block.begin) <
                                        std::tie(first->fqn, first->box, first->begin);
    if (!is_first) continue;
    first = Difference{blocks.fqn_of(block), held.box, block.begin, block.end, held.bytes, {}, 0};
    first_at = at;
  }
  first->further = differing.size() - 1;
  for (size_t i = first_at->begin; i < first_at->end; ++i) {
    if (i == first_at->begin || sightings[i].digest != sightings[i - 1].digest) first->groups.emplace_back();
    const std::vector<Rank>& ranks = classes[sightings[i].of_class]->ranks;
    first->groups.back().insert(first->groups.back().end(), ranks.begin(), ranks.end());
  }
  for (std::vector<Rank>& group : first->groups) std::sort(group.begin(), group.end());
  std::sort(first->groups.begin(), first->groups.end(), [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  return first;
}

std::string describe(const ReplicaComparison::Difference& difference,
                     const std::function<std::string(const std::vector<Rank>&)>& name_ranks) {
  std::string out = fmt::format("replicas differ: '{}' {}, block {} (bytes {} to {} of {}): ", difference.fqn,
                                to_string(difference.box), difference.begin / base::kDigestBlockBytes,
                                difference.begin, difference.end, difference.box_bytes);
  const std::vector<std::vector<Rank>>& groups = difference.groups;
  if (groups[0].size() > groups[1].size()) {
    std::vector<Rank> others;
    for (size_t i = 1; i < groups.size(); ++i)
      others.insert(others.end(), groups[i].begin(), groups[i].end());
    std::sort(others.begin(), others.end());
    out += fmt::format("{} {} other bytes than {}", name_ranks(others), others.size() == 1 ? "holds" : "hold",
                       name_ranks(groups[0]));
  } else {
    constexpr size_t kGroupsNamed = 4;
    std::vector<std::string> named;
    for (size_t i = 0; i < std::min(groups.size(), kGroupsNamed); ++i) named.push_back(name_ranks(groups[i]));
    out += fmt::format("{}{} hold different bytes", fmt::join(named, " and "),
                       groups.size() > kGroupsNamed
                           ? fmt::format(" and {} more groups of ranks", groups.size() - kGroupsNamed)
                           : "");
  }
  if (difference.further != 0) {
    out += fmt::format("; {} further block{}", difference.further,
                       difference.further == 1 ? " differs" : "s differ");
  }
  return out;
}

}  // namespace shoal::actors
