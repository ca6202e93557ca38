// Loader: one a node. Chooses a checkpoint, computes what to read of it, and passes verified bytes to the
// clients through their windows. docs/reference/protocol.md, "A load".
//
// Its states, each with a table of transitions in its header and in docs/reference/states.md:
// - load.h: one load of one client
// - round.h: the loads that ranks of this host share with other nodes
//
// Its sources:
// - loader.cpp: events, choosing, planning, reading
// - rounds.cpp: what several nodes and clients read together
// - files.cpp: what clients read themselves
// - windows.cpp: memory
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/loader/load.h"
#include "actors/loader/load_choice.h"
#include "actors/loader/open_checkpoints.h"
#include "actors/loader/pin_leases.h"
#include "actors/loader/read_plan.h"
#include "actors/loader/round.h"
#include "actors/loader/window_budget.h"

namespace shoal::actors {

// A load of fewer bytes is not shared with other nodes, unless the client requests it.
inline constexpr uint64_t kShareFromBytes = uint64_t{32} << 20;
// From so many ranks on, even such a load asks the coordinator which checkpoint to load. Each rank that
// chooses by itself lists the files of the newest attempt: together as many as the square of the ranks.
inline constexpr uint32_t kAskFromRanks = 512;
// Direct reads: bytes that a client receives in one FilesToRead, and the number of such batches in progress.
inline constexpr uint64_t kFilesBatchBytes = uint64_t{256} << 20;
inline constexpr uint32_t kFilesBatches = 3;
inline constexpr size_t kMaxEarlyRequests = 1024;  // for each load, of peers that are ahead of this node
// Number of chunk deadlines for which this node, before it has begun, promises such peers their chunks.
inline constexpr int64_t kMostDeadlinesEarly = 12;

class Loader final : public Role {
 public:
  explicit Loader(const NodeConfig& config)
      : config_(config),
        budget_(config_.load_memory_bytes),
        chooser_(operations_, timers_, config_),
        pins_(operations_, timers_, config_,
              [this](const AttemptKey& key, const Status& why, EffectWriter& out) {
                pin_lost(key, why, out);
              }) {}

  RoleKind kind() const override { return RoleKind::loader; }
  void handle(TimeNs now, const Event& event, Effects& effects) override;
  std::vector<TransitionsTaken> transitions() const override;

 private:
  using LoadKey = OpenCheckpoints::RequestKey;
  using Loads = std::map<LoadKey, Load>;

  void on_client(TimeNs now, ClientId client, const local::LocalMessage& message, EffectWriter& out);
  void on_client_lost(TimeNs now, ClientId client, EffectWriter& out);
  void on_coordinator_lost(TimeNs now, EffectWriter& out);
  // The load to which an operation belongs; nullptr: it has ended.
  Load* find(const LoadRef& ref);
  LoadRef ref_of(const LoadKey& id) const { return {id, loads_.at(id).number()}; }
  void on_message(TimeNs now, NodeId from, const std::shared_ptr<const WireBody>& body, EffectWriter& out);

  // --- which checkpoint ---
  // `tried`: attempts from this one up could not be completed.
  void on_latest(ClientId client, uint32_t request_id, std::optional<AttemptKey> tried, EffectWriter& out);
  void on_list(ClientId client, const local::List& wanted, EffectWriter& out);
  static void refuse(ClientId client, uint32_t request_id, Status why, EffectWriter& out);
  void read_metadata(ClientId client, uint32_t request_id, const AttemptKey& key, EffectWriter& out);
  static void out_found(ClientId client, uint32_t request_id, const storage::Decision& decision,
                        EffectWriter& out);
  void on_load(TimeNs now, ClientId client, const local::Load& request, EffectWriter& out);
  void choose(TimeNs now, const LoadKey& id, EffectWriter& out);
  // The pin exists before the manifest is read. So either a deletion sees the pin, or this load sees the
  // tombstone.
  void hold(TimeNs now, const LoadKey& id, const AttemptKey& key, EffectWriter& out);
  void pin_lost(const AttemptKey& key, const Status& why, EffectWriter& out);
  // `how`: transferred, ended or client_left.
  Loads::iterator end_load(TimeNs now, Loads::iterator load, LoadTrigger how, EffectWriter& out);

  // --- what to read ---
  void read_decision(TimeNs begun, const LoadKey& id, const AttemptKey& key, EffectWriter& out);
  using Explained = std::function<void(TimeNs, const Status&, EffectWriter&)>;
  // For an attempt that was chosen, and whose decision does not exist any more: it was deleted, or is lost.
  // `is_latest`: by a load of the latest.
  void explain_lost_decision(const AttemptKey& key, const Status& why, bool is_latest, EffectWriter& out,
                             Explained then);
  void decode(const LoadKey& id, const std::shared_ptr<const storage::Decision>& encoded, EffectWriter& out);
  void begin(TimeNs now, const LoadKey& id, std::shared_ptr<StoredCheckpoint> fresh, EffectWriter& out);
  void read_all(TimeNs now, const LoadKey& id, std::shared_ptr<const ReadPlan> plan, EffectWriter& out);

