#include "client/session_internal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "client/node_process_internal.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kReattachPause{20};

int milliseconds_until(Clock::time_point end) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX));
}

// The node's answer to Attach on a fresh connection. `*is_refused`: it said why not.
Result<local::Attached> attach(LocalSocket& socket, const CheckpointerOptions& options,
                               Clock::time_point deadline, bool* is_refused) {
  local::Attach attach;
  attach.rank = options.rank;
  attach.world_size = options.world_size;
  attach.job_id = options.job_id;
  attach.pid = ::getpid();
  SHOAL_RETURN_IF_ERROR(socket.send(attach));
  SHOAL_ASSIGN_OR_RETURN(std::optional<ReceivedLocal> answer, socket.receive(milliseconds_until(deadline)));
  if (!answer) {
    return Status(Code::deadline_exceeded,
                  fmt::format("the node of this host (pid {}) did not answer within {} ms: it is stopped, or "
                              "hangs",
                              socket.peer_pid(), options.attach_timeout.count()));
  }
  if (const auto* attached = std::get_if<local::Attached>(&answer->message)) return *attached;
  if (const auto* failed = std::get_if<local::Failed>(&answer->message)) {
    *is_refused = true;
    return failed->why;
  }
  return Status(Code::corrupt, "the node answered with something else than it was asked");
}

}  // namespace

void SaveHandle::State::finish(Status with, Metadata checkpoint) {
  std::lock_guard lock(mutex);
  if (is_done) return;
  is_done = true;
  outcome = std::move(with);
  metadata = std::move(checkpoint);
  seconds_to_decision = std::chrono::duration<double>(Clock::now() - begun).count();
  changed.notify_all();
}

Result<std::unique_ptr<Session>> Session::open(const CheckpointerOptions& options) {
  const Clock::time_point deadline = Clock::now() + options.attach_timeout;
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<LocalSocket> socket, reach_node(options, deadline));
    bool is_refused = false;
    Result<local::Attached> attached = attach(*socket, options, deadline, &is_refused);
    if (attached.ok()) return std::unique_ptr<Session>(new Session(std::move(socket), options, *attached));
    // A node that is stopping says so, or closes the connection: when it has gone, the next one will serve.
    const bool may_follow =
        attached.status().code() == Code::unavailable && (options.start_node || !is_refused);
    if (!may_follow || Clock::now() >= deadline) {
      return attached.status().with_context("attaching to the node of this host");
    }
    std::this_thread::sleep_for(kReattachPause);
  }
}

Session::Session(std::unique_ptr<LocalSocket> socket, const CheckpointerOptions& options,
                 const local::Attached& said)
    : socket_(std::move(socket)),
      rank_(options.rank),
      generation_(said.generation),
      node_pid_(said.node_pid),
      node_deadline_(said.node_deadline_ms),
      silence_most_(options.node_silence),
      slot_taken_(options.max_in_flight) {
  receiver_ = std::thread([this] { receive_all(); });
}

Session::~Session() {
  socket_->shutdown();
  receiver_.join();
  lose(Status(Code::unavailable, "the Checkpointer was closed before the decision was heard"));
}

Status Session::status() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

Status Session::send(const LocalMessage& message, int fd_to_pass) {
  Status sent = socket_->send(message, fd_to_pass);
  if (sent.ok() || sent.code() == Code::too_large) return sent;
  // What the node may have said last explains more than that the pipe is broken: the receiver reads it, then
  // finds the end.
  socket_->shutdown();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !lost_.ok(); });
  return lost_;
}

void Session::receive_all() {
  while (true) {
    Status status = receive_one();
    if (status.ok()) continue;
    socket_->shutdown();
    const bool is_gone = status.code() == Code::unavailable;
    return lose(
        is_gone ? Status(Code::unavailable, fmt::format("the node of this host is gone (pid {})", node_pid_))
                : status.with_context(fmt::format("the node of this host (pid {})", node_pid_)));
  }
}

