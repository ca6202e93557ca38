#include "cli/launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "actors/node/launcher_reports.h"
#include "base/owned_fd.h"
#include "cli/commands.h"
#include "local/status/node_query.h"

namespace shoal::cli {

namespace {

constexpr int kForwarded[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
constexpr uint32_t kStopSignalsToKill = 3;         // from the third signal on, does not wait for the trainers
constexpr std::chrono::seconds kTrainerGrace{10};  // from SIGTERM to SIGKILL
constexpr std::chrono::seconds kDrainGrace{5};     // likewise
constexpr std::chrono::seconds kLongestDrainRestartPause{60};
constexpr std::chrono::minutes kDrainRunsWell{10};  // after which it is started again soon
constexpr std::chrono::seconds kDrainTellsAfter{1};
constexpr std::chrono::minutes kSaveReportIsOpenAfter{1};
constexpr size_t kMaxLineBytes = size_t{64} << 10;  // a longer line is tagged in parts

template <class... Args>
void report(fmt::format_string<Args...> format, Args&&... args) {
  std::string line = "shoal launch: " + fmt::format(format, std::forward<Args>(args)...) + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // stderr is gone
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    ssize_t done = write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return;  // the reader of this output is gone; the trainer goes on
    text.remove_prefix(static_cast<size_t>(done));
  }
}

bool asks_to_stop(int number) {
  return number == SIGTERM || number == SIGINT || number == SIGHUP;
}

struct Pipe {
  base::OwnedFd read, write;
};
// Removes the FIFOs of launchers that were killed, which nobody reads from. Another launcher opens its FIFO
// at once after it has made it.
void remove_left_save_reports(const std::string& own) {
  namespace fs = std::filesystem;
  const auto made_before = fs::file_time_type::clock::now() - kSaveReportIsOpenAfter;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(own).parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string path = entry->path(), name = entry->path().filename();
    if (path == own || !name.starts_with("launch-") || !name.ends_with(".saves")) continue;
    std::error_code ignored;
    if (!fs::is_fifo(entry->symlink_status(ignored))) continue;
    if (fs::last_write_time(path, ignored) > made_before || ignored) continue;
    const base::OwnedFd writer(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    if (!writer.valid() && errno == ENXIO) unlink(path.c_str());
  }
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status(Code::io, fmt::format("pipe: {}", std::strerror(errno)));
  return Pipe{base::OwnedFd(ends[0]), base::OwnedFd(ends[1])};
}

}  // namespace

Launcher::Launcher(LaunchPlan plan) : plan_(std::move(plan)) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : kForwarded) sigaddset(&set, number);
  sigaddset(&set, SIGCHLD);
  SHOAL_CHECK(sigprocmask(SIG_BLOCK, &set, nullptr) == 0);
  signal(SIGPIPE, SIG_IGN);
  signals_ = base::OwnedFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  SHOAL_CHECK(signals_.valid());
}

Launcher::~Launcher() {
  if (save_report_.valid()) unlink(plan_.save_report.c_str());
  kill_trainers();
  for (const Child* child : {&node_, &drain_}) {
    if (child->pid > 0 && !child->wait_status) kill(child->pid, SIGTERM);
  }
}

Result<int> Launcher::run() {
  SHOAL_RETURN_IF_ERROR(make_save_report());
  SHOAL_RETURN_IF_ERROR(start_node());
  Status ready = wait_for_node();
  node_was_ready_ = ready.ok();
  if (ready.ok() && !plan_.drain.empty()) start_drain();
  if (ready.ok() && stop_signal_ == 0) ready = start_trainers();
  if (!ready.ok()) end_trainers();
  while (any_trainer()) handle_events(-1, std::nullopt);
  for (Output& output : outputs_) read_output(&output);
  for (Output& output : outputs_) flush_output(&output, true);
  const bool outlived_node = restart_at_.has_value();  // trainers ended while a restart was pending
  const bool node_died = node_.wait_status.has_value() && !outlived_node;
  stop_node();
  const bool is_drained = finish_drain();
  if (!ready.ok()) return ready;
  int worst = 0;
  for (const Child& trainer : trainers_) {
    if (!trainer.ended_by_us) worst = std::max(worst, exit_status_of(*trainer.wait_status));
  }
  if (trainers_.empty() && stop_signal_ != 0) worst = 128 + stop_signal_;
  if (node_died || (!outlived_node && exit_status_of(*node_.wait_status) != 0)) {
    if (!node_died) report("the node did not stop cleanly: {}", describe_end(*node_.wait_status));
    worst = std::max(worst, 1);
  }
  const bool has_unreported = report_failed_saves(plan_.is_one_host || outlived_node);
  if ((has_unreported || save_outcomes_.too_many()) && worst == 0) worst = kExitSaveFailed;
  if (!is_drained && worst == 0) worst = kExitNotDrained;
  return worst;
}

