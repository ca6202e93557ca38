// A trainer that checks its loaded state bit for bit. `shoal launch`, torchrun, mpirun or srun starts it once
// per rank.
//
//   shoal launch -n 4 --root /tmp/run --create -- sharded_trainer --save-steps 1-3
//   shoal launch -n 2 --root /tmp/run -- sharded_trainer --sharding tp --load latest
//
// Exit status: 0; 1 if a save or load failed or an element differs (it names the first); 2 for bad arguments.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "examples/synthetic_state.h"
#include "shoal/bytes.h"
#include "shoal/checkpointer.h"

namespace shoal::example {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kCommitPatience{5};
constexpr size_t kMissingNamed = 4;
constexpr double kWaitWorthTelling = 1e-3;  // seconds

struct TrainerOptions {
  ModelOptions model;
  std::string sharding = "fsdp", dtype = "f32";
  std::string save_steps, load;
  uint64_t first_step = 0, last_step = 0;  // of save_steps
  uint64_t saves = 0;                      // instead of save_steps: after the step that was loaded
  uint32_t train_ms = 100;
  std::string mode = "collective-free";
  std::string device = "host", staging = "wait";
  bool verify_unchanged = false;
  std::optional<uint64_t> kill_after_stage;
  uint32_t kill_rank = 0;
  bool wait = false, forget = false, keep_going = false;
  std::vector<std::string> metadata;  // KEY=VALUE
  std::string json_file;
};

struct SavedStep {
  uint64_t step = 0;
  bool first = false;
  double memcpy_seconds = 0;
  SaveHandle handle;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Trainer {
 public:
  Trainer(const TrainerOptions& options, CheckpointerOptions checkpointer_options)
      : options_(options), checkpointer_options_(std::move(checkpointer_options)) {}

  Status run() {
    SHOAL_ASSIGN_OR_RETURN(state_, SyntheticState::make(options_.model, checkpointer_options_.rank,
                                                        checkpointer_options_.world_size));
    SHOAL_ASSIGN_OR_RETURN(checkpointer_, Checkpointer::open(checkpointer_options_));
    std::optional<uint64_t> loaded;
    if (!options_.load.empty()) {
      SHOAL_ASSIGN_OR_RETURN(loaded, load());
    }
    uint64_t first_step = options_.first_step, last_step = options_.last_step;
    if (options_.saves > 0) {
      first_step = loaded.value_or(0) + 1;
      last_step = first_step + options_.saves - 1;
    } else if (options_.save_steps.empty()) {
      return ok_status();
    }
    warm_.assign(state_->held_bytes(), std::byte{1});
    state_->fill(first_step);
    SHOAL_RETURN_IF_ERROR(state_->put_on_device());
    SHOAL_RETURN_IF_ERROR(checkpointer_->prepare(state_->state_dict()));
    for (uint64_t step = first_step; step <= last_step; ++step) {
      SHOAL_RETURN_IF_ERROR(or_print(step, save(step)));
      if (options_.wait) SHOAL_RETURN_IF_ERROR(report_last(step));
    }
    if (options_.forget) return ok_status();
    for (const SavedStep& one : saved_) {
      if (!options_.wait) SHOAL_RETURN_IF_ERROR(or_print(one.step, report_committed(one)));
    }
    if (failed_ == 0) return ok_status();
    return Status(Code::aborted, fmt::format("{} of {} saves failed", failed_, last_step - first_step + 1));
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    std::string line = fmt::format("rank {}: {}\n", checkpointer_options_.rank,
                                   fmt::format(format, std::forward<Args>(args)...));
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

  // With --keep-going a failed save is printed, and training continues.
  Status or_print(uint64_t step, Status saved) {
    if (saved.ok() || !options_.keep_going) return saved;
    ++failed_;
    print("step {}: not committed: {}", step, saved.to_string());
    return ok_status();
  }

  Status report_last(uint64_t step) {
    if (saved_.empty() || saved_.back().step != step) return ok_status();  // save has failed
    return or_print(step, report_committed(saved_.back()));
  }

  // Returns the step; nullopt: --load resume found no checkpoint.
  Result<std::optional<uint64_t>> load() {
    state_->clear();
    SHOAL_RETURN_IF_ERROR(state_->put_on_device());
    LoadOptions load_options;
    const bool may_start = options_.load == "resume";
    if (!may_start && options_.load != "latest") load_options.step = std::stoull(options_.load);
    load_options.policies.root = KeyPolicy::lenient;  // objects of ranks that the saving job did not have
    std::optional<LoadResult> found;
    if (may_start) {
      SHOAL_ASSIGN_OR_RETURN(found, checkpointer_->load_or_start(state_->state_dict(), load_options));
    } else {
      SHOAL_ASSIGN_OR_RETURN(found, checkpointer_->load(state_->state_dict(), load_options));
    }
    if (!found) {
      print("no checkpoint: starts at the beginning");
      return std::optional<uint64_t>();
    }
    const LoadResult& loaded = *found;
    uint64_t step = loaded.metadata.key.step;
    SHOAL_RETURN_IF_ERROR(check_missing(loaded));
    SHOAL_RETURN_IF_ERROR(state_->take_from_device());
    SyntheticState::Check check = state_->check(step, loaded.metadata.world_size);
    if (check.first_difference) {
      return Status(Code::corrupt,
                    fmt::format("{} differs from what step {} saved", *check.first_difference, step));
    }
    print("loaded {}: {} in {}; checked all {} elements, all correct{}", to_string(loaded.metadata.key),
          human_bytes(loaded.bytes_loaded), human_seconds(loaded.seconds), check.elements,
          loaded.passed_over.empty() ? "" : "; passed over: " + to_string(loaded.passed_over));
    append_json(
        fmt::format(R"({{"event":"load","rank":{},"step":{},"bytes":{},"seconds":{:.6f},"elements":{}}})",
                    checkpointer_options_.rank, step, loaded.bytes_loaded, loaded.seconds, check.elements));
    return std::optional<uint64_t>(step);
  }

  Status check_missing(const LoadResult& loaded) const {
    std::string report;
    size_t missing = 0;
    for (const std::string& fqn : loaded.report.missing) {
      if (state_->may_lack(fqn, loaded.metadata.world_size)) continue;
      if (++missing <= kMissingNamed) report += fmt::format("{}'{}'", missing == 1 ? "" : ", ", fqn);
    }
    if (missing == 0) return ok_status();
    if (missing > kMissingNamed) report += fmt::format(" and {} more", missing - kMissingNamed);
    return Status(Code::key_mismatch, fmt::format("{} lacks {}: a trainer with other flags saved it",
                                                  to_string(loaded.metadata.key), report));
  }

  Status save(uint64_t step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options_.train_ms));  // simulates training
    state_->fill(step);
    // With `until`, the state may change once the copies of the save before have ended.
    if (state_->device_memory() != nullptr && !saved_.empty()) {
      SHOAL_RETURN_IF_ERROR(saved_.back().handle.wait_staged(state_->device_memory()->stream()));
    }
    SHOAL_RETURN_IF_ERROR(state_->put_on_device());
    // Measured before the save, while the node writes nothing, for the number of bytes that the last save
    // staged.
    uint64_t copied = saved_.empty() ? state_->held_bytes() : saved_.back().handle.stats().bytes_staged;
    copied = std::min<uint64_t>(copied, warm_.size());
    Clock::time_point start = Clock::now();
    state_->copy_tensors(warm_, copied);
    double memcpy_seconds = seconds_since(start);
    SHOAL_ASSIGN_OR_RETURN(SaveHandle handle, save_or_report_earlier(step));
    const SaveStats& stats = handle.stats();
    if (copied > 0) memcpy_seconds *= static_cast<double>(stats.bytes_staged) / static_cast<double>(copied);
    saved_.push_back({step, saved_.empty(), memcpy_seconds, handle});
    print("step {}{}: staged {}, blocked {}, memcpy of the same bytes {} (x{:.2f}){}", step,
          saved_.size() == 1 ? " (first)" : "", human_bytes(stats.bytes_staged),
          human_seconds(stats.seconds_blocked), human_seconds(memcpy_seconds),
          stats.seconds_blocked / memcpy_seconds,
          stats.seconds_waited > kWaitWorthTelling
              ? ", of that waiting " + human_seconds(stats.seconds_waited)
              : "");
    if (options_.kill_after_stage == step && options_.kill_rank == checkpointer_options_.rank) {
      SHOAL_RETURN_IF_ERROR(saved_.back().handle.wait_staged());
      print("step {}: staged; this trainer now kills itself", step);
      raise(SIGKILL);
    }
    return ok_status();
  }

