// Session: the connection of a client to its node, and to the node that replaces it after a failure. The
// trainer's thread queues messages and never waits for a socket: one thread of the session sends, another
// receives. If a node has ended, the receiving thread finds or starts the next one and sends it the undecided
// saves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/owned_fd.h"
#include "client/session/failed_saves.h"
#include "client/session/node_process.h"
#include "gpu/device_stager.h"
#include "local/socket/socket.h"
#include "shoal/checkpointer.h"
#include "shoal/progress.h"
#include "shoal/save_plan.h"

namespace shoal {

struct SaveHandle::State {
  using Clock = std::chrono::steady_clock;
  // save writes these before any other thread has the handle.
  AttemptKey key;
  SaveStats stats;
  Clock::time_point begun = Clock::now();
  Clock::time_point last_progress = begun;  // guarded by the mutex of the session
  uint32_t slot = 0;
  std::shared_ptr<client::FailedSaves> failures;  // null: failures are not counted

  std::mutex mutex;  // protects the following members
  std::condition_variable changed;
  bool is_done = false;
  Status outcome;
  Metadata metadata;
  std::optional<uint64_t> unchanged_since;
  std::string warning;
  std::shared_ptr<gpu::DeviceWork> copies;  // null: none is in progress
  Status copied;                            // their outcome, once they have ended
  double seconds_to_decision = 0;

  void finish(Status with, Metadata checkpoint);  // only the first call has an effect
  void end_copies(Status with);
};

}  // namespace shoal

namespace shoal::client {

// A live node must answer a request within this time, and must decide a save within this time after its own
// deadline. Otherwise its storage hangs.
inline constexpr std::chrono::minutes kLongestAnswer{10};
// The session sends this many pings within CheckpointerOptions::node_silence, and counts missing answers.
inline constexpr int kPingsPerSilence = 6;
// While a save waits for staging memory, a node that does not answer a ping within this time counts as
// stopped. A save whose process has enough memory then continues without a grant.
inline constexpr std::chrono::seconds kLongestPong{2};
// save waits at most this long until the socket has its message: a node that reads nothing is stopped.
inline constexpr std::chrono::milliseconds kLongestHandOver{1000};
inline constexpr size_t kMaxUndecidedSaves = 1024;
inline constexpr size_t kCommittedKept = 64;
inline constexpr size_t kMaxLoadMessagesQueued = 4096;
inline constexpr size_t kMaxPartsQueued = 64;  // a node requests two of a file at a time

Status another_thread_loads();  // Code::refused

class Session {
 public:
  using Clock = std::chrono::steady_clock;

  // Finds or starts the node and attaches within options.attach_timeout. Code::unavailable, Code::refused, or
  // the error that the node returns.
  static Result<std::unique_ptr<Session>> open(const CheckpointerOptions& options);
  ~Session();
  // Ends the session: later requests fail. The handles of undecided saves finish with Code::unavailable.
  void end();

  uint32_t generation() const { return generation_; }
  // OK while a node serves, or while the session looks for one within attach_timeout; otherwise the reason.
  // The session continues to look for a node, so an error may be temporary.
  Status status() const;

  // Of the oldest undecided save; nullopt: there is none. Asks the node, on a connection of its own.
  std::optional<Progress> save_progress() const;

  // Sets the layout for which the session plans. It makes the plan when it has both layout and roster.
  void set_layout(LayoutPtr layout);
  // nullptr: no roster yet. An error: the roster's plan cannot be made.
  Result<SavePlanPtr> plan() const;

  // Slots of slabs have the numbers 0 to max_in_flight - 1. The trainer's thread stages them, and the node
  // frees them. Returns the free ones, ascending. With `wait` it waits for one; else Code::busy if none is
  // free.
  Result<std::vector<uint32_t>> free_slots(bool wait);
  // False: an earlier node may still read this slab, so the caller must offer a new one.
  bool keeps_slab(uint32_t slot) const;
  // Puts this memory file into the slot. Duplicates `fd`.
  Status offer_slab(uint32_t slot, uint64_t bytes, int fd);
  void wait_all_free(std::chrono::steady_clock::duration at_most);

