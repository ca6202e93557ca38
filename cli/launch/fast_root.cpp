#include "cli/launch/fast_root.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "actors/node/bootstrap.h"
#include "admin/checkpoint_copy.h"
#include "admin/newest_of_both.h"
#include "base/root_name.h"
#include "cli/progress.h"
#include "cli/root/other_root.h"
#include "local/job/job_token.h"
#include "shoal/hash.h"

namespace shoal::cli {

namespace {

constexpr std::chrono::milliseconds kFastRootLook{1'000};

Result<admin::OpenRoot> open_drain_target(const FastRoot& wanted, const admin::OpenRoot& fast) {
  if (wanted.create) return open_other_root(fast, wanted.other, true, true);
  auto other = admin::open_copy_target(fast, wanted.other, false);
  if (other.status().code() == Code::not_found) {
    return Status(Code::not_found, fmt::format("{} does not exist: is the storage mounted? Use "
                                               "--create for a new root",
                                               wanted.other));
  }
  if (other.ok() && other->id == RootId{}) {
    return Status(Code::not_found, fmt::format("{} holds no run: is the storage mounted? Use "
                                               "--create to make it a root",
                                               wanted.other));
  }
  return other;
}

// Copies of this job's checkpoints would be rejected there: see storage::check_for_copies.
Status check_takes_copies(const admin::OpenRoot& other) {
  SHOAL_ASSIGN_OR_RETURN(const auto claims, storage::list_generations(*other.storage));
  for (const storage::GenerationRecord& claim : claims) {
    if (claim.job_id == storage::kCopyJobId) continue;
    return Status(
        Code::refused,
        fmt::format("job {} has saved to {} itself (run {}), so it takes no copies of later runs: copy "
                    "it with `shoal copy` to a new root, and drain to that",
                    claim.job_id, other.storage->describe(), claim.generation));
  }
  return ok_status();
}

Status check_fast_root_is_free(const FastRoot& wanted, const admin::OpenRoot& fast) {
  if (wanted.take_over) return ok_status();
  transport::Identity self;
  self.root_id = fast.id;
  self.job_id = wanted.job_id;
  self.name = actors::own_host_name();
  // A coordinator answers a wrong token too.
  const std::string other = local::mint_token();
  const Bytes token =
      wanted.token.empty() ? Bytes(as_view(other).begin(), as_view(other).end()) : wanted.token;
  return actors::check_no_other_run(*fast.storage, self, token, std::nullopt);
}

Status copy_back(const FastRoot& wanted, const admin::OpenRoot& other, const admin::OpenRoot& fast,
                 const AttemptKey& key) {
  fmt::print(stderr, "shoal: {} of {} is newer than all of {}: copying it back\n", to_string(key),
             wanted.other, wanted.root);
  std::atomic<uint64_t> bytes_done{0};
  admin::CopyResult result;
  {
    const ProgressLine progress(
        [&](double) { return fmt::format("copy back {}: {}", to_string(key), human_bytes(bytes_done)); },
        false);
    result = admin::CheckpointCopier(*other.storage, *fast.storage, fast.id).copy(key, &bytes_done);
  }
  using Outcome = admin::CopyResult::Outcome;
  if (result.outcome == Outcome::copied || result.outcome == Outcome::present) return ok_status();
  return result.status.with_context(
      fmt::format("{} cannot be copied back from {} to {}", to_string(key), wanted.other, wanted.root));
}

// Changes while the coordinator's host copies: it renews its pin.
using Leases = std::map<std::string, uint64_t>;
Leases leases_of(const admin::OpenRoot& fast) {
  Leases out;
  const auto pins = storage::list_marks(*fast.storage, storage::MarkKind::pin);
  if (!pins.ok()) return out;
  for (const storage::Mark& pin : pins->marks) out.emplace(pin.name, pin.counter);
  return out;
}

Result<bool> is_fast_root_prepared(const FastRoot& wanted, Leases* leases) {
  SHOAL_ASSIGN_OR_RETURN(const admin::OpenRoot fast, admin::open_maybe_root(wanted.root));
  const auto other = admin::open_root_for_reading(wanted.other);
  if (other.status().code() == Code::not_found) return true;  // nothing can come from there
  SHOAL_RETURN_IF_ERROR(other.status());
  SHOAL_ASSIGN_OR_RETURN(const admin::NewestOfBoth both, admin::compare_newest(fast, *other));
  *leases = leases_of(fast);
  return !both.is_newer;
}

}  // namespace

Result<std::optional<AttemptKey>> prepare_fast_root(const FastRoot& wanted) {
  SHOAL_ASSIGN_OR_RETURN(admin::OpenRoot fast, admin::open_maybe_root(wanted.root));
  SHOAL_ASSIGN_OR_RETURN(const admin::OpenRoot other, open_drain_target(wanted, fast));
  SHOAL_RETURN_IF_ERROR(check_takes_copies(other));
  SHOAL_ASSIGN_OR_RETURN(const admin::NewestOfBoth both, admin::compare_newest(fast, other));
  SHOAL_RETURN_IF_ERROR(both.is_one_line);
  if (!both.is_newer && !both.generation_to_claim) return std::optional<AttemptKey>();
  if (fast.id == RootId{}) {
    SHOAL_ASSIGN_OR_RETURN(fast, admin::open_copy_target(other, wanted.root, true));
  } else {
    SHOAL_RETURN_IF_ERROR(check_fast_root_is_free(wanted, fast));
  }
  if (both.generation_to_claim) {
    SHOAL_RETURN_IF_ERROR(admin::claim_for_next_run(fast, *both.generation_to_claim));
  }
  if (!both.is_newer) return std::optional<AttemptKey>();
  SHOAL_RETURN_IF_ERROR(copy_back(wanted, other, fast, *both.newest));
  return both.newest;
}

Status wait_for_fast_root(const FastRoot& wanted, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  Leases seen;
  Clock::time_point since = Clock::now();
  for (bool is_first = true;; is_first = false) {
    Leases leases;
    const auto prepared = is_fast_root_prepared(wanted, &leases);
    if (prepared.ok() && *prepared) return ok_status();
    if (is_first) {
      fmt::print(stderr,
                 "shoal launch: waiting until the first host has copied the newest checkpoint of {} to "
                 "{}\n",
                 wanted.other, wanted.root);
    }
    if (std::exchange(seen, leases) != leases) since = Clock::now();
    if (Clock::now() - since >= patience) {
      if (!prepared.ok()) return prepared.status();
      return Status(
          Code::deadline_exceeded,
          fmt::format("{} has a newer checkpoint than {}, and no host copied it back within {} ms: does "
                      "the launcher of the first host run, with --drain-to?",
                      wanted.other, wanted.root, patience.count()));
    }
    std::this_thread::sleep_for(kFastRootLook);
  }
}

}  // namespace shoal::cli
