#include "actors/node/watch/job_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace shoal::actors {

namespace {

uint64_t ms_since(TimeNs from, TimeNs to) {
  return to > from ? static_cast<uint64_t>((to - from) / kMillisecond) : 0;
}

// Splits "host:pid", the name of a node.
std::pair<std::string, int32_t> host_and_pid(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos) return {name, 0};
  int32_t pid = 0;
  std::from_chars(name.data() + colon + 1, name.data() + name.size(), pid);
  return {name.substr(0, colon), pid};
}

}  // namespace

JobWatch::JobWatch(Surroundings surroundings)
    : surroundings_(std::move(surroundings)), coordinates_(surroundings_.coordinates) {}

bool JobWatch::coordinates() const {
  std::lock_guard lock(mutex_);
  return coordinates_;
}

void JobWatch::retired() {
  std::lock_guard lock(mutex_);
  coordinates_ = false;
  gathering_.reset();
  askers_.clear();
}

// --- who asks ---

local::JobStatus JobWatch::ask(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const bool coordinates = coordinates_;
  if (!coordinates && !is_coordinator_up_) {
    lock.unlock();
    return alone("the coordinator is not connected");
  }
  const uint64_t before = tables_;
  is_wanted_ = coordinates;
  const TimeNs now = surroundings_.now();
  // Shares a request whose answer has not come, unless that may be lost.
  const bool may_come = requested_at_ && now < *requested_at_ + kHostAnswerMs * kMillisecond;
  if (!coordinates && !may_come) {
    requested_at_ = now;
    lock.unlock();
    surroundings_.send(kCoordinatorNode, link::JobStatusRequest{});
    lock.lock();
  }
  changed_.wait_for(lock, patience, [&] { return is_closed_ || tables_ != before; });
  if (tables_ == before) {
    const bool is_closed = is_closed_;
    lock.unlock();
    return alone(is_closed ? "the node is stopping"
                           : fmt::format("the coordinator did not answer within {} ms", patience.count()));
  }
  // The coordinator here may have retired meanwhile: then the next one has sent its table, perhaps the first.
  const auto newest = coordinates && (coordinates_ || received_.empty()) ? newest_ : nullptr;
  const Bytes received = received_;
  lock.unlock();
  if (newest != nullptr) return with_age(*newest);
  auto status = local::decode_job_status(received);
  if (status.ok()) return std::move(*status);
  return alone("the answer of the coordinator is malformed: " + status.status().message());
}

std::shared_ptr<const local::JobStatus> JobWatch::newest() {
  std::unique_lock lock(mutex_);
  is_wanted_ = true;
  const auto newest = newest_;
  lock.unlock();
  return newest == nullptr ? nullptr : std::make_shared<const local::JobStatus>(with_age(*newest));
}

local::JobStatus JobWatch::with_age(local::JobStatus status) const {
  std::lock_guard lock(mutex_);
  status.gathered_ms_ago = ms_since(gathered_at_, surroundings_.now());
  return status;
}

local::JobStatus JobWatch::alone(const std::string& why) const {
  const local::NodeStatus own = surroundings_.status();
  local::JobStatus out = job_status_of(own, {local::host_status_of(own)}, {});
  out.incomplete = fmt::format("{}: this is what host {} knows", why, own.host);
  return out;
}

void JobWatch::close() {
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
}

// --- messages and sessions ---

void JobWatch::peer_up(NodeId node, const transport::Identity& identity) {
  std::lock_guard lock(mutex_);
  if (node == kCoordinatorNode) is_coordinator_up_ = true;
  if (node == kCoordinatorNode || !coordinates_) return;
  const auto [name, pid] = host_and_pid(identity.name);
  if (!hosts_.contains(name) && hosts_.size() >= kMaxHostsWatched) return;
  const auto [found, is_new] = hosts_.try_emplace(name);
  Host& host = found->second;
  if (!is_new && host.incarnation != identity.incarnation) {
    ++host.restarts;
    host.last.reset();
  }
  if (host.node) names_.erase(*host.node);
  host.pid = pid;
  host.incarnation = identity.incarnation;
  host.node = node;
  names_[node] = name;
}

void JobWatch::peer_lost(NodeId node) {
  std::lock_guard lock(mutex_);
  if (node == kCoordinatorNode) {
    is_coordinator_up_ = false;
    requested_at_.reset();  // the request is lost with it
  }
  askers_.erase(node);
  if (gathering_) gathering_->asked.erase(node);
  const auto name = names_.find(node);
  if (name == names_.end()) return;
  hosts_.at(name->second).node.reset();
  names_.erase(name);
}

void JobWatch::job_status_requested(NodeId from) {
  std::lock_guard lock(mutex_);
  if (coordinates_ && askers_.size() < kMaxJobAskers) askers_.insert(from);
}

void JobWatch::host_status_received(NodeId from, Bytes status) {
  std::lock_guard lock(mutex_);
  if (!gathering_ || gathering_->asked.erase(from) == 0) return;  // it was not asked, or is late
  gathering_->answered[from] = std::move(status);
}

void JobWatch::host_status_requested() {
  std::lock_guard lock(mutex_);
  must_answer_ = true;
}

void JobWatch::job_status_received(Bytes status) {
  {
    std::lock_guard lock(mutex_);
    received_ = std::move(status);
    requested_at_.reset();
    ++tables_;
  }
  changed_.notify_all();
}

// --- the node's loop ---

