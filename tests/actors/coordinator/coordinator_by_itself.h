// ACoordinatorByItself: a Coordinator without a host, of a job of two ranks on two hosts. The test answers
// its operations.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/actors/role_by_itself.h"
#include "tests/sim/support/job_layouts.h"

namespace shoal::actors {

constexpr NodeId kNode = kFirstPeerNode;
constexpr NodeId kOther = kFirstPeerNode + 1;

inline NodeConfig facts_of_one() {
  NodeConfig config;
  config.generation = 1;
  config.epoch = 1;
  config.job_id = "job-1";
  config.host = "host0";
  return config;
}

class ACoordinatorByItself : public ::testing::Test {
 protected:
  explicit ACoordinatorByItself(const NodeConfig& config = facts_of_one())
      : ACoordinatorByItself(make_coordinator(config)) {
    role_.answer<operation::ReadRoster>(Status(Code::not_found, "no roster"));
    role_.answer<operation::ListAttempts>(OperationResult(storage::AttemptList{}));
  }
  // One whose first operations are not answered yet.
  explicit ACoordinatorByItself(std::unique_ptr<Role> role) : role_(std::move(role)) {}

  static std::vector<LayoutPtr> layouts() { return sim::pipeline_job(2, 1, 1); }
  wire::JoinRanks join(Rank rank) const {
    wire::JoinRanks message{"host" + std::to_string(rank), 2, {{rank, layouts()[rank]->id()}}, {}};
    return message;
  }
  void both_join() {
    role_.receive(kNode, RoleKind::planner, join(0));
    role_.receive(kOther, RoleKind::planner, join(1));
    for (const LayoutPtr& layout : layouts())
      role_.receive(kNode, RoleKind::planner, wire::Layouts{{layout}});
  }
  // The root's highest epoch is this coordinator's.
  void no_later_epoch() {
    while (role_.answer<operation::ReadEpoch>(OperationResult(
        std::make_shared<const storage::EpochRecord>(storage::EpochRecord{1, "node0", "job-1", {}})))) {
    }
  }
  void roster_exists() {
    both_join();
    no_later_epoch();
    OperationId id = 0;
    auto publish = role_.take_start<operation::PublishRoster>(&id);
    ASSERT_TRUE(publish.has_value());
    world_ = publish->record.world;
    role_.handle(event::OperationDone{id, OperationResult(publish->record)});
  }
  wire::ShardsWritten report(const AttemptKey& key, Rank rank) const {
    const SavePlan plan = *plan_save(*world_, rank, {});
    wire::ShardsWritten message{key, world_->roster.id(), {{rank, plan.id}}, {}, user_};
    for (uint32_t file = 0; file < plan.files; ++file) {
      message.files.push_back({rank, file, uint64_t{1} << 30, {}, uint64_t{1} << 29});
    }
    return message;
  }
  // The coordinator checks their files then.
  void both_send_reports(const AttemptKey& key) {
    role_.receive(kNode, RoleKind::shard_writer, report(key, 0));
    role_.receive(kOther, RoleKind::shard_writer, report(key, 1));
    role_.answer<operation::ReadDecision>(Status(Code::not_found, "undecided"));
  }
  void both_report(const AttemptKey& key) {
    both_send_reports(key);
    role_.answer<operation::CheckFiles>(OperationResult(operation::Done{}));
    no_later_epoch();
  }
  static OperationResult aborted(const AttemptKey& key, const std::string& cause) {
    storage::Decision decision;
    decision.key = key;
    decision.body = storage::Tombstone{storage::Tombstone::Reason::aborted, cause};
    return std::make_shared<const storage::Decision>(std::move(decision));
  }
  // Receives a report that this attempt failed, and publishes its tombstone.
  void abort(const AttemptKey& key) {
    role_.receive(kNode, RoleKind::shard_writer,
                  wire::SaveFailed{key, 0, Status(Code::no_space, "disk full")});
    no_later_epoch();
    role_.answer<operation::PublishDecision>(aborted(key, "disk full"));
    role_.answer<operation::RecordDecision>(OperationResult(operation::Done{}));
    role_.answer<operation::SweepAttempt>(OperationResult(uint64_t{0}));
    role_.starts.clear();
  }

  uint64_t taken(std::string_view machine, std::string_view from, std::string_view on) const {
    return role_.taken(machine, from, on);
  }

  RoleByItself role_;
  std::shared_ptr<const World> world_;
  UserMetadataPtr user_;
};

}  // namespace shoal::actors
