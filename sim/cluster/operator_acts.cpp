// VirtualCluster: the commands of operators. The programs are cli/root/rm.cpp, gc.cpp and marks.cpp, with
// admin/collector.cpp.
#include <fmt/format.h>

#include "sim/cluster/stored_payload.h"
#include "sim/cluster/virtual_cluster.h"

namespace shoal::sim {

namespace {

using PlanPtr = std::shared_ptr<const storage::RetentionPlan>;

storage::RetentionPolicy keeping(uint32_t keep_last) {
  return {.keep_last = keep_last};
}

}  // namespace

Result<actors::OperationResult> VirtualCluster::operate(const actors::Operation& operation) {
  CountedRoot::Work work = root_->begin(operation, false, kOperatorNode, job_.generation);
  if (payload_ == nullptr) return work.finish();
  uint64_t writes = 0;
  for (const StorageStep& step : work.steps) {
    if (step.kind == StorageStep::Kind::write) writes += step.count;
  }
  return payload_->carry_out(kOperatorNode, false, operation, work.finish(), writes);
}

std::optional<AttemptKey> VirtualCluster::checkpoint_behind(uint64_t newer) const {
  const std::vector<AttemptKey> all = root_->committed();
  if (newer >= all.size()) return std::nullopt;
  return all[all.size() - 1 - newer];
}

std::optional<std::string> VirtualCluster::mark_checkpoint(storage::MarkKind kind, uint64_t behind) {
  const auto key = checkpoint_behind(behind);
  if (!key) return std::nullopt;
  Nonce id;
  store_le64(id.bytes.data(), ++marks_made_);
  store_le64(id.bytes.data() + 8, uint64_t{job_.generation} << 32 | 1);  // pins of loads have other names
  const std::string name = kind == storage::MarkKind::pin
                               ? storage::pin_name(id)
                               : fmt::format("best-{}-{}", job_.generation, marks_made_);
  if (payload_ != nullptr) payload_->mark(kind, {name, *key, false, 0, "an operator", 1, id});
  root_->keep_mark(name, *key);
  return name;
}

void VirtualCluster::unmark(storage::MarkKind kind, const std::string& name) {
  if (payload_ != nullptr) payload_->unmark(kind, name);
  root_->forget_mark(name);
}

void VirtualCluster::delete_and_keep(const AttemptKey& key, uint32_t keep_last) {
  root_->set_operator_keeps(keep_last);
  (void)operate(actors::operation::DeleteCheckpoint{key, "removed by command"});
  root_->set_operator_keeps(0);
}

void VirtualCluster::remove_checkpoint(uint64_t behind) {
  const auto key = checkpoint_behind(behind);
  if (!key) return;
  root_->set_operator_keeps(1);
  const auto plan = operate(actors::operation::PlanRetention{keeping(1)});
  root_->set_operator_keeps(0);
  const auto is_it = [&](const storage::RetentionPlan::Item& item) { return item.key == *key; };
  const bool may_go = plan.ok() && std::ranges::none_of(std::get<PlanPtr>(*plan)->keep, is_it);
  if (may_go) delete_and_keep(*key, 1);
  if (payload_ != nullptr) payload_->forget_operator();
}

void VirtualCluster::collect_garbage(uint32_t keep_last) {
  root_->set_operator_keeps(keep_last);
  const auto planned = operate(actors::operation::PlanRetention{keeping(keep_last)});
  root_->set_operator_keeps(0);
  if (planned.ok()) {
    const PlanPtr& plan = std::get<PlanPtr>(*planned);
    for (const auto& item : plan->remove) delete_and_keep(item.key, keep_last);
    for (const AttemptKey& key : plan->finish) delete_and_keep(key, keep_last);
    for (const AttemptKey& key : root_->attempts()) {
      const auto existing = root_->decision(key);
      if (existing && !existing->committed()) (void)operate(actors::operation::SweepAttempt{key});
    }
    for (const std::string& folder : plan->remains) (void)operate(actors::operation::RemoveRemains{folder});
  }
  if (payload_ != nullptr) payload_->forget_operator();
}

void VirtualCluster::rot(uint64_t behind, uint64_t part, uint64_t permille,
                         const std::function<bool(const AttemptKey&)>& is_read) {
  const auto key = checkpoint_behind(behind);
  constexpr uint64_t kManifest = 2;
  if (!key || payload_ == nullptr || root_->damaged_at(*key)) return;
  if (part == kManifest && !is_read(*key)) return;
  if (payload_->rot(*key, part, permille)) root_->damage(*key, part == kManifest);
}

}  // namespace shoal::sim