Status Launcher::make_save_report() {
  if (plan_.save_report.empty()) return ok_status();
  remove_left_save_reports(plan_.save_report);
  unlink(plan_.save_report.c_str());  // left by an earlier launcher with this process id
  const auto failed = [this] {
    const bool is_full = errno == ENOSPC || errno == EDQUOT;
    return Status(
        is_full ? Code::no_space : Code::io,
        fmt::format("cannot create {}, through which trainers report their saves: {}{}", plan_.save_report,
                    std::strerror(errno), is_full ? local::kFreeRuntimeFolder : ""));
  };
  if (mkfifo(plan_.save_report.c_str(), 0600) != 0) return failed();
  // Opened for writing too: otherwise it would reach its end when the last trainer closes it.
  save_report_ = base::OwnedFd(open(plan_.save_report.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  return save_report_.valid() ? ok_status() : failed();
}

void Launcher::read_saves() {
  char buffer[16384];
  while (save_report_.valid()) {
    const ssize_t size = read(save_report_.get(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    save_outcomes_.read({buffer, static_cast<size_t>(size)});
  }
  const std::optional<client::SaveEvent>& many = save_outcomes_.too_many();
  if (!many || is_ending_ || !any_trainer()) return;
  report(
      "rank {}: {} saves in a row failed, as many as --max-failed-saves allows; the last one, {}: {}; ending "
      "the trainers",
      many->rank, plan_.max_failed_saves, to_string(many->key), many->cause);
  end_trainers();
}

bool Launcher::report_failed_saves(bool undecided_fail) {
  read_saves();
  const UnreportedSaves unreported = save_outcomes_.unreported(plan_.root);
  for (const std::string& line : unreported.failed) report("{}", line);
  for (const std::string& line : unreported.undecided) report("{}", line);
  return !unreported.failed.empty() || (undecided_fail && !unreported.undecided.empty());
}

Status Launcher::start_node() {
  SHOAL_ASSIGN_OR_RETURN(Pipe ready, make_pipe());
  SHOAL_ASSIGN_OR_RETURN(Pipe ends, make_pipe());
  for (int fd : {ready.read.get(), ends.read.get(), ends.write.get()}) fcntl(fd, F_SETFL, O_NONBLOCK);
  SpawnOptions options;
  options.arguments = plan_.node;
  // A node that was asked to take over a root once must not do so again after a restart.
  if (was_restarted_) std::erase(options.arguments, "--take-over");
  options.arguments.push_back("--ready-fd");
  options.arguments.push_back(std::to_string(ready.write.get()));
  if (!generation_.empty()) options.arguments.insert(options.arguments.end(), {"--rejoin", generation_});
  options.environment = plan_.node_environment;
  options.death_signal = SIGTERM;
  options.arguments.push_back("--launcher-fd");
  options.arguments.push_back(std::to_string(ends.read.get()));
  options.keep_fds = {ready.write.get(), ends.read.get()};
  SHOAL_ASSIGN_OR_RETURN(node_.pid, spawn(options));
  node_ready_ = std::move(ready.read);
  node_line_.clear();
  to_node_ = std::move(ends.write);
  unreported_.clear();
  for (const Child& trainer : trainers_) report_end(trainer);  // a restarted node needs this report too
  return ok_status();
}

// Saves of other ranks would wait for this rank in vain, even if its trainer never reached the node.
void Launcher::report_end(const Child& trainer) {
  if (!trainer.wait_status) return;
  unreported_ += actors::launcher_line({trainer.rank, describe_end(*trainer.wait_status)});
  notify_node();
}

void Launcher::notify_node() {
  while (!unreported_.empty() && to_node_.valid()) {
    ssize_t size = write(to_node_.get(), unreported_.data(), unreported_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) {
      to_node_ = base::OwnedFd();  // the node has ended
      return;
    }
    unreported_.erase(0, static_cast<size_t>(size));
  }
}

Status Launcher::wait_for_node() {
  Clock::time_point deadline = Clock::now() + plan_.node_ready_within;
  while (stop_signal_ == 0) {
    if (handle_events(node_ready_.get(), deadline)) {
      if (read_node()) return ok_status();
      if (!node_ready_.valid()) return ended_before_ready();
    }
    if (Clock::now() >= deadline) {
      return Status(Code::deadline_exceeded,
                    fmt::format("the node was not ready within {} ms", plan_.node_ready_within.count()));
    }
  }
  return ok_status();
}

// Whether the node has become ready. The node reports it once: nothing is read after that, or after its end.
bool Launcher::read_node() {
  if (!node_ready_.valid()) return false;
  char buffer[256];
  const ssize_t size = read(node_ready_.get(), buffer, sizeof buffer);
  if (size < 0) return false;
  node_line_.append(buffer, static_cast<size_t>(size));
  const size_t end = node_line_.find('\n');
  const bool is_ready = end != std::string::npos;
  if (is_ready) {
    const size_t last_news = node_line_.rfind(' ', end) + 1;
    generation_ = node_line_.substr(last_news, end - last_news);
  }
  if (is_ready || size == 0) node_ready_ = base::OwnedFd();
  return is_ready;
}

Status Launcher::ended_before_ready() {
  while (!node_.wait_status) handle_events(-1, std::nullopt);
  std::string how = describe_end(*node_.wait_status);
  if (WIFEXITED(*node_.wait_status)) how += "; its log line above states why";
  return Status(Code::unavailable, "the node ended before it was ready: " + how);
}

Status Launcher::start_trainers() {
  for (uint32_t i = 0; i < plan_.trainer_environments.size(); ++i) SHOAL_RETURN_IF_ERROR(start_trainer(i));
  return ok_status();
}

Status Launcher::start_trainer(uint32_t local_rank) {
  SpawnOptions options;
  options.arguments = plan_.trainer;
  options.environment = plan_.trainer_environments[local_rank];
  options.death_signal = SIGKILL;
  Pipe out, err;
  uint32_t rank = plan_.first_rank + local_rank;
  if (plan_.tag_output) {
    SHOAL_ASSIGN_OR_RETURN(out, make_pipe());
    SHOAL_ASSIGN_OR_RETURN(err, make_pipe());
    options.stdout_fd = out.write.get();
    options.stderr_fd = err.write.get();
  }
  SHOAL_ASSIGN_OR_RETURN(pid_t pid, spawn(options));
  trainers_.push_back({pid, rank, std::nullopt, false});
  if (!plan_.tag_output) return ok_status();
  std::string tag = fmt::format("[{}] ", rank);
  for (auto [from, to] : {std::pair{&out, STDOUT_FILENO}, std::pair{&err, STDERR_FILENO}}) {
    fcntl(from->read.get(), F_SETFL, O_NONBLOCK);
    outputs_.push_back({std::move(from->read), to, tag, ""});
  }
  return ok_status();
}

void Launcher::stop_node() {
  node_is_stopping_ = true;
  if (!node_.wait_status) kill(node_.pid, SIGTERM);
  while (!node_.wait_status) handle_events(-1, std::nullopt);
}

Status Launcher::spawn_drain() {
  SHOAL_ASSIGN_OR_RETURN(Pipe ends, make_pipe());
  SpawnOptions options;
  options.arguments = plan_.drain;
  options.arguments.insert(options.arguments.end(), {"--launcher-fd", std::to_string(ends.read.get())});
  options.environment = own_environment();
  options.death_signal = SIGTERM;
  options.stdout_fd = STDERR_FILENO;
  options.keep_fds = {ends.read.get()};
  SHOAL_ASSIGN_OR_RETURN(drain_.pid, spawn(options));
  drain_.wait_status.reset();
  to_drain_ = std::move(ends.write);
  return ok_status();
}

// A job goes on without its drain, so an error is only reported.
void Launcher::start_drain() {
  drain_again_at_.reset();
  drain_began_ = Clock::now();
  const Status spawned = spawn_drain();
  if (spawned.ok()) return;
  report("{}", spawned.to_string());
  drain_.wait_status = 1 << 8;  // as if it had ended with status 1
  on_drain_end();
}

void Launcher::on_drain_end() {
  if (drain_is_finishing_) return;
  const Clock::time_point now = Clock::now();
  if (now - drain_began_ >= kDrainRunsWell) drain_pause_ = {};
  drain_pause_ = std::clamp(2 * drain_pause_, std::chrono::seconds(1), kLongestDrainRestartPause);
  report("the drain to {} ended early: {}; starting it again in {} s", plan_.drain_to,
         describe_end(*drain_.wait_status), drain_pause_.count());
  drain_again_at_ = now + drain_pause_;
}

bool Launcher::finish_drain() {
  if (drain_began_ == Clock::time_point()) return true;  // none has begun
  drain_is_finishing_ = true;
  if (drain_.wait_status) start_drain();
  to_drain_ = base::OwnedFd();
  const Clock::time_point patience_ends = Clock::now() + plan_.drain_patience;
  Clock::time_point deadline = std::min(patience_ends, Clock::now() + kDrainTellsAfter);
  bool is_asked_to_end = false;
  const uint32_t signals_before = stop_signals_;
  while (!drain_.wait_status) {
    handle_events(-1, deadline);
    const Clock::time_point now = Clock::now();
    const bool must_end = now >= patience_ends || stop_signals_ != signals_before;
    if (drain_.wait_status || (now < deadline && (is_asked_to_end || !must_end))) continue;
    if (is_asked_to_end) {
      kill(drain_.pid, SIGKILL);
    } else if (must_end) {
      kill(drain_.pid, SIGTERM);
      is_asked_to_end = true;
    } else {
      report("copying what is left to {}, for at most {} s", plan_.drain_to, plan_.drain_patience.count());
    }
    deadline = is_asked_to_end ? now + kDrainGrace : patience_ends;
  }
  if (exit_status_of(*drain_.wait_status) == kExitOk) return true;
  report("{} does not have all checkpoints ({}): `shoal drain {} {} --once` {}", plan_.drain_to,
         is_asked_to_end ? "the time for it has passed" : describe_end(*drain_.wait_status), plan_.root,
         plan_.drain_to,
         is_asked_to_end ? "copies the rest, as does the next job"
                         : "copies the rest once the cause in the lines above is removed");
  return false;
}

bool Launcher::handle_events(int extra_fd, std::optional<Clock::time_point> deadline) {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0},
                             {extra_fd, POLLIN, 0},
                             {unreported_.empty() ? -1 : to_node_.get(), POLLOUT, 0},
                             {save_report_.get(), POLLIN, 0},
                             {node_was_ready_ ? node_ready_.get() : -1, POLLIN, 0}};
  const size_t first_output = fds.size();
  for (const Output& output : outputs_) fds.push_back({output.from.get(), POLLIN, 0});
  for (const auto& at : {kill_at_, restart_at_, drain_again_at_}) {
    if (at && (!deadline || *at < *deadline)) deadline = at;
  }
  int timeout_ms = -1;
  if (deadline) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    timeout_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
  }
  if (poll(fds.data(), fds.size(), timeout_ms) < 0) return false;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (fds[i + first_output].revents != 0) read_output(&outputs_[i]);
  }
  if (fds[2].revents != 0) notify_node();
  if (fds[3].revents != 0) read_saves();
  if (fds[4].revents != 0 && read_node()) restart_limit_.on_ready();
  if (fds[0].revents != 0) handle_signals();
  if (kill_at_ && Clock::now() >= *kill_at_) {
    report("trainers did not end within {} s of SIGTERM: killing them", kTrainerGrace.count());
    kill_at_.reset();
    kill_trainers();
  }
  if (restart_at_ && Clock::now() >= *restart_at_) restart_node();
  if (drain_again_at_ && Clock::now() >= *drain_again_at_) start_drain();
  return fds[1].revents != 0;
}

