#include "actors/node/bootstrap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/host_port.h"
#include "storage/root/run_root.h"
#include "transport/live/make_transport.h"

namespace shoal::actors {

namespace {

// Commands that only read need no node.
constexpr const char* kWhyNodesWrite =
    "; a node writes to its root even if the job only loads: it must be able to create files in the root's "
    "folders probes, epochs, generations and pins (with --read-only, only in readers and pins; `shoal ls`, "
    "`show` and `verify` only read)";

constexpr const char* kWhyNodesWriteToBuckets =
    "; a node writes to its root even if the job only loads: its credentials need the rights s3:ListBucket, "
    "s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload there";

constexpr const char* kWhyNoNewRoot =
    "; a node that continues a run does not create a root: check that the storage is mounted";

// The generation that a probe states: the coordinator of any run rejects it.
constexpr uint32_t kNoRunsGeneration = ~uint32_t{0};

// Waits for the outcome of one connection.
class Probe final : public transport::TransportHandler {
 public:
  void on_peer_up(transport::PeerId, const transport::Identity&) override { end(ok_status()); }
  void on_message(transport::PeerId, Bytes) override {}
  void on_peer_lost(transport::PeerId, const Status& why) override { end(why); }

  // OK: the peer accepted the session. Code::deadline_exceeded: no answer in time.
  Status wait(uint32_t timeout_ms) {
    std::unique_lock lock(mutex_);
    bool ended =
        changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return has_ended_; });
    return ended ? status_ : Status(Code::deadline_exceeded, "no answer");
  }

 private:
  void end(const Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (!has_ended_) status_ = status;
      has_ended_ = true;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_ = false;
  Status status_;
};

}  // namespace

std::string own_host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

// The storage of a root, behind a CallWatch that reports slow calls.
Result<OpenedRoot> watched_root(const std::string& root, const Nonce& process, storage::CallWatch::Log log) {
  OpenedRoot out;
  out.watch = std::make_unique<storage::CallWatch>(base::steady_now_ns, std::move(log));
  out.watch->start();
  SHOAL_ASSIGN_OR_RETURN(out.opened, storage::open_storage(root, process, out.watch.get()));
  return out;
}

Result<OpenedRoot> open_root_to_read(const std::string& root, const Nonce& process,
                                     storage::CallWatch::Log log) {
  SHOAL_ASSIGN_OR_RETURN(OpenedRoot opened, watched_root(root, process, std::move(log)));
  SHOAL_ASSIGN_OR_RETURN(opened.root_id, storage::open_root(opened.storage(), false, Nonce{}));
  return opened;
}

Result<storage::ReaderRecord> take_reader(storage::Storage& storage, const transport::Identity& self,
                                          std::optional<uint32_t> rejoin) {
  const int64_t now = base::unix_now_ns();
  auto reader = rejoin ? storage::rejoin_reader(storage, *rejoin, self.job_id, self.incarnation, now)
                       : storage::claim_reader(storage, self.job_id, self.incarnation, now);
  const Code code = reader.status().code();
  if (reader.ok() || (code != Code::refused && code != Code::io)) return reader;
  return reader.status().with_context(
      "a job that only reads must be able to create files in the root's folders readers and pins");
}

namespace {

// After the probe of a root was refused. A store that breaks a rule says so itself.
const char* what_a_node_needs(const storage::Storage& storage, const Status& probed) {
  if (storage.has_files()) return kWhyNodesWrite;
  return probed.message().find("cannot hold checkpoints") == std::string::npos ? kWhyNodesWriteToBuckets : "";
}

}  // namespace

Result<OpenedRoot> open_node_root(const std::string& root, const Nonce& process, bool may_create,
                                  storage::CallWatch::Log log) {
  SHOAL_ASSIGN_OR_RETURN(OpenedRoot opened, watched_root(root, process, std::move(log)));
  auto root_id = storage::open_root(opened.storage(), may_create, random_128());
  if (!may_create && root_id.status().code() == Code::not_found) {
    return Status(Code::not_found, root_id.status().message() + kWhyNoNewRoot);
  }
  SHOAL_ASSIGN_OR_RETURN(opened.root_id, std::move(root_id));
  Status probed = storage::probe_storage(opened.storage(), random_128());
  if (probed.code() == Code::refused) {
    return Status(Code::refused, probed.message() + what_a_node_needs(opened.storage(), probed));
  }
  SHOAL_RETURN_IF_ERROR(probed);
  return opened;
}

Status check_no_other_run(storage::Storage& storage, const transport::Identity& self, const Bytes& token,
                          std::optional<uint32_t> rejoin) {
  SHOAL_ASSIGN_OR_RETURN(auto last, storage::highest_epoch(storage));
  if (!last || !base::parse_host_port(last->address).ok()) return ok_status();
  if (rejoin && storage::is_of_run(*last, self.job_id, *rejoin)) return ok_status();
  transport::TransportOptions options;
  options.identity = self;
  options.identity.incarnation = random_128();
  options.identity.generation = kNoRunsGeneration;
  options.token = token;
  Probe probe;
  auto transport = transport::make_transport(std::move(options));
  SHOAL_RETURN_IF_ERROR(transport->start(probe));
  transport->connect(last->address);
  Status answer = probe.wait(kProbeCoordinatorTimeoutMs);
  transport->stop(0);
  // A peer that rejects the probe is a node. If its root differs, the address is no longer that of our
  // coordinator.
  bool is_node = answer.code() == Code::refused || answer.code() == Code::version;
  if (!is_node || answer.message().find("roots differ") != std::string::npos) return ok_status();
  return Status(Code::refused, fmt::format("{}job '{}' is running on {}: its coordinator (epoch {}) answers "
                                           "at {}; use --take-over to take the root from it",
                                           last->job_id == self.job_id ? "an earlier run of " : "",
                                           last->job_id, storage.describe(), last->epoch, last->address));
}

Result<uint32_t> claim_next_epoch(storage::Storage& storage, const std::string& address,
                                  const transport::Identity& self) {
  SHOAL_ASSIGN_OR_RETURN(auto last, storage::highest_epoch(storage));
  storage::EpochRecord record{last ? last->epoch : 0, address, self.job_id, self.incarnation,
                              self.generation};
  for (int i = 0; i < kMaxEpochClaims; ++i) {
    ++record.epoch;
    SHOAL_ASSIGN_OR_RETURN(bool is_ours, storage::claim_epoch(storage, record));
    if (is_ours) return record.epoch;
  }
  return Status(Code::busy,
                fmt::format("{}: other nodes claimed {} epochs in the meantime; start this node again",
                            storage.describe(), kMaxEpochClaims));
}

}  // namespace shoal::actors