  // The memory that the node grants to the slabs of this rank: staging.cpp. Only the trainer's thread calls
  // these functions.
  struct StagingGrant {
    uint64_t slab_bytes = 0;
    uint32_t slabs = 0;
    bool in_parts = false;
    uint64_t bytes() const { return slab_bytes * slabs; }
  };
  // The last grant; nullopt: no node has granted memory, or the node has requested it back.
  std::optional<StagingGrant> staging_grant() const;
  // Requests another grant and waits for the answer. nullopt: the node grants no memory. Without
  // `needs_answer`, nullopt also means that no node serves, or that it is stopped. With `needs_answer` it
  // also waits for the next node, until the session gives up the search. Code::no_space.
  Result<std::optional<StagingGrant>> request_staging(const local::StagingRequest& wanted, bool needs_answer);
  // Waits until at least `count` slots are free. Without `wait`, Code::busy if fewer are free.
  Status wait_for_free(size_t count, bool wait);
  // Keeps the slab of a free slot while the caller writes to it. False: the slab has already been given back.
  bool begin_filling(uint32_t slot);
  void end_filling(uint32_t slot);
  // Releases the slab of a free slot, and its memory.
  void drop_slab(uint32_t slot);
  void send_kept();  // to a node that grants memory: the client could not make a slab
  // The next part that the node requests of a save that was staged in parts. nullopt: all of it is durable,
  // or the save has ended. An error: no node serves.
  struct Part {
    local::PartRequest wanted;
    uint64_t link = 0;  // the connection that brought the request
  };
  Result<std::optional<Part>> next_part(const std::shared_ptr<SaveHandle::State>& save);
  void answer_part(const Part& part, Status outcome);

  // Stages the save and marks its slot as taken. Returns when the socket has the message, so that the node
  // gets it even if this process dies. It waits for this at most kLongestHandOver, and not at all if no node
  // serves. The decision or an error finishes the handle. Code::busy: kMaxUndecidedSaves.
  Status stage(std::shared_ptr<SaveHandle::State> save, local::Staged staged);
  // A save whose copies are in progress: its slot is taken, and its node hears nothing of it until stage() or
  // give_up_copying(). Code::busy, as above.
  Status begin_copying(const std::shared_ptr<SaveHandle::State>& save);
  // The copies failed: the other ranks hear that this one takes no part, and why.
  void give_up_copying(const SaveHandle::State& save, Status why);
  // Mode collective: requests from the node the plan of this rank, for the layout that was set last. Waits
  // until all ranks have requested theirs. An error also ends the save. `follows_planner`: after
  // exchange_plans.
  Result<SavePlanPtr> agree_on_plan(const std::shared_ptr<SaveHandle::State>& save, bool follows_planner);
  // The plan gather of planners that override create_global_plan, before agree_on_plan. Offers this rank's
  // plan, waits until all ranks have offered theirs and coordinator_rank has made the plans of all, and
  // returns this rank's. coordinator_rank calls `make` with the plans by rank, without the session's mutex.
  // An error also ends the save.
  using MakePlans =
      std::function<Result<std::vector<plan::PlannerPlan>>(const std::vector<plan::PlannerPlan>& offered)>;
  Result<plan::PlannerPlan> exchange_plans(const std::shared_ptr<SaveHandle::State>& save,
                                           plan::PlannerPlan mine, const MakePlans& make);
  // Reports how long a call of save held the trainer, to a node that counts it.
  void returned(const AttemptKey& key, const SaveStats& stats);
  // Reports that this rank takes no part in the save, so that it aborts.
  void not_staged(uint64_t step, uint32_t attempt, Status why);
  // Waits until every handle is finished. Code::deadline_exceeded, or Code::busy if
  // CheckpointerOptions::keep_waiting has ended the wait: some are not.
  Status wait_all_decided(std::optional<std::chrono::milliseconds> at_most = std::nullopt);
  const std::shared_ptr<FailedSaves>& failures() const { return failures_; }

  // Begins a request; waits until a node serves. There is one request at a time, to one node. Its answers are
  // Found, Loaded and LoadDone. `*link` becomes the number of the connection, from 1: the node of another
  // connection does not know this client's window. Code::busy: CheckpointerOptions::keep_waiting has ended
  // the wait.
  Result<uint32_t> begin_request(uint64_t* link = nullptr);
  void ask(const local::LocalMessage& message);
  // Sends the load window. Duplicates `fd`.
  Status ask_with_window(const local::Slab& window, int fd);
  // The next answer; Code::deadline_exceeded after kLongestAnswer.
  Result<local::LocalMessage> next_answer();
  // True: the node of the last request has ended, so the caller may repeat the request.
  bool was_interrupted() const;
  void end_request();
  // Ends that connection after the client gave up a load: the node may still write to its window. Does
  // nothing if another node serves now.
  void abandon(uint64_t link);
  // Sends to the node of that connection. Does nothing if another node serves now.
  void send_to_node(uint64_t link, local::LocalMessage message);
  // Reports a clean end to the node, after all other messages.
  void detach();

