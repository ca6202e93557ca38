// Session: the receiving thread, which also finds the next node.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/visit.h"
#include "client/session/session.h"

namespace shoal::client {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSearchPause{20};  // while a node is needed
constexpr std::chrono::milliseconds kIdlePause{1000};  // while none is: one may start by itself
constexpr std::chrono::milliseconds kAttachTick{100};
constexpr Clock::time_point kNever = Clock::time_point::max();

}  // namespace

void Session::receive_all() {
  std::shared_ptr<NodeLink> link = link_;  // no other thread runs yet
  while (link) {
    Status status;
    while (status.ok()) {
      status = receive_one(*link);
      failures_->call_back();
    }
    link->socket->shutdown();
    link = drop(link, status) ? find_node() : nullptr;
    failures_->call_back();
  }
}

// Measures silence in ticks without a message, not by a clock: a trainer that was itself stopped still finds
// the messages that its node sent meanwhile.
Status Session::receive_one(NodeLink& link) {
  const auto tick = std::max<std::chrono::milliseconds>(options_.node_silence / kPingsPerSilence,
                                                        std::chrono::milliseconds(1));
  SHOAL_ASSIGN_OR_RETURN(std::optional<local::ReceivedLocal> received,
                         link.socket->receive(static_cast<int>(tick.count())));
  if (received) {
    silent_ticks_ = 0;
    {
      std::lock_guard lock(mutex_);
      ++messages_received_;
    }
    return handle(std::move(received->message));
  }
  const uint64_t bytes = link.socket->bytes_received();
  if (std::exchange(bytes_received_, bytes) != bytes) silent_ticks_ = 0;  // a long message is arriving
  if (++silent_ticks_ > kPingsPerSilence) {
    return Status(Code::deadline_exceeded, fmt::format("it sent nothing for {} ms: it is stopped or hangs",
                                                       options_.node_silence.count()));
  }
  look_for_overdue(link);
  // If this send fails, the next receive returns the reason.
  (void)link.socket->try_send(local::Ping{});
  return ok_status();
}

// A node ends every save by its deadline, which moves while the save makes progress. If its storage hangs it
// cannot, although it still answers.
void Session::look_for_overdue(const NodeLink& link) {
  if (link.attached.node_deadline_ms == 0) return;
  const auto most = std::chrono::milliseconds(link.attached.node_deadline_ms) + kLongestAnswer;
  std::lock_guard lock(mutex_);
  for (const auto& [key, record] : undecided_) {
    if (!record.save || Clock::now() - record.save->last_progress <= most) continue;
    record.save->finish(
        Status(Code::deadline_exceeded, fmt::format("{}: the node of this host (pid {}) answers, but did not "
                                                    "report a decision in time: its storage may hang",
                                                    to_string(record.save->key), link.attached.node_pid)),
        {});
  }
  changed_.notify_all();
}

namespace {
Status not_of_a_node() {
  return Status(Code::corrupt, "it sent a message that only a client sends");
}
}  // namespace

// An error ends the connection.
Status Session::handle(local::LocalMessage message) {
  return std::visit(
      base::Overloaded{
          [&](local::SlabFree& freed) { return on_slab_free(std::move(freed)); },
          [&](local::Decided& decided) {
            finish_save({decided.step, decided.attempt}, false, std::move(decided.outcome),
                        decided.checkpoint ? *decided.checkpoint : Metadata(), decided.warning);
            return ok_status();
          },
          [&](const local::StillWriting& save) { return on_still_writing(save), ok_status(); },
          [&](local::Refused& refused) {
            finish_save({refused.step, refused.attempt}, true, std::move(refused.why), {});
            return ok_status();
          },
          [&](const local::RosterUpdate& roster) { return on_roster(roster), ok_status(); },
          [&](const local::PlanUpdate& plan) { return on_plan(plan); },
          [&](local::PlanGathering& plans) { return on_plans(std::move(plans)); },
          [&](const base::OneOf<local::Found, local::Listing, local::Loaded, local::FilesToRead,
                                local::LoadDone> auto& answer) {
            return on_answer(answer.request_id, std::move(message)), ok_status();
          },
          [&](local::StagingGranted& granted) { return on_granted(std::move(granted)), ok_status(); },
          [&](const local::GiveBack&) { return on_give_back(), ok_status(); },
          [&](local::PartRequest& part) { return on_part_request(std::move(part)); },
          [](const local::Failed& failed) { return failed.why; },
          [](const local::Pong&) { return ok_status(); },
          // Attached and the reports of a status answer the first message of a connection, before this.
          [](const base::OneOf<local::Attached, local::StatusReport, local::JobStatusReport> auto&) {
            return not_of_a_node();
          },
          [](const local::OnlyFromClient auto&) { return not_of_a_node(); }},
      message);
}

