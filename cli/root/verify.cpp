// Shoal verify: reads checkpoints and compares them with their digests.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "admin/collector.h"
#include "admin/root_reader.h"
#include "base/root_name.h"
#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/root/choice_options.h"
#include "storage/root/verifier.h"

namespace shoal::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kDefaultJobs = 4;
constexpr unsigned kDefaultStoreJobs = 16;  // a read waits for the network, not for a core

struct VerifyOptions {
  std::string root;
  admin::AttemptChoice choice;
  bool all = false;
  bool json = false;
  bool record = true;
  bool dry_run = false;
  bool progress = false;
  unsigned jobs = std::clamp(std::thread::hardware_concurrency(), 1u, kDefaultJobs);
  uint64_t bytes_per_second = 0;  // 0: no limit
};

constexpr const char* kVerifyFooter =
    "Reads every byte of the latest checkpoint, or of those chosen. It checks the manifest against its\n"
    "digest; the sizes, headers and 1 MiB blocks of the files against theirs; the contents of each file\n"
    "against the plan; and that the files cover every tensor. It reports each damage with file, tensor and\n"
    "block, and with the bytes of the file and the elements of the tensor in that block. It records an\n"
    "intact checkpoint in the root, because retention never deletes the newest one known to be intact. If\n"
    "it cannot write to the root, it reports that. It uses 1 MiB of memory for each parallel read, 8 MiB\n"
    "of a root in an object store, plus the headers of the files that it is reading. It shows its progress\n"
    "on stderr if that is a terminal.\n"
    "\n"
    "An object store may charge for requests and for bytes that leave it: --dry-run prints how many.\n"
    "\n"
    "Examples:\n"
    "  shoal verify /checkpoints/run7                  the latest checkpoint\n"
    "  shoal verify /checkpoints/run7 --step 1000      every checkpoint at this step\n"
    "  shoal verify /checkpoints/run7 --all --json     all checkpoints, as JSON\n"
    "  shoal verify /checkpoints/run7 --jobs 16        16 parallel reads, for storage with many disks\n"
    "  shoal verify /checkpoints/run7 --rate 200MB/s   beside a running job\n"
    "  shoal verify s3://bucket/run7 --all --dry-run   what it would read\n"
    "\n"
    "Exit status: 0 intact; 1 damaged; 2 the checkpoint does not exist, or could not be read.";