 private:
  using SaveKey = std::pair<uint64_t, uint32_t>;  // step, attempt
  struct Copying {                                // no node knows of the save yet
    uint64_t link = 0;                            // the connection when it began
  };
  struct Record {                             // of an undecided attempt
    std::shared_ptr<SaveHandle::State> save;  // null: it was never staged
    // The message that a node gets if it does not know this attempt.
    std::variant<local::Staged, local::Written, local::NotStaged, local::PlanRequest, local::PlanGathering,
                 Copying>
        offer;
    bool holds_slab() const {
      return save && (std::holds_alternative<local::Staged>(offer) || std::holds_alternative<Copying>(offer));
    }
    SavePlanPtr plan;                           // the answer to PlanRequest
    std::optional<local::PlanGathering> plans;  // the newest answer to PlanGathering
    // The plans that this rank's planner made for all ranks. The session sends them before `offer`, until
    // this rank has staged: other ranks may not have theirs, and no other process has a copy.
    std::optional<local::PlanGathering> made;
    LayoutPtr layout = nullptr;  // under which the rank staged; null: it has not staged
  };
  struct Slot {
    std::optional<SaveKey> taken_by;          // the save whose bytes are in the slab, until a node frees it
    bool is_good = true;                      // false: see keeps_slab
    std::shared_ptr<const base::OwnedFd> fd;  // null: no slab yet
    uint64_t bytes = 0;
    bool is_filling = false;
    bool gives_back = false;  // gives back the slab as soon as it is free
    bool is_taken() const { return taken_by.has_value(); }
    bool is_free() const { return !is_taken() && !is_filling; }
    // Lets go of the slab: the next save makes another one.
    void lose_slab() { *this = Slot{std::nullopt, false, nullptr, 0}; }
  };
  struct Outgoing {
    local::LocalMessage message;
    std::shared_ptr<const base::OwnedFd> fd;
  };

  Session(const CheckpointerOptions& options, NodeFinder finder, NodeLink link);
  Status start();  // starts the threads; Code::no_space if the system has none

  // Called by the receiving thread: link.cpp.
  void receive_all();
  Status receive_one(NodeLink& link);
  bool drop(const std::shared_ptr<NodeLink>& link, const Status& why);
  std::shared_ptr<NodeLink> find_node();
  Result<NodeLink> attach_again(std::unique_ptr<local::LocalSocket> socket,
                                std::chrono::steady_clock::time_point deadline);
  bool install(const std::shared_ptr<NodeLink>& link);
  void offer_again();
  bool needs_node() const;
  void be_in_trouble(Status why);
  void look_for_overdue(const NodeLink& link);
  void send_all();
  void send_pending_messages(std::unique_lock<std::mutex>& lock);

  Status handle(local::LocalMessage message);
  Status on_slab_free(local::SlabFree received);
  void on_still_writing(const local::StillWriting& save);
  void on_roster(const local::RosterUpdate& received);
  Status on_plan(const local::PlanUpdate& received);
  Status on_plans(local::PlanGathering received);
  // With the mutex held.
  Status check_may_stage(const SaveKey& key) const;
  Status wait_for_node(std::unique_lock<std::mutex>& lock);
  // Code::deadline_exceeded: the node is alive and has not answered within kLongestAnswer.
  Status wait_for_grant(std::unique_lock<std::mutex>& lock, const std::shared_ptr<NodeLink>& link,
                        bool needs_answer);
  void on_granted(local::StagingGranted received);
  void on_give_back();
  Status on_part_request(local::PartRequest wanted);
  // With the mutex held.
  void free_slab_of(const SaveKey& key);  // if a slab has bytes of this save
  void give_back_free_slabs();
  void forget_slab(uint32_t slot);
  local::StagingKept kept() const;
  // The record of a save that is staged in parts; null: it has ended, or all of it is durable.
  const Record* in_parts(const SaveKey& key) const;
  void end_parts(const SaveKey& key);
  // With the mutex held. Sends a request for this save to the node, and to each node that replaces it.
  template <class Ask>
  Status request_plan(const std::shared_ptr<SaveHandle::State>& save, Ask ask);
  // Waits until `ready` is true of the save's record. An error: the save has ended, or no node serves.
  template <class Ready>
  Status wait_for_answer(std::unique_lock<std::mutex>& lock, const std::shared_ptr<SaveHandle::State>& save,
                         Ready&& ready);
  void plan_if_possible(std::unique_lock<std::mutex>& lock);
  void on_answer(uint32_t request_id, local::LocalMessage message);
  void finish_save(SaveKey key, bool frees_slot, Status outcome, Metadata metadata,
                   const std::string& warning = "");
  // Calls CheckpointerOptions::on_save_warning, or writes to stderr. Without the mutex.
  void warn_of(const AttemptKey& key, const std::string& text) const;
  // Finds the checkpoints of this session that have the contents of the one before them, and sets
  // unchanged_since of their saves. Decisions may come in any order.
  void compare_contents(const Metadata& committed, const std::shared_ptr<SaveHandle::State>& save);
  void lose(Status why);
  void close_link(const std::shared_ptr<NodeLink>& link, Status why);
  void send_message(local::LocalMessage message, std::shared_ptr<const base::OwnedFd> fd = nullptr);
  template <class Ready>
  Status wait_until(std::unique_lock<std::mutex>& lock, Ready&& ready);
  // OK: it is over, or `until` has come. Code::busy: CheckpointerOptions::keep_waiting has ended the wait.
  template <class IsOver>
  Status wait_while_allowed(std::unique_lock<std::mutex>& lock, Clock::time_point until, IsOver&& is_over);