void Session::on_still_writing(const local::StillWriting& save) {
  std::lock_guard lock(mutex_);
  auto record = undecided_.find({save.step, save.attempt});
  if (record != undecided_.end() && record->second.save) record->second.save->last_progress = Clock::now();
}

// The slab's bytes are durable files now, or dropped. Changes the message that the next node would get.
Status Session::on_slab_free(local::SlabFree body) {
  std::lock_guard lock(mutex_);
  if (body.slab_id >= slots_.size())
    return Status(Code::corrupt, "it freed a slab that this trainer never offered");
  const SaveKey key{body.step, body.attempt};
  auto record = undecided_.find(key);
  const bool is_known = record != undecided_.end() && record->second.save;
  const bool is_staged = is_known && std::holds_alternative<local::Staged>(record->second.offer);
  if (is_staged && record->second.save->slot != body.slab_id) {
    return Status(Code::corrupt, "it freed the slab of another save");
  }
  // The message comes twice, or over a connection that the client has given up: another save may have the
  // slab. Nor has a node the slab while copies to it are in progress.
  const bool is_copied = !is_known || !std::holds_alternative<Copying>(record->second.offer);
  if (slots_[body.slab_id].taken_by != key || !is_copied) return ok_status();
  if (is_staged && body.durable) {
    const local::Staged staged = std::move(std::get<local::Staged>(record->second.offer));
    record->second.offer =
        local::Written{body.step, body.attempt, std::move(*body.durable), staged.user, staged.replicas};
  } else if (is_staged) {
    record->second.offer = local::NotStaged{
        body.step, body.attempt,
        Status(Code::aborted, "a node that has since ended dropped what this rank had staged")};
  }
  slots_[body.slab_id].taken_by.reset();
  give_back_free_slabs();
  changed_.notify_all();
  return ok_status();
}

// False: the session must not look for another node.
bool Session::drop(const std::shared_ptr<NodeLink>& link, const Status& why) {
  const std::string who = fmt::format("the node of this host (pid {})", link->attached.node_pid);
  const bool is_silent = why.code() == Code::deadline_exceeded;
  if (why.code() != Code::unavailable && !is_silent) {
    lose(why.with_context(who));
    return false;
  }
  close_link(link, is_silent
                       ? why.with_context(who)
                       : Status(Code::unavailable, fmt::format("the node of this host (pid {}) has ended",
                                                               link->attached.node_pid)));
  // A stopped node still holds the lock file, so that no other node can replace it.
  if (is_silent) be_in_trouble(why.with_context(who));
  std::lock_guard lock(mutex_);
  return !is_closing_;
}

// Gives up the connection. If a save is decided and its slab not free, the node may still read that slab.
void Session::close_link(const std::shared_ptr<NodeLink>& link, Status why) {
  link->socket->shutdown();
  std::lock_guard lock(mutex_);
  if (link_ != link) return;
  link_.reset();
  outgoing_.clear();
  parts_.clear();
  gone_ = why.message();
  if (is_asking_) interrupted_ = std::move(why);
  for (Slot& slot : slots_) {
    if (!slot.is_taken()) continue;
    const auto record = undecided_.find(*slot.taken_by);
    const bool is_offered = record != undecided_.end() && record->second.holds_slab();
    if (!is_offered) slot.lose_slab();
  }
  changed_.notify_all();
}

// Requires the mutex.
bool Session::needs_node() const {
  return !undecided_.empty() || requests_waiting_ != 0;
}

