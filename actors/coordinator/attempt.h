// Attempt: one attempt to save a step, as the coordinator follows it, from the first message about it until
// its decision. It knows what each rank has sent, and states the commit condition (next). It does no I/O: the
// Coordinator starts the operations and calls on() with what happened.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/coordinator/expected_plans.h"
#include "actors/coordinator/missing.h"
#include "actors/coordinator/plan_gather.h"
#include "actors/coordinator/rank_presence.h"
#include "actors/coordinator/replica_comparison.h"
#include "actors/publishing.h"
#include "base/paged_map.h"
#include "base/state_machine.h"

namespace shoal::actors {

// Bound of the reports, of all attempts together, that came before the roster or before the root had been
// asked for a decision. A report that does not fit is dropped; its node sends it again.
inline constexpr size_t kMaxEarlyReportBytes = size_t{64} << 20;

enum class AttemptState : uint8_t {
  reading_decision,   // The coordinator reads from the root whether the attempt has a decision already.
  gathering,          // Ranks report what they wrote, or which layouts they hold. No roster has them all yet.
  publishing_roster,  // The coordinator publishes the roster that the layouts of this attempt make.
  awaiting_reports,   // The attempt's own roster is in the root. The ranks that waited for it write by it.
  checking_files,     // Every rank has reported. The coordinator checks that the reported files exist.
  committing,         // The coordinator publishes the manifest.
  aborting,           // The coordinator publishes a tombstone, or commits what the root proves complete.
  committed,          // The root has the manifest. The attempt is closed.
  aborted,            // The root has a tombstone. The attempt is closed.
  undecided,  // The coordinator could publish no decision. The attempt is closed, and nodes decide it.
  left,       // Another coordinator decides it, or in mode rank-local its nodes. The attempt is closed here.
};
enum class AttemptTrigger : uint8_t {
  no_decision_found,       // the root has no decision yet, or could not be read
  layouts_known,           // every rank has reported or staged, and every layout is here; the roster is new
  other_roster_published,  // another coordinator published a roster under the name of the first one before
  roster_known,            // the roster of this attempt is in the root
  all_reported,            // every rank has reported, under one roster
  files_match,             // the reported files exist, with the reported sizes
  files_differ,            // a reported file is missing, or has another size
  files_unreadable,        // the root could not be read for long, or permits no reading
  given_up,                // something did not come, or is wrong (actors/giving_up.h)
  committed,               // the root has a manifest, from this or another node
  aborted,                 // the root has a tombstone, from this or another node
  publishing_failed,       // no decision could be published, for good
  superseded,              // a later epoch exists
  handed_over,             // this coordinator stops, and another one replaces it; or leave_to_nodes()
};

inline constexpr auto kAttemptTransitions = [] {
  using S = AttemptState;
  using T = AttemptTrigger;
  return std::to_array<base::Transition<S, T>>({
      {S::reading_decision, T::no_decision_found, S::gathering},
      {S::reading_decision, T::given_up, S::aborting},
      {S::reading_decision, T::committed, S::committed},
      {S::reading_decision, T::aborted, S::aborted},
      {S::reading_decision, T::superseded, S::left},
      {S::reading_decision, T::handed_over, S::left},
      {S::gathering, T::layouts_known, S::publishing_roster},
      {S::gathering, T::roster_known, S::awaiting_reports},
      {S::gathering, T::all_reported, S::checking_files},
      {S::gathering, T::given_up, S::aborting},
      {S::gathering, T::committed, S::committed},
      {S::gathering, T::aborted, S::aborted},
      {S::gathering, T::superseded, S::left},
      {S::gathering, T::handed_over, S::left},
      {S::publishing_roster, T::roster_known, S::awaiting_reports},
      {S::publishing_roster, T::other_roster_published, S::gathering},
      {S::publishing_roster, T::given_up, S::aborting},
      {S::publishing_roster, T::superseded, S::left},
      {S::publishing_roster, T::handed_over, S::left},
      {S::awaiting_reports, T::all_reported, S::checking_files},
      {S::awaiting_reports, T::given_up, S::aborting},
      {S::awaiting_reports, T::committed, S::committed},
      {S::awaiting_reports, T::aborted, S::aborted},
      {S::awaiting_reports, T::superseded, S::left},
      {S::awaiting_reports, T::handed_over, S::left},
      {S::checking_files, T::files_match, S::committing},
      {S::checking_files, T::files_differ, S::aborting},
      {S::checking_files, T::files_unreadable, S::aborting},
      {S::checking_files, T::superseded, S::left},
      {S::committing, T::committed, S::committed},
      {S::committing, T::aborted, S::aborted},
      {S::committing, T::publishing_failed, S::undecided},
      {S::committing, T::superseded, S::left},
      {S::aborting, T::committed, S::committed},
      {S::aborting, T::aborted, S::aborted},
      {S::aborting, T::publishing_failed, S::undecided},
      {S::aborting, T::superseded, S::left},
  });
}();
using AttemptMachine = base::StateMachine<kAttemptTransitions>;

// A coordinator that hands an attempt over may open it again. Then the number differs, so that an operation
// of the closed one does not change the open one.
struct AttemptId {
  AttemptKey key;
  uint64_t number = 0;
};

class Attempt {
 public:
  struct Reported {  // a rank whose files are durable
    std::shared_ptr<ExpectedPlans> under;
    std::vector<wire::WrittenFile> files;
  };
  struct Waiting {  // a rank that waits for the attempt's own roster
    NodeId node = 0;
    LayoutId layout_id;
    bool has_staged = true;  // all that it holds; false (collective): nothing yet, it waits for its plan
    PlanId known;            // collective: assignment_id_of the plan that the rank has; zero: none
    friend bool operator==(const Waiting&, const Waiting&) = default;
  };
  // The newest report of each node under each roster, kept until reports can be checked.
  using EarlyReports = std::map<std::pair<NodeId, RosterId>, wire::ShardsWritten>;

