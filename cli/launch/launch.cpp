// Shoal launch: determines the ranks and addresses of the job, then runs Launcher.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "admin/root_reader.h"
#include "base/host_port.h"
#include "base/owned_fd.h"
#include "base/root_name.h"
#include "cli/commands.h"
#include "cli/launch/fast_root.h"
#include "cli/launch/launcher.h"
#include "cli/node/node_settings.h"
#include "cli/not_empty.h"
#include "client/launch/job_environment.h"
#include "client/launch/save_report.h"
#include "local/job/job_token.h"
#include "local/socket/socket.h"
#include "local/status/node_query.h"
#include "shoal/hash.h"
#include "storage/decisions/completion.h"
#include "storage/open_storage.h"
#include "storage/root/run_claims.h"

namespace shoal::cli {

namespace {

constexpr uint32_t kMaxLocalTrainers = 4096;
constexpr uint16_t kDefaultMasterPort = 29500;  // as in torchrun
constexpr int kExitNoProgram = 127;             // as in a shell

struct LaunchFlags {
  uint32_t trainers = 1;
  uint32_t nodes = 1, node_rank = 0;
  std::optional<uint32_t> world_size, first_rank;
  std::string coordinator, root, job_id, token_file;
  uint16_t master_port = 0;
  bool create = false, read_only = false, resume = false, take_over = false;
  bool kill_on_failure = false, tag_output = false;
  std::string drain_to;
  local::Settings drain_rules;
  double drain_interval_seconds = 5;
  uint32_t drain_patience_s = 600;
  local::Settings settings;  // set by flags; PlanMaker adds the rest
  std::vector<std::string> command;
};

constexpr const char* kLaunchFooter =
    "Each trainer gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, GROUP_RANK, MASTER_ADDR,\n"
    "MASTER_PORT, SHOAL_ROOT, SHOAL_JOB_ID, SHOAL_SOCKET, SHOAL_NODE_PROGRAM, SHOAL_START_NODE=0,\n"
    "SHOAL_SAVE_REPORT and, on several hosts, SHOAL_COORDINATOR. Its standard input is /dev/null. The\n"
    "launcher passes SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the trainers. The third\n"
    "request to stop kills them. When the last trainer has ended, the launcher stops the node, which first\n"
    "finishes the staged saves. The launcher notifies the node of each trainer that ends, so the saves of\n"
    "other ranks do not wait for it.\n"
    "The launcher starts a node that ends before its trainers again, up to 5 times in 10 minutes. The\n"
    "trainers then attach to it and offer it what they have staged. The launcher ends the trainers if the\n"
    "node ends once more within that time, if none of 5 nodes becomes ready, or if another job takes over\n"
    "the root. With --drain-to, `shoal drain` runs on the first host beside the job, with the rules of\n"
    "--drain-keep-last, --drain-keep-every and --drain-keep-for. Before the node starts, the launcher "
    "copies\n"
    "the newest checkpoint back if it is newer than all of the root, so the trainers load the latest of "
    "both.\n"
    "Settings also come from variables and from shoal.toml: docs/reference/settings.md.\n"
    "\n"
    "Examples:\n"
    "  shoal launch -n 4 --root /checkpoints/run7 --create -- ./trainer --layers 12\n"
    "  shoal launch -n 4 --root /checkpoints/run7 --resume -- ./trainer --load latest\n"
    "  shoal launch -n 8 --nnodes 2 --node-rank 0 --coordinator 10.0.0.1:7070 --job-id job-1 \\\n"
    "               --token-file ~/.job-token --root /checkpoints/run7 --create -- ./trainer   on 10.0.0.1\n"
    "  the same with --node-rank 1                                                on the other host\n"
    "  shoal launch -n 8 --root /fast/run7 --create --keep-last 2 --drain-to s3://archive/run7 \\\n"
    "               --drain-keep-every 1000 -- ./trainer   save to a fast root, copy to a bucket\n"
    "  shoal launch -n 2 --root /checkpoints/run7 --read-only -- ./evaluate   beside the job that trains\n"
    "\n"
    "Exit status: the worst of the trainers' (128 + n for a trainer that signal n ended); at least 1 if\n"
    "the node failed; 4 if all trainers succeeded, but a save failed that no trainer was notified of, or\n"
    "as many saves in a row failed as --max-failed-saves allows; 5 if all\n"
    "trainers succeeded, but not all was copied to the root of --drain-to; 127 if the command does not "
    "exist; 2 if\n"
    "an argument is invalid.";

Status invalid(std::string message) {
  return Status(Code::invalid_argument, std::move(message));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The job id: from a flag, from Slurm (by the same rule as in a trainer), or, on one host, a random one.
Result<std::string> find_job_id(const LaunchFlags& flags) {
  if (!flags.job_id.empty()) return flags.job_id;
  if (std::string job = client::job_id_of(client::environment_variable); !job.empty()) return job;
  if (flags.nodes == 1) return "launch-" + random_128().to_hex();
  return invalid(
      "--nnodes needs --job-id (or SHOAL_JOB_ID, or Slurm's variables): equal on all hosts, and never "
      "reused");
}

Status validate(const LaunchFlags& flags) {
  if (flags.command.empty())
    return invalid("the trainer's command is missing: add it after --, as in -- ./trainer");
  if (flags.node_rank >= flags.nodes) {
    return invalid(fmt::format("--node-rank {} must be less than --nnodes {}", flags.node_rank, flags.nodes));
  }
  if (flags.nodes > 1 && flags.coordinator.empty()) return invalid("--nnodes needs --coordinator HOST:PORT");
  if (flags.coordinator.empty()) return ok_status();
  return base::parse_host_port(flags.coordinator).status().with_context("--coordinator");
}

Status check_bucket_holds_run(const std::string& root, bool may_create) {
  const Status status = admin::open_root_for_reading(root).status();
  if (status.code() != Code::not_found || !may_create) return status;
  return Status(Code::not_found, status.message() + ". Use --create for a new root");
}

// Rejects a folder that no run has used. An unmounted mount point is an empty folder, and a job that starts
// there would save to the wrong place.
Status check_holds_run(const std::string& root, bool may_create) {
  namespace fs = std::filesystem;
  if (base::is_in_object_store(root)) return check_bucket_holds_run(root, may_create);
  std::error_code error;
  fs::directory_iterator entries(root, error);
  if (error == std::errc::no_such_file_or_directory) {
    return Status(Code::not_found, fmt::format("root {} does not exist: is the storage mounted?{}", root,
                                               may_create ? " Use --create for a new root" : ""));
  }
  bool is_empty = true;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (storage::shows_a_run(entries->path().filename().native())) return ok_status();
    is_empty = false;
  }
  if (error) return Status(Code::refused, fmt::format("root {}: {}", root, error.message()));
  return Status(Code::not_found,
                fmt::format("root {} {}: is the storage mounted?{}", root,
                            is_empty ? "is an empty folder" : "is a folder that no run has used",
                            may_create ? " Use --create to make it a root" : ""));
}

// Checks that a job that resumes has a latest checkpoint to load: its decision is readable, or the root
// proves an undecided attempt complete.
Status check_can_resume(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(admin::OpenRoot root, admin::open_root_for_reading(path));
  admin::AttemptChoice newest;
  newest.newest_only = true;
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> views, admin::choose_attempts(root, newest));
  const storage::AttemptView* latest = admin::newest_checkpoint(views);
  if (latest != nullptr) return admin::check_reads_back(latest);
  // The first load commits an attempt that the root proves complete.
  for (const storage::AttemptView& view : views) {
    if (view.info.state == storage::AttemptInfo::State::undecided &&
        storage::prove_complete(*root.storage, view.key).ok()) {
      return ok_status();
    }
  }
  return Status(Code::not_found, fmt::format("root {} has no checkpoint to resume from", path));
}

// A port that is free now, for MASTER_PORT of a job on one host.
uint16_t free_port() {
  base::OwnedFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket_fd.get(), generic, size) != 0 || getsockname(socket_fd.get(), generic, &size) != 0) {
    return kDefaultMasterPort;
  }
  return ntohs(address.sin_port);
}

