// Loader: one a node. Chooses a checkpoint, works out what to read of it, and passes verified bytes to the
// clients through their windows. docs/reference/protocol.md, "A load". Events, choosing, planning and
// reading: loader.cpp; what several nodes and clients read together: loader_rounds.cpp; what clients read
// themselves: loader_files.cpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/loader/load_choice.h"
#include "actors/loader/open_checkpoints.h"
#include "actors/loader/pin_leases.h"
#include "actors/loader/read_plan.h"
#include "actors/loader/sharing/chunk_exchange.h"
#include "actors/loader/window_budget.h"

namespace shoal::actors {

// What a node's clients wait for of less than that is not worth asking others about, unless they say so.
inline constexpr uint64_t kShareFromBytes = uint64_t{32} << 20;
// What a client that reads files itself is told of at a time, and how many such batches it has to read.
inline constexpr uint64_t kFilesBatchBytes = uint64_t{256} << 20;
inline constexpr uint32_t kFilesBatches = 3;
inline constexpr size_t kMaxEarlyWants = 1024;  // messages of peers that are ahead, of one load
// So long they are told that their chunks come, in chunk_deadline_ms, before this node has begun.
inline constexpr int64_t kMostDeadlinesEarly = 12;

class Loader final : public Role {
 public:
  explicit Loader(const NodeFacts& facts)
      : facts_(facts),
        budget_(facts_.load_memory_bytes),
        chooser_(operations_, timers_, facts_),
        pins_(operations_, timers_, facts_,
              [this](const AttemptKey& key, const Status& why, EffectWriter& out) {
                pin_lost(key, why, out);
              }) {}

  RoleKind kind() const override { return RoleKind::loader; }
  void handle(TimeNs now, const Event& event, Effects& effects) override;

 private:
  using LoadKey = OpenCheckpoints::RequestKey;
  struct Queue {                                 // of batches, the first of which have begun
    std::shared_ptr<const ReadBatches> batches;  // nullptr: none
    uint32_t next = 0;
    uint32_t under_way = 0;  // have a part of the window
    uint32_t size() const { return batches == nullptr ? 0 : static_cast<uint32_t>(batches->size()); }
    bool has_next() const { return next < size(); }
  };
  struct Load {
    local::Load request;  // targets and sharing as long as something is planned by them
    bool reads = false;
    bool reads_files = false;  // the client reads `own` itself
    TimeNs began = 0, chosen = 0;
    bool is_chosen = false;                      // which checkpoint it loads
    std::shared_ptr<const ReadPlan> plan;        // while it waits for its window
    std::optional<WindowBudget::Ticket> ticket;  // likewise
    bool has_window = false;
    uint64_t slab_bytes = 0;           // of its window, when it began
    uint64_t part_bytes = 0;           // of that, as far as it may use it
    std::optional<AttemptKey> pinned;  // so that nobody deletes it meanwhile
    bool is_told = false;              // which checkpoint it is
    std::shared_ptr<StoredCheckpoint> stored;
    Queue own, shared;  // read straight into the window, or by the client; filled from chunks
    std::map<uint32_t, std::vector<uint32_t>>
        given;                           // own batches that the client reads: which reads of each
    std::vector<PlannedRead> unread;     // what it could not; read into the window once the others are placed
    std::set<uint32_t> reading;          // batches whose bytes are still on their way into the window
    std::map<uint32_t, uint32_t> parts;  // batch being read, or loaded and not yet placed -> its part
    std::set<uint32_t> told;             // of these: the client knows that it is loaded
    std::vector<uint32_t> free_parts;
    DamageList damaged;               // what was read from copies
    Status failure;                   // the first; told once nothing is being read
    std::optional<AttemptKey> fixed;  // one that the client keeps open
    PassedOverPtr passed_over;        // by the choice
    std::optional<wire::LoadId> round;
    std::optional<uint32_t> user;  // of the round's exchange
    BusyTime busy;
    LoadTimes times;
  };
  // What this node does about one call of load of its ranks, with other nodes.
  struct Round {
    enum class Phase { gathering, asking, told } phase = Phase::gathering;
    std::vector<LoadKey> loads;      // in it still, and began before the coordinator answered
    std::map<Rank, LayoutId> ranks;  // of these, and what each shares by
    std::set<LoadKey> late;          // came since
    uint32_t world_size = 0;
    bool shares = false;
    bool insists = false;     // one of them, on sharing
    uint64_t bytes = 0;       // of those that share
    bool asks_again = false;  // soon, for ranks that came since it asked
    TimeNs asked_since = 0;
    TimerId timer = 0;
    std::optional<Backoff> backoff;
    std::optional<LoadChooser::Chosen> chosen;  // told
    wire::LoadRoster roster;                    // told
    std::map<LoadKey, std::shared_ptr<const ReadPlan>> planned;
    std::vector<LoadKey> users;                  // of the exchange, by number
    uint32_t own_host = 0;                       // in it
    std::vector<UserReads> reads;                // of the users, while they wait for their windows
    std::optional<WindowBudget::Ticket> ticket;  // of their windows and the buffer
    std::unique_ptr<ChunkExchange> exchange;
    std::vector<std::pair<NodeId, wire::ChunksWanted>> early;
    TimeNs early_since = 0;
    std::vector<wire::ChunksNotWanted> early_not_wanted;
    bool is_built = false;
  };
  using Loads = std::map<LoadKey, Load>;