// Parses "200MB/s" or "200MB".
Result<uint64_t> parse_rate(std::string_view text) {
  std::string_view bytes = text.ends_with("/s") ? text.substr(0, text.size() - 2) : text;
  auto rate = parse_bytes(bytes);
  if (rate.ok() && *rate > 0) return rate;
  return Status(Code::invalid_argument, fmt::format("'{}' is not a rate: write it as in 200MB/s", text));
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Verified {
  AttemptKey key;
  storage::VerifyReport report;
  double seconds = 0;
  bool deleted_meanwhile = false;  // a tombstone exists
  bool gone_meanwhile = false;     // its folder is gone, and no tombstone explains it
  Status recorded;                 // result of recording for retention whether it is sound

  bool ok() const { return deleted_meanwhile || report.ok(); }
  bool is_damaged() const { return !ok() && !gone_meanwhile && report.is_damaged(); }
};

class Verifying {
 public:
  Verifying(storage::Storage& storage, const VerifyOptions& options)
      : storage_(storage), options_(options), rate_(options.bytes_per_second) {}

  std::vector<Verified> run(const std::vector<storage::AttemptView>& views) {
    uint64_t total = 0;
    for (const storage::AttemptView& view : views) {
      if (view.committed()) total += admin::file_bytes_of(view.decision->manifest());
    }
    ProgressLine progress("verify", total, bytes_done_, options_.progress);
    std::vector<Verified> out;
    for (const storage::AttemptView& view : views) out.push_back(verify_one(view));
    return out;
  }

 private:
  Verified verify_one(const storage::AttemptView& view) {
    Verified out;
    out.key = view.key;
    if (!view.damage.ok()) {
      out.report.damage.push_back(
          {std::string(storage::kDecisionName), "", "", {}, view.damage.message(), view.damage.code()});
      out.report.damage_count = 1;
      out.report.unread_count = out.report.damage.front().is_unread();
      return out;
    }
    Clock::time_point start = Clock::now();
    out.report = storage::verify_checkpoint(storage_, *view.decision, options_.jobs, rate_, &bytes_done_);
    out.seconds = seconds_since(start);
    const bool is_known = out.report.ok() || out.report.is_damaged();
    if (options_.record && is_known) out.recorded = record(view.key, out.report.ok());
    if (out.report.ok()) return out;
    // Files may disappear during the read because the checkpoint is deleted. Then its decision is a tombstone
    // already.
    auto now = storage::inspect_attempt(storage_, view.key);
    out.deleted_meanwhile = now.ok() && now->state == storage::AttemptInfo::State::deleted;
    out.gone_meanwhile = now.status().code() == Code::not_found;
    return out;
  }

  // Creates the mark `verified` on a sound checkpoint, and removes it from a damaged one. A checkpoint that
  // was deleted meanwhile keeps no mark.
  Status record(const AttemptKey& key, bool is_sound) {
    const std::string name = storage::verified_name(key);
    if (!is_sound) return storage::remove_mark(storage_, storage::MarkKind::verified, name);
    storage::Mark mark{name, key, false, 0, "", admin::unix_time_now_ns(), random_128()};
    SHOAL_ASSIGN_OR_RETURN(bool created, storage::create_mark(storage_, storage::MarkKind::verified, mark));
    if (!created) SHOAL_RETURN_IF_ERROR(storage::replace_mark(storage_, storage::MarkKind::verified, mark));
    auto now = storage::inspect_attempt(storage_, key);
    if (now.ok() && now->state == storage::AttemptInfo::State::committed) return ok_status();
    return storage::remove_mark(storage_, storage::MarkKind::verified, name);
  }

  storage::Storage& storage_;
  const VerifyOptions& options_;
  storage::RateLimit rate_;
  std::atomic<uint64_t> bytes_done_{0};
};

std::string describe(const storage::Damage& damage) {
  if (!damage.block) return damage.what;
  const storage::DamagedBlock& block = *damage.block;
  std::string where = fmt::format("bytes {} to {} of the file, elements {} to {} of the piece",
                                  block.file_begin, block.file_end, block.element_begin, block.element_end);
  if (!block.first_index.empty()) {
    where += fmt::format(", [{}] to [{}] of '{}'", fmt::join(block.first_index, ", "),
                         fmt::join(block.last_index, ", "), damage.tensor);
  }
  return fmt::format("{} ({})", damage.what, where);
}

std::string result_of(const storage::VerifyReport& report) {
  if (report.ok()) return "ok";
  const std::string unread = admin::counted(report.unread_count, "place") + " could not be read";
  if (!report.is_damaged()) return "NOT CHECKED: " + unread;
  const std::string damaged =
      "DAMAGED in " + admin::counted(report.damage_count - report.unread_count, "place");
  return report.unread_count == 0 ? damaged : damaged + ", and " + unread;
}

void print_verified(const Verified& one) {
  const storage::VerifyReport& report = one.report;
  if (one.deleted_meanwhile) {
    fmt::print("{}: deleted while `shoal verify` read it\n", to_string(one.key));
    return;
  }
  if (one.gone_meanwhile) {
    fmt::print("{}: not checked: its folder was removed while `shoal verify` read it\n", to_string(one.key));
    return;
  }
  for (const storage::Damage& damage : report.damage) {
    fmt::print("{}: {}: {}\n", to_string(one.key), damage.is_unread() ? "not checked" : "damaged",
               describe(damage));
  }
  if (report.damage_count > report.damage.size()) {
    fmt::print("{}: {} more\n", to_string(one.key), report.damage_count - report.damage.size());
  }
  uint64_t rate =
      one.seconds > 0 ? static_cast<uint64_t>(static_cast<double>(report.bytes) / one.seconds) : 0;
  fmt::print("{}: {}: {} in {} read in {} ({}/s)\n", to_string(one.key), result_of(report),
             human_bytes(report.bytes), admin::counted(report.files, "file"), human_seconds(one.seconds),
             human_bytes(rate));
  if (!one.recorded.ok())
    fmt::print("{}: the result was not recorded in the root: {}\n", to_string(one.key),
               one.recorded.to_string());
}

nlohmann::ordered_json damage_json(const storage::Damage& damage) {
  nlohmann::ordered_json item;
  item["file"] = damage.file;
  if (!damage.tensor.empty()) item["tensor"] = damage.tensor;
  if (!damage.key.empty()) item["key"] = damage.key;
  if (damage.block) {
    const storage::DamagedBlock& block = *damage.block;
    item["block"] = block.number;
    item["file_bytes"] = {block.file_begin, block.file_end};
    item["piece_elements"] = {block.element_begin, block.element_end};
    if (!block.first_index.empty()) {
      item["first_index"] = block.first_index;
      item["last_index"] = block.last_index;
    }
  }
  item["what"] = damage.what;
  return item;
}

nlohmann::ordered_json verified_json(const Verified& one) {
  nlohmann::ordered_json out;
  out["step"] = one.key.step;
  out["generation"] = one.key.generation;
  out["attempt"] = one.key.attempt;
  out["ok"] = one.ok();
  if (one.deleted_meanwhile) out["deleted_meanwhile"] = true;
  if (one.gone_meanwhile) out["gone_meanwhile"] = true;
  out["files"] = one.report.files;
  out["bytes"] = one.report.bytes;
  out["seconds"] = one.seconds;
  if (!one.recorded.ok()) out["not_recorded"] = one.recorded.to_string();
  const bool is_away = one.deleted_meanwhile || one.gone_meanwhile;
  out["damage_count"] = is_away ? 0 : one.report.damage_count;
  out["unread_count"] = is_away ? 0 : one.report.unread_count;
  out["damage"] = nlohmann::ordered_json::array();
  if (is_away) return out;
  for (const storage::Damage& damage : one.report.damage) out["damage"].push_back(damage_json(damage));
  return out;
}

// The requested checkpoints, and those whose decisions are unreadable.
Result<std::vector<storage::AttemptView>> pick(const admin::OpenRoot& root, const VerifyOptions& options) {
  admin::AttemptChoice choice = options.choice;
  choice.newest_only = !options.all;
  SHOAL_ASSIGN_OR_RETURN(std::vector<storage::AttemptView> views, admin::choose_attempts(root, choice));
  std::string why;  // of the newest attempt that is no checkpoint
  std::erase_if(views, [&](const storage::AttemptView& view) {
    if (view.committed() || !view.damage.ok()) return false;
    const std::string cause = view.decision ? view.decision->tombstone().cause : view.proof;
    why = fmt::format(": {} is {}{}{}", to_string(view.info.key), view.state_name(),
                      cause.empty() ? "" : ": ", cause);
    return true;
  });
  if (views.empty() && options.choice.names_one()) {
    std::string named =
        options.choice.step ? fmt::format("step {}", *options.choice.step) : options.choice.tag;
    return Status(Code::not_found,
                  fmt::format("root {} has no checkpoint at {}{}", root.storage->describe(), named, why));
  }
  if (views.empty() && !options.all) {
    return Status(Code::not_found, fmt::format("root {} has no checkpoint yet", root.storage->describe()));
  }
  if (!options.all && !options.choice.names_one()) views.erase(views.begin(), views.end() - 1);
  return views;
}

// What a verification would cost. A manifest that cannot be read is damage that needs no further reading.
struct Cost {
  uint64_t checkpoints = 0, files = 0, bytes = 0, requests = 0;
};

int forecast_verify(const admin::OpenRoot& root, const std::vector<storage::AttemptView>& views, bool json) {
  const bool is_store = !root.storage->has_files();
  Cost all;
  nlohmann::ordered_json out;
  out["root"] = root.storage->describe();
  out["dry_run"] = true;
  out["checkpoints"] = nlohmann::ordered_json::array();
  const auto add_cost = [&](nlohmann::ordered_json& to, const Cost& cost) {
    to["files"] = cost.files;
    to["bytes"] = cost.bytes;
    to["requests"] = is_store ? nlohmann::ordered_json(cost.requests) : nlohmann::ordered_json();
  };
  const auto text_of = [&](const Cost& cost) {
    const std::string requests =
        is_store ? fmt::format(", about {}", admin::counted(cost.requests, "request")) : "";
    return fmt::format("{} in {}{}", human_bytes(cost.bytes), admin::counted(cost.files, "file"), requests);
  };
  bool ok = true;
  for (const storage::AttemptView& view : views) {
    nlohmann::ordered_json one = key_json(view.key);
    Cost cost{1, 0, 0, 0};
    if (view.damage.ok()) {
      const storage::Manifest& manifest = view.decision->manifest();
      cost = {1, manifest.files.size(), admin::file_bytes_of(manifest),
              storage::requests_to_verify(manifest)};
    } else {
      ok = false;
      one["damage"] = view.damage.message();
    }
    all = {all.checkpoints + 1, all.files + cost.files, all.bytes + cost.bytes, all.requests + cost.requests};
    add_cost(one, cost);
    out["checkpoints"].push_back(std::move(one));
    if (json) continue;
    fmt::print("{}: {}\n", to_string(view.key),
               view.damage.ok() ? "to read: " + text_of(cost) : "damaged: " + view.damage.message());
  }
  add_cost(out, all);
  out["ok"] = ok;
  if (json) print_json("verify", out);
  if (!json) fmt::print("{} to read: {}\n", admin::counted(all.checkpoints, "checkpoint"), text_of(all));
  return ok ? kExitOk : kExitDamaged;
}

int run_verify(const VerifyOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  auto views = pick(*root, options);
  if (!views.ok()) return report_unusable(views.status());
  if (options.dry_run) return forecast_verify(*root, *views, options.json);
  std::vector<Verified> verified = Verifying(*root->storage, options).run(*views);
  bool ok = std::all_of(verified.begin(), verified.end(), [](const Verified& one) { return one.ok(); });
  nlohmann::ordered_json out;
  out["root"] = root->storage->describe();
  out["checkpoints"] = nlohmann::ordered_json::array();
  for (const Verified& one : verified) {
    if (options.json) {
      out["checkpoints"].push_back(verified_json(one));
    } else {
      print_verified(one);
    }
  }
  out["ok"] = ok;
  if (options.json) print_json("verify", out);
  if (!options.json && views->empty()) fmt::print("no checkpoint yet\n");
  const bool is_damaged =
      std::any_of(verified.begin(), verified.end(), [](const Verified& one) { return one.is_damaged(); });
  return ok ? kExitOk : is_damaged ? kExitDamaged : kExitUnusable;
}

}  // namespace