  // --- reading ---
  void proceed(TimeNs now, const LoadKey& id, EffectWriter& out);
  void read_own(TimeNs now, const LoadKey& id, Load& load, uint32_t part, EffectWriter& out);
  // Direct reads by a client (files.cpp).
  void give_files(const LoadKey& id, Load& load, TimeNs now, EffectWriter& out);
  void located(TimeNs now, const LoadKey& id, uint32_t batch, const Result<LocatedRangesPtr>& places,
               EffectWriter& out);
  void on_files_read(TimeNs now, const LoadKey& id, const local::FilesRead& received, EffectWriter& out);
  void read_unread(TimeNs now, const LoadKey& id, Load& load, EffectWriter& out);
  // Logs the damage, and keeps it for the client until the load has ended.
  void note_damage(const LoadKey& id, const DamageList& damaged, EffectWriter& out);
  void batch_read(TimeNs now, const LoadKey& id, uint32_t batch, const Status& outcome, EffectWriter& out);
  void loaded(const LoadKey& id, uint32_t batch, Load& load, EffectWriter& out);
  void on_placed(TimeNs now, const LoadKey& id, uint32_t batch, EffectWriter& out);
  // Ends a load with an error. Before Found was sent, Found carries the error. After that LoadDone does, but
  // only when nothing is being written to the window any more: the client's next load may use the same slab
  // id. Code::not_found means that there is no checkpoint, and only the choice may return it. After the
  // choice a missing file is Code::corrupt.
  void fail(TimeNs now, const LoadKey& id, Status why, EffectWriter& out);
  void end_complete(TimeNs now, Loads::iterator load, EffectWriter& out);

  // --- together (rounds.cpp) ---
  static bool is_worth_asking(Load& load);  // notes the bytes of its targets
  static bool is_worth_sharing(const Load& load);
  static LayoutId shared_by(const local::Load::Sharing& sharing);
  void enter_round(TimeNs now, const LoadKey& id, EffectWriter& out);
  void join_round(Round& round, const LoadKey& id);
  bool are_all_here(const Round& round) const;
  bool hold_all_alone(const Round& round) const;  // whether no other rank needs what its ranks load
  uint32_t quiet_ms_of(const Round& round) const;
  void begin_asking(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void ask_again(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void ask(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void ask_later(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void on_roster(TimeNs now, const std::shared_ptr<const wire::LoadRoster>& answer, EffectWriter& out);
  bool is_named(const LoadKey& id, const wire::LoadRoster& roster) const;
  void read_without_sharing(TimeNs now, const wire::LoadId& id,
                            EffectWriter& out);  // if the coordinator does not answer
  void leave_round(TimeNs now, const LoadKey& id, Load& load, EffectWriter& out);
  void consider_exchange(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void build_exchange(TimeNs now, const wire::LoadId& id, uint64_t buffer_bytes, EffectWriter& out);
  std::vector<UserReads> reads_of_users(const Round& round, uint32_t own_host) const;
  std::optional<uint32_t> own_host_in(const wire::LoadRoster& roster) const;
  void on_request(TimeNs now, NodeId from, const wire::ChunkRequest& received, EffectWriter& out);
  void on_cancelled(TimeNs now, const wire::ChunksCancelled& received, EffectWriter& out);
  void send_pending_later(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  static void refuse_early(Round& round, EffectWriter& out);
  void forget_rounds();  // those that are over

  // --- memory (windows.cpp) ---
  WindowBudget::WindowId window_of(const LoadKey& id, const Load& load) const {
    return {id.first, load.request.slab_id};
  }
  // A request for one window among those of the ranks here, which have `bytes` together.
  WindowBudget::Window part_in(uint64_t bytes, const LoadKey& id) const;
  void read_directly(TimeNs now, const LoadKey& id, std::shared_ptr<const ReadPlan> plan, EffectWriter& out);
  void wait_for_window(const LoadKey& id, Load& load, std::shared_ptr<const ReadPlan> plan);
  void request_gathering(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void go_direct(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void give_windows(TimeNs now, EffectWriter& out);  // to the next loads in line
  void give_window(const LoadKey& id, uint64_t bytes);
  void release_windows(EffectWriter& out);
  void stop_waiting(std::optional<WindowBudget::Ticket>& ticket);

  const NodeConfig config_;
  WindowBudget budget_;
  PendingOperations operations_;
  PendingTimers timers_;
  PendingSends sends_;
  LoadChooser chooser_;
  PinLeases pins_;
  std::map<std::pair<ClientId, uint32_t>, uint64_t> slabs_;  // bytes of each slab
  LoadMachine::Counts load_counts_;
  RoundMachine::Counts round_counts_;
  ExchangeCounts exchange_counts_;
  uint64_t loads_begun_ = 0;
  Loads loads_;
  std::map<wire::LoadId, Round> rounds_;
  // Loads and exchanges that wait for windows.
  std::map<WindowBudget::Ticket, std::variant<LoadKey, wire::LoadId>> waiting_;
  OpenCheckpoints open_;
  std::optional<std::string> address_;  // at which peers reach this node; "": they cannot
};

}  // namespace shoal::actors
