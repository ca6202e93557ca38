// Shoal gc: deletes checkpoints that no rule keeps, and sweeps leftovers of crashes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/node/node_settings.h"
#include "cli/root/collected_report.h"
#include "storage/retention/readers.h"
#include "storage/retention/unfinished_copies.h"

namespace shoal::cli {

namespace {

constexpr unsigned kMaxJobs = 64;
constexpr int64_t kReaderMostAgeNs = int64_t{7} * 24 * 3600 * 1'000'000'000;

struct GcOptions {
  std::string root;
  // Settings of retention, from flags only: a command that deletes reads no settings file.
  local::Settings settings;
  // How long to wait for others, from the same sources as the nodes'.
  local::Settings waiting;
  admin::CollectorOptions collector;
  bool dry_run = false, no_wait = false, unfinished_copies = false, json = false;
};

constexpr const char* kGcFooter =
    "Always keeps the newest checkpoint, the newest one that `shoal verify` found intact, the one that the\n"
    "newest run loaded as the latest, and pinned or tagged ones. Without a rule it deletes no checkpoint.\n"
    "It always removes what aborted saves and interrupted deletions left, and the files under readers/ of\n"
    "jobs that only read and began more than seven days ago. The command is safe while jobs or another gc\n"
    "run on the root: a checkpoint keeps its files until the loads that read it end. If the command is\n"
    "interrupted, the next one continues.\n"
    "\n"
    "Examples:\n"
    "  shoal gc /checkpoints/run7 --keep-last 5 --keep-every 1000 --dry-run    show what it would delete\n"
    "  shoal gc /checkpoints/run7 --keep-last 5 --keep-every 1000\n"
    "  shoal gc /checkpoints/run7                                              remove leftovers only\n"
    "\n"
    "Exit status: 0 success; 1 something could not be removed; 2 the root, or what keeps its checkpoints,\n"
    "cannot be read.";

// Removes the load choices of read-only jobs that ended badly. Such a job that still runs chooses again.
void remove_old_readers(storage::Storage& storage, admin::Collected* out) {
  auto old = storage::list_old_readers(storage, admin::unix_time_now_ns() - kReaderMostAgeNs);
  if (!old.ok()) {
    out->failed.emplace_back("readers", old.status());
    return;
  }
  for (const uint32_t number : *old) {
    Status removed = storage::remove_reader(storage, number);
    if (!removed.ok()) out->failed.emplace_back(fmt::format("readers/{}", number), removed);
  }
}

static_assert(admin::CollectorOptions().lease_ttl_ms == actors::Timeouts().lease_ttl_ms &&
              admin::CollectorOptions().abandoned_after_ms == actors::Timeouts().abandoned_after_ms);

Status complete_waiting(GcOptions* options) {
  SHOAL_RETURN_IF_ERROR(complete_settings(options->root, &options->waiting));
  options->collector.lease_ttl_ms = static_cast<uint32_t>(options->waiting.number_of("lease-ttl-ms"));
  options->collector.abandoned_after_ms =
      static_cast<uint32_t>(options->waiting.number_of("abandoned-after-ms"));
  return ok_status();
}

void print_that_no_rule_is_given(const GcOptions& options, size_t kept) {
  if (kept <= 1) return;
  fmt::print(
      "no rule is given, so all {} checkpoints are kept; to delete all but the newest N: "
      "shoal gc {} --keep-last N\n",
      kept, options.root);
}

// Whether a lease names no checkpoint: `shoal copy` holds such a one, and its remains stay until it ends.
bool pins_unfinished_copy(const storage::RetentionPlan& plan) {
  const auto names = [](const storage::Mark& lease) {
    return [&lease](const storage::RetentionPlan::Item& item) { return item.key == lease.key; };
  };
  return std::ranges::any_of(plan.leases, [&](const storage::Mark& lease) {
    return std::ranges::none_of(plan.keep, names(lease)) && std::ranges::none_of(plan.remove, names(lease));
  });
}

// Of an object store: in a folder plain leftovers hold them.
class UnfinishedCopies {
 public:
  Status find(storage::Storage& storage) {
    SHOAL_ASSIGN_OR_RETURN(copies_, storage::list_unfinished_copies(storage));
    return ok_status();
  }
  void remove(storage::Storage& storage, admin::Collected* out) {
    std::erase_if(copies_, [&](const storage::UnfinishedCopy& copy) {
      auto bytes = storage::remove_unfinished_copy(storage, copy.key);
      const Code code = bytes.status().code();
      if (bytes.ok()) out->swept.push_back({copy.key, "an unfinished copy", *bytes});
      const bool is_changing = code == Code::busy || code == Code::not_found;
      if (!bytes.ok() && !is_changing) out->failed.emplace_back(to_string(copy.key), bytes.status());
      return bytes.ok() || code == Code::not_found;
    });
  }
  void print() const {
    for (const storage::UnfinishedCopy& copy : copies_) {
      fmt::print("{}: an unfinished copy, {} in {}: {}\n", to_string(copy.key), human_bytes(copy.bytes),
                 admin::counted(copy.files, "file"),
                 copy.is_leased ? "one runs, or has just ended"
                                : "`shoal copy` completes it, gc --unfinished-copies removes it");
    }
  }
  nlohmann::ordered_json json() const {
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const storage::UnfinishedCopy& copy : copies_) {
      nlohmann::ordered_json one = key_json(copy.key);
      one["files"] = copy.files;
      one["bytes"] = copy.bytes;
      one["runs"] = copy.is_leased;
      out.push_back(std::move(one));
    }
    return {{"unfinished_copies", std::move(out)}};
  }