std::string own_program() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "shoal" : path.string();
}

// Whether trainers need the setting: those of trainers, and how long a starting node looks for its
// coordinator.
bool trainers_need(const local::Setting& setting) {
  return setting.of == local::SettingOf::trainer || setting.name == std::string_view("find-coordinator-ms");
}

class PlanMaker {
 public:
  explicit PlanMaker(const LaunchFlags& flags) : flags_(flags), settings_(flags.settings) {}

  Result<LaunchPlan> make() {
    SHOAL_RETURN_IF_ERROR(validate(flags_));
    SHOAL_RETURN_IF_ERROR(complete_settings(flags_.root, &settings_));
    actors::NodeOptions checked;
    SHOAL_RETURN_IF_ERROR(apply_settings(settings_, &checked));
    SHOAL_ASSIGN_OR_RETURN(job_id_, find_job_id(flags_));
    SHOAL_RETURN_IF_ERROR(find_ranks());
    SHOAL_ASSIGN_OR_RETURN(Bytes token, local::find_token(flags_.token_file));
    if (token.empty() && flags_.nodes > 1) {
      return invalid(
          fmt::format("--nnodes needs the job's token: set --token-file or {}", local::kTokenVariable));
    }
    const bool drains = !flags_.drain_to.empty();
    if (flags_.resume && !drains) SHOAL_RETURN_IF_ERROR(check_can_resume(flags_.root));
    SHOAL_RETURN_IF_ERROR(flags_.create ? storage::make_root_folder(flags_.root)
                                        : check_holds_run(flags_.root, !flags_.read_only));
    SHOAL_ASSIGN_OR_RETURN(root_, base::normal_root(flags_.root));
    if (drains) SHOAL_RETURN_IF_ERROR(prepare_drain(token));
    if (flags_.resume && drains) SHOAL_RETURN_IF_ERROR(check_can_resume(flags_.root));
    SHOAL_ASSIGN_OR_RETURN(local::NodePaths paths, local::node_paths(root_, flags_.read_only ? job_id_ : ""));
    // A job that trains may start a job that only reads, which must not use the socket of the first.
    if (!flags_.read_only) socket_ = variable("SHOAL_SOCKET");
    if (socket_.empty()) socket_ = paths.socket_file;

    save_report_ = fmt::format("{}/launch-{}.saves", local::runtime_folder(), getpid());

    LaunchPlan plan;
    plan.node = node_command();
    plan.node_environment = own_environment();
    plan.node_environment["SHOAL_SOCKET"] = socket_;
    if (token.empty()) plan.node_environment[local::kTokenVariable] = local::mint_token();
    plan.trainer = flags_.command;
    uint16_t port = flags_.master_port;
    if (port == 0) port = flags_.nodes == 1 ? free_port() : kDefaultMasterPort;
    for (uint32_t i = 0; i < flags_.trainers; ++i)
      plan.trainer_environments.push_back(trainer_environment(i, port));
    plan.first_rank = first_rank_;
    plan.root = root_;
    plan.save_report = save_report_;
    plan.is_one_host = flags_.nodes == 1;
    plan.max_failed_saves = static_cast<uint32_t>(settings_.number_of("max-failed-saves"));
    plan.kill_on_failure = flags_.kill_on_failure;
    plan.tag_output = flags_.tag_output;
    if (drains && hosts_coordinator()) plan.drain = drain_command_line();
    plan.drain_to = flags_.drain_to;
    plan.drain_patience = std::chrono::seconds(flags_.drain_patience_s);
    // Time of a node's start after it has found the coordinator.
    constexpr std::chrono::seconds kBesideCoordinator{30};
    plan.node_ready_within =
        std::max(plan.node_ready_within,
                 std::chrono::milliseconds(settings_.number_of("find-coordinator-ms")) + kBesideCoordinator);
    return plan;
  }