  void on_client(TimeNs now, ClientId client, const local::LocalMessage& message, EffectWriter& out);
  void on_message(TimeNs now, NodeId from, const WireBody& body, EffectWriter& out);

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
  // The pin stands before the manifest is read: then whoever deletes sees the pin, or we see the tombstone.
  void hold(TimeNs now, const LoadKey& id, const AttemptKey& key, EffectWriter& out);
  void pin_lost(const AttemptKey& key, const Status& why, EffectWriter& out);
  Loads::iterator end_load(TimeNs now, Loads::iterator load, EffectWriter& out);

  // --- what to read ---
  void read_decision(TimeNs begun, const LoadKey& id, const AttemptKey& key, EffectWriter& out);
  void decode(const LoadKey& id, const std::shared_ptr<const storage::Decision>& encoded, EffectWriter& out);
  void begin(TimeNs now, const LoadKey& id, std::shared_ptr<StoredCheckpoint> fresh, EffectWriter& out);
  void read_all(TimeNs now, const LoadKey& id, std::shared_ptr<const ReadPlan> plan, EffectWriter& out);

  // --- reading ---
  void proceed(TimeNs now, const LoadKey& id, EffectWriter& out);
  void read_own(TimeNs now, const LoadKey& id, Load& load, uint32_t part, EffectWriter& out);
  // By a client that reads files itself (loader_files.cpp).
  void give_files(const LoadKey& id, Load& load, TimeNs now, EffectWriter& out);
  void located(TimeNs now, const LoadKey& id, uint32_t batch, const Result<OperationResult>& result,
               EffectWriter& out);
  void on_files_read(TimeNs now, const LoadKey& id, const local::FilesRead& said, EffectWriter& out);
  void read_unread(TimeNs now, const LoadKey& id, Load& load, EffectWriter& out);
  // Kept for the client until the load has ended; said here to who runs the node.
  void note_damage(const LoadKey& id, const Result<OperationResult>& result, EffectWriter& out);
  void batch_read(TimeNs now, const LoadKey& id, uint32_t batch, const Status& outcome, EffectWriter& out);
  void loaded(const LoadKey& id, uint32_t batch, Load& load, EffectWriter& out);
  void on_placed(TimeNs now, const LoadKey& id, uint32_t batch, EffectWriter& out);
  // Before the checkpoint was found: Found carries the error; after: LoadDone does, and only once nothing is
  // being written to the window, for the client's next load has a window of the same number. Code::not_found
  // is passed on from the choice alone: there is no checkpoint. Once one is chosen, a file that is missing is
  // Code::corrupt.
  void fail(TimeNs now, const LoadKey& id, Status why, EffectWriter& out);
  // Batches in the window have one number for the client.
  static constexpr uint32_t kFirstShared = uint32_t{1} << 31;
  static uint32_t number_of_shared(uint32_t at) { return kFirstShared + at; }
  static Queue& queue_of(Load& load, uint32_t batch) { return batch < kFirstShared ? load.own : load.shared; }
  static ReadBatchPlan batch_of(const Load& load, uint32_t batch) {
    return batch < kFirstShared ? (*load.own.batches)[batch] : (*load.shared.batches)[batch - kFirstShared];
  }

