#include "client/session/session.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/owned_fd.h"
#include "client/launch/checkpointer_options.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestDetach{5};  // for sending the remaining messages

Result<std::shared_ptr<const base::OwnedFd>> duplicate(int fd, const char* whose) {
  auto kept = std::make_shared<const base::OwnedFd>(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (kept->valid()) return kept;
  return Status(Code::io,
                fmt::format("cannot duplicate the descriptor of {}: {}", whose, std::strerror(errno)));
}

}  // namespace

Status client::another_thread_loads() {
  return Status(Code::refused,
                "another thread uses this Checkpointer: only one thread at a time may load or query");
}

void SaveHandle::State::finish(Status with, Metadata checkpoint) {
  std::lock_guard lock(mutex);
  if (is_done) return;
  is_done = true;
  outcome = std::move(with);
  metadata = std::move(checkpoint);
  seconds_to_decision = std::chrono::duration<double>(Clock::now() - begun).count();
  if (failures) failures->on_decided(key, outcome);
  changed.notify_all();
}

void SaveHandle::State::end_copies(Status with) {
  std::lock_guard lock(mutex);
  copied = std::move(with);
  copies.reset();
  changed.notify_all();
}

Result<std::unique_ptr<client::Session>> client::Session::open(const CheckpointerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(client::NodeFinder finder, client::NodeFinder::make(options));
  SHOAL_ASSIGN_OR_RETURN(client::NodeLink link, client::attach_to_node(finder, options));
  std::unique_ptr<client::Session> session(new client::Session(options, std::move(finder), std::move(link)));
  SHOAL_RETURN_IF_ERROR(session->start());
  return session;
}

client::Session::Session(const CheckpointerOptions& options, client::NodeFinder finder, client::NodeLink link)
    : options_(options),
      generation_(link.attached.generation),
      failures_(std::make_shared<client::FailedSaves>(client::rank_in_world(options), options.on_save_failed,
                                                      options.max_failed_saves)),
      finder_(std::move(finder)),
      link_(std::make_shared<client::NodeLink>(std::move(link))),
      slots_(options.max_in_flight) {
  finder_.rejoin(generation_);
}

Status client::Session::start() {
  try {
    sender_ = std::thread([this] { send_all(); });
    receiver_ = std::thread([this] { receive_all(); });
  } catch (const std::exception& error) {
    return Status(Code::no_space, fmt::format("cannot start the threads for messages with the node: {}; "
                                              "raise the limit (ulimit -u, ulimit -v, or the container's)",
                                              error.what()));
  }
  return ok_status();
}

client::Session::~Session() {
  end();
}

void client::Session::end() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_closing_, true)) return;
    if (link_) link_->socket->shutdown();
    changed_.notify_all();
  }
  for (std::thread* thread : {&receiver_, &sender_}) {
    if (thread->joinable()) thread->join();
  }
  failures_->stop_listening();
  lose(Status(Code::unavailable, "the Checkpointer was closed before the node reported a decision"));
}

Status client::Session::status() const {
  std::lock_guard lock(mutex_);
  return lost_.ok() ? trouble_ : lost_;
}

// Requires the mutex; the caller notifies. Does nothing if no node serves: the next one gets the recorded
// messages.
void client::Session::send_message(local::LocalMessage message, std::shared_ptr<const base::OwnedFd> fd) {
  if (!link_) return;
  outgoing_.push_back({std::move(message), std::move(fd)});
  ++queued_;
}

void client::Session::send_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || (link_ && !is_sending_ && !outgoing_.empty()); });
    if (is_closing_) return;
    const std::shared_ptr<client::NodeLink> link = link_;
    const Outgoing next = std::move(outgoing_.front());
    outgoing_.pop_front();
    const uint64_t number = queued_ - outgoing_.size();
    is_sending_ = true;
    lock.unlock();
    Status sent = link->socket->send(next.message, next.fd ? next.fd->get() : -1);
    const auto* staged = std::get_if<local::Staged>(&next.message);
    if (sent.code() == Code::too_large && staged != nullptr) {
      finish_save({staged->step, staged->attempt}, true, sent, {});
      not_staged(staged->step, staged->attempt, sent);
    } else if (!sent.ok()) {
      // The node's last message explains the failure better than a broken pipe: the receiving thread reads it
      // and then finds the end of the connection.
      link->socket->shutdown();
    }
    lock.lock();
    is_sending_ = false;
    sent_ = std::max(sent_, number);
    changed_.notify_all();
  }
}