 private:
  Status find_ranks() {
    uint64_t first = flags_.first_rank.value_or(flags_.node_rank * flags_.trainers);
    uint64_t world = flags_.world_size.value_or(flags_.nodes * flags_.trainers);
    if (first + flags_.trainers > world || world > kMaxWorldSize) {
      return invalid(
          fmt::format("ranks {} to {} are not in a world of {}", first, first + flags_.trainers - 1, world));
    }
    first_rank_ = static_cast<uint32_t>(first);
    world_size_ = static_cast<uint32_t>(world);
    return ok_status();
  }

  bool hosts_coordinator() const { return flags_.coordinator.empty() || flags_.node_rank == 0; }

  // The trainers load the latest of both roots.
  Status prepare_drain(const Bytes& token) const {
    const FastRoot fast{root_, flags_.drain_to, job_id_, token, flags_.create, flags_.take_over};
    if (hosts_coordinator()) return prepare_fast_root(fast).status();
    return wait_for_fast_root(fast, std::chrono::milliseconds(settings_.number_of("find-coordinator-ms")));
  }

  std::vector<std::string> drain_command_line() const {
    std::vector<std::string> out = {own_program(), "drain",
                                    root_,         flags_.drain_to,
                                    "--interval",  fmt::format("{}", flags_.drain_interval_seconds)};
    for (const auto& [name, value] : flags_.drain_rules.values()) {
      out.push_back(local::find_setting(name)->flag());
      out.push_back(value.text);
    }
    return out;
  }