// Silence is counted in ticks in which nothing came, not read off a clock: a trainer that was stopped itself
// finds what its node has said meanwhile.
Status Session::receive_one() {
  const auto tick =
      std::max<std::chrono::milliseconds>(silence_most_ / kPingsPerSilence, std::chrono::milliseconds(1));
  SHOAL_ASSIGN_OR_RETURN(std::optional<ReceivedLocal> received,
                         socket_->receive(static_cast<int>(tick.count())));
  if (received) {
    silent_ticks_ = 0;
    return handle(std::move(received->message));
  }
  if (std::exchange(bytes_received_, socket_->bytes_received()) != socket_->bytes_received()) {
    silent_ticks_ = 0;  // a long message is on its way
  }
  if (++silent_ticks_ > kPingsPerSilence) {
    return Status(
        Code::deadline_exceeded,
        fmt::format("it gave no sign of life for {} ms: it is stopped, or hangs", silence_most_.count()));
  }
  look_for_overdue();
  return socket_->try_send(local::Ping{}).status();
}

// A node ends every save by its deadline. One whose storage hangs cannot, though it answers.
void Session::look_for_overdue() {
  if (node_deadline_.count() == 0) return;
  std::vector<std::shared_ptr<SaveHandle::State>> overdue;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, save] : undecided_) {
      if (Clock::now() - save->begun > node_deadline_ + kLongestAnswer) overdue.push_back(save);
    }
  }
  for (const auto& save : overdue) {
    finish_save({save->key.step, save->key.attempt}, false,
                Status(Code::deadline_exceeded,
                       fmt::format("{}: the node of this host (pid {}) answers, but has not decided it",
                                   to_string(save->key), node_pid_)),
                {});
  }
}

void Session::lose(Status why) {
  std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = std::move(why);
  for (auto& [key, save] : undecided_) save->finish(lost_, {});
  undecided_.clear();
  slot_taken_.assign(slot_taken_.size(), false);
  changed_.notify_all();
}

// An error ends the session.
Status Session::handle(LocalMessage message) {
  if (auto* said = std::get_if<local::SlabFree>(&message)) {
    give_back_slot(said->slab_id);
  } else if (auto* decided = std::get_if<local::Decided>(&message)) {
    finish_save({decided->step, decided->attempt}, false, std::move(decided->outcome),
                std::move(decided->checkpoint));
  } else if (auto* refused = std::get_if<local::Refused>(&message)) {
    finish_save({refused->step, refused->attempt}, true, std::move(refused->why), {});
  } else if (auto* roster = std::get_if<local::RosterIs>(&message)) {
    on_roster(*roster);
  } else if (auto* found = std::get_if<local::Found>(&message)) {
    on_answer(found->request_id, std::move(message));
  } else if (auto* loaded = std::get_if<local::Loaded>(&message)) {
    on_answer(loaded->request_id, std::move(message));
  } else if (auto* done = std::get_if<local::LoadDone>(&message)) {
    on_answer(done->request_id, std::move(message));
  } else if (std::get_if<local::Pong>(&message)) {
  } else if (auto* failed = std::get_if<local::Failed>(&message)) {
    // Whatever the code, it is the node's own account; "unavailable" must not hide it.
    Status why = failed->why.with_context(fmt::format("the node of this host (pid {})", node_pid_));
    lose(why);
    return why;
  } else {
    return Status(Code::corrupt, "it sent a message that only a client sends");
  }
  return ok_status();
}

void Session::finish_save(SaveKey key, bool frees_slot, Status outcome, Metadata metadata) {
  std::shared_ptr<SaveHandle::State> save;
  {
    std::lock_guard lock(mutex_);
    auto found = undecided_.find(key);
    if (found == undecided_.end()) return;
    save = std::move(found->second);
    undecided_.erase(found);
    if (frees_slot) slot_taken_[save->slot] = false;
    changed_.notify_all();
  }
  save->finish(std::move(outcome), std::move(metadata));
}

void Session::on_roster(const local::RosterIs& said) {
  std::unique_lock lock(mutex_);
  roster_ = said;
  plan_if_possible(lock);
}

void Session::set_layout(LayoutPtr layout) {
  std::unique_lock lock(mutex_);
  layout_ = std::move(layout);
  plan_if_possible(lock);
}

// Planning is done outside the lock, so that nobody waits for it.
void Session::plan_if_possible(std::unique_lock<std::mutex>& lock) {
  if (!roster_ || !layout_) return;
  const local::RosterIs said = *roster_;
  const LayoutPtr layout = layout_;
  lock.unlock();
  SavePlanPtr plan;
  Status error;
  if (said.rule_version != kRuleVersion) {
    error = Status(Code::version, fmt::format("the node plans by rule version {}, this program by {}",
                                              said.rule_version, kRuleVersion));
  } else if (rank_ >= said.world->roster.world_size() || said.world->layout_of(rank_).id() != layout->id()) {
    error = Status(Code::internal, fmt::format("the roster holds another layout than rank {} has", rank_));
  } else {
    Result<SavePlan> made = plan_save(*said.world, rank_, said.options);
    if (made.ok()) {
      plan = std::make_shared<const SavePlan>(std::move(made).value());
    } else {
      error = made.status();
    }
  }
  lock.lock();
  plan_ = std::move(plan);
  plan_error_ = std::move(error);
  changed_.notify_all();
}

