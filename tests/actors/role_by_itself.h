// RoleByItself: a role without a host. The test delivers its events and decides how its operations end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/role.h"

namespace shoal::actors {

// How a write to a root that is mounted read-only ends.
inline Status read_only_root() {
  return Status(Code::refused, "/root: cannot create: not writable: Read-only file system");
}

class RoleByItself {
 public:
  explicit RoleByItself(std::unique_ptr<Role> role) : role_(std::move(role)) { handle(event::Started{}); }

  TimeNs now = 0;
  std::vector<effect::Start> starts;  // operations that are not carried out yet
  std::vector<effect::Send> sends;
  std::vector<effect::SendTo> sent_to;
  std::vector<effect::ToRole> to_roles;
  std::vector<effect::EndSession> ended;
  std::vector<std::pair<ClientId, local::LocalMessage>> received;
  std::vector<ClientId> forgotten;    // clients whose slabs are unmapped
  std::vector<std::string> log;       // all lines
  std::vector<std::string> warnings;  // those that are warnings
  std::vector<effect::Redirect> redirects;
  std::optional<storage::EpochRecord> retired_by;
  bool drained = false;
  bool sends_drain = true;  // messages leave at once; otherwise they leave in leave()

  void handle(const Event& event) {
    Effects effects;
    role_->handle(now, event, effects);
    for (const Effect& each : effects) take(each);
    if (sends_drain) leave();
  }
  // The messages that were sent with an id have left or were dropped. `to`: only those to this node.
  void leave(std::optional<NodeId> to = std::nullopt) {
    std::vector<std::pair<NodeId, SendId>> left;
    std::erase_if(leaving_, [&](const auto& each) {
      if (to && each.first != *to) return false;
      left.push_back(each);
      return true;
    });
    for (const auto& [node, send] : left) handle(event::SendDone{send});
  }
  void receive(NodeId from, RoleKind from_role, WireBody body) {
    handle(
        event::Received{from, {from_role, role_->kind(), std::make_shared<const WireBody>(std::move(body))}});
  }
  void from_client(ClientId client, local::LocalMessage message) {
    handle(event::FromClient{client, std::make_shared<const local::LocalMessage>(std::move(message))});
  }

  // Takes the first pending operation of this kind; the test carries it out.
  template <class T>
  std::optional<T> take_start(OperationId* id) {
    for (auto each = starts.begin(); each != starts.end(); ++each) {
      const auto* operation = std::get_if<T>(&each->operation);
      if (operation == nullptr) continue;
      std::optional<T> taken = *operation;
      *id = each->id;
      starts.erase(each);
      return taken;
    }
    return std::nullopt;
  }
  // Ends the first pending operation of this kind with this result. False if there is none.
  template <class T>
  bool answer(Result<OperationResult> result) {
    OperationId id = 0;
    if (!take_start<T>(&id)) return false;
    handle(event::OperationDone{id, std::move(result)});
    return true;
  }
  template <class T>
  size_t started() const {
    size_t count = 0;
    for (const auto& each : starts) count += std::holds_alternative<T>(each.operation);
    return count;
  }
  // The messages of this kind that were sent to `to`.
  template <class T>
  std::vector<T> sent(NodeId to) const {
    std::vector<T> found;
    for (const auto& each : sends) {
      const auto* body = std::get_if<T>(each.message.body.get());
      if (each.to == to && body != nullptr) found.push_back(*body);
    }
    return found;
  }
  template <class T>
  std::vector<T> notified(ClientId client) const {
    std::vector<T> found;
    for (const auto& [to, message] : received) {
      if (to == client && std::holds_alternative<T>(message)) found.push_back(std::get<T>(message));
    }
    return found;
  }

  // How often the role took the row of this table of states.
  uint64_t taken(std::string_view machine, std::string_view from, std::string_view on) const {
    for (const TransitionsTaken& table : role_->transitions()) {
      if (table.machine != machine) continue;
      for (const base::TransitionCount& row : table.rows) {
        if (row.from == from && row.on == on) return row.count;
      }
    }
    ADD_FAILURE() << "no table has the row: " << machine << ", " << from << ", " << on;
    return 0;
  }

  bool has_timers() const { return !timers_.empty(); }
  // Advances time: timers fire in order, and operations stay pending.
  void pass(TimeNs duration) {
    const TimeNs until = now + duration;
    while (true) {
      auto next = timers_.end();
      for (auto each = timers_.begin(); each != timers_.end(); ++each) {
        if (each->second <= until && (next == timers_.end() || each->second < next->second)) next = each;
      }
      if (next == timers_.end()) break;
      now = std::max(now, next->second);
      const TimerId timer = next->first;
      timers_.erase(next);
      handle(event::TimerFired{timer});
    }
    now = until;
  }

 private:
  void note(const effect::Log& line) {
    log.push_back(line.line);
    if (line.level == effect::Log::Level::warning) warnings.push_back(line.line);
  }
  void take(const Effect& each) {
    if (const auto* start = std::get_if<effect::Start>(&each)) starts.push_back(*start);
    if (const auto* send = std::get_if<effect::Send>(&each)) {
      sends.push_back(*send);
      if (send->id != 0) leaving_.emplace_back(send->to, send->id);
    }
    if (const auto* send = std::get_if<effect::SendTo>(&each)) sent_to.push_back(*send);
    if (const auto* event = std::get_if<effect::ToRole>(&each)) to_roles.push_back(*event);
    if (const auto* end = std::get_if<effect::EndSession>(&each)) ended.push_back(*end);
    if (const auto* to = std::get_if<effect::ToClient>(&each))
      received.emplace_back(to->client, *to->message);
    if (const auto* set = std::get_if<effect::SetTimer>(&each)) timers_[set->timer] = set->at;
    if (const auto* cancel = std::get_if<effect::CancelTimer>(&each)) timers_.erase(cancel->timer);
    if (const auto* line = std::get_if<effect::Log>(&each)) note(*line);
    if (const auto* redirect = std::get_if<effect::Redirect>(&each)) redirects.push_back(*redirect);
    if (const auto* retire = std::get_if<effect::Retire>(&each)) retired_by = retire->by;
    if (const auto* forget = std::get_if<effect::ForgetClient>(&each)) forgotten.push_back(forget->client);
    if (std::holds_alternative<effect::Drained>(each)) drained = true;
  }

  std::unique_ptr<Role> role_;
  std::map<TimerId, TimeNs> timers_;
  std::vector<std::pair<NodeId, SendId>> leaving_;
};

}  // namespace shoal::actors