  // --- together (loader_rounds.cpp) ---
  static bool is_worth_asking(const local::Load& request);
  static LayoutId shared_by(const local::Load::Sharing& sharing);
  void enter_round(TimeNs now, const LoadKey& id, EffectWriter& out);
  void join_round(Round& round, const LoadKey& id);
  bool are_all_here(const Round& round) const;
  uint32_t quiet_ms_of(const Round& round) const;
  void begin_asking(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void ask_again(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void ask(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void ask_later(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void on_roster(TimeNs now, const wire::LoadRoster& roster, EffectWriter& out);
  bool is_named(const LoadKey& id, const wire::LoadRoster& roster) const;
  void go_alone(TimeNs now, const wire::LoadId& id, EffectWriter& out);  // nobody answers
  void leave_round(TimeNs now, const LoadKey& id, Load& load, EffectWriter& out);
  void consider_exchange(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void build_exchange(TimeNs now, const wire::LoadId& id, uint64_t buffer_bytes, EffectWriter& out);
  std::vector<UserReads> reads_of_users(const Round& round, uint32_t own_host) const;
  std::optional<uint32_t> own_host_in(const wire::LoadRoster& roster) const;
  void on_wanted(TimeNs now, NodeId from, const wire::ChunksWanted& said, EffectWriter& out);
  void on_not_wanted(TimeNs now, const wire::ChunksNotWanted& said, EffectWriter& out);
  void say_coming_later(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void forget_rounds();  // that are over

  // --- memory (loader_windows.cpp) ---
  WindowBudget::WindowId window_of(const LoadKey& id, const Load& load) const {
    return {id.first, load.request.slab_id};
  }
  // A window of one of the ranks here, which have so many bytes together.
  WindowBudget::Window part_in(uint64_t bytes, const LoadKey& id) const;
  void read_directly(TimeNs now, const LoadKey& id, std::shared_ptr<const ReadPlan> plan, EffectWriter& out);
  void wait_for_window(const LoadKey& id, Load& load, std::shared_ptr<const ReadPlan> plan);
  void ask_for_exchange(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void go_direct(TimeNs now, const wire::LoadId& id, EffectWriter& out);
  void give_windows(TimeNs now, EffectWriter& out);  // to those whose turn it is
  void give_window(const LoadKey& id, uint64_t bytes);
  void release_windows(EffectWriter& out);
  void stop_waiting(std::optional<WindowBudget::Ticket>& ticket);

  const NodeFacts facts_;
  WindowBudget budget_;
  PendingOperations operations_;
  PendingTimers timers_;
  PendingSends sends_;
  LoadChooser chooser_;
  HeldPins pins_;
  std::map<std::pair<ClientId, uint32_t>, uint64_t> slabs_;  // bytes of each slab
  Loads loads_;
  std::map<wire::LoadId, Round> rounds_;
  std::map<WindowBudget::Ticket, std::variant<LoadKey, wire::LoadId>> waiting_;  // for windows
  OpenCheckpoints open_;
  std::optional<std::string> address_;  // by which peers reach this node; "": they do not
};

}  // namespace shoal::actors