  // The failure of an earlier save is printed and does not end training: this save was staged nevertheless.
  Result<SaveHandle> save_or_report_earlier(uint64_t step) {
    SaveAttributes attributes;
    for (const std::string& entry : options_.metadata) {
      const size_t equals = std::min(entry.find('='), entry.size());
      attributes.metadata[entry.substr(0, equals)] = entry.substr(std::min(equals + 1, entry.size()));
    }
    Result<SaveHandle> saved = checkpointer_->save(step, state_->state_dict(), attributes);
    if (saved.ok() || !options_.forget || saved.status().code() != Code::earlier_save_failed) return saved;
    fmt::print(stderr, "rank {}: {}\n", checkpointer_options_.rank, saved.status().to_string());
    const std::optional<SaveHandle> last = checkpointer_->last_save();
    return last && last->key().step == step ? Result<SaveHandle>(*last) : saved;
  }

  Status report_committed(const SavedStep& one) {
    SaveHandle handle = one.handle;
    auto metadata = handle.wait_committed(kCommitPatience);
    if (!metadata.ok()) return metadata.status();
    print("step {}: committed after {}: {} in {} files", one.step,
          human_seconds(handle.seconds_to_decision()), human_bytes(metadata->payload_bytes), metadata->files);
    const SaveStats& stats = handle.stats();
    append_json(fmt::format(
        R"({{"event":"save","rank":{},"step":{},"first":{},"bytes":{},"blocked_s":{:.6f},"waited_s":{:.6f},)"
        R"("memcpy_s":{:.6f},"ratio":{:.3f},"commit_s":{:.6f}}})",
        checkpointer_options_.rank, one.step, one.first, stats.bytes_staged, stats.seconds_blocked,
        stats.seconds_waited, one.memcpy_seconds, stats.seconds_blocked / one.memcpy_seconds,
        handle.seconds_to_decision()));
    return ok_status();
  }

