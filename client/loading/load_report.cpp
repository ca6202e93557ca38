#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "client/loading/load_report.h"

namespace shoal {

KeyPolicy KeyPolicies::of(std::string_view fqn) const {
  if (subtrees.empty()) return root;
  if (auto own = split_rank_fqn(fqn)) fqn = own->prefix.substr(0, own->prefix.rfind('@'));
  while (true) {
    if (auto found = subtrees.find(fqn); found != subtrees.end()) return found->second;
    const size_t dot = fqn.rfind('.');
    if (dot == std::string_view::npos) return root;
    fqn = fqn.substr(0, dot);
  }
}

namespace {

Status validate_policy(std::string_view of, KeyPolicy policy) {
  if (policy <= KeyPolicy::skip) return ok_status();
  return Status(Code::invalid_argument,
                fmt::format("the policy of {} has the unknown value {}", of, static_cast<unsigned>(policy)));
}

Status validate_subtree(const std::string& subtree) {
  const auto bad = [](std::string what) { return Status(Code::invalid_argument, std::move(what)); };
  if (Status status = validate_fqn(subtree); !status.ok()) {
    return status.with_context(
        "the subtree of a policy must be a key, or a part of a key that ends before a dot");
  }
  if (subtree.ends_with('.')) {
    const std::string_view without = std::string_view(subtree).substr(0, subtree.find_last_not_of('.') + 1);
    return bad(fmt::format(
        "the subtree '{}' of the policies has no keys: use '{}' for that key and all keys below it", subtree,
        without));
  }
  if (const auto own = split_rank_fqn(subtree)) {
    return bad(fmt::format("the subtree '{}' of the policies has no keys: use '{}' for a per-rank value",
                           subtree, own->prefix.substr(0, own->prefix.rfind('@'))));
  }
  return ok_status();
}

bool allows_missing(KeyPolicy policy) {
  return policy == KeyPolicy::allow_missing || policy == KeyPolicy::lenient;
}

bool allows_unexpected(KeyPolicy policy) {
  return policy == KeyPolicy::allow_unexpected || policy == KeyPolicy::lenient;
}

std::string describe(const TensorMetadata& value) {
  if (value.kind == LayoutEntry::Kind::object) return "an object";
  return fmt::format("{}[{}]", dtype_name(value.dtype), fmt::join(value.shape, ", "));
}

// Names the keys that the policies do not allow, up to the bounds.
class Refusal {
 public:
  void add(std::string line) {
    ++count_;
    if (is_full_ || named_ == kMaxKeysNamed || text_.size() + line.size() > kMaxReportBytes) {
      is_full_ = true;
      return;
    }
    ++named_;
    text_ += text_.empty() ? "" : "; ";
    text_ += line;
  }
  std::string text() const {
    return count_ == named_ ? text_ : fmt::format("{}; and {} more", text_, count_ - named_);
  }
  bool empty() const { return count_ == 0; }

 private:
  size_t count_ = 0, named_ = 0;
  bool is_full_ = false;
  std::string text_;
};

// Whether the key is a per-rank object of another rank.
bool is_of_another_rank(const TensorMetadata& value, Rank rank) {
  if (value.kind != LayoutEntry::Kind::object) return false;
  const std::optional<RankFqn> own = split_rank_fqn(value.fqn);
  return own && own->rank != rank;
}

// Indices of the wanted keys, ascending by the state's name.
std::vector<uint32_t> by_name(const client::WantedKeys& wanted) {
  std::vector<uint32_t> order(wanted.count);
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  client::WantedKey key;
  std::string last;
  bool ascends = true;
  for (uint32_t i = 0; i < wanted.count && ascends; ++i) {
    wanted.read(i, key);
    ascends = i == 0 || last <= key.value.fqn;
    std::swap(last, key.value.fqn);
  }
  if (ascends) return order;
  std::vector<std::string> names;
  names.reserve(wanted.count);
  for (uint32_t i = 0; i < wanted.count; ++i) {
    wanted.read(i, key);
    names.push_back(key.value.fqn);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return names[a] < names[b]; });
  return order;
}

}  // namespace

Status client::check_no_policies(const KeyPolicies& policies) {
  if (policies == KeyPolicies()) return ok_status();
  return Status(
      Code::invalid_argument,
      "LoadOptions::policies do not apply to a load with a planner: set DefaultLoadPlannerOptions::policies");
}