Result<SavePlanPtr> Session::plan() const {
  std::lock_guard lock(mutex_);
  if (!plan_error_.ok()) return plan_error_.with_context("planning");
  return plan_;
}

// The receiving thread ends every wait: it notices a node that is gone or stopped.
template <class Ready>
Status Session::wait_until(std::unique_lock<std::mutex>& lock, Ready&& ready) {
  changed_.wait(lock, [&] { return !lost_.ok() || ready(); });
  return lost_;
}

Result<std::vector<uint32_t>> Session::free_slots(bool wait) {
  std::unique_lock lock(mutex_);
  std::vector<uint32_t> free;
  auto find = [&] {
    for (uint32_t i = 0; i < slot_taken_.size(); ++i) {
      if (!slot_taken_[i]) free.push_back(i);
    }
    return !free.empty();
  };
  if (!lost_.ok()) return lost_;
  if (wait) {
    SHOAL_RETURN_IF_ERROR(wait_until(lock, find));
  } else if (!find()) {
    return Status(Code::busy, fmt::format("{} saves are in flight, as many as may be", slot_taken_.size()));
  }
  return free;
}

void Session::take_slot(uint32_t slot) {
  std::lock_guard lock(mutex_);
  if (lost_.ok()) slot_taken_[slot] = true;
}

void Session::give_back_slot(uint32_t slot) {
  std::lock_guard lock(mutex_);
  if (slot < slot_taken_.size()) slot_taken_[slot] = false;
  changed_.notify_all();
}

void Session::wait_all_free(Clock::duration at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] {
    for (bool taken : slot_taken_) {
      if (taken) return false;
    }
    return true;
  });
}

Status Session::expect_decision(std::shared_ptr<SaveHandle::State> save) {
  std::lock_guard lock(mutex_);
  if (!lost_.ok()) return lost_;
  if (undecided_.size() >= kMaxUndecidedSaves) {
    return Status(Code::busy, fmt::format("{} saves are written and not decided", undecided_.size()));
  }
  const SaveKey key{save->key.step, save->key.attempt};
  undecided_[key] = std::move(save);
  return ok_status();
}

void Session::give_up(const std::shared_ptr<SaveHandle::State>& save, Status why) {
  finish_save({save->key.step, save->key.attempt}, true, std::move(why), {});
}

uint32_t Session::begin_request() {
  std::lock_guard lock(mutex_);
  is_asking_ = true;
  answers_.clear();
  return ++request_id_;
}

void Session::end_request() {
  std::lock_guard lock(mutex_);
  is_asking_ = false;
  answers_.clear();
}

void Session::on_answer(uint32_t request_id, LocalMessage message) {
  std::lock_guard lock(mutex_);
  if (!is_asking_ || request_id != request_id_) return;
  if (answers_.size() >= kMaxLoadMessagesQueued) {
    socket_->shutdown();  // more than any window can hold
    return;
  }
  answers_.push_back(std::move(message));
  changed_.notify_all();
}

Result<LocalMessage> Session::next_answer() {
  std::unique_lock lock(mutex_);
  const bool is_ready = changed_.wait_until(lock, Clock::now() + kLongestAnswer,
                                            [&] { return !answers_.empty() || !lost_.ok(); });
  if (!lost_.ok()) return lost_;
  if (!is_ready) {
    return Status(Code::deadline_exceeded,
                  fmt::format("the node of this host (pid {}) has left a request without an answer for {} "
                              "minutes",
                              node_pid_, kLongestAnswer.count()));
  }
  LocalMessage message = std::move(answers_.front());
  answers_.pop_front();
  return message;
}

Status Session::wait_all_decided() {
  std::unique_lock lock(mutex_);
  return wait_until(lock, [&] { return undecided_.empty(); });
}

void Session::abandon(Status why) {
  lose(std::move(why));
  socket_->shutdown();
}

}  // namespace shoal
