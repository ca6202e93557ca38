// Session: the attached connection to the node. A thread of its own receives; what it hears is kept here,
// under one mutex, for the trainer's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "client/checkpointer.h"
#include "local/socket.h"
#include "plan/save_plan.h"

namespace shoal {

struct SaveHandle::State {
  using Clock = std::chrono::steady_clock;
  // Written by save before anybody else sees the handle.
  AttemptKey key;
  SaveStats stats;
  Clock::time_point begun = Clock::now();
  uint32_t slot = 0;

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool is_done = false;
  Status outcome;
  Metadata metadata;
  double seconds_to_decision = 0;

  void finish(Status with, Metadata checkpoint);  // the first call counts
};

// How long a node that is alive may leave a request without an answer, or, beyond its own deadline, a save
// without a decision: its storage hangs.
inline constexpr std::chrono::minutes kLongestAnswer{10};
// Signs of life are asked for, and missed ones counted, that often within CheckpointerOptions::node_silence.
inline constexpr int kPingsPerSilence = 6;
inline constexpr size_t kMaxUndecidedSaves = 1024;
inline constexpr size_t kMaxLoadMessagesQueued = 4096;

class Session {
 public:
  // Finds or starts the node and attaches within options.attach_timeout. Code::unavailable, Code::refused or
  // what the node says.
  static Result<std::unique_ptr<Session>> open(const CheckpointerOptions& options);
  ~Session();  // ends the connection; saves not decided fail

  uint32_t generation() const { return generation_; }
  // Why the connection is of no more use; OK while it is.
  Status status() const;
  // An error has ended the session, but for Code::too_large.
  Status send(const LocalMessage& message, int fd_to_pass = -1);

  // The layout that rosters are planned for; once. The plan follows when both have come.
  void set_layout(LayoutPtr layout);
  // nullptr: no roster yet. An error: the roster's plan cannot be made.
  Result<SavePlanPtr> plan() const;

  // Slots of slabs, 0 to max_in_flight - 1. Taken by the one trainer thread, freed by the node.
  // The free ones, ascending; waits for one if asked. Code::busy: none.
  Result<std::vector<uint32_t>> free_slots(bool wait);
  void take_slot(uint32_t slot);
  void give_back_slot(uint32_t slot);  // it never reached the node
  void wait_all_free(std::chrono::steady_clock::duration at_most);

  // Before the Staged of this save. Code::busy: kMaxUndecidedSaves.
  Status expect_decision(std::shared_ptr<SaveHandle::State> save);
  // Its Staged could not be sent: its slot is free again.
  void give_up(const std::shared_ptr<SaveHandle::State>& save, Status why);

  // Until every save that was staged is decided, or failed.
  Status wait_all_decided();

  // One request at a time. The next Found, Loaded or LoadDone that answers it; Code::deadline_exceeded after
  // kLongestAnswer.
  uint32_t begin_request();
  Result<LocalMessage> next_answer();
  void end_request();
  // Ends the session, whose node may still write to the window of a load that was given up.
  void abandon(Status why);

 private:
  using SaveKey = std::pair<uint64_t, uint32_t>;  // step, attempt

  Session(std::unique_ptr<LocalSocket> socket, const CheckpointerOptions& options,
          const local::Attached& said);
  void receive_all();
  Status receive_one();
  void look_for_overdue();
  Status handle(LocalMessage message);
  void on_roster(const local::RosterIs& said);
  void plan_if_possible(std::unique_lock<std::mutex>& lock);
  void on_answer(uint32_t request_id, LocalMessage message);
  void finish_save(SaveKey key, bool frees_slot, Status outcome, Metadata metadata);
  void lose(Status why);
  template <class Ready>
  Status wait_until(std::unique_lock<std::mutex>& lock, Ready&& ready);

  std::unique_ptr<LocalSocket> socket_;
  const Rank rank_;
  const uint32_t generation_;
  const int32_t node_pid_;
  const std::chrono::milliseconds node_deadline_;  // 0: not said
  const std::chrono::milliseconds silence_most_;
  int silent_ticks_ = 0;         // of the receiving thread
  uint64_t bytes_received_ = 0;  // likewise

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status lost_;
  std::vector<bool> slot_taken_;
  std::map<SaveKey, std::shared_ptr<SaveHandle::State>> undecided_;
  LayoutPtr layout_;
  std::optional<local::RosterIs> roster_;
  SavePlanPtr plan_;
  Status plan_error_;
  uint32_t request_id_ = 0;
  bool is_asking_ = false;
  std::deque<LocalMessage> answers_;

  std::thread receiver_;
};

}  // namespace shoal
