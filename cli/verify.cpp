// shoal verify: re-reads checkpoints against their digests.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "cli/commands.h"
#include "cli/root_reader.h"
#include "cli/verifier.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kDefaultThreads = 4;
constexpr std::chrono::milliseconds kProgressInterval{200};

struct VerifyOptions {
  std::string root;
  AttemptChoice choice;
  bool all = false;
  bool json = false;
  unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, kDefaultThreads);
};

constexpr const char* kFooter =
    "Reads every byte of the latest checkpoint, or of those chosen: sizes, headers and every 1 MiB block\n"
    "against their digests, and the contents of each file against the manifest. Each damaged file, tensor\n"
    "and block is named. Progress is shown on a terminal only.\n"
    "\n"
    "Examples:\n"
    "  shoal verify /checkpoints/run7                the latest checkpoint\n"
    "  shoal verify /checkpoints/run7 --step 1000    every checkpoint at this step\n"
    "  shoal verify /checkpoints/run7 --all --json   all of them, for a program\n"
    "\n"
    "Exit status: 0 all is well; 1 something is damaged; 2 no such checkpoint, or the root cannot be read.";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Redraws one line on stderr while it lives, if that is a terminal.
class ProgressLine {
 public:
  ProgressLine(std::string title, uint64_t bytes_total, const std::atomic<uint64_t>& bytes_done)
      : title_(std::move(title)), bytes_total_(bytes_total), bytes_done_(bytes_done), start_(Clock::now()) {
    if (isatty(STDERR_FILENO)) thread_ = std::thread([this] { run(); });
  }
  ~ProgressLine() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
    fmt::print(stderr, "\r\x1b[K");
  }
  ProgressLine(const ProgressLine&) = delete;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kProgressInterval, [&] { return stop_; })) draw();
  }
  void draw() const {
    uint64_t done = bytes_done_.load(std::memory_order_relaxed);
    double rate = static_cast<double>(done) / seconds_since(start_);
    uint64_t left = bytes_total_ - std::min(done, bytes_total_);
    std::string time_left = rate > 0 ? human_seconds(static_cast<double>(left) / rate) + " left" : "";
    fmt::print(stderr, "\r\x1b[K{}: {} of {}, {}/s, {}", title_, human_bytes(done), human_bytes(bytes_total_),
               human_bytes(static_cast<uint64_t>(rate)), time_left);
    std::fflush(stderr);
  }

  const std::string title_;
  const uint64_t bytes_total_;
  const std::atomic<uint64_t>& bytes_done_;
  const Clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

struct Verified {
  AttemptKey key;
  VerifyReport report;
  double seconds = 0;
};

Verified verify_one(Storage& storage, const AttemptView& view, unsigned threads) {
  Verified out;
  out.key = view.key;
  if (!view.damage.ok()) {
    out.report.damage.push_back({std::string(kDecisionName), "", -1, view.damage.message()});
    out.report.damage_count = 1;
    return out;
  }
  std::atomic<uint64_t> bytes_done{0};
  Clock::time_point start = Clock::now();
  ProgressLine progress(to_string(view.key), file_bytes_of(view.decision->manifest()), bytes_done);
  out.report = verify_checkpoint(storage, *view.decision, threads, &bytes_done);
  out.seconds = seconds_since(start);
  return out;
}

void print_verified(const Verified& one) {
  const VerifyReport& report = one.report;
  for (const Damage& damage : report.damage) fmt::print("{}: damaged: {}\n", to_string(one.key), damage.what);
  if (report.damage_count > report.damage.size()) {
    fmt::print("{}: damaged: {} more\n", to_string(one.key), report.damage_count - report.damage.size());
  }
  uint64_t rate =
      one.seconds > 0 ? static_cast<uint64_t>(static_cast<double>(report.bytes) / one.seconds) : 0;
  fmt::print("{}: {}: {} in {} files read in {} ({}/s)\n", to_string(one.key),
             report.ok() ? "ok" : fmt::format("DAMAGED in {} places", report.damage_count),
             human_bytes(report.bytes), report.files, human_seconds(one.seconds), human_bytes(rate));
}

nlohmann::ordered_json verified_json(const Verified& one) {
  nlohmann::ordered_json out;
  out["step"] = one.key.step;
  out["generation"] = one.key.generation;
  out["attempt"] = one.key.attempt;
  out["ok"] = one.report.ok();
  out["files"] = one.report.files;
  out["bytes"] = one.report.bytes;
  out["seconds"] = one.seconds;
  out["damage_count"] = one.report.damage_count;
  out["damage"] = nlohmann::ordered_json::array();
  for (const Damage& damage : one.report.damage) {
    nlohmann::ordered_json item;
    item["file"] = damage.file;
    if (!damage.tensor.empty()) item["tensor"] = damage.tensor;
    if (damage.block >= 0) item["block"] = damage.block;
    item["what"] = damage.what;
    out["damage"].push_back(std::move(item));
  }
  return out;
}

// The checkpoints asked for, and decisions among them that do not read back.
Result<std::vector<AttemptView>> pick(const OpenRoot& root, const VerifyOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<AttemptView> views, choose_attempts(root, options.choice));
  std::erase_if(views, [](const AttemptView& view) { return !view.committed() && view.damage.ok(); });
  if (views.empty() && options.choice.step) {
    return Status(Code::not_found, fmt::format("root {} has no checkpoint at step {}",
                                               root.storage->describe(), *options.choice.step));
  }
  if (views.empty() && !options.all) {
    return Status(Code::not_found, fmt::format("root {} has no checkpoint yet", root.storage->describe()));
  }
  if (!options.all && !options.choice.step) views.erase(views.begin(), views.end() - 1);
  return views;
}

int run_verify(const VerifyOptions& options) {
  auto root = open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  auto views = pick(*root, options);
  if (!views.ok()) return report_unusable(views.status());
  bool ok = true;
  nlohmann::ordered_json out;
  out["root"] = root->storage->describe();
  out["checkpoints"] = nlohmann::ordered_json::array();
  for (const AttemptView& view : *views) {
    Verified one = verify_one(*root->storage, view, options.threads);
    ok = ok && one.report.ok();
    if (options.json) {
      out["checkpoints"].push_back(verified_json(one));
    } else {
      print_verified(one);
    }
  }
  out["ok"] = ok;
  if (options.json) fmt::print("{}\n", out.dump(2));
  if (!options.json && views->empty()) fmt::print("no checkpoint yet\n");
  return ok ? kExitOk : kExitDamaged;
}

}  // namespace

void add_verify_command(CLI::App& app, Command* chosen) {
  CLI::App* command = app.add_subcommand("verify", "Re-read every byte of a checkpoint against its digests");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("ROOT", options->root, "Folder of the run")->required();
  CLI::Option* step = add_choice_options(*command, &options->choice, "Checkpoints at this step");
  command->add_flag("--all", options->all, "Every checkpoint")->excludes(step);
  command->add_option("--threads", options->threads, "Files read at once")
      ->check(CLI::Range(1u, kMaxVerifyThreads))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kFooter);
  command->callback([=] { *chosen = [=] { return run_verify(*options); }; });
}

}  // namespace shoal
