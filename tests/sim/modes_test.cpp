// The messages of the three modes of a save, as docs/reference/protocol.md shows them. reshard_seeds_test.cpp
// shows that the modes make checkpoints of the same values.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/sim/simulated.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/sixteen_ranks.h"

namespace shoal::sim {
namespace {

class EachMode : public SixteenRanks, public ::testing::WithParamInterface<SaveMode> {
 protected:
  EachMode() : SixteenRanks(GetParam()) {}
};

// Regression: the second rank that found the next node of its host was informed that the save is committed.
TEST_P(EachMode, RanksThatReturnOneAfterTheOtherHearThatTheirSaveIsAborted) {
  host_.run_for(5'000 * actors::kMillisecond);
  job_.run(kPatience);
  if (GetParam() == SaveMode::collective) {  // all ranks receive their plans, and one stages nothing
    job_.trainers[kRanks - 1]->only_ask(true);
    save_all(1);
  } else {
    for (Rank rank = 0; rank < kRanks - 1; ++rank) job_.trainers[rank]->save(1);
  }
  job_.run(kPatience);
  host_.kill_node(2);
  job_.trainers[kRanks - 1]->refuse(1, Status(Code::internal, "its planner failed"));
  host_.run_for(2'000 * actors::kMillisecond);
  job_.run(1);
  replace_node(2, false);
  host_.run_for(5'000 * actors::kMillisecond);
  job_.run(1);
  expect_aborted(1, {8, 9, 10, 11}, "its planner failed");
}

INSTANTIATE_TEST_SUITE_P(Mode, EachMode, ::testing::ValuesIn(kModes), [](const auto& mode) {
  return mode.param == SaveMode::collective   ? "Collective"
         : mode.param == SaveMode::rank_local ? "RankLocal"
                                              : "CollectiveFree";
});

// --- the transcripts of docs/reference/protocol.md ---

// Two hosts of two ranks each: the first save, and, from "---" on, the second.
std::string transcript_of(SaveMode mode) {
  VirtualHost host;
  VirtualJob job = VirtualJob::start(host, facts_of(1), 2, 4, pipeline_job(4, 1, 2));
  std::string text;
  size_t shown = 0;
  auto show = [&] {
    for (; shown < host.transcript().size(); ++shown) text += host.transcript()[shown] + "\n";
  };
  for (auto& trainer : job.trainers) trainer->declare(in_small_units(mode));
  host.run_for(10'000 * actors::kMillisecond);  // each node has reported its ranks
  job.run(kPatience);
  for (uint64_t step : {1, 2}) {
    if (step == 2) text += "---\n";
    for (auto& trainer : job.trainers) trainer->save(step);
    job.run(kPatience);
    show();
  }
  return text;
}

// The text between the fences after "<!-- transcript: MODE -->".
struct Shown {
  size_t begin = 0, end = 0;
};
Shown find_shown(const std::string& page, SaveMode mode) {
  const std::string mark = "<!-- transcript: " + std::string(mode_name(mode)) + " -->\n```\n";
  const size_t at = page.find(mark);
  if (at == std::string::npos) return {};
  return {at + mark.size(), page.find("```", at + mark.size())};
}

TEST(Modes, SayWhatTheProtocolPageShows) {
  std::ostringstream read;
  read << std::ifstream(SHOAL_PROTOCOL_DOCS).rdbuf();
  std::string page = read.str();
  for (SaveMode mode : kModes) {
    SCOPED_TRACE(mode_name(mode));
    const std::string message = transcript_of(mode);
    const Shown shown = find_shown(page, mode);
    ASSERT_NE(shown.begin, 0u) << "no transcript of this mode in " << SHOAL_PROTOCOL_DOCS;
    if (std::getenv("SHOAL_UPDATE_GOLDEN") != nullptr) {
      page.replace(shown.begin, shown.end - shown.begin, message);
    } else {
      EXPECT_EQ(page.substr(shown.begin, shown.end - shown.begin), message)
          << "SHOAL_UPDATE_GOLDEN=1 writes what is said into the page";
    }
  }
  if (std::getenv("SHOAL_UPDATE_GOLDEN") != nullptr) std::ofstream(SHOAL_PROTOCOL_DOCS) << page;
}

}  // namespace
}  // namespace shoal::sim
