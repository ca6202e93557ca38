// Shoal node: the process beside the trainers of one host. Parses flags and calls run_node.
#include "actors/node/node.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>

#include "base/host_port.h"
#include "cli/commands.h"
#include "cli/node/node_settings.h"
#include "local/job/job_token.h"
#include "local/socket/socket.h"
#include "local/socket/socket_file.h"
#include "local/status/node_query.h"
#include "storage/open_storage.h"
#include "storage/root/run_root.h"

namespace shoal::cli {

namespace {

struct NodeFlags {
  actors::NodeOptions node;
  std::string token_file;
  std::string ranks;   // "A-B"
  std::string rejoin;  // "N" or kRejoinJob
  local::Settings settings;
  // Settings from the process that started this node, which has read variables and files.
  std::optional<std::string> settings_sources;
  bool create_root = false;
  int ready_fd = -1;
};

constexpr const char* kRejoinJob = "job";

constexpr const char* kNodeFooter =
    "One node runs on each host, beside its trainers. `shoal launch` starts it. A trainer that finds no\n"
    "node starts one too. Without --coordinate and --coordinator the node coordinates a job on this host\n"
    "alone. Settings also come from variables and from shoal.toml: docs/reference/settings.md.\n"
    "On SIGTERM or SIGINT the node stops cleanly: it first writes what is staged and waits for the\n"
    "decisions. On a second signal it stops at once.\n"
    "\n"
    "Examples:\n"
    "  shoal node --root /checkpoints/run7 --job-id job-1                 one host\n"
    "  shoal node --root /checkpoints/run7 --job-id job-1 --token-file ~/.job-token \\\n"
    "             --coordinate --listen 10.0.0.1:7070 --world-size 16     first of several hosts\n"
    "  shoal node --root /checkpoints/run7 --job-id job-1 --token-file ~/.job-token \\\n"
    "             --coordinator 10.0.0.1:7070 --world-size 16             each other host\n"
    "\n"
    "Exit status: 0 the node stopped cleanly; 1 it could not run, or could not stop cleanly; 2 an argument\n"
    "is invalid; 3 another job has taken over the root.";

constexpr int kHolderPatienceMs = 2'000;               // for an answer of the node that holds the root
constexpr std::chrono::seconds kIdleNodePatience{20};  // until a node without trainers has ended
constexpr std::chrono::milliseconds kLockPause{100};

// How often a stop was requested. The signal handler writes it.
std::atomic<int> stops{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_stop_signal(int) {
  int before = stops.load();
  if (before < 2) stops.store(before + 1);
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int number : {SIGTERM, SIGINT, SIGHUP}) sigaction(number, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

Status parse_ranks(const std::string& text, std::vector<Rank>* ranks) {
  auto bad = [&] {
    return Status(Code::invalid_argument, fmt::format("--ranks {}: write a range such as 0-7", text));
  };
  Rank first = 0, last = 0;
  const char* end = text.data() + text.size();
  auto [dash, first_error] = std::from_chars(text.data(), end, first);
  if (first_error != std::errc()) return bad();
  last = first;
  if (dash != end) {
    if (*dash != '-') return bad();
    auto [rest, last_error] = std::from_chars(dash + 1, end, last);
    if (last_error != std::errc() || rest != end) return bad();
  }
  if (last < first || last >= kMaxWorldSize) return bad();
  for (Rank rank = first; rank <= last; ++rank) ranks->push_back(rank);
  return ok_status();
}

Status parse_rejoin(const std::string& text, std::optional<uint32_t>* rejoin) {
  uint32_t generation = storage::kGenerationOfJob;
  if (text != kRejoinJob) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), generation);
    if (error != std::errc() || end != text.data() + text.size() || generation == storage::kGenerationOfJob) {
      return Status(Code::invalid_argument,
                    fmt::format("--rejoin {}: write a generation or '{}'", text, kRejoinJob));
    }
  }
  *rejoin = generation;
  return ok_status();
}

// If the listen address allows every interface, the coordinator listens on --interface only. A launcher
// leaves the address open if the host's name resolves to the loopback and several interfaces are up.
Status narrow_listen_address(actors::NodeOptions* node) {
  SHOAL_ASSIGN_OR_RETURN(base::HostPort listen, base::parse_host_port(node->listen));
  if (listen.host != "0.0.0.0") return ok_status();
  if (node->network.interface.empty()) {
    fmt::print(stderr,
               "shoal node: warning: this node listens at {}, on every interface of this host: choose the "
               "interface that reaches the other hosts with --interface NAME (SHOAL_INTERFACE)\n",
               node->listen);
    return ok_status();
  }
  SHOAL_ASSIGN_OR_RETURN(listen.host, transport::address_of_interface(node->network.interface));
  node->listen = base::to_string(listen);
  return ok_status();
}

// A restarted node keeps its settings, even if a file of settings has changed.
Status complete_flags(NodeFlags* flags) {
  local::Settings& settings = flags->settings;
  SHOAL_RETURN_IF_ERROR(flags->settings_sources ? settings.check()
                                                : complete_settings(flags->node.root, &settings));
  flags->node.settings_sources = flags->settings_sources.value_or(local::settings_line(settings));
  return apply_settings(settings, &flags->node);
}

Status complete(NodeFlags* flags) {
  actors::NodeOptions& node = flags->node;
  SHOAL_RETURN_IF_ERROR(complete_flags(flags));
  if (!flags->rejoin.empty()) SHOAL_RETURN_IF_ERROR(parse_rejoin(flags->rejoin, &node.rejoin));
  if (node.job_id.empty())
    return Status(Code::invalid_argument,
                  "--job-id (or SHOAL_JOB_ID) is missing: it must equal that of the trainers, and be new at "
                  "each start of the job");
  if (!flags->ranks.empty()) SHOAL_RETURN_IF_ERROR(parse_ranks(flags->ranks, &node.expected_ranks));
  if (node.world_size > 0 && !node.expected_ranks.empty() && node.expected_ranks.back() >= node.world_size) {
    return Status(Code::invalid_argument,
                  fmt::format("--ranks {} exceeds --world-size {}", flags->ranks, node.world_size));
  }
  SHOAL_ASSIGN_OR_RETURN(node.token, local::find_token(flags->token_file));
  if (node.token.empty() && (!node.coordinator.empty() || !node.listen.empty())) {
    return Status(Code::invalid_argument, fmt::format("{} needs the job's token: set --token-file or {}",
                                                      node.coordinator.empty() ? "--listen" : "--coordinator",
                                                      local::kTokenVariable));
  }
  if (node.token.empty()) {
    std::string minted = local::mint_token();
    ByteView view = as_view(minted);
    node.token.assign(view.begin(), view.end());
  }
  if (node.coordinator.empty()) node.coordinate = true;
  if (node.coordinate && node.listen.empty()) node.listen = "127.0.0.1:0";
  if (node.coordinate) SHOAL_RETURN_IF_ERROR(narrow_listen_address(&node));
  return flags->create_root ? storage::make_root_folder(node.root) : ok_status();
}

// A node that a trainer started stays for a while after its last trainer, and holds the lock of the root.
// Asks it to end now. True: it does, because it has no trainers.
bool asks_idle_node_to_end(const actors::NodeOptions& node) {
  if (node.idle_exit || node.read_only) return false;  // the client that starts such a node tries again
  const Result<local::NodePaths> paths = local::node_paths(node.root);
  if (!paths.ok()) return false;
  const std::string socket_file = local::node_socket_file(node.socket_file, *paths);
  const Result<local::NodeStatus> holder = local::ask_node(socket_file, kHolderPatienceMs);
  if (!holder.ok() || !holder->ranks.empty() || holder->job_id == node.job_id) return false;
  Result<std::unique_ptr<local::LocalSocket>> socket = local::LocalSocket::connect(socket_file);
  local::Attach request;  // of another job, so it never attaches
  request.world_size = 1;
  request.job_id = node.job_id;
  request.pid = getpid();
  if (!socket.ok() || !(*socket)->send(request).ok()) return false;
  const auto answer = (*socket)->receive(kHolderPatienceMs);
  if (!answer.ok() || !answer->has_value()) return false;
  const auto* failed = std::get_if<local::Failed>(&(*answer)->message);
  if (failed == nullptr || failed->why.code() != Code::unavailable) return false;  // of a launcher
  fmt::print(stderr,
             "shoal node: the node of job '{}' (pid {}) has no trainers any more: waiting until it ends\n",
             holder->job_id, holder->pid);
  return true;
}

// Runs the node, as soon as an idle node of the root has ended.
Status run_in_turn(const actors::NodeOptions& node,
                   const std::function<void(const std::string&, uint32_t)>& ready) {
  using Clock = std::chrono::steady_clock;
  const bool waits = asks_idle_node_to_end(node);
  const Clock::time_point end = Clock::now() + kIdleNodePatience;
  while (true) {
    Status status = actors::run_node(node, stops, ready);
    const bool is_taken = status.code() == Code::already_exists;  // by that node, or by one after it
    if (!waits || !is_taken || stops.load() != 0 || Clock::now() >= end) return status;
    std::this_thread::sleep_for(kLockPause);
  }
}

int run_node_command(NodeFlags flags) {
  Status status = complete(&flags);
  if (!status.ok()) return report_unusable(status);
  handle_signals();
  status = run_in_turn(flags.node, [&](const std::string& address, uint32_t generation) {
    if (flags.ready_fd < 0) return;
    std::string line = fmt::format("ready {} generation {}\n", address, generation);
    // The process that started this one has ended.
    if (write(flags.ready_fd, line.data(), line.size()) < 0) return;
    close(flags.ready_fd);
  });
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "shoal node: {}\n", status.to_string());
  return status.code() == Code::superseded ? kExitSuperseded : kExitFailed;
}

}  // namespace

