#include "sim/cluster/run_start.h"

#include <algorithm>
#include <utility>

#include "actors/node/bootstrap.h"
#include "actors/node/links/peer_links.h"

namespace shoal::sim {

namespace {

using StepKind = StorageStep::Kind;

constexpr uint64_t kClaimBytes = 256;
constexpr uint64_t kHandshakeBytes = 256;    // of each message: an identity, a nonce, a proof
constexpr uint32_t kHandshakeMessages = 4;   // hello, challenge, proof, welcome: transport/handshake.h
constexpr uint64_t kFilesOfAGeneration = 3;  // its claim, its roster, its load choice
constexpr uint64_t kChangesOfMultipart = 4;  // check_rules of an object store
constexpr uint64_t kNamesInARoot = 6;        // besides folders of steps
constexpr uint32_t kMostDoublings = 16;

}  // namespace

RunStart::RunStart(EventHeap& events, StorageModel& storage, NetworkModel& network, const RelayModel& relays,
                   const Costs& costs, const Job& job)
    : events_(events),
      storage_(storage),
      network_(network),
      relays_(relays),
      costs_(costs),
      job_(job),
      thread_free_(job.nodes) {}

void RunStart::begin(std::function<void()> claimed, std::function<void()> connected) {
  claimed_ = std::move(claimed);
  connected_ = std::move(connected);
  for (size_t node = 0; node < job_.nodes; ++node) open_root(node);
}

void RunStart::run(size_t node, StorageSteps steps, std::function<void()> then) {
  storage_.run(node, 0, std::move(steps), [this, then = std::move(then)] {
    if (!has_stopped_) then();
  });
}

void RunStart::add_create(StorageSteps& steps) const {
  if (costs_.storage.is_objects) {
    steps.insert(steps.end(), {{StepKind::write, kClaimBytes}, {StepKind::change, 1}});
    return;
  }
  steps.insert(steps.end(), {{StepKind::change, 1},
                             {StepKind::write, kClaimBytes},
                             {StepKind::sync, 1},
                             {StepKind::change, 1},
                             {StepKind::change, 1},
                             {StepKind::sync, 1}});
}

// One after the other.
void RunStart::add_read(StorageSteps& steps, uint64_t records) const {
  if (records == 0) return;
  steps.push_back({StepKind::look, records});
  steps.push_back({StepKind::read, records * kClaimBytes});
}

// open_root and probe_storage: the probe's file is created in a folder of its own, read, refused once, and
// then listed.
void RunStart::open_root(size_t node) {
  StorageSteps steps;
  add_read(steps, 1);
  if (!costs_.storage.is_objects) steps.push_back({StepKind::sync, 1});
  add_create(steps);
  run(node, std::move(steps), [this, node] {
    StorageSteps proof;
    if (!costs_.storage.is_objects) proof.push_back({StepKind::change, 1});  // its folder
    add_read(proof, 1);
    add_create(proof);
    run(node, std::move(proof), [this, node] {
      StorageSteps last{{StepKind::list, 1}};
      if (costs_.storage.is_objects) last.push_back({StepKind::change, kChangesOfMultipart});
      last.push_back({StepKind::change, costs_.storage.is_objects ? uint64_t{1} : uint64_t{2}});
      run(node, std::move(last), [this, node] { node == 0 ? claim() : connect(node, 0); });
    });
  });
}

// check_no_other_run, claim_generation and claim_next_epoch.
void RunStart::claim() {
  const uint64_t earlier = job_.generation - 1;
  StorageSteps steps{{StepKind::list, job_.epochs}};
  add_read(steps, 1);
  const actors::TimeNs late = actors::TimeNs{actors::kProbeCoordinatorTimeoutMs} * actors::kMillisecond;
  const actors::TimeNs probing = job_.answers_late ? late : 2 * costs_.network.latency_ns;
  steps.push_back({StepKind::wait, static_cast<uint64_t>(probing)});
  for (int look = 0; look < 2; ++look) {  // generations_last reads the claims again
    steps.push_back({StepKind::list, earlier * kFilesOfAGeneration});
    add_read(steps, earlier);
    if (!costs_.storage.is_objects) steps.push_back({StepKind::sync, 1});
  }
  steps.push_back({StepKind::list, job_.attempts + kNamesInARoot});
  for (size_t i = 0; i < job_.attempts && !costs_.storage.is_objects; ++i)
    steps.push_back({StepKind::list, 1});
  add_create(steps);
  for (int look = 0; look < 2; ++look) {
    steps.push_back({StepKind::list, job_.epochs});
    add_read(steps, 1);
  }
  add_create(steps);
  run(0, std::move(steps), [this] {
    serves_ = true;
    claimed_();
    join();
  });
}

void RunStart::connect(size_t node, uint32_t failures) {
  const auto try_now = [this, node, failures] {
    if (has_stopped_) return;
    if (serves_) {
      return shake_hands(node, 0, 0, [this, node] {
        const size_t relay = relays_.relay_of(node);
        const auto read_generation = [this, node] {
          StorageSteps steps;
          add_read(steps, 1);
          run(node, std::move(steps), [this] { join(); });
        };
        relay == 0 ? read_generation() : shake_hands(node, relay, 0, read_generation);
      });
    }
    const uint64_t wait_ms = std::min<uint64_t>(
        uint64_t{actors::kReconnectFirstMs} << std::min(failures, kMostDoublings), actors::kReconnectMostMs);
    events_.schedule(events_.now() + static_cast<actors::TimeNs>(wait_ms) * actors::kMillisecond,
                     [this, node, failures] {
                       if (!has_stopped_) connect(node, failures + 1);
                     });
  };
  events_.schedule(events_.now() + 2 * costs_.network.latency_ns, try_now);  // the connection of the kernel
}

// The thread of the transport takes one message after the other.
void RunStart::shake_hands(size_t node, size_t with, uint32_t message, std::function<void()> done) {
  if (message == kHandshakeMessages) return done();
  const size_t from = message % 2 == 0 ? node : with, to = message % 2 == 0 ? with : node;
  network_.send(from, to, kHandshakeBytes, [this, node, with, to, message, done = std::move(done)]() mutable {
    thread_free_[to] = std::max(events_.now(), thread_free_[to]) + 2 * costs_.cpu.message_ns;
    events_.schedule(thread_free_[to], [this, node, with, message, done = std::move(done)]() mutable {
      if (!has_stopped_) shake_hands(node, with, message + 1, std::move(done));
    });
  });
}

void RunStart::join() {
  if (++joined_ == job_.nodes) connected_();
}

}  // namespace shoal::sim