// The trainer's thread sends the messages that it can send without waiting, which is faster than a switch to
// the sending thread. It leaves the remaining ones, and errors, to that thread.
void client::Session::send_pending_messages(std::unique_lock<std::mutex>& lock) {
  while (link_ && !is_sending_ && !outgoing_.empty()) {
    const std::shared_ptr<client::NodeLink> link = link_;
    Outgoing next = std::move(outgoing_.front());
    outgoing_.pop_front();
    const uint64_t number = queued_ - outgoing_.size();
    is_sending_ = true;
    lock.unlock();
    Result<bool> sent = link->socket->try_send(next.message, next.fd ? next.fd->get() : -1);
    lock.lock();
    is_sending_ = false;
    if (sent.ok() && *sent) {
      sent_ = std::max(sent_, number);
      continue;
    }
    if (link_ == link) outgoing_.push_front(std::move(next));
    break;
  }
  changed_.notify_all();
}

void client::Session::lose(Status why) {
  std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = std::move(why);
  for (auto& [key, record] : undecided_) {
    if (record.save) record.save->finish(lost_, {});
  }
  undecided_.clear();
  for (Slot& slot : slots_) {
    slot.taken_by.reset();
    slot.is_good = false;
  }
  link_.reset();
  outgoing_.clear();
  parts_.clear();
  changed_.notify_all();
}

void client::Session::finish_save(SaveKey key, bool frees_slot, Status outcome, Metadata metadata,
                                  const std::string& warning) {
  std::unique_lock lock(mutex_);
  auto found = undecided_.find(key);
  // While copies are in progress the slab must stay. The node repeats its decision when the rank has staged.
  if (found == undecided_.end() || std::holds_alternative<Copying>(found->second.offer)) return;
  const std::shared_ptr<SaveHandle::State> save = std::move(found->second.save);
  const bool is_in_slab = save && std::holds_alternative<local::Staged>(found->second.offer);
  undecided_.erase(found);
  if (is_in_slab && frees_slot) free_slab_of(key);
  give_back_free_slabs();
  const bool is_committed = outcome.ok();
  std::optional<uint64_t> unchanged_since;
  if (is_committed) compare_contents(metadata, save);
  // Under the lock: a thread that no longer finds the save in undecided_ must find it finished.
  if (save) {
    {
      std::lock_guard save_lock(save->mutex);
      if (is_committed) save->warning = warning;
      unchanged_since = save->unchanged_since;
    }
    save->finish(std::move(outcome), std::move(metadata));
  }
  changed_.notify_all();
  lock.unlock();
  if (!save || !is_committed) return;
  if (!warning.empty()) warn_of(save->key, warning);
  if (unchanged_since) {
    warn_of(save->key, fmt::format("nothing has changed since step {}: all files have the same bytes",
                                   *unchanged_since));
  }
}

void client::Session::warn_of(const AttemptKey& key, const std::string& text) const {
  if (options_.on_save_warning) return options_.on_save_warning(key, text);
  if (options_.rank == 0)
    fmt::print(stderr, "shoal: warning: {} is committed, but {}\n", to_string(key), text);
}

void client::Session::compare_contents(const Metadata& committed,
                                       const std::shared_ptr<SaveHandle::State>& save) {
  auto it = committed_.insert_or_assign(committed.key, Committed{committed.contents_digest, 0, save}).first;
  for (; it != committed_.end(); ++it) {
    const auto before = it == committed_.begin() ? committed_.end() : std::prev(it);
    const Hash128& contents = it->second.contents;
    const bool is_same =
        before != committed_.end() && !contents.is_zero() && contents == before->second.contents;
    it->second.first_step = is_same ? before->second.first_step : it->first.step;
    if (const auto state = it->second.save.lock()) {
      std::lock_guard lock(state->mutex);
      state->unchanged_since = is_same ? std::optional(it->second.first_step) : std::nullopt;
    }
  }
  if (committed_.size() > kCommittedKept) committed_.erase(committed_.begin());
}