void add_node_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("node", "Run the node of this host");
  auto flags = std::make_shared<NodeFlags>();
  actors::NodeOptions& node = flags->node;
  command->add_option("--root", node.root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  command->add_flag("--create-root", flags->create_root, "Create that folder if its parent exists");
  command
      ->add_option("--job-id", node.job_id,
                   "Job id: equal on all hosts of one start of the job, and never reused")
      ->envname("SHOAL_JOB_ID");
  CLI::Option* coordinator =
      command->add_option("--coordinator", node.coordinator, "HOST:PORT of the job's coordinator");
  command->add_flag("--coordinate", node.coordinate, "Coordinate the job here")->excludes(coordinator);
  command
      ->add_option("--listen", node.listen,
                   "HOST:PORT at which the coordinator listens; default: 127.0.0.1 and any free port")
      ->excludes(coordinator);
  command
      ->add_flag("--take-over", node.take_over,
                 "Coordinate even if the coordinator of another run is live on this root; that coordinator "
                 "then ends")
      ->excludes(coordinator);
  command
      ->add_flag("--read-only", node.read_only,
                 "For a job that only loads, beside the job that trains on this root: the node claims no "
                 "generation and saves nothing")
      ->excludes("--take-over")
      ->excludes("--create-root")
      ->envname("SHOAL_READ_ONLY");
  command
      ->add_option("--rejoin", flags->rejoin,
                   "Continue a run in place of a node that ended: N is its generation; 'job' finds it by the "
                   "job id, which no earlier run may have used. Default: start a new run")
      ->type_name("N|job");
  // A launcher reports here which trainers have ended.
  command->add_option("--launcher-fd", node.launcher_fd)->group("");
  command->add_option("--started-by", node.started_by)->group("");  // by a client, with its pid
  command->add_option(
      "--token-file", flags->token_file,
      "File of mode 0600 with the job's secret; default: $SHOAL_TOKEN_FILE, else $SHOAL_TOKEN");
  command->add_option("--name", node.name, "Name of this host, unique in the job; default: its host name");
  command
      ->add_option("--world-size", node.world_size,
                   "Number of ranks of the job; default: what the first trainer reports")
      ->check(CLI::Range(0u, kMaxWorldSize));
  command->add_option("--ranks", flags->ranks, "Ranks of this host, as A-B; default: the ranks that attach");
  command->add_option(
      "--socket", node.socket_file,
      "Socket at which trainers find this node; default: $SHOAL_SOCKET, else in the runtime folder");
  command->add_flag("--idle-exit", node.idle_exit, "End some time after the last trainer has detached");
  command->add_option(
      "--ready-fd", flags->ready_fd,
      "File descriptor to which the node writes 'ready ADDRESS generation N' when trainers can attach");
  command->add_option("--settings-sources", flags->settings_sources)->group("");
  add_settings(*command, local::SettingOf::node, &flags->settings);
  command->footer(kNodeFooter);
  command->callback([=] { *chosen = [=] { return run_node_command(*flags); }; });
}

}  // namespace shoal::cli
