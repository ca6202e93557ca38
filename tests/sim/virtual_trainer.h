// VirtualTrainer: plays the client of one rank in a VirtualHost: stages a state whose every element is a
// known function of its name, index and step, and checks what a load brings against that function.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/virtual_host.h"

namespace shoal {

uint32_t element_value(const std::string& fqn, uint64_t global_index, uint64_t step);
std::string object_value(const std::string& fqn, uint64_t step);

class VirtualTrainer {
 public:
  VirtualTrainer(VirtualHost& host, size_t node, Rank rank, uint32_t world_size, LayoutPtr layout);

  // Says what it holds; needed once before the first save.
  void declare(const SaveOptions& options = {});
  // Holds another layout from now on, and says so.
  void change(LayoutPtr layout) {
    layout_ = std::move(layout);
    declare(options_);
  }
  // Stages what the plan wants, or everything while no roster is known. Returns the attempt's key but for the
  // generation.
  void save(uint64_t step, uint32_t attempt = 1);
  void load(std::optional<uint64_t> step, uint32_t ordinal = 1);
  // Takes in what the node has said; answers Loaded with Placed. True if there was anything.
  bool listen();
  // Its node is gone: attaches to another one of its host, says what it holds, and offers again what is not
  // decided.
  void come_back(size_t node, uint32_t world_size);
  void end() { host_.lose_client(client_); }

  // What has been heard.
  bool has_roster() const { return world_ != nullptr; }
  const std::map<std::pair<uint64_t, uint32_t>, local::Decided>& decided() const { return decided_; }
  size_t slabs_free() const { return slabs_freed_; }
  const std::optional<local::Failed>& failed() const { return failed_; }
  const std::optional<local::Refused>& refused() const { return refused_; }
  const std::optional<local::Found>& found() const { return found_; }
  const std::optional<local::LoadDone>& load_done() const { return load_done_; }
  uint64_t bytes_staged() const { return bytes_staged_; }
  // Checks every element of a finished load against the state at `step`; "" or the first difference.
  std::string check_loaded(uint64_t step) const;

 private:
  struct Offer {
    local::Staged staged;
    Bytes slab;
    std::optional<local::DurableShare> durable;  // what its node has said that the slab became
  };
  void stage(const Offer& offer);
  Bytes local_bytes(const LayoutEntry& entry, const Box& box, uint64_t step) const;

  VirtualHost& host_;
  const Rank rank_;
  LayoutPtr layout_;
  ClientId client_ = 0;
  uint32_t next_slab_ = 1;
  MutableByteView window_;
  std::vector<local::LoadTarget> targets_;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> loaded_;  // (target, global element) -> value
  std::map<uint32_t, std::string> loaded_objects_;
  std::string load_error_;
  std::shared_ptr<const World> world_;
  SaveOptions options_;
  std::map<std::pair<uint64_t, uint32_t>, local::Decided> decided_;
  std::map<std::pair<uint64_t, uint32_t>, Offer> undecided_;
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
  static VirtualJob start(VirtualHost& host, const NodeFacts& facts, uint32_t nodes, uint32_t world_size,
                          const std::vector<LayoutPtr>& layout_of_rank);
  void run(TimeNs patience);  // until nobody has anything to say within `patience`
};

}  // namespace shoal
