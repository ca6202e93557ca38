// VirtualTrainer: plays the client of one rank in a VirtualHost. It stages a state whose every element is a
// known function of name, index and step, and checks loaded elements against that function. A value that
// differs between ranks has, on each rank, the elements of another name.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "shoal/hash.h"
#include "sim/bytes/virtual_host.h"

namespace shoal::sim {

// The value of each element of a tensor. Its lowest bytes, as many as the dtype has, are the bytes of the
// element.
class ElementValues {
 public:
  ElementValues(const std::string& fqn, uint64_t step)
      : mixed_(xxh3_64(fqn) ^ (step * 0xc2b2ae3d27d4eb4full)) {}
  uint64_t operator[](uint64_t global_index) const {
    uint64_t mixed = mixed_ ^ (global_index * 0x9e3779b97f4a7c15ull);
    mixed = (mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9ull;  // as SplitMix64 ends, so that each byte tells
    return mixed ^ (mixed >> 32);
  }

 private:
  const uint64_t mixed_;
};
inline uint64_t element_value(const std::string& fqn, uint64_t global_index, uint64_t step) {
  return ElementValues(fqn, step)[global_index];
}
std::string object_value(const std::string& fqn, uint64_t step);

// By fqn: the name whose elements the value has. Other values have the elements of their own name.
using Copies = std::map<std::string, std::string>;

// The time between the returns of two trainers of a host to its next node. The look-up of one trainer's offer
// ends before the next one offers the same.
inline constexpr actors::TimeNs kBetweenReturnsNs = 3 * actors::kMillisecond;

class VirtualTrainer {
 public:
  VirtualTrainer(VirtualHost& host, size_t node, Rank rank, uint32_t world_size, LayoutPtr layout);

  // Declares the layout. Call it once before the first save.
  void declare(const SaveOptions& options = {});
  // Sets the contents of values for further saves.
  void hold(Copies copies) { copies_ = std::move(copies); }
  // Changes the layout and declares it.
  void change(LayoutPtr layout) {
    layout_ = std::move(layout);
    declare(options_);
  }
  // Stages the rank's assignment, or everything while no roster is known. In mode collective it first
  // requests a plan, and stages once the plan has arrived.
  void save(uint64_t step, uint32_t attempt = 1);
  // Takes no part in this save, and reports the cause.
  void refuse(uint64_t step, Status why);
  // In mode collective: does not stage when a plan arrives, but only in stage_made().
  void only_ask(bool only) { only_asks_ = only; }
  void stage_made(uint64_t step) { stage_by(step, 1, *told_, true); }
  // In mode collective: acts as a client whose custom planner makes a global plan on that rank. The offer of
  // a rank and the result for it are text.
  void exchange_first(Rank coordinator_rank) { coordinator_rank_ = coordinator_rank; }
  void fail_to_make_plans() { makes_plans_ = false; }
  static std::string offered_by(Rank rank, uint64_t step);
  static std::string made_for(Rank rank, uint64_t step);
  const std::map<uint64_t, std::string>& sent_by_planner() const { return sent_by_planner_; }  // by step
  size_t plans_made() const { return plans_made_; }
  void load(std::optional<uint64_t> step, uint32_t ordinal = 1);
  // Handles the messages of the node, and answers Loaded with Placed. True if there were any.
  bool listen();
  // Its node is gone: attaches to another node of its host, declares its layout, and offers again its
  // undecided saves.
  void trainers_return(size_t node, uint32_t world_size);
  void end() { host_.lose_client(client_); }
  actors::ClientId client() const { return client_; }  // id of its current connection