  std::vector<std::string> node_command() const {
    char host[HOST_NAME_MAX + 1] = {};
    if (gethostname(host, sizeof host - 1) != 0) std::strcpy(host, "host");
    std::vector<std::string> out = {
        own_program(), "node",
        "--root",      root_,
        "--job-id",    job_id_,
        "--name",      flags_.nodes > 1 ? fmt::format("{}-{}", host, flags_.node_rank) : host};
    auto add = [&](const char* name, const std::string& value) {
      if (value.empty()) return;
      out.push_back(name);
      out.push_back(value);
    };
    if (!flags_.coordinator.empty()) {
      if (hosts_coordinator()) out.push_back("--coordinate");
      add(hosts_coordinator() ? "--listen" : "--coordinator", flags_.coordinator);
    }
    if (flags_.take_over && hosts_coordinator()) out.push_back("--take-over");
    if (flags_.read_only) out.push_back("--read-only");
    add("--token-file", flags_.token_file);
    add("--world-size", std::to_string(world_size_));
    add("--ranks", fmt::format("{}-{}", first_rank_, first_rank_ + flags_.trainers - 1));
    add("--socket", socket_);
    for (std::string& argument : node_arguments_of(settings_)) out.push_back(std::move(argument));
    return out;
  }

  Environment trainer_environment(uint32_t local_rank, uint16_t master_port) const {
    Environment out = own_environment();
    out["RANK"] = std::to_string(first_rank_ + local_rank);
    out["WORLD_SIZE"] = std::to_string(world_size_);
    out["LOCAL_RANK"] = std::to_string(local_rank);
    out["LOCAL_WORLD_SIZE"] = std::to_string(flags_.trainers);
    out["NODE_RANK"] = out["GROUP_RANK"] = std::to_string(flags_.node_rank);
    out["MASTER_ADDR"] =
        flags_.coordinator.empty() ? "127.0.0.1" : base::parse_host_port(flags_.coordinator)->host;
    out["MASTER_PORT"] = std::to_string(master_port);
    out["SHOAL_ROOT"] = root_;
    out["SHOAL_JOB_ID"] = job_id_;
    out["SHOAL_SOCKET"] = socket_;
    out[client::kSaveReportVariable] = save_report_;
    for (const auto& [name, value] : settings_.values()) {
      const local::Setting& setting = *local::find_setting(name);
      if (trainers_need(setting)) out[setting.variable()] = value.text;
    }
    out["SHOAL_NODE_PROGRAM"] = own_program();
    out["SHOAL_START_NODE"] = "0";  // this process starts it
    if (flags_.read_only) out["SHOAL_READ_ONLY"] = "1";
    if (!flags_.coordinator.empty()) out["SHOAL_COORDINATOR"] = flags_.coordinator;
    // For a node that a trainer starts if this one has died.
    std::error_code error;
    if (!flags_.token_file.empty()) {
      out[local::kTokenFileVariable] = std::filesystem::absolute(flags_.token_file, error).string();
    }
    return out;
  }

  const LaunchFlags& flags_;
  local::Settings settings_;
  std::string job_id_, root_, socket_, save_report_;
  uint32_t first_rank_ = 0, world_size_ = 0;
};

int report_failed(const Status& status) {
  fmt::print(stderr, "shoal launch: {}\n", status.to_string());
  return status.code() == Code::not_found ? kExitNoProgram : kExitFailed;
}

int run_launch(const LaunchFlags& flags) {
  // Checked before the node claims a generation for a job that cannot start.
  Status runnable = flags.command.empty() ? ok_status() : check_program(flags.command.front());
  if (!runnable.ok()) return report_failed(runnable);
  auto plan = PlanMaker(flags).make();
  if (!plan.ok()) return report_unusable(plan.status());
  auto status = Launcher(std::move(*plan)).run();
  if (status.ok()) return *status;
  return report_failed(status.status());
}