void Launcher::handle_signals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) {
      reap();
    } else {
      handle_signal(static_cast<int>(info.ssi_signo));
    }
  }
}

void Launcher::handle_signal(int number) {
  if (asks_to_stop(number)) {
    if (stop_signal_ == 0) stop_signal_ = number;
    ++stop_signals_;
    if (restart_at_) restart_at_ = Clock::now();  // the last saves of the trainers need the node
  }
  if (node_is_stopping_) {
    // The node's second signal: it ends at once.
    if (asks_to_stop(number) && !node_.wait_status) kill(node_.pid, SIGTERM);
    return;
  }
  if (stop_signals_ >= kStopSignalsToKill) {
    report("signal {}, after {} signals to stop: killing the trainers", number, stop_signals_ - 1);
    kill_trainers();
    return;
  }
  for (const Child& trainer : trainers_) {
    if (!trainer.wait_status) kill(trainer.pid, number);
  }
}

void Launcher::reap() {
  int wait_status = 0;
  for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
    if (pid == node_.pid) {
      node_.wait_status = wait_status;
      on_node_end();
      continue;
    }
    if (pid == drain_.pid) {
      drain_.wait_status = wait_status;
      on_drain_end();
      continue;
    }
    for (Child& trainer : trainers_) {
      if (trainer.pid != pid) continue;
      trainer.wait_status = wait_status;
      trainer.ended_by_us = is_ending_;
      on_trainer_end(trainer);
    }
  }
}