void client::Session::on_roster(const local::RosterUpdate& received) {
  std::unique_lock lock(mutex_);
  // All nodes of a generation send the same roster.
  if (roster_ && plan_ && roster_->world->roster.id() == received.world->roster.id()) return;
  roster_ = received;
  plan_if_possible(lock);
}

void client::Session::set_layout(LayoutPtr layout) {
  std::unique_lock lock(mutex_);
  layout_ = std::move(layout);
  plan_ = nullptr;  // it is the plan of another layout
  send_message(local::LayoutUpdate{layout_, options_.save});
  changed_.notify_all();
  plan_if_possible(lock);
}

// Plans without the lock, so that no other thread waits for it.
void client::Session::plan_if_possible(std::unique_lock<std::mutex>& lock) {
  if (!roster_ || !layout_) return;
  const local::RosterUpdate received = *roster_;
  const LayoutPtr layout = layout_;
  lock.unlock();
  SavePlanPtr plan;
  Status error;
  if (received.rule_version != kRuleVersion) {
    error = Status(
        Code::version,
        fmt::format(
            "the node uses planning rule {}, and this program uses {}: use one version of Shoal for both",
            received.rule_version, kRuleVersion));
  } else if (options_.rank >= received.world->roster.world_size()) {
    error = Status(Code::internal, fmt::format("rank {} is not in the roster", options_.rank));
  } else if (received.world->layout_of(options_.rank).id() == layout->id()) {
    // Otherwise the roster has this rank's previous layout, and a newer roster follows.
    Result<SavePlan> made = plan_save(*received.world, options_.rank, received.options);
    if (made.ok()) {
      plan = std::make_shared<const SavePlan>(std::move(made).value());
    } else {
      error = made.status();
    }
  }
  lock.lock();
  if (layout_ != layout || roster_->world != received.world)
    return;  // the thread that changed it makes the plan
  plan_ = std::move(plan);
  plan_error_ = std::move(error);
  changed_.notify_all();
}

Result<SavePlanPtr> client::Session::plan() const {
  std::lock_guard lock(mutex_);
  if (!plan_error_.ok()) return plan_error_.with_context("planning");
  return plan_;
}

Result<std::vector<uint32_t>> client::Session::free_slots(bool wait) {
  std::unique_lock lock(mutex_);
  std::vector<uint32_t> free;
  auto find = [&] {
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (!slots_[i].is_taken()) free.push_back(i);
    }
    return !free.empty();
  };
  if (wait) {
    SHOAL_RETURN_IF_ERROR(wait_until(lock, find));
  } else if (!find()) {
    return Status(Code::busy,
                  fmt::format("{} saves are in flight, as many as max_in_flight allows", slots_.size()));
  }
  return free;
}

bool client::Session::keeps_slab(uint32_t slot) const {
  std::lock_guard lock(mutex_);
  return slots_[slot].is_good;
}

Status client::Session::offer_slab(uint32_t slot, uint64_t bytes, int fd) {
  SHOAL_ASSIGN_OR_RETURN(auto kept, duplicate(fd, "a slab"));
  std::lock_guard lock(mutex_);
  if (!lost_.ok()) return lost_;
  slots_[slot] = Slot{std::nullopt, true, kept, bytes};
  send_message(local::Slab{slot, bytes}, std::move(kept));
  changed_.notify_all();
  return ok_status();
}

void client::Session::wait_all_free(Clock::duration at_most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] {
    return !lost_.ok() || !trouble_.ok() ||
           std::none_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.is_taken(); });
  });
}