 private:
  std::vector<storage::UnfinishedCopy> copies_;
};

int run_gc(GcOptions& options) {
  auto root = admin::open_root_for_reading(options.root);
  if (!root.ok()) return report_unusable(root.status());
  if (Status status = complete_waiting(&options); !status.ok()) return report_unusable(status);
  storage::Storage& storage = *root->storage;
  const storage::RetentionPolicy policy = retention_of(options.settings);
  auto plan = storage::plan_retention(storage, policy, admin::unix_time_now_ns(), nullptr);
  if (!plan.ok()) return report_unusable(plan.status());
  UnfinishedCopies copies;
  if (options.dry_run) {
    if (Status found = copies.find(storage); !found.ok()) return report_unusable(found);
    if (options.json) return print_plan_as_json("gc", *root, *plan, copies.json());
    copies.print();
    print_plan(*root, *plan);
    if (!policy.any()) print_that_no_rule_is_given(options, plan->keep.size());
    return kExitOk;
  }
  admin::Collected collected;
  admin::Collector collector(*root, options.collector);
  bool may_matter = policy.any() || !plan->finish.empty() || pins_unfinished_copy(*plan);
  if (!may_matter) plan->leases.clear();
  Status settled = collector.settle(*plan, &collected);
  if (!settled.ok()) return report_unusable(settled);
  if (!plan->leases.empty()) {
    plan = storage::plan_retention(storage, policy, admin::unix_time_now_ns(), nullptr);
    if (!plan.ok()) return report_unusable(plan.status());
  }
  std::vector<storage::RetentionPlan::Item> doomed = plan->remove;
  for (const AttemptKey& key : plan->finish) doomed.push_back({key, admin::kWhyFinished});
  // First removes what needs no tombstone. A deletion needs space for its tombstone, and the disk may be
  // full.
  collector.sweep_all(plan->sweep, &collected);
  collector.remove_all(plan->remains, &collected);
  collector.delete_all(doomed, &collected);
  remove_old_readers(storage, &collected);
  if (Status found = copies.find(storage); !found.ok()) collected.failed.emplace_back("copies", found);
  if (options.unfinished_copies) copies.remove(storage, &collected);
  for (const auto& [key, why] : plan->damaged) collected.kept.push_back({key, why.to_string(), 0});
  if (options.json) {
    for (const auto& item : plan->keep) collected.kept.push_back({item.key, item.why, 0});
    nlohmann::ordered_json out = collected_json(*root, collected, false);
    out.update(copies.json());
    print_json("gc", out);
    return exit_status_of(collected);
  }
  copies.print();
  print_collected(collected);
  if (!policy.any()) print_that_no_rule_is_given(options, plan->keep.size());
  return exit_status_of(collected);
}

}  // namespace

void add_gc_command(CLI::App& app, Command* chosen) {
  CLI::App* command =
      app.add_subcommand("gc", "Delete the checkpoints that no rule keeps, and remove leftovers");
  auto options = std::make_shared<GcOptions>();
  command->add_option("ROOT", options->root, "Folder or s3://BUCKET/PREFIX of the checkpoints")->required();
  add_retention_settings(*command, &options->settings);
  command->add_flag("--dry-run", options->dry_run,
                    "Print what the command would do, and why; change nothing");
  command->add_flag("--no-wait", options->no_wait,
                    "Do not wait to find out whether other loads and undecided saves have ended");
  command->add_flag("--unfinished-copies", options->unfinished_copies,
                    "Also remove from an object store what interrupted copies have left");
  command->add_option("--jobs,-j", options->collector.jobs, "Number of parallel removals")
      ->check(CLI::Range(1u, kMaxJobs))
      ->capture_default_str();
  add_waiting_settings(*command, &options->waiting);
  command->add_flag("--json", options->json, "One JSON object instead of lines");
  command->footer(kGcFooter);
  command->callback([=] {
    options->collector.wait = !options->no_wait;
    *chosen = [=] { return run_gc(*options); };
  });
}

}  // namespace shoal::cli