  Attempt(const AttemptId& id, TimeNs now, const Timeouts& timeouts, AttemptMachine::Counts& counts)
      : roster_retries(timeouts),
        check_retries(timeouts),
        decision_retries(timeouts),
        id_(id),
        counts_(counts),
        begun_(now),
        last_news_(now) {}

  const AttemptId& id() const { return id_; }
  const AttemptKey& key() const { return id_.key; }

  // --- the state ---
  void on(AttemptTrigger trigger) { state_.on(trigger, counts_); }
  bool may(AttemptTrigger trigger) const { return state_.may(trigger); }
  AttemptState state() const { return state_.state(); }
  // The root has no decision, and this coordinator has not begun to make one.
  bool is_open() const { return state_.may(AttemptTrigger::given_up); }
  bool takes_reports() const { return is_open() && !state_.is(AttemptState::reading_decision); }
  // The attempt's own roster; null in all states before awaiting_reports.
  const std::shared_ptr<ExpectedPlans>& roster() const { return roster_; }

  // --- the commit condition ---
  enum class Next : uint8_t {
    wait,                // ranks are missing, or something else is under way
    make_roster,         // every rank has reported or staged, but not all under one roster
    commit,              // every rank has reported, under the attempt's own roster
    commit_as_reported,  // every rank has reported, all under one roster: it becomes the attempt's
  };
  // Precondition: world_size is not 0. Forgets ranks beyond the world that wait.
  Next next(uint32_t world_size);
  // The roster under which the first rank reported. Precondition: a rank has reported.
  const std::shared_ptr<ExpectedPlans>& first_reported_under() const {
    return reported_.begin()->second.under;
  }
  // The manifest of what the ranks have reported; it names no file if no rank wrote any.
  storage::Manifest make_manifest(const ExpectedPlans& under) const;

