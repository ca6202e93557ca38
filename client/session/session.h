// Session: what a client and the nodes that serve it, one after the other, know of each other. The trainer's
// thread says what it wants and never waits for a socket; a thread of the session sends, another receives.
// Where a node is gone, the receiving thread finds or starts the next one and tells it what is undecided.
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
#include "shoal/save_plan.h"

namespace shoal {

struct SaveHandle::State {
  using Clock = std::chrono::steady_clock;
  // Written by save before anybody else sees the handle.
  AttemptKey key;
  SaveStats stats;
  Clock::time_point begun = Clock::now();
  uint32_t slot = 0;
  std::shared_ptr<client::FailedSaves> failures;  // null: nobody counts

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool is_done = false;
  Status outcome;
  Metadata metadata;
  std::shared_ptr<gpu::DeviceWork> copies;  // null: none is in progress
  Status copied;                            // their outcome, once they have ended
  double seconds_to_decision = 0;

  void finish(Status with, Metadata checkpoint);  // the first call counts
  void end_copies(Status with);
};

}  // namespace shoal

namespace shoal::client {

// How long a node that is alive may leave a request without an answer, or, beyond its own deadline, a save
// without a decision: its storage hangs.
inline constexpr std::chrono::minutes kLongestAnswer{10};
// Signs of life are asked for, and missed ones counted, that often within CheckpointerOptions::node_silence.
inline constexpr int kPingsPerSilence = 6;
// A node that leaves a ping that long without an answer, while a save waits for staging memory, is stopped: a
// save whose process has memory enough does without its answer.
inline constexpr std::chrono::seconds kLongestPong{2};
// How long save waits for its message to pass into the socket: a node that reads nothing is stopped.
inline constexpr std::chrono::milliseconds kLongestHandOver{1000};
inline constexpr size_t kMaxUndecidedSaves = 1024;
inline constexpr size_t kMaxLoadMessagesQueued = 4096;
inline constexpr size_t kMaxPartsQueued = 64;  // a node asks for two of a file at a time

class Session {
 public:
  // Finds or starts the node and attaches within options.attach_timeout. Code::unavailable, Code::refused or
  // what the node says.
  static Result<std::unique_ptr<Session>> open(const CheckpointerOptions& options);
  ~Session();
  // Ends the connection, for good; what is asked later fails. Handles of saves that are not decided hear that
  // nobody knows more.
  void end();

  uint32_t generation() const { return generation_; }
  // Why nothing can be asked of a node; OK while one serves, or is looked for within attach_timeout. An error
  // may pass: the search goes on.
  Status status() const;

  // The layout that rosters are planned for; once. The plan follows when both have come.
  void set_layout(LayoutPtr layout);
  // nullptr: no roster yet. An error: the roster's plan cannot be made.
  Result<SavePlanPtr> plan() const;

  // Slots of slabs, 0 to max_in_flight - 1: staged by the one trainer thread, freed by the node.
  // The free ones, ascending; waits for one if asked. Code::busy: none.
  Result<std::vector<uint32_t>> free_slots(bool wait);
  // False: a node that may still read the slab knows it; a new one must be offered.
  bool keeps_slab(uint32_t slot) const;
  // This memory file lies in the slot from now on. `fd` is duplicated.
  Status offer_slab(uint32_t slot, uint64_t bytes, int fd);
  void wait_all_free(std::chrono::steady_clock::duration at_most);

  // What the node grants to the slabs of this rank: session_staging.cpp. Of the trainer's thread.
  struct StagingGrant {
    uint64_t slab_bytes = 0;
    uint32_t slabs = 0;
    bool in_parts = false;
    uint64_t bytes() const { return slab_bytes * slabs; }
  };
  // As it was granted last; nothing: no node has, or it asked for it back.
  std::optional<StagingGrant> staging_grant() const;
  // Asks for another one, and waits for the answer. Nothing: the node grants none, or, unless
  // `needs_answer`, none serves, or it is stopped. With it the wait is for the next node too, until this
  // session gives the search up. Code::no_space.
  Result<std::optional<StagingGrant>> request_staging(const local::StagingRequest& wanted, bool needs_answer);
  // Until at least so many slots are free. Code::busy: so many are not, and it is not to wait.
  Status wait_for_free(size_t count, bool wait);
  // A free slot's slab will be written to: it is not given back meanwhile. False: it has been.
  bool begin_filling(uint32_t slot);
  void end_filling(uint32_t slot);
  // A free slot's slab and its memory are needed no more.
  void drop_slab(uint32_t slot);
  void send_kept();  // to a node that grants: where a slab could not be made
  // A save that stage() has said to be in parts: the next part that its node wants. Nothing: all of it is
  // durable, or the save has ended. An error: no node serves.
  struct Part {
    local::PartRequest wanted;
    uint64_t link = 0;  // the connection that it came by
  };
  Result<std::optional<Part>> next_part(const std::shared_ptr<SaveHandle::State>& save);
  void answer_part(const Part& part, Status outcome);