  // Writes each line with one call, so that ranks can share the file.
  void append_json(std::string line) const {
    if (options_.json_file.empty()) return;
    line += '\n';
    int fd = open(options_.json_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      std::perror(options_.json_file.c_str());
    }
    if (fd >= 0) close(fd);
  }

  const TrainerOptions& options_;
  const CheckpointerOptions checkpointer_options_;
  std::unique_ptr<SyntheticState> state_;
  std::unique_ptr<Checkpointer> checkpointer_;
  Bytes warm_;
  std::vector<SavedStep> saved_;
  uint64_t failed_ = 0;  // saves, with --keep-going
};

std::optional<uint64_t> parse_step(const std::string& text) {
  uint64_t value = 0;
  if (text.empty() || text.size() > 18) return std::nullopt;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

// Checks what the parser did not check. Returns the error, or nullopt.
std::optional<std::string> finish(TrainerOptions* options) {
  options->model.sharding = *sharding_kind_from_name(options->sharding);
  options->model.on_device = options->device == "cuda";
  options->model.dtype = options->dtype == "bf16" ? DType::bf16 : DType::f32;
  if (!options->load.empty() && options->load != "latest" && options->load != "resume" &&
      !parse_step(options->load)) {
    return "--load must be 'latest', 'resume' or a step";
  }
  if (options->save_steps.empty()) return std::nullopt;
  size_t dash = options->save_steps.find('-');
  auto first = parse_step(options->save_steps.substr(0, dash));
  auto last = dash == std::string::npos ? first : parse_step(options->save_steps.substr(dash + 1));
  if (!first || !last || *first > *last) return "--save-steps must be a step or a range such as 1-3";
  options->first_step = *first;
  options->last_step = *last;
  return std::nullopt;
}

void add_options(CLI::App& app, TrainerOptions* options, std::string* root) {
  app.add_option("--root", *root, "Folder of the run; default: $SHOAL_ROOT");
  CLI::Option* steps = app.add_option("--save-steps", options->save_steps, "Save these steps, such as 1-3");
  app.add_option("--saves", options->saves, "Save this many steps, after the one that was loaded")
      ->excludes(steps);
  app.add_option("--load", options->load,
                 "First load 'latest', or 'resume' if there may be no checkpoint, or a step, and check every "
                 "element");
  app.add_option("--sharding", options->sharding, "Sharding of the state")
      ->check(CLI::IsMember({"fsdp", "tp", "fsdp+tp", "replicas", "hsdp", "pipeline"}))
      ->capture_default_str();
  app.add_option("--inner", options->model.inner, "Size of the inner mesh dimension of fsdp+tp and hsdp")
      ->capture_default_str();
  app.add_option("--layers", options->model.layers, "Number of transformer blocks")->capture_default_str();
  app.add_option("--hidden", options->model.hidden, "Hidden width")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--vocab", options->model.vocab, "Size of the vocabulary")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--context", options->model.context, "Length of the context, in tokens")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--dtype", options->dtype, "Data type of the weights")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--mode", options->mode, "Mode of the saves")
      ->check(CLI::IsMember({"collective-free", "rank-local", "collective"}))
      ->capture_default_str();
  app.add_option("--device", options->device, "Where the tensors are: host or cuda")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("--staging", options->staging, "When training continues after a save from a device")
      ->check(CLI::IsMember({"wait", "stream", "until"}))
      ->capture_default_str();
  app.add_flag("--verify-unchanged", options->verify_unchanged,
               "Abort a save from a device if the state changes while it is copied");
  app.add_option("--train-ms", options->train_ms, "Time between saves, in milliseconds")
      ->capture_default_str();
  CLI::Option* wait =
      app.add_flag("--wait", options->wait, "Wait for each save to be committed before the next");
  app.add_flag("--forget", options->forget,
               "Do not wait for the outcome of saves; a later save returns the failure of an earlier one")
      ->excludes(wait);
  app.add_flag("--keep-going", options->keep_going, "Print a save that failed, and continue training");
  app.add_option("--kill-after-stage", options->kill_after_stage,
                 "End with SIGKILL as soon as the save of this step is staged");
  app.add_option("--kill-rank", options->kill_rank, "Rank that --kill-after-stage ends")
      ->capture_default_str();
  app.add_option("--metadata", options->metadata, "KEY=VALUE to store with each save; may be repeated");
  app.add_option("--json", options->json_file, "Append a line for each save and load to this file");
}

