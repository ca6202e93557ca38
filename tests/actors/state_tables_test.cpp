// docs/reference/states.md shows the tables by which the roles and the transport change their states.
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "actors/coordinator/attempt.h"
#include "actors/coordinator/load_gathering.h"
#include "actors/coordinator/plan_gather.h"
#include "actors/coordinator/retention_duty.h"
#include "actors/coordinator/term.h"
#include "actors/loader/load.h"
#include "actors/loader/round.h"
#include "actors/loader/sharing/chunk_state.h"
#include "actors/planner/joining.h"
#include "actors/shard_writer/node_drain.h"
#include "actors/shard_writer/node_save.h"
#include "actors/shard_writer/rank_save.h"
#include "base/state_machine.h"
#include "transport/live/peer_states.h"
#include "transport/session_state.h"

namespace shoal::actors {
namespace {

// Fails with the text that the page should hold, to be copied.
template <class Table>
void expect_on_page(const std::string& heading, const Table& table) {
  std::ifstream file(SHOAL_SOURCE_FOLDER "/docs/reference/states.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  const size_t section = page.find("\n## " + heading + "\n");
  ASSERT_NE(section, std::string::npos) << "docs/reference/states.md has no section: " << heading;
  const size_t next = page.find("\n## ", section + 1);
  const std::string body = page.substr(section, next == std::string::npos ? next : next - section);
  EXPECT_NE(body.find("\n" + base::transitions_as_markdown(table)), std::string::npos)
      << "docs/reference/states.md, " << heading << ": write the table again:\n"
      << base::transitions_as_markdown(table);
}

TEST(StateTables, AreThoseOfThePage) {
  // One line a table: its heading on the page, and the table.
  expect_on_page("Attempt (Coordinator)", kAttemptTransitions);
  expect_on_page("Plan gather (Coordinator)", kPlanGatherTransitions);
  expect_on_page("Term (Coordinator)", kTermTransitions);
  expect_on_page("First roster (Coordinator)", kFirstRosterTransitions);
  expect_on_page("Shutdown (Coordinator)", kShutdownTransitions);
  expect_on_page("Save of a rank (ShardWriter)", kRankSaveTransitions);
  expect_on_page("Save of a node (ShardWriter)", kNodeSaveTransitions);
  expect_on_page("Plan gather at a node (ShardWriter)", kLocalGatherTransitions);
  expect_on_page("Drain (ShardWriter)", kNodeDrainTransitions);
  expect_on_page("Load (Loader)", kLoadTransitions);
  expect_on_page("Round (Loader)", kRoundTransitions);
  expect_on_page("Chunk (Loader)", kChunkTransitions);
  expect_on_page("Storage trial (Loader)", kTrialTransitions);
  expect_on_page("Load gathering (Coordinator)", kGatheringTransitions);
  expect_on_page("Retention (Coordinator)", kRetentionTransitions);
  expect_on_page("Joining (Planner)", kJoiningTransitions);
  expect_on_page("Session (transport)", transport::kSessionTransitions);
  expect_on_page("Peer (transport)", transport::kPeerTransitions);
  expect_on_page("Path (transport)", transport::kPathTransitions);
}

}  // namespace
}  // namespace shoal::actors
