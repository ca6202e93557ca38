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

#include "sim/bytes/virtual_host.h"

namespace shoal::sim {

// The lowest bytes of it are those of the element, as many as its dtype has.
uint64_t element_value(const std::string& fqn, uint64_t global_index, uint64_t step);
std::string object_value(const std::string& fqn, uint64_t step);

// By fqn the name whose bytes a value has; its own, if it is not in there.
using Copies = std::map<std::string, std::string>;

// How far apart the trainers of a host find its next node: what one offers has been looked up when the next
// one offers the same.
inline constexpr actors::TimeNs kBetweenReturnsNs = 3 * actors::kMillisecond;

class VirtualTrainer {
 public:
  VirtualTrainer(VirtualHost& host, size_t node, Rank rank, uint32_t world_size, LayoutPtr layout);

  // Says what it holds; needed once before the first save.
  void declare(const SaveOptions& options = {});
  // What it stages of these values from now on.
  void hold(Copies copies) { copies_ = std::move(copies); }
  // Holds another layout from now on, and says so.
  void change(LayoutPtr layout) {
    layout_ = std::move(layout);
    declare(options_);
  }
  // Stages what the plan wants, or everything while no roster is known. In mode collective it asks for a plan
  // first, and stages when it has heard it.
  void save(uint64_t step, uint32_t attempt = 1);
  // Takes no part in this save, and says why.
  void refuse(uint64_t step, Status why);
  // In mode collective: hears what it is to write, and stages it only when told to here.
  void only_ask(bool only) { only_asks_ = only; }
  void stage_told(uint64_t step) { stage_by(step, 1, *told_, true); }
  // In mode collective: as a client whose planner has a global plan of its own, made on that rank. What a
  // rank offers, and what it is told, is text.
  void exchange_first(Rank coordinator_rank) { coordinator_rank_ = coordinator_rank; }
  void fail_to_make_plans() { makes_plans_ = false; }
  static std::string offered_by(Rank rank, uint64_t step);
  static std::string made_for(Rank rank, uint64_t step);
  const std::map<uint64_t, std::string>& told_by_planner() const { return told_by_planner_; }  // by step
  size_t plans_made() const { return plans_made_; }
  void load(std::optional<uint64_t> step, uint32_t ordinal = 1);
  // Whether it reads files itself where its node says which; else those of odd ranks do.
  void read_files_itself(bool itself) { reads_files_ = itself; }
  size_t blocks_read() const { return blocks_read_; }  // by itself
  // Takes in what the node has said; answers Loaded with Placed. True if there was anything.
  bool listen();
  // Its node is gone: attaches to another one of its host, says what it holds, and offers again what is not
  // decided.
  void come_back(size_t node, uint32_t world_size);
  void end() { host_.lose_client(client_); }
  actors::ClientId client() const { return client_; }  // of its connection now

  // What has been heard.
  bool has_roster() const { return world_ != nullptr; }
  const std::map<std::pair<uint64_t, uint32_t>, local::Decided>& decided() const { return decided_; }
  size_t slabs_free() const { return slabs_freed_; }
  const std::optional<local::Failed>& failed() const { return failed_; }
  const std::optional<local::Refused>& refused() const { return refused_; }
  const std::optional<local::Found>& found() const { return found_; }
  const std::optional<local::LoadDone>& load_done() const { return load_done_; }
  uint64_t bytes_staged() const { return bytes_staged_; }
  size_t plans_told() const { return plans_told_; }  // in mode collective; those that came by value
  size_t plans_kept() const { return plans_kept_; }  // and those that it was said to have already
  // Checks every element of a finished load against the state at `step`; "" or the first difference.
  std::string check_loaded(uint64_t step, const Copies& copies = {}) const;
  // Checks what has arrived, of a load that may have failed: not a byte of it may be wrong.
  std::string check_arrived(uint64_t step) const;
  // The same of one value. Of one that this rank has loaded no part of: "".
  std::string check_value(const std::string& fqn, uint64_t step, const Copies& copies = {}) const;

 private:
  struct Offer {
    local::Staged staged;
    Bytes slab;
    std::optional<local::DurableShare> durable;  // what its node has said that the slab became
    bool is_dropped = false;                     // it has said that it became nothing
  };
  void ask_for_plan(uint64_t step, uint32_t attempt);
  void offer_plan(uint64_t step, uint32_t attempt);
  void hear_plans(const local::PlanExchange& said);
  void stage_by(uint64_t step, uint32_t attempt, const SavePlan& plan, bool is_told);
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
  std::optional<bool> reads_files_;
  size_t blocks_read_ = 0;
  std::shared_ptr<const World> world_;
  SaveOptions options_;
  std::map<std::pair<uint64_t, uint32_t>, local::Decided> decided_;
  std::map<std::pair<uint64_t, uint32_t>, Offer> undecided_;
  std::set<std::pair<uint64_t, uint32_t>> asked_;  // collective: for a plan, not heard yet
  SavePlanPtr told_;
  bool only_asks_ = false;
  std::optional<Rank> coordinator_rank_;
  bool makes_plans_ = true;
  std::map<std::pair<uint64_t, uint32_t>, local::PlanExchange> exchanging_;
  std::map<uint64_t, std::string> told_by_planner_;
  size_t plans_made_ = 0;
  size_t plans_told_ = 0, plans_kept_ = 0;
  size_t slabs_freed_ = 0;
  uint64_t bytes_staged_ = 0;
  std::optional<local::Failed> failed_;
  std::optional<local::Refused> refused_;
  std::optional<local::Found> found_;
  std::optional<local::LoadDone> load_done_;
};

// A job: nodes with their trainers, all listening while time passes.
struct VirtualJob {
  VirtualHost& host;
  std::vector<std::unique_ptr<VirtualTrainer>> trainers;

  // Ranks are spread over the nodes in order.
  static VirtualJob start(VirtualHost& host, const actors::NodeFacts& facts, uint32_t nodes,
                          uint32_t world_size, const std::vector<LayoutPtr>& layout_of_rank);
  void run(actors::TimeNs patience);  // until nobody has anything to say within `patience`
};

}  // namespace shoal::sim