int run(int argc, char** argv) {
  TrainerOptions options;
  std::string root;
  CLI::App app("Saves and loads a sharded state with the shape of GPT-2, and checks every element.");
  add_options(app, &options, &root);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (std::optional<std::string> wrong = finish(&options)) {
    fmt::print(stderr, "sharded_trainer: {}\n", *wrong);
    return 2;
  }
  if (!root.empty()) setenv("SHOAL_ROOT", root.c_str(), 1);
  auto checkpointer_options = CheckpointerOptions::from_environment();
  if (!checkpointer_options.ok()) {
    fmt::print(stderr, "sharded_trainer: {}\n", checkpointer_options.status().to_string());
    return 2;
  }
  checkpointer_options->save.mode = *mode_of_name(options.mode);
  checkpointer_options->save.staging = options.staging == "until"    ? StagingMode::until
                                       : options.staging == "stream" ? StagingMode::stream
                                                                     : StagingMode::wait;
  checkpointer_options->save.verify_unchanged = options.verify_unchanged;
  Status status = Trainer(options, *checkpointer_options).run();
  if (status.ok()) return 0;
  fmt::print(stderr, "rank {}: {}\n", checkpointer_options->rank, status.to_string());
  // The flags are wrong, or differ from those of the job that saved.
  return status.code() == Code::invalid_argument || status.code() == Code::key_mismatch ? 2 : 1;
}

}  // namespace

}  // namespace shoal::example

int main(int argc, char** argv) {
  return shoal::example::run(argc, argv);
}