constexpr const char* kDrainGroup =
    "Copies in the background (the rules are those of the root of --drain-to)";

void add_drain_options(CLI::App* command, LaunchFlags* flags) {
  CLI::Option* drain_to =
      command
          ->add_option("--drain-to", flags->drain_to,
                       "Folder or s3://BUCKET/PREFIX to which every checkpoint is copied in the background")
          ->excludes("--read-only")
          ->check(not_empty, "")
          ->group(kDrainGroup);
  add_retention_settings(*command, &flags->drain_rules, "drain-");
  command
      ->add_option("--drain-interval", flags->drain_interval_seconds, "Seconds between two looks at the root")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str()
      ->group(kDrainGroup);
  command
      ->add_option("--drain-patience", flags->drain_patience_s,
                   "Seconds after the end of the job within which the last checkpoints must be copied")
      ->capture_default_str()
      ->group(kDrainGroup);
  for (const char* name : {"--drain-keep-last", "--drain-keep-every", "--drain-keep-for", "--drain-interval",
                           "--drain-patience"}) {
    command->get_option(name)->needs(drain_to)->group(kDrainGroup);
  }
}

void add_options(CLI::App* command, LaunchFlags* flags) {
  command->add_option("-n,--nproc-per-node", flags->trainers, "Trainers on this host")
      ->check(CLI::Range(1u, kMaxLocalTrainers))
      ->capture_default_str();
  command
      ->add_option("--root", flags->root,
                   "Folder of the run, which an earlier run has used; a new folder needs --create")
      ->envname("SHOAL_ROOT")
      ->required();
  command->add_flag("--create", flags->create,
                    "Create the root if it does not exist, in a folder that exists; set it on every host");
  command->add_flag("--resume", flags->resume,
                    "Start nothing unless the root has a checkpoint to resume from");
  command->add_option("--nnodes", flags->nodes, "Number of hosts of the job")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  command->add_option("--node-rank", flags->node_rank, "Number of this host, from 0")->capture_default_str();
  command->add_option("--coordinator", flags->coordinator,
                      "HOST:PORT at which the first host's node listens for the other nodes");
  command
      ->add_option("--job-id", flags->job_id,
                   "Job id: equal on all hosts of one start of the job, and never reused")
      ->envname("SHOAL_JOB_ID");
  command->add_option(
      "--token-file", flags->token_file,
      "File of mode 0600 with the job's secret; default: $SHOAL_TOKEN_FILE, else $SHOAL_TOKEN");
  command->add_option("--world-size", flags->world_size,
                      "Number of ranks of the job; default: N on every host");
  command->add_option("--first-rank", flags->first_rank,
                      "First rank of this host; default: N times the node rank");
  command->add_option("--master-port", flags->master_port,
                      "MASTER_PORT of the trainers; default: 29500, on one host any free port");
  command->add_flag(
      "--take-over", flags->take_over,
      "Run even if the coordinator of another run is live on this root; that coordinator then ends");
  command
      ->add_flag(
          "--read-only", flags->read_only,
          "Start trainers that only load, beside the job that trains on this root and without effect on it")
      ->excludes("--take-over")
      ->excludes("--create")
      ->envname("SHOAL_READ_ONLY");
  add_drain_options(command, flags);
  command->add_flag("--kill-on-failure", flags->kill_on_failure, "End all trainers if one fails");
  command->add_flag("--tag-output", flags->tag_output,
                    "Print [RANK] before every line of a trainer's output");
  add_settings(*command, local::SettingOf::node, &flags->settings);
  add_settings(*command, local::SettingOf::trainer, &flags->settings);
}

}  // namespace

void add_launch_command(CLI::App& app, const std::vector<std::string>& command_line, Command* chosen) {
  CLI::App* command = app.add_subcommand(
      "launch",
      "Start a node and N trainers on this host: shoal launch -n N --root ROOT [OPTIONS] -- COMMAND");
  auto flags = std::make_shared<LaunchFlags>();
  flags->command = command_line;
  add_options(command, flags.get());
  command->footer(kLaunchFooter);
  command->callback([=] { *chosen = [=] { return run_launch(*flags); }; });
}

}  // namespace shoal::cli