// Requires the mutex.
Status client::Session::check_may_stage(const SaveKey& key) const {
  if (!lost_.ok()) return lost_;
  if (undecided_.size() < client::kMaxUndecidedSaves || undecided_.contains(key)) return ok_status();
  return Status(Code::busy, fmt::format("{} saves are written and undecided: wait for one of them first",
                                        undecided_.size()));
}

Status client::Session::begin_copying(const std::shared_ptr<SaveHandle::State>& save) {
  std::lock_guard lock(mutex_);
  const SaveKey key{save->key.step, save->key.attempt};
  SHOAL_RETURN_IF_ERROR(check_may_stage(key));
  slots_[save->slot].taken_by = key;
  undecided_[key] = Record{save, Copying{links_}, nullptr, std::nullopt};
  return ok_status();
}

void client::Session::give_up_copying(const SaveHandle::State& save, Status why) {
  std::lock_guard lock(mutex_);
  const auto record = undecided_.find({save.key.step, save.key.attempt});
  if (record == undecided_.end() || !std::holds_alternative<Copying>(record->second.offer)) return;
  local::NotStaged message{save.key.step, save.key.attempt, std::move(why)};
  send_message(message);
  record->second.offer = std::move(message);  // its handle is finished by the decision
  free_slab_of({save.key.step, save.key.attempt});
  give_back_free_slabs();
  changed_.notify_all();
}

Status client::Session::stage(std::shared_ptr<SaveHandle::State> save, local::Staged staged) {
  std::unique_lock lock(mutex_);
  const SaveKey key{staged.step, staged.attempt};
  SHOAL_RETURN_IF_ERROR(check_may_stage(key));
  if (const auto known = undecided_.find(key); known != undecided_.end()) {
    // If the node has changed since the copies began, the new one must ask the root whether the attempt is
    // decided.
    const auto* copying = std::get_if<Copying>(&known->second.offer);
    staged.again = copying != nullptr && copying->link != links_;
  }
  slots_[save->slot].taken_by = key;
  send_message(staged);
  if (staged.in_parts) parts_of_ = key;
  const LayoutPtr layout = layout_ && layout_->id() == staged.layout_id ? layout_ : nullptr;
  undecided_[key] = Record{std::move(save), std::move(staged), nullptr, std::nullopt, std::nullopt, layout};
  const std::shared_ptr<client::NodeLink> link = link_;
  const uint64_t number = queued_;
  send_pending_messages(lock);
  changed_.wait_for(lock, client::kLongestHandOver,
                    [&] { return sent_ >= number || link_ != link || !link_; });
  return ok_status();
}

void client::Session::returned(const AttemptKey& key, const SaveStats& stats) {
  const auto ns_of = [](double seconds) { return static_cast<uint64_t>(std::max(seconds, 0.0) * 1e9); };
  std::lock_guard lock(mutex_);
  if (!link_ || !link_->attached.counts_returns) return;
  send_message(
      local::SaveReturned{key.step, key.attempt, ns_of(stats.seconds_blocked), ns_of(stats.seconds_waited)});
  changed_.notify_all();
}

void client::Session::not_staged(uint64_t step, uint32_t attempt, Status why) {
  std::lock_guard lock(mutex_);
  const SaveKey key{step, attempt};
  end_parts(key);
  if (!lost_.ok() || (!undecided_.contains(key) && undecided_.size() >= client::kMaxUndecidedSaves)) return;
  local::NotStaged received{step, attempt, std::move(why)};
  send_message(received);
  undecided_[key] = Record{nullptr, std::move(received), nullptr, std::nullopt};
  // A save in parts that has failed: a node that has ended frees no slab.
  for (Slot& slot : slots_) {
    if (!link_ && slot.taken_by == key) slot.lose_slab();
  }
  changed_.notify_all();
}

Status client::Session::wait_all_decided(std::optional<std::chrono::milliseconds> at_most) {
  const Clock::time_point deadline = at_most ? Clock::now() + *at_most : Clock::time_point::max();
  std::unique_lock lock(mutex_);
  std::vector<std::shared_ptr<SaveHandle::State>> saves;
  for (const auto& [key, record] : undecided_) {
    if (record.save) saves.push_back(record.save);
  }
  for (const auto& save : saves) {
    bool is_done = false;
    SHOAL_RETURN_IF_ERROR(wait_while_allowed(lock, deadline, [&] {
      std::lock_guard save_lock(save->mutex);
      return is_done = save->is_done;
    }));
    if (!is_done) {
      return Status(Code::deadline_exceeded, to_string(save->key) + " is still undecided");
    }
  }
  return ok_status();
}