std::shared_ptr<NodeLink> Session::find_node() {
  finder_.found();
  Clock::time_point deadline = kNever;  // while a node is needed
  while (true) {
    failures_->call_back();
    bool is_needed = false;
    {
      std::unique_lock lock(mutex_);
      const bool is_pressing = needs_node() && trouble_.ok();
      const uint64_t troubles = troubles_;
      changed_.wait_for(lock, is_pressing ? kSearchPause : kIdlePause, [&] {
        return is_closing_ || (!is_pressing && needs_node() && troubles == troubles_ && trouble_.ok());
      });
      if (is_closing_) return nullptr;
      is_needed = needs_node();
    }
    if (!is_needed) deadline = kNever;
    if (is_needed && deadline == kNever) deadline = Clock::now() + options_.attach_timeout;
    auto socket = finder_.try_once(is_needed);
    Result<NodeLink> attached = socket.ok() ? attach_again(std::move(*socket), deadline) : socket.status();
    if (attached.ok()) {
      auto link = std::make_shared<NodeLink>(std::move(*attached));
      return install(link) ? link : nullptr;
    }
    const Code code = attached.status().code();
    // A node that was stopped on request may be starting again. A node gives up a client that was suspended
    // before it sent Attach.
    const bool may_pass = code == Code::unavailable || code == Code::aborted ||
                          code == Code::already_exists || code == Code::io || code == Code::not_found ||
                          code == Code::deadline_exceeded;
    if (!may_pass) {
      lose(attached.status().with_context("cannot attach to the next node of this host"));
      return nullptr;
    }
    if (Clock::now() >= deadline) {
      be_in_trouble(attached.status());
      deadline = kNever;
    }
  }
}

// Waits for the answer without a limit of its own. If the session gave up a connection to a stopped node, a
// node that cannot see its process would take it for a trainer that died once it continues.
Result<NodeLink> Session::attach_again(std::unique_ptr<local::LocalSocket> socket,
                                       Clock::time_point deadline) {
  SHOAL_RETURN_IF_ERROR(socket->send(attach_message(options_)));
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(std::optional<local::ReceivedLocal> answer,
                           socket->receive(static_cast<int>(kAttachTick.count())));
    if (answer) {
      if (const auto* failed = std::get_if<local::Failed>(&answer->message)) return failed->why;
      const auto* attached = std::get_if<local::Attached>(&answer->message);
      if (attached == nullptr)
        return Status(Code::corrupt, "the node answered a request with another type of message");
      if (attached->generation != generation_) {
        return Status(Code::refused,
                      fmt::format("it serves generation {}, and this rank belongs to generation {}",
                                  attached->generation, generation_));
      }
      return NodeLink{std::move(socket), *attached};
    }
    if (Clock::now() >= deadline) {
      be_in_trouble(silent_at_attach(*socket, options_));
      deadline = kNever;
    }
    std::lock_guard lock(mutex_);
    if (is_closing_) return Status(Code::unavailable, "closed");
    if (deadline == kNever && needs_node()) deadline = Clock::now() + options_.attach_timeout;
  }
}

// Finishes the handles with an error. The next node still gets the recorded messages.
void Session::be_in_trouble(Status why) {
  std::lock_guard lock(mutex_);
  trouble_ = gone_.empty() || why.message().find(gone_) != std::string::npos
                 ? std::move(why)
                 : Status(why.code(), gone_ + "; " + why.message());
  ++troubles_;
  for (auto& [key, record] : undecided_) {
    if (record.save) record.save->finish(trouble_, {});
  }
  changed_.notify_all();
}

// False: the session is closing.
bool Session::install(const std::shared_ptr<NodeLink>& link) {
  std::lock_guard lock(mutex_);
  if (is_closing_) return false;
  link_ = link;
  ++links_;
  trouble_ = ok_status();
  silent_ticks_ = 0;
  bytes_received_ = 0;
  outgoing_.clear();
  offer_again();
  changed_.notify_all();
  return true;
}

// Requires the mutex.
void Session::offer_again() {
  // The next node knows no layout. Those of undecided saves come first: the newest one counts for later
  // saves.
  LayoutPtr declared = layout_;
  for (const auto& [key, record] : undecided_) {
    if (!record.layout || record.layout->id() == layout_->id() || record.layout == declared) continue;
    declared = record.layout;
    send_message(local::LayoutUpdate{declared, options_.save});
  }
  if (layout_) send_message(local::LayoutUpdate{layout_, options_.save});
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].fd) send_message(local::Slab{i, slots_[i].bytes}, slots_[i].fd);
  }
  if (link_->attached.grants_staging) {
    if (const local::StagingKept has = kept(); has.bytes != 0) send_message(has);
  }
  for (const auto& [key, record] : undecided_) {
    if (record.made) send_message(*record.made);
    std::visit(
        [&](auto offer) {
          if constexpr (std::is_same_v<decltype(offer), local::Staged>) offer.again = true;
          if constexpr (!std::is_same_v<decltype(offer), Copying>) send_message(std::move(offer));
        },
        record.offer);
  }
}

}  // namespace shoal::client