void add_verify_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("verify", "Read every byte of a checkpoint and compare it with its digests");
  auto options = std::make_shared<VerifyOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the run")->required();
  CLI::Option* step = add_choice_options(*command, &options->choice, "Verify the checkpoints at this step");
  command->add_flag("--all", options->all, "Verify every checkpoint")->excludes(step);
  CLI::Option* jobs =
      command
          ->add_option("--jobs,-j", options->jobs,
                       "Number of parallel reads, of several files or of one large file; in an object store "
                       "the default is 16")
          ->check(CLI::Range(1u, storage::kMaxVerifyJobs))
          ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--rate",
          [=](const std::string& text) {
            auto rate = parse_rate(text);
            if (!rate.ok()) throw CLI::ValidationError("--rate", rate.status().message());
            options->bytes_per_second = *rate;
          },
          "Limit for all parallel reads together, as in 200MB/s; suffixes are powers of 1024")
      ->type_name("BYTES/s");
  command->add_flag("--progress", options->progress,
                    "Print progress to stderr even if it is not a terminal, one line a second");
  command->add_flag("--dry-run", options->dry_run,
                    "Print how many files, bytes and requests it would read, and read no file");
  command->add_flag("!--no-record", options->record,
                    "Write nothing to the root; retention then does not know that the checkpoint is intact");
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kVerifyFooter);
  command->callback([=] {
    if (jobs->count() == 0 && base::is_in_object_store(options->root)) options->jobs = kDefaultStoreJobs;
    *chosen = [=] { return run_verify(*options); };
  });
}

}  // namespace shoal::cli
