// Seeds: coordinators and nodes die, pause, resume and are cut off at random moments while a job saves. After
// the failures end, every save has one decision, and every rank that received one received that one.
#include <gtest/gtest.h>

#include <random>

#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::sim {
namespace {

constexpr uint32_t kEpochHosts = 3, kEpochRanks = 6;
constexpr uint64_t kSteps = 6;

class Story {
 public:
  explicit Story(uint64_t seed) : random_(seed) {
    layouts_ = pipeline_job(kEpochRanks, 1, 2);
    coordinators_.push_back(host_.add_node(config("c0"), true));
    for (uint32_t host = 0; host < kEpochHosts; ++host) {
      actors::NodeConfig here = config(std::string("host") + std::to_string(host));
      here.expected_ranks = {2 * host, 2 * host + 1};
      hosts_.push_back(host_.add_node(here, false));
    }
    for (Rank rank = 0; rank < kEpochRanks; ++rank) {
      trainers_.push_back(
          std::make_unique<VirtualTrainer>(host_, hosts_[rank / 2], rank, kEpochRanks, layouts_[rank]));
    }
  }

  void run() {
    for (auto& trainer : trainers_) {
      if (draw(10) != 0) trainer->declare();  // else it stages what it holds and says so later
    }
    for (uint64_t step = 1; step <= kSteps; ++step) {
      for (auto& trainer : trainers_) {
        host_.run_for(static_cast<actors::TimeNs>(draw(draw(4) == 0 ? 400 : 2)) * actors::kMillisecond);
        if (draw(8) == 0) inject_failure();
        trainer->listen();
        if (step == 1) trainer->declare();
        trainer->save(step);
      }
      host_.run_for(static_cast<actors::TimeNs>(draw(3'000'000)));
      inject_failure();
      pass(draw(3'000));
    }
    // The failures are over.
    for (size_t node = 0; node <= last_node(); ++node) {
      host_.pause(node, false);
      host_.cut(node, false);
    }
    if (draw(2) == 0) coordinators_.push_back(host_.add_node(config("last"), true));
    pass(100'000);
  }

  std::string check() {
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const AttemptKey key{1, step, 1};
      auto decision = storage::read_decision(host_.storage(), key);
      for (Rank rank = 0; rank < kEpochRanks; ++rank) {
        const bool lives = host_.alive(hosts_[rank / 2]);
        auto notified = trainers_[rank]->decided().find({step, 1});
        const std::string who =
            std::string("rank ") + std::to_string(rank) + ", step " + std::to_string(step);
        if (notified == trainers_[rank]->decided().end()) {
          if (lives) return who + " was told nothing";
          continue;
        }
        if (!decision.ok()) return who + " was told of a decision that is not there";
        if (notified->second.outcome.ok() != decision->committed()) {
          return who + " was told: " + notified->second.outcome.to_string();
        }
        committed_ += decision->committed() ? 1 : 0;
      }
    }
    size_t active = 0;
    for (size_t node : coordinators_) active += host_.alive(node) && !host_.retired(node) ? 1 : 0;
    return active <= 1 ? "" : std::to_string(active) + " coordinators are active";
  }
  size_t committed() const { return committed_; }
  const std::vector<std::string>& transcript() const { return host_.transcript(); }

 private:
  static actors::NodeConfig config(const std::string& host) {
    actors::NodeConfig config;
    config.generation = 1;
    config.job_id = "job-1";
    config.host = host;
    config.timeouts.attempt_deadline_ms = 8'000;
    config.timeouts.node_deadline_ms = 20'000;
    config.timeouts.resend_most_ms = 2'000;
    config.timeouts.epoch_check_ms = 1'000;
    return config;
  }
  uint64_t draw(uint64_t below) { return random_() % below; }
  size_t last_node() const { return std::max(hosts_.back(), coordinators_.back()); }

  void pass(uint64_t duration_ms) {
    for (uint64_t passed = 0; passed < duration_ms; passed += 50) {
      host_.run_for(50 * actors::kMillisecond);
      for (auto& trainer : trainers_) trainer->listen();
    }
  }

  void inject_failure() {
    const size_t coordinator = coordinators_[draw(coordinators_.size())];
    const size_t node = draw(2) == 0 ? coordinator : hosts_[draw(hosts_.size())];
    switch (draw(8)) {
      case 0:
        return host_.pause(node, true);
      case 1:
        return host_.pause(node, false);
      case 2:
        return host_.cut(node, true);
      case 3:
        return host_.cut(node, false);
      case 4:
        return host_.kill_node(coordinator);
      case 5:
        if (draw(6) == 0) host_.kill_node(hosts_[draw(hosts_.size())]);
        return;
      case 6:  // beside the one before, whether that lives or not
        if (coordinators_.size() < 6) {
          coordinators_.push_back(
              host_.add_node(config(std::string("c") + std::to_string(coordinators_.size())), true));
        }
        return;
      default:
        return;
    }
  }

  std::mt19937_64 random_;
  VirtualHost host_;
  std::vector<LayoutPtr> layouts_;
  std::vector<size_t> coordinators_, hosts_;
  std::vector<std::unique_ptr<VirtualTrainer>> trainers_;
  size_t committed_ = 0;
};

TEST(CoordinatorsComingAndGoing, GiveEverySaveOneDecisionThatAllAreTold) {
  size_t committed = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Story story(seed);
    story.run();
    EXPECT_EQ(story.check(), "") << "seed " << seed;
    committed += story.committed();
  }
  EXPECT_GT(committed, 100u);  // else the stories say nothing
}

TEST(CoordinatorsComingAndGoing, GiveTheSameStoryForTheSameSeed) {
  Story one(7), other(7);
  one.run();
  other.run();
  EXPECT_EQ(one.transcript(), other.transcript());
}

}  // namespace
}  // namespace shoal::sim