  // The save's slot is taken. Returns when the node has the message, even if this process then dies; waits
  // for that at most kLongestHandOver, and not where no node serves. Its handle is finished by the decision,
  // or an error. Code::busy: kMaxUndecidedSaves.
  Status stage(std::shared_ptr<SaveHandle::State> save, local::Staged staged);
  // A save whose copies are in progress: its slot is taken, and its node hears nothing of it until stage() or
  // give_up_copying(). Code::busy, as above.
  Status begin_copying(const std::shared_ptr<SaveHandle::State>& save);
  // The copies failed: the other ranks hear that this one takes no part, and why.
  void give_up_copying(const SaveHandle::State& save, Status why);
  // Mode collective: what this rank is to write of the save, which is asked of its node with the layout that
  // was set last. Waits until all ranks have asked. An error is also the save's: what it was given up for.
  // `follows_planner`: after exchange_plans.
  Result<SavePlanPtr> agree_on_plan(const std::shared_ptr<SaveHandle::State>& save, bool follows_planner);
  // Before that, of planners with a global plan of their own: offers this rank's plan, waits until all ranks
  // have offered theirs and that of coordinator_rank has made those of all, and returns its part. `make` is
  // called there, with the plans by rank, without the session's mutex. An error is also the save's.
  using MakePlans =
      std::function<Result<std::vector<plan::PlannerPlan>>(const std::vector<plan::PlannerPlan>& offered)>;
  Result<plan::PlannerPlan> exchange_plans(const std::shared_ptr<SaveHandle::State>& save,
                                           plan::PlannerPlan mine, const MakePlans& make);
  // The other ranks hear that this one takes no part.
  void not_staged(uint64_t step, uint32_t attempt, Status why);
  // Until every handle is finished. An error ends the session, but Code::deadline_exceeded.
  Status wait_all_decided(std::optional<std::chrono::milliseconds> at_most = std::nullopt);
  const std::shared_ptr<FailedSaves>& failures() const { return failures_; }

  // One request at a time, to one node: waits for one. Its answers are Found, Loaded and LoadDone. `link`, if
  // asked for: the number of the connection, from 1; on another one the node knows no window.
  Result<uint32_t> begin_request(uint64_t* link = nullptr);
  void ask(const local::LocalMessage& message, int fd_to_pass = -1);
  // The next answer; Code::deadline_exceeded after kLongestAnswer.
  Result<local::LocalMessage> next_answer();
  // The node of the last request went away: it may be made again.
  bool was_interrupted() const;
  void end_request();
  // Ends the connection, whose node may still write to the window of a load that was given up.
  void abandon();
  // To the node of that connection; nothing, where another one serves by now.
  void send_to_node(uint64_t link, local::LocalMessage message);
  // A clean end, said once all else is.
  void detach();

 private:
  using SaveKey = std::pair<uint64_t, uint32_t>;  // step, attempt
  struct Copying {                                // no node has been told of the save
    uint64_t link = 0;                            // the connection when it began
  };
  struct Record {                             // of an attempt that is not decided
    std::shared_ptr<SaveHandle::State> save;  // null: it was never staged
    // What a node that does not know of it is told.
    std::variant<local::Staged, local::Written, local::NotStaged, local::PlanRequest, local::PlanGathering,
                 Copying>
        offer;
    bool holds_slab() const {
      return save && (std::holds_alternative<local::Staged>(offer) || std::holds_alternative<Copying>(offer));
    }
    SavePlanPtr plan;                           // the answer to PlanRequest
    std::optional<local::PlanGathering> plans;  // the newest answer to PlanGathering
    // What this rank's planner made for all: said before the offer, until this rank has staged. Other ranks
    // may not have been told, and no other process has it.
    std::optional<local::PlanGathering> made;
  };
  struct Slot {
    bool is_taken = false;
    bool is_good = true;
    std::shared_ptr<const base::OwnedFd> fd;  // null: no slab yet
    uint64_t bytes = 0;
    bool is_filling = false;
    bool gives_back = false;  // as soon as it is free
    bool is_free() const { return !is_taken && !is_filling; }
  };
  struct Outgoing {
    local::LocalMessage message;
    std::shared_ptr<const base::OwnedFd> fd;
  };

