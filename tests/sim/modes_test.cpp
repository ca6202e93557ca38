// The three modes of a save beside each other: whatever a job holds, they make checkpoints of the same values
// that load alike. And what each says, as docs/protocol.md shows it.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "storage/run_root.h"
#include "tests/sim/job_layouts.h"
#include "tests/sim/sixteen_ranks.h"

namespace shoal {
namespace {

constexpr TimeNs kPatience = 1000 * kMillisecond;
constexpr SaveMode kModes[] = {SaveMode::collective_free, SaveMode::rank_local, SaveMode::collective};

SaveOptions in_small_units(SaveMode mode) {
  SaveOptions options = in_mode(mode);
  options.unit_bytes = 1024;
  return options;
}

// Saves steps 1 and 2 of the job, and gives what all ranks were told of the second.
void save_twice(VirtualHost& host, SaveMode mode, uint32_t nodes, const std::vector<LayoutPtr>& layouts,
                Metadata* metadata) {
  const auto ranks = static_cast<uint32_t>(layouts.size());
  VirtualJob job = VirtualJob::start(host, facts_of(1), nodes, ranks, layouts);
  for (auto& trainer : job.trainers) trainer->declare(in_small_units(mode));
  for (uint64_t step : {1, 2}) {
    for (auto& trainer : job.trainers) trainer->save(step);
    job.run(kPatience);
  }
  for (Rank rank = 0; rank < ranks; ++rank) {
    const auto& decided = job.trainers[rank]->decided();
    ASSERT_TRUE(decided.contains({2, 1})) << "rank " << rank;
    ASSERT_TRUE(decided.at({2, 1}).outcome.ok()) << decided.at({2, 1}).outcome.to_string();
  }
  *metadata = *job.trainers[0]->decided().at({2, 1}).checkpoint;
  for (size_t node = 0; node < nodes; ++node) host.kill_node(node);
}

void expect_loads(VirtualHost& host, const std::vector<LayoutPtr>& readers) {
  VirtualJob next = VirtualJob::start(host, facts_of(2), 1, static_cast<uint32_t>(readers.size()), readers);
  for (auto& trainer : next.trainers) trainer->load(2);
  host.run_for(20'000 * kMillisecond);
  next.run(kPatience);
  for (auto& trainer : next.trainers) {
    ASSERT_TRUE(trainer->found().has_value());
    ASSERT_TRUE(trainer->found()->outcome.ok()) << trainer->found()->outcome.to_string();
    EXPECT_EQ(trainer->check_loaded(2), "");
  }
}

TEST(Modes, SaveTheSameValuesAndLoadThemBitForBitWhateverAJobHolds) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 40; ++i) {
    const auto ranks = static_cast<uint32_t>(1 + random() % 8);
    const auto nodes = static_cast<uint32_t>(1 + random() % std::min<uint32_t>(ranks, 3));
    const std::vector<LayoutPtr> layouts = drawn_job(random, ranks);
    const auto readers = static_cast<uint32_t>(1 + random() % 5);
    std::vector<LayoutPtr> wanted;
    std::vector<Metadata> metadata;
    for (SaveMode mode : kModes) {
      SCOPED_TRACE("job " + std::to_string(i) + ", " + std::string(mode_name(mode)));
      VirtualHost host;
      metadata.emplace_back();
      save_twice(host, mode, nodes, layouts, &metadata.back());
      if (HasFatalFailure()) return;
      if (wanted.empty()) wanted = drawn_job_of(random, metadata.front().state_dict_metadata, readers);
      expect_loads(host, wanted);
      if (HasFailure()) return;
      const auto& one = metadata.front().state_dict_metadata;
      const auto& other = metadata.back().state_dict_metadata;
      ASSERT_EQ(one.size(), other.size());
      for (size_t v = 0; v < one.size(); ++v) {
        EXPECT_EQ(one[v].fqn, other[v].fqn);
        EXPECT_EQ(one[v].kind, other[v].kind);
        EXPECT_EQ(one[v].dtype, other[v].dtype);
        EXPECT_EQ(one[v].shape, other[v].shape);
      }
    }
    // Alike in what is written, too, where copies are divided alike.
    EXPECT_EQ(metadata[0].payload_bytes, metadata[2].payload_bytes) << "job " << i;
  }
}

// --- the transcripts of docs/protocol.md ---

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
  if (mode != SaveMode::collective) job.run(kPatience);
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
    const std::string said = transcript_of(mode);
    const Shown shown = find_shown(page, mode);
    ASSERT_NE(shown.begin, 0u) << "no transcript of this mode in " << SHOAL_PROTOCOL_DOCS;
    if (std::getenv("SHOAL_UPDATE_GOLDEN") != nullptr) {
      page.replace(shown.begin, shown.end - shown.begin, said);
    } else {
      EXPECT_EQ(page.substr(shown.begin, shown.end - shown.begin), said)
          << "SHOAL_UPDATE_GOLDEN=1 writes what is said into the page";
    }
  }
  if (std::getenv("SHOAL_UPDATE_GOLDEN") != nullptr) std::ofstream(SHOAL_PROTOCOL_DOCS) << page;
}

}  // namespace
}  // namespace shoal