  const CheckpointerOptions options_;
  const uint32_t generation_;
  const std::shared_ptr<FailedSaves> failures_;
  NodeFinder finder_;            // used by the receiving thread only, except for its socket file
  int silent_ticks_ = 0;         // likewise
  uint64_t bytes_received_ = 0;  // likewise

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closing_ = false;
  Status lost_;                     // why the session has ended
  Status trouble_;                  // why no node serves, after a wait for one
  uint64_t troubles_ = 0;           // how often trouble_ was set
  std::shared_ptr<NodeLink> link_;  // null: no node serves
  uint64_t links_ = 1;              // number of connections so far
  std::string gone_;                // why the connection before ended
  std::deque<Outgoing> outgoing_;   // messages for link_
  bool is_sending_ = false;
  uint64_t messages_received_ = 0;
  uint64_t queued_ = 0, sent_ = 0;  // messages ever put into outgoing_, and sent from it
  std::vector<Slot> slots_;
  std::optional<StagingGrant> grant_;
  std::optional<local::StagingRequest> asked_;  // the request without an answer
  uint64_t staging_requests_ = 0;               // the number of the last one
  std::optional<local::StagingGranted> granted_;
  std::optional<SaveKey> parts_of_;  // the save whose trainer waits to copy parts
  std::deque<Part> parts_;           // requested parts that it has not copied yet
  std::map<SaveKey, Record> undecided_;
  struct Committed {
    Hash128 contents;
    uint64_t first_step = 0;  // the step that first had these contents
    std::weak_ptr<SaveHandle::State> save;
  };
  std::map<AttemptKey, Committed> committed_;  // the newest, at most kCommittedKept
  LayoutPtr layout_;
  std::optional<local::RosterUpdate> roster_;
  SavePlanPtr plan_;
  Status plan_error_;
  SavePlanPtr from_coordinator_;  // collective: the last plan received
  uint32_t request_id_ = 0;
  bool is_asking_ = false;
  size_t requests_waiting_ = 0;
  Status interrupted_;
  std::deque<local::LocalMessage> answers_;

  std::thread sender_, receiver_;
};

// The receiving thread ends every wait: it notices a node that has ended or is stopped, and a search that
// fails.
template <class Ready>
Status Session::wait_until(std::unique_lock<std::mutex>& lock, Ready&& ready) {
  SHOAL_RETURN_IF_ERROR(wait_while_allowed(lock, Clock::time_point::max(),
                                           [&] { return !lost_.ok() || !trouble_.ok() || ready(); }));
  return lost_.ok() ? trouble_ : lost_;
}

template <class IsOver>
Status Session::wait_while_allowed(std::unique_lock<std::mutex>& lock, Clock::time_point until,
                                   IsOver&& is_over) {
  while (!changed_.wait_until(lock, std::min(until, Clock::now() + kInterruptionCheck), is_over)) {
    if (Clock::now() >= until) return ok_status();
    if (!options_.keep_waiting) continue;
    lock.unlock();  // it may need what another thread holds while that waits for the mutex
    const bool goes_on = options_.keep_waiting();
    lock.lock();
    if (!goes_on) return Status(Code::busy, "the wait was interrupted");
  }
  return ok_status();
}

}  // namespace shoal::client
