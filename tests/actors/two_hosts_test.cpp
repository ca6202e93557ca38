// The same roles run under the CAF host and under the direct engine on virtual time. The same scenario gives
// the same protocol.
#include <gtest/gtest.h>

#include <map>

#include "actors/caf/caf_host.h"
#include "tests/sim/support/job_layouts.h"
#include "tests/sim/support/patience.h"
#include "tests/sim/support/virtual_trainer.h"

namespace shoal::actors {
namespace {

using sim::kPatience;

// The CAF host of one node, on CAF's deterministic scheduler, in the virtual world.
class CafEngine final : public sim::NodeEngine, public HostServices, public VirtualTime {
 public:
  CafEngine(sim::VirtualWorld& world, std::vector<std::unique_ptr<Role>> roles, bool coordinates)
      : world_(world) {
    CafHostOptions options;
    options.coordinator_is_here = coordinates;
    options.virtual_time = this;
    host_ = std::make_unique<CafHost>(options, std::move(roles), *this);
  }
  void deliver(RoleKind role, Event event) override { host_->post(role, std::move(event)); }

 private:
  TimeNs now() override { return world_.now(); }
  void schedule(TimeNs at, std::function<void()> action) override { world_.schedule(at, std::move(action)); }
  void send(NodeId to, const WireMessage& message, SendId id) override { world_.send(to, message, id); }
  void end_session(NodeId node, const Status&) override { world_.end_session(node); }
  void send_to(const std::string& address, const WireMessage& message) override {
    world_.send_to(address, message);
  }
  void to_client(ClientId client, const std::shared_ptr<const local::LocalMessage>& message) override {
    world_.to_client(client, message);
  }
  void forget_client(ClientId client) override { world_.forget_client(client); }
  Result<OperationResult> run(const Operation& operation) override { return world_.run(operation); }
  void redirect(const effect::Redirect& to) override { world_.redirect(to); }
  void retired(const storage::EpochRecord& by) override { world_.retired(by); }
  void drained(RoleKind role) override { world_.drained(role); }
  void log(RoleKind, const effect::Log&) override {}

  sim::VirtualWorld& world_;
  std::unique_ptr<CafHost> host_;
};

std::unique_ptr<sim::NodeEngine> make_caf_engine(sim::VirtualWorld& world,
                                                 std::vector<std::unique_ptr<Role>> roles,
                                                 const sim::VirtualDelays&, bool coordinates) {
  return std::make_unique<CafEngine>(world, std::move(roles), coordinates);
}

// What passed from each sender to each receiver, in order: the order between different pairs is the hosts'
// own.
using Channels = std::map<std::string, std::vector<std::string>>;

Channels channels_of(const std::vector<std::string>& transcript) {
  Channels channels;
  for (const std::string& line : transcript) {
    const size_t colon = line.find(": ");
    channels[line.substr(0, colon)].push_back(line.substr(colon + 2));
  }
  return channels;
}

// Saves before and after the roster is known, overlapping saves, an abort, a load in another generation.
Channels run_scenario(sim::NodeEngineFactory engines) {
  sim::VirtualDelays delays;
  delays.local_ns = 0;
  delays.operation_ns = 0;
  sim::VirtualHost host(delays, std::move(engines));
  NodeConfig config;
  config.generation = config.epoch = 1;
  sim::VirtualJob job = sim::VirtualJob::start(host, config, 4, 64, sim::pipeline_job(64, 2, 4));
  for (auto& trainer : job.trainers) trainer->declare();
  for (auto& trainer : job.trainers) trainer->save(1);
  job.run(kPatience);
  for (uint64_t step : {2, 3}) {
    for (auto& trainer : job.trainers) trainer->save(step);
  }
  job.run(kPatience);
  for (Rank rank = 0; rank < 64; ++rank) {
    if (rank != 17) job.trainers[rank]->save(4);
  }
  job.trainers[17]->end();
  job.run(kPatience);
  EXPECT_TRUE(job.trainers[0]->decided().at({3, 1}).outcome.ok());
  EXPECT_EQ(job.trainers[0]->decided().at({4, 1}).outcome.code(), Code::aborted);
  config.generation = config.epoch = 2;
  sim::VirtualJob next = sim::VirtualJob::start(host, config, 2, 5, sim::flat_job(5));
  for (auto& trainer : next.trainers) trainer->load(std::nullopt);
  next.run(kPatience);
  for (auto& trainer : next.trainers) EXPECT_EQ(trainer->check_loaded(3), "");
  return channels_of(host.transcript());
}

TEST(TheCafHost, CarriesTheSameProtocolAsTheDirectEngine) {
  const Channels direct = run_scenario(sim::make_direct_engine);
  const Channels caf = run_scenario(make_caf_engine);
  EXPECT_GT(direct.size(), 64u);
  ASSERT_EQ(direct.size(), caf.size());
  for (const auto& [channel, messages] : direct) {
    auto same = caf.find(channel);
    ASSERT_NE(same, caf.end()) << channel;
    EXPECT_EQ(messages, same->second) << channel;
  }
}

TEST(TheCafHost, GivesTheSameTranscriptEveryTime) {
  EXPECT_EQ(run_scenario(make_caf_engine), run_scenario(make_caf_engine));
}

}  // namespace
}  // namespace shoal::actors