  Session(const CheckpointerOptions& options, NodeFinder finder, NodeLink link);
  Status start();  // the threads; Code::no_space where the system gives none

  // Of the receiving thread: session_link.cpp.
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
  void on_roster(const local::RosterUpdate& received);
  Status on_plan(const local::PlanUpdate& received);
  Status on_plans(local::PlanGathering received);
  // With the mutex held.
  Status check_may_stage(const SaveKey& key) const;
  Status wait_for_node(std::unique_lock<std::mutex>& lock);
  // False: the node lives, and has not answered within kLongestAnswer.
  bool wait_for_grant(std::unique_lock<std::mutex>& lock, const std::shared_ptr<NodeLink>& link,
                      bool needs_answer);
  void on_granted(local::StagingGranted received);
  void on_give_back();
  Status on_part_request(local::PartRequest wanted);
  // With the mutex held.
  void give_back_free_slabs();
  void forget_slab(uint32_t slot);
  local::StagingKept kept() const;
  // The record of a save that is staged in parts; null: it has ended, or all of it is durable.
  const Record* in_parts(const SaveKey& key) const;
  void end_parts(const SaveKey& key);
  // With the mutex held. What the node, and each that comes after it, is asked for this save.
  template <class Ask>
  Status request_plan(const std::shared_ptr<SaveHandle::State>& save, Ask ask);
  // OK once `ready` of the save's record; an error where the save has ended before or no node serves.
  template <class Ready>
  Status wait_for_answer(std::unique_lock<std::mutex>& lock, const std::shared_ptr<SaveHandle::State>& save,
                         Ready&& ready);
  void plan_if_possible(std::unique_lock<std::mutex>& lock);
  void on_answer(uint32_t request_id, local::LocalMessage message);
  void finish_save(SaveKey key, bool frees_slot, Status outcome, Metadata metadata);
  void lose(Status why);
  void close_link(const std::shared_ptr<NodeLink>& link, Status why);
  void send_message(local::LocalMessage message, std::shared_ptr<const base::OwnedFd> fd = nullptr);
  template <class Ready>
  Status wait_until(std::unique_lock<std::mutex>& lock, Ready&& ready);

  const CheckpointerOptions options_;
  const uint32_t generation_;
  const std::shared_ptr<FailedSaves> failures_;
  NodeFinder finder_;            // of the receiving thread
  int silent_ticks_ = 0;         // of the receiving thread
  uint64_t bytes_received_ = 0;  // likewise

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closing_ = false;
  Status lost_;                     // for good
  Status trouble_;                  // no node serves, though one was waited for
  uint64_t troubles_ = 0;           // how often that was so
  std::shared_ptr<NodeLink> link_;  // null: none serves
  uint64_t links_ = 1;              // how many there were
  std::string gone_;                // of the one before
  std::deque<Outgoing> outgoing_;   // to link_
  bool is_sending_ = false;
  uint64_t messages_received_ = 0;
  uint64_t said_ = 0, sent_ = 0;  // messages put into outgoing_, and gone out of it, ever
  std::vector<Slot> slots_;
  std::optional<StagingGrant> grant_;
  std::optional<local::StagingRequest> asked_;  // and not answered
  uint64_t staging_requests_ = 0;               // the number of the last one
  std::optional<local::StagingGranted> granted_;
  std::optional<SaveKey> parts_of_;  // the save whose trainer waits to copy parts
  std::deque<Part> parts_;           // that it has not copied yet
  std::map<SaveKey, Record> undecided_;
  LayoutPtr layout_;
  std::optional<local::RosterUpdate> roster_;
  SavePlanPtr plan_;
  Status plan_error_;
  SavePlanPtr from_coordinator_;  // collective: the plan that came last
  uint32_t request_id_ = 0;
  bool is_asking_ = false;
  size_t requests_waiting_ = 0;
  Status interrupted_;
  std::deque<local::LocalMessage> answers_;

  std::thread sender_, receiver_;
};

// The receiving thread ends every wait: it notices a node that is gone or stopped, and a search in vain.
template <class Ready>
Status Session::wait_until(std::unique_lock<std::mutex>& lock, Ready&& ready) {
  changed_.wait(lock, [&] { return !lost_.ok() || !trouble_.ok() || ready(); });
  return lost_.ok() ? trouble_ : lost_;
}

}  // namespace shoal::client