void JobWatch::tick() {
  bool must_answer = false;
  {
    std::lock_guard lock(mutex_);
    must_answer = std::exchange(must_answer_, false);
  }
  if (must_answer) {
    const local::HostStatus status = local::host_status_of(surroundings_.status());
    surroundings_.send(kCoordinatorNode, link::HostStatusReport{local::encode_host_status(status)});
  }
  if (coordinates()) tick_gathering();
}

void JobWatch::begin_gathering() {
  is_wanted_ = false;
  gathering_ = Gathering{};
  gathering_->asked_at = surroundings_.now();
  for (const auto& [node, name] : names_) gathering_->to_ask.push_back(node);
}

void JobWatch::tick_gathering() {
  std::vector<NodeId> ask_now;
  std::map<NodeId, Bytes> answers;
  bool is_over = false, is_fresh = false;
  {
    std::lock_guard lock(mutex_);
    const TimeNs now = surroundings_.now();
    if (!gathering_ && (is_wanted_ || !askers_.empty())) {
      is_fresh = newest_ != nullptr && now < gathered_at_ + kGatherPauseMs * kMillisecond;
      if (is_fresh && std::exchange(is_wanted_, false)) ++tables_;
      if (!is_fresh) begin_gathering();
    }
    if (gathering_) {
      auto& to_ask = gathering_->to_ask;
      while (!to_ask.empty() && ask_now.size() < kHostsAskedPerTick) {
        const NodeId node = to_ask.front();
        to_ask.pop_front();
        if (!names_.contains(node)) continue;
        ask_now.push_back(node);
        gathering_->asked.insert(node);
        gathering_->asked_at = now;
      }
      const bool is_late = now >= gathering_->asked_at + kHostAnswerMs * kMillisecond;
      is_over = to_ask.empty() && (gathering_->asked.empty() || is_late);
      if (is_over) answers = std::move(gathering_->answered);
    }
  }
  for (NodeId node : ask_now) surroundings_.send(node, link::HostStatusRequest{});
  if (is_over) finish_gathering(std::move(answers));
  if (is_fresh) changed_.notify_all();
  if (is_fresh || is_over) send_tables();
}

// Decodes the answers, and returns a line for every other host.
std::vector<local::HostStatus> JobWatch::take_answers(std::map<NodeId, Bytes> answers) {
  std::map<NodeId, local::HostStatus> decoded;
  for (const auto& [node, bytes] : answers) {
    auto status = local::decode_host_status(bytes);  // a node that sends nonsense counts as silent
    if (status.ok()) decoded.emplace(node, std::move(*status));
  }
  std::lock_guard lock(mutex_);
  const TimeNs now = surroundings_.now();
  std::vector<local::HostStatus> out;
  for (auto& [name, host] : hosts_) {
    auto answer = host.node ? decoded.find(*host.node) : decoded.end();
    const bool has_answered = answer != decoded.end();
    if (has_answered) {
      host.last = std::move(answer->second);
      host.answered_at = now;
    }
    out.push_back(describe(name, host, has_answered));
  }
  return out;
}

local::HostStatus JobWatch::describe(const std::string& name, const Host& host, bool has_answered) const {
  local::HostStatus out = host.last.value_or(local::HostStatus{});
  out.host = name;  // of the session, which has proved the token
  out.pid = host.pid;
  out.coordinates = false;
  out.restarts = host.restarts;
  out.state = has_answered ? local::HostState::answered
              : host.node  ? local::HostState::silent
                           : local::HostState::lost;
  out.answered_ms_ago = host.last ? ms_since(host.answered_at, surroundings_.now()) : 0;
  if (has_answered) return out;
  // What it did when it answered the last time is no news.
  out.saves.clear();
  out.saves_count = 0;
  out.slow_calls.clear();
  out.stopped_ranks.clear();
  return out;
}

void JobWatch::finish_gathering(std::map<NodeId, Bytes> answers) {
  std::vector<local::HostStatus> hosts = take_answers(std::move(answers));
  const local::NodeStatus own = surroundings_.status();
  hosts.push_back(local::host_status_of(own));
  const std::shared_ptr<const JobFacts> facts = surroundings_.facts();
  std::vector<std::string> replaced;
  auto table =
      std::make_shared<const local::JobStatus>(job_status_of(own, std::move(hosts), *facts, &replaced));
  {
    std::lock_guard lock(mutex_);
    forget(replaced);
    gathering_.reset();
    newest_ = std::move(table);
    gathered_at_ = surroundings_.now();
    ++tables_;
  }
  changed_.notify_all();
}

// REQUIRES: mutex_ is held. A host that has connected again meanwhile stays.
void JobWatch::forget(const std::vector<std::string>& replaced) {
  for (const std::string& name : replaced) {
    const auto found = hosts_.find(name);
    if (found != hosts_.end() && !found->second.node) hosts_.erase(found);
  }
}

void JobWatch::send_tables() {
  std::vector<NodeId> to;
  std::shared_ptr<const local::JobStatus> newest;
  {
    std::lock_guard lock(mutex_);
    newest = newest_;
    while (!askers_.empty() && to.size() < kTablesPerTick) {
      to.push_back(askers_.extract(askers_.begin()).value());
    }
  }
  if (to.empty()) return;
  const Bytes bytes = local::encode_job_status(with_age(*newest));
  for (NodeId node : to) surroundings_.send(node, link::JobStatusTable{bytes});
}

}  // namespace shoal::actors