  // State from the messages that have arrived.
  bool has_roster() const { return world_ != nullptr; }
  const std::map<std::pair<uint64_t, uint32_t>, local::Decided>& decided() const { return decided_; }
  size_t slabs_free() const { return slabs_freed_; }
  const std::optional<local::Failed>& failed() const { return failed_; }
  const std::optional<local::Refused>& refused() const { return refused_; }
  const std::optional<local::Found>& found() const { return found_; }
  const std::optional<local::LoadDone>& load_done() const { return load_done_; }
  uint64_t bytes_staged() const { return bytes_staged_; }
  size_t plans_sent() const { return plans_sent_; }  // mode collective: plans that arrived by value
  // Mode collective: plans that it had already, as the node reported.
  size_t plans_kept() const { return plans_kept_; }
  // Checks every element of a finished load against the state at `step`. Returns "" or the first difference.
  std::string check_loaded(uint64_t step, const Copies& copies = {}) const;
  // Checks the bytes that have arrived in a load that may have failed: none of them may be wrong.
  std::string check_arrived(uint64_t step) const;
  // The same for one value. Returns "" if this rank has loaded no part of it.
  std::string check_value(const std::string& fqn, uint64_t step, const Copies& copies = {}) const;

 private:
  struct Offer {
    local::Staged staged;
    Bytes slab;
    std::optional<local::DurableAssignment> durable;  // what the slab became, as the node reported
    bool is_dropped = false;                          // the node reported that it dropped the slab
  };
  void ask_for_plan(uint64_t step, uint32_t attempt);
  void offer_plan(uint64_t step, uint32_t attempt);
  void take_plans(const local::PlanGathering& message);
  void stage_by(uint64_t step, uint32_t attempt, const SavePlan& plan, bool is_notified);
  void stage(const Offer& offer);
  void place(const local::StoredRange& range, ByteView bytes);
  void read_files(const local::FilesToRead& batch);
  Bytes local_bytes(const LayoutEntry& entry, const Box& box, uint64_t step) const;
  std::string check_target(uint32_t number, uint64_t step, const Copies& copies) const;

  VirtualHost& host_;
  const Rank rank_;
  LayoutPtr layout_;
  Copies copies_;
  actors::ClientId client_ = 0;
  uint32_t next_slab_ = 1;
  MutableByteView window_;
  std::vector<local::LoadTarget> targets_;
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> loaded_;  // (target, global element) -> value
  std::map<uint32_t, std::string> loaded_objects_;
  std::shared_ptr<const World> world_;
  SaveOptions options_;
  std::map<std::pair<uint64_t, uint32_t>, local::Decided> decided_;
  std::map<std::pair<uint64_t, uint32_t>, Offer> undecided_;
  std::set<std::pair<uint64_t, uint32_t>> asked_;  // mode collective: requested plans that have not arrived
  SavePlanPtr told_;
  bool only_asks_ = false;
  std::optional<Rank> coordinator_rank_;
  bool makes_plans_ = true;
  std::map<std::pair<uint64_t, uint32_t>, local::PlanGathering> exchanging_;
  std::map<uint64_t, std::string> sent_by_planner_;
  size_t plans_made_ = 0;
  size_t plans_sent_ = 0, plans_kept_ = 0;
  size_t slabs_freed_ = 0;
  uint64_t bytes_staged_ = 0;
  std::optional<local::Failed> failed_;
  std::optional<local::Refused> refused_;
  std::optional<local::Found> found_;
  std::optional<local::LoadDone> load_done_;
};

// Of a node whose epoch is its generation.
actors::NodeConfig facts_of(uint32_t generation);

// A job: nodes with their trainers, all of which handle messages while time passes.
struct VirtualJob {
  VirtualHost& host;
  std::vector<std::unique_ptr<VirtualTrainer>> trainers;

  // Ranks are assigned to the nodes in order.
  static VirtualJob start(VirtualHost& host, const actors::NodeConfig& facts, uint32_t nodes,
                          uint32_t world_size, const std::vector<LayoutPtr>& layout_of_rank);
  void run(actors::TimeNs patience);  // until no message is sent for `patience`
};

}  // namespace shoal::sim