void Launcher::on_node_end() {
  if (node_is_stopping_ || !node_was_ready_) return;
  if (read_node()) restart_limit_.on_ready();  // it became ready just before it ended
  const std::string how = describe_end(*node_.wait_status);
  const bool is_superseded = exit_status_of(*node_.wait_status) == kExitSuperseded;
  const bool is_required = any_trainer() && !is_ending_ && !is_superseded;
  const Clock::time_point now = Clock::now();
  if (const auto pause = is_required ? restart_limit_.next(now) : std::nullopt) {
    was_restarted_ = true;
    report("the node ended early: {}; starting it again in {} s ({})", how, pause->count(),
           restart_limit_.describe());
    restart_at_ = now + *pause;
    return;
  }
  const std::string limit =
      is_required ? fmt::format("; it was started again {}", restart_limit_.describe()) : "";
  report("the node ended early: {}{}{}", is_superseded ? "another job has taken over the root" : how, limit,
         any_trainer() ? "; ending the trainers" : "");
  end_trainers();
}

// Trainers look for the node, so nothing waits until it is ready.
void Launcher::restart_node() {
  if (!any_trainer()) return;  // restart_at_ stays set: no trainer needed the node any more
  restart_at_.reset();
  node_.wait_status.reset();
  if (Status started = start_node(); !started.ok()) {
    report("{}; ending the trainers", started.to_string());
    node_.wait_status = 1 << 8;  // as if the node had ended with status 1
    end_trainers();
  }
}