Status client::validate_policies(const KeyPolicies& policies) {
  SHOAL_RETURN_IF_ERROR(validate_policy("the root", policies.root));
  for (const auto& [subtree, policy] : policies.subtrees) {
    SHOAL_RETURN_IF_ERROR(validate_subtree(subtree));
    SHOAL_RETURN_IF_ERROR(validate_policy(fmt::format("'{}'", subtree), policy));
  }
  return ok_status();
}

bool client::needs_comparison_first(const KeyPolicies& policies) {
  auto by_itself = [](KeyPolicy policy) {
    return policy == KeyPolicy::allow_unexpected || policy == KeyPolicy::skip;
  };
  return !by_itself(policies.root) ||
         !std::all_of(policies.subtrees.begin(), policies.subtrees.end(),
                      [&](const auto& subtree) { return by_itself(subtree.second); });
}

client::KeyComparison client::compare_keys(std::span<const TensorMetadata> stored,
                                           std::span<const client::WantedKey> wanted,
                                           const KeyPolicies& policies, Rank rank,
                                           const std::vector<client::LeftOutKey>& cancelled) {
  const client::WantedKeys keys{wanted.size(),
                                [wanted](uint32_t at, client::WantedKey& key) { key = wanted[at]; }};
  return client::compare_keys(stored, keys, policies, rank, cancelled);
}

client::KeyComparison client::compare_keys(std::span<const TensorMetadata> stored,
                                           const client::WantedKeys& wanted, const KeyPolicies& policies,
                                           Rank rank, const std::vector<client::LeftOutKey>& cancelled) {
  client::KeyComparison out;
  Refusal refused;
  std::vector<bool> is_expected(stored.size(), false);
  auto find = [&](const std::string& fqn) {
    auto found = std::lower_bound(
        stored.begin(), stored.end(), fqn,
        [](const TensorMetadata& value, const std::string& name) { return value.fqn < name; });
    return found != stored.end() && found->fqn == fqn ? found : stored.end();
  };
  auto expect = [&](const std::string& fqn) {
    auto found = find(fqn);
    if (found != stored.end()) is_expected[static_cast<size_t>(found - stored.begin())] = true;
    return found;
  };
  client::WantedKey key;
  const auto for_each_key = [&](const std::function<void(std::string_view)>& see) {
    client::WantedKey here;
    for (uint32_t i = 0; i < wanted.count; ++i) {
      wanted.read(i, here);
      see(here.value.fqn);
    }
    for (const client::LeftOutKey& left_out : cancelled) see(left_out.fqn);
    for (const TensorMetadata& value : stored) see(value.fqn);
  };
  for (std::string& line : client::describe_subtrees_without_keys(policies, for_each_key)) {
    refused.add(std::move(line));
  }
  const bool is_policy_wrong = !refused.empty();
  for (uint32_t i : by_name(wanted)) {
    wanted.read(i, key);
    const TensorMetadata& here = key.value;
    const KeyPolicy policy = policies.of(here.fqn);
    auto there = expect(key.stored_fqn);
    if (policy == KeyPolicy::skip) continue;
    if (there == stored.end()) {
      out.report.missing.push_back(here.fqn);
      if (!allows_missing(policy)) refused.add(fmt::format("missing '{}'", key.stored_fqn));
      continue;
    }
    const bool is_tensor = here.kind == LayoutEntry::Kind::tensor;
    const bool other_kind = there->kind != here.kind;
    const bool other_type = other_kind || (is_tensor && there->dtype != here.dtype);
    const bool other_shape = !other_kind && is_tensor && there->shape != here.shape;
    if (other_type) out.report.mis_typed.push_back({here, *there});
    if (other_shape) out.report.shape_mismatches.push_back({here, *there});
    if (!other_type && !other_shape) {
      out.readable.push_back(i);
      continue;
    }
    refused.add(fmt::format("'{}' is {} in the checkpoint, and {} in the state", here.fqn, describe(*there),
                            describe(here)));
  }
  for (const client::LeftOutKey& left_out : cancelled) expect(left_out.stored_fqn);
  for (size_t i = 0; i < stored.size(); ++i) {
    if (is_expected[i] || is_of_another_rank(stored[i], rank)) continue;
    const KeyPolicy policy = policies.of(stored[i].fqn);
    if (policy == KeyPolicy::skip) continue;
    out.report.unexpected.push_back(stored[i].fqn);
    if (allows_unexpected(policy)) continue;
    refused.add(fmt::format("unexpected '{}'", stored[i].fqn));
  }
  std::sort(out.readable.begin(), out.readable.end());
  if (!refused.empty()) {
    out.outcome = Status(is_policy_wrong ? Code::invalid_argument : Code::key_mismatch, refused.text());
  }
  return out;
}

}  // namespace shoal