  // --- reports ---
  // Keeps a report that cannot be checked yet. *bytes_used: of the early reports of all attempts.
  void keep_early(TimeNs now, NodeId from, const wire::ShardsWritten& report, size_t* bytes_used);
  EarlyReports take_early(size_t* bytes_used);
  const EarlyReports& early() const { return early_; }
  // Records what the ranks of a report wrote. An error: the report contradicts the plan or another report.
  Status take(TimeNs now, const wire::ShardsWritten& report, const std::shared_ptr<ExpectedPlans>& under);
  bool has_reported(Rank rank) const;  // its files are durable, as its node reported
  bool has_sent(Rank rank) const { return waiting_.contains(rank) || has_reported(rank); }
  bool has_staged(Rank rank) const;  // as its node reported; a rank that waits for its plan has not
  bool is_unheard_of() const {       // no node has sent a message about it
    return reported_.empty() && waiting_.empty() && early_.empty() && progress_.empty();
  }
  // The roster under which the rank has reported; null: it has not.
  std::shared_ptr<ExpectedPlans> reported_under(Rank rank) const;
  const base::PagedMap<Rank, Reported>& reported() const { return reported_; }
  const ReplicaComparison& replicas() const { return replicas_; }  // of the ranks that have reported
  std::string warning;  // that the save is committed with; empty: none

  // --- ranks that wait for the attempt's own roster ---
  // Precondition: the rank has not reported.
  void wait_for_roster(TimeNs now, Rank rank, const Waiting& waiting);
  // Collective. Returns whether this is news; a rank that has reported never waits.
  bool wait_for_plan(Rank rank, const Waiting& waiting);
  const base::PagedMap<Rank, Waiting>& waiting() const { return waiting_; }
  // The layouts that these ranks have, each with the number of ranks.
  const std::map<LayoutId, uint32_t>& waiting_layouts() const { return waiting_layouts_; }
  // The roster of the attempt's layouts is in the root. An error: a rank has reported other pieces than this
  // roster assigns to it.
  Status adopt_roster(std::shared_ptr<ExpectedPlans> roster);

  // Collective: all hosts must agree whether their planners make a global plan.
  Status check_planners(bool follows_planner, const std::string& host);
  // For the cause of an abort. Precondition: world_size is not 0.
  Missing what_is_missing(uint32_t world_size, const RankPresence& presence) const;

  TimerId deadline = 0;
  // --- news: what moves the deadline ---
  TimeNs begun() const { return begun_; }
  TimeNs last_news() const { return last_news_; }
  uint64_t news() const { return news_; }                       // how often there were news
  std::optional<uint64_t> news_at_warning;                      // of the newest warning that it waits long
  bool has_warned() const { return news_at_warning == news_; }  // since the last news
  // There are news: a further rank was heard of, or a node still writes.
  void on_news(TimeNs now) {
    last_news_ = now;
    ++news_;
  }
  // A node has sent SaveProgress. A repetition, or one that another has overtaken, is no news.
  void on_progress(TimeNs now, NodeId from, uint64_t amount);
  PublishRetries roster_retries, check_retries, decision_retries;
  Status roster_failure;                 // why the attempt's own roster could not be published yet
  std::optional<GiveUp> given_up;        // why
  std::optional<TimeNs> hopeless_since;  // during a drain: since when nobody can complete it
  std::optional<PlanGather> plan_gather;

 private:
  void set_waiting(Rank rank, const Waiting& waiting);
  void waits_no_more(Rank rank);
  Status take_user(const wire::ShardsWritten& report);
  Status check_same_pieces(const Reported& reported, Rank rank) const;

  const AttemptId id_;
  AttemptMachine state_{AttemptState::reading_decision};
  AttemptMachine::Counts& counts_;
  const TimeNs begun_;
  TimeNs last_news_;
  uint64_t news_ = 0;
  base::PagedMap<NodeId, uint64_t> progress_;  // the greatest amount that each node sent
  std::shared_ptr<ExpectedPlans> roster_;
  std::optional<std::pair<bool, std::string>> follows_planner_;  // and the first host that stated it
  std::optional<std::pair<Rank, UserMetadataPtr>> user_;         // and the first rank that stated it
  base::PagedMap<Rank, Reported> reported_;
  ReplicaComparison replicas_;
  base::PagedMap<Rank, Waiting> waiting_;  // not all have staged (collective)
  std::map<LayoutId, uint32_t> waiting_layouts_;
  EarlyReports early_;
};

}  // namespace shoal::actors