Result<uint32_t> client::Session::begin_request(uint64_t* link) {
  std::unique_lock lock(mutex_);
  const uint64_t troubles = troubles_;
  if (!is_asking_) interrupted_ = ok_status();
  ++requests_waiting_;
  changed_.notify_all();
  const Status waited = wait_while_allowed(lock, Clock::time_point::max(),
                                           [&] { return !lost_.ok() || link_ || troubles_ != troubles; });
  --requests_waiting_;
  SHOAL_RETURN_IF_ERROR(waited);
  if (!lost_.ok()) return lost_;
  if (!link_) return trouble_;
  if (is_asking_) return another_thread_loads();
  is_asking_ = true;
  interrupted_ = ok_status();
  answers_.clear();
  if (link) *link = links_;
  return ++request_id_;
}

void client::Session::ask(const local::LocalMessage& message) {
  std::lock_guard lock(mutex_);
  if (interrupted_.ok()) send_message(message);
  changed_.notify_all();
}

Status client::Session::ask_with_window(const local::Slab& window, int fd) {
  SHOAL_ASSIGN_OR_RETURN(auto kept, duplicate(fd, "the load window"));
  std::lock_guard lock(mutex_);
  if (interrupted_.ok()) send_message(window, std::move(kept));
  changed_.notify_all();
  return ok_status();
}

void client::Session::end_request() {
  std::lock_guard lock(mutex_);
  is_asking_ = false;
  answers_.clear();
}

bool client::Session::was_interrupted() const {
  std::lock_guard lock(mutex_);
  return !interrupted_.ok();
}

void client::Session::on_answer(uint32_t request_id, local::LocalMessage message) {
  std::lock_guard lock(mutex_);
  if (!is_asking_ || request_id != request_id_) return;
  if (answers_.size() >= client::kMaxLoadMessagesQueued) {
    if (link_) link_->socket->shutdown();  // more messages than any window can need
    return;
  }
  answers_.push_back(std::move(message));
  changed_.notify_all();
}

Result<local::LocalMessage> client::Session::next_answer() {
  std::unique_lock lock(mutex_);
  bool is_ready = false;
  SHOAL_RETURN_IF_ERROR(wait_while_allowed(lock, Clock::now() + client::kLongestAnswer, [&] {
    return is_ready = !answers_.empty() || !lost_.ok() || !interrupted_.ok();
  }));
  if (!lost_.ok()) return lost_;
  if (!interrupted_.ok()) return interrupted_;
  if (!is_ready) {
    return Status(Code::deadline_exceeded,
                  fmt::format("the node of this host (pid {}) has not answered a request for {} minutes",
                              link_->attached.node_pid, client::kLongestAnswer.count()));
  }
  local::LocalMessage message = std::move(answers_.front());
  answers_.pop_front();
  return message;
}

void client::Session::abandon(uint64_t link) {
  std::shared_ptr<client::NodeLink> given_up;
  {
    std::lock_guard lock(mutex_);
    if (!link_ || links_ != link) return;
    given_up = link_;
    is_asking_ = false;  // the node has not ended
  }
  close_link(given_up, Status(Code::unavailable, "the trainer gave up a load"));
}

void client::Session::send_to_node(uint64_t link, local::LocalMessage message) {
  std::lock_guard lock(mutex_);
  if (!link_ || links_ != link) return;
  send_message(std::move(message));
  changed_.notify_all();
}

void client::Session::detach() {
  std::unique_lock lock(mutex_);
  send_message(local::Detach{});
  changed_.notify_all();
  changed_.wait_for(lock, kLongestDetach, [&] { return !link_ || (outgoing_.empty() && !is_sending_); });
}

}  // namespace shoal