void Launcher::on_trainer_end(const Child& trainer) {
  report_end(trainer);
  if (exit_status_of(*trainer.wait_status) == 0) return;
  bool ends_others = plan_.kill_on_failure && !is_ending_ && any_trainer();
  report("rank {} ended: {}{}", trainer.rank, describe_end(*trainer.wait_status),
         ends_others ? "; ending the other trainers" : "");
  if (ends_others) end_trainers();
}

void Launcher::end_trainers() {
  if (is_ending_ || !any_trainer()) return;
  is_ending_ = true;
  for (const Child& trainer : trainers_) {
    if (!trainer.wait_status) kill(trainer.pid, SIGTERM);
  }
  kill_at_ = Clock::now() + kTrainerGrace;
}

void Launcher::kill_trainers() {
  for (const Child& trainer : trainers_) {
    if (!trainer.wait_status) kill(-trainer.pid, SIGKILL);  // together with its child processes
  }
}

void Launcher::read_output(Output* output) {
  char buffer[16384];
  while (output->from.valid()) {
    ssize_t size = read(output->from.get(), buffer, sizeof buffer);
    if (size > 0) {
      output->line.append(buffer, static_cast<size_t>(size));
      flush_output(output, false);
    } else if (size < 0 && errno == EINTR) {
      continue;
    } else if (size < 0 && errno == EAGAIN) {
      return;
    } else {
      output->from = base::OwnedFd();
    }
  }
}

// Writes whole lines with a tag. An unfinished line is written only at the end, or if it is too long.
void Launcher::flush_output(Output* output, bool at_end) {
  std::string& text = output->line;
  std::string tagged;
  for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    tagged += output->tag + text.substr(0, end + 1);
  }
  if (!text.empty() && (at_end || text.size() > kMaxLineBytes)) {
    tagged += output->tag + text + "\n";
    text.clear();
  }
  write_all(output->to, tagged);
}

bool Launcher::any_trainer() const {
  return std::any_of(trainers_.begin(), trainers_.end(),
                     [](const Child& trainer) { return !trainer.wait_status; });
}

}  // namespace shoal::cli
