// Finds subtrees of policies that have no key: most often they are misspelt.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/edit_distance.h"
#include "client/loading/load_report.h"

namespace shoal::client {

namespace {

constexpr size_t kMaxSuggested = 3;
constexpr size_t kMaxCandidates = 4096;      // for each subtree
constexpr size_t kMaxSubtreesDescribed = 8;  // with their most similar keys

using Names = std::set<std::string, std::less<>>;

std::string_view without_rank(std::string_view key) {
  const auto own = split_rank_fqn(key);
  return own ? own->prefix.substr(0, own->prefix.rfind('@')) : key;
}

// Length of the longest common prefix of whole parts, including the dot: 4 for "a.b.x" and "a.b.y".
size_t common_parts(std::string_view a, std::string_view b) {
  size_t end = 0;
  for (size_t i = 0; i < a.size() && i < b.size() && a[i] == b[i]; ++i) {
    if (a[i] == '.') end = i + 1;
  }
  return end;
}

// The keys, or prefixes of keys that end before a dot, that are most similar to `subtree`.
class Nearest {
 public:
  explicit Nearest(std::string_view subtree) : subtree_(subtree), inside_(fmt::format(".{}", subtree)) {}

  void see(std::string_view key) {
    const size_t common = common_parts(subtree_, key);
    if (common > common_) {
      common_ = common;
      children_.clear();
    }
    if (common == common_ && children_.size() < kMaxCandidates) {
      children_.emplace(key.substr(0, key.find('.', common)));
    }
    const size_t at = key.find(inside_);  // "layers.0" in "model.layers.0.weight"
    if (at == std::string_view::npos || moved_.size() == kMaxSuggested) return;
    const size_t end = at + inside_.size();
    if (end == key.size() || key[end] == '.') moved_.emplace(key.substr(0, end));
  }

  std::vector<std::string> names() const {
    std::vector<std::string> out(moved_.begin(), moved_.end());
    std::vector<std::pair<size_t, std::string_view>> by_distance;
    const std::string_view own = part_of(subtree_);
    for (const std::string& child : children_)
      by_distance.emplace_back(base::edit_distance(part_of(child), own), child);
    std::sort(by_distance.begin(), by_distance.end());
    for (const auto& [distance, child] : by_distance) {
      const bool is_far = distance > own.size() / 3 + 1;
      if (out.size() == kMaxSuggested || (is_far && !out.empty())) break;
      if (std::ranges::find(out, child) == out.end()) out.emplace_back(child);
    }
    return out;
  }

 private:
  std::string_view part_of(std::string_view name) const {
    return name.substr(common_, name.find('.', common_) - common_);
  }

  const std::string_view subtree_;
  const std::string inside_;
  size_t common_ = 0;
  Names children_;  // with their full prefix
  Names moved_;
};

}  // namespace

std::vector<std::string> subtrees_without_keys(const KeyPolicies& policies, const ForEachKey& for_each_key) {
  std::set<std::string_view> unused;
  for (const auto& [subtree, policy] : policies.subtrees) unused.insert(subtree);
  if (unused.empty()) return {};
  for_each_key([&](std::string_view key) {
    for (key = without_rank(key); !unused.empty(); key = key.substr(0, key.rfind('.'))) {
      unused.erase(key);
      if (key.find('.') == std::string_view::npos) return;
    }
  });
  return {unused.begin(), unused.end()};
}

std::vector<std::string> describe_subtrees_without_keys(const KeyPolicies& policies,
                                                        const ForEachKey& for_each_key) {
  std::vector<std::string> lines = subtrees_without_keys(policies, for_each_key);
  std::vector<Nearest> nearest;
  for (size_t i = 0; i < std::min(lines.size(), kMaxSubtreesDescribed); ++i) nearest.emplace_back(lines[i]);
  if (nearest.empty()) return lines;
  for_each_key([&](std::string_view key) {
    for (Nearest& one : nearest) one.see(without_rank(key));
  });
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::vector<std::string> names =
        i < nearest.size() ? nearest[i].names() : std::vector<std::string>();
    lines[i] = fmt::format(
        "neither the state nor the checkpoint has a key in the subtree '{}' of the policies", lines[i]);
    if (!names.empty()) lines[i] += fmt::format(" (nearest: '{}')", fmt::join(names, "', '"));
  }
  return lines;
}

}  // namespace shoal::client
