#include "sim/cluster/checkpoint_reads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/digest/digest.h"
#include "base/visit.h"
#include "sim/basics/integer_math.h"
#include "sim/cluster/counted_loads.h"
#include "sim/cluster/stored_payload.h"

namespace shoal::sim {

namespace {

constexpr uint32_t kFirstRequest = uint32_t{1} << 20;  // CountedLoads has the ids before it
constexpr actors::TimeNs kLongestReadNs = 180'000 * actors::kMillisecond;
// A load of the latest first waits until all newer attempts are decided.
constexpr actors::TimeNs kLongestChoiceNs = 420'000 * actors::kMillisecond;
constexpr actors::TimeNs kCheckEveryNs = 1'000 * actors::kMillisecond;
constexpr actors::TimeNs kLeastSpreadNs = 50 * actors::kMillisecond;
constexpr uint32_t kUnreadPermille = 50;  // of the ranges that a trainer cannot read itself

// The reasons that a failure of a disk, a link or a node can give.
bool is_of_failures(Code code) {
  constexpr std::array kCodes = {Code::io,      Code::no_space,          Code::unavailable,
                                 Code::aborted, Code::deadline_exceeded, Code::busy};
  return std::ranges::find(kCodes, code) != kCodes.end();
}

}  // namespace

CheckpointReads::CheckpointReads(EventHeap& events, VirtualCluster& cluster, CountedTrainers& trainers,
                                 Job job)
    : events_(events),
      cluster_(cluster),
      trainers_(trainers),
      job_(std::move(job)),
      random_(stream_seed(job_.seed, Stream::reads)),
      last_request_(kFirstRequest) {}

void CheckpointReads::violated(std::string oracle, std::string what) {
  if (!violation_ && !is_stopped_) violation_ = {std::move(oracle), events_.now(), std::move(what)};
}

bool CheckpointReads::is_served(Rank rank) const {
  return trainers_.alive(rank) && trainers_.is_attached(rank) && cluster_.serves(node_of(rank));
}

bool CheckpointReads::is_committed(const AttemptKey& key) const {
  const auto decision = cluster_.root().decision(key);
  return (decision && decision->committed()) || cluster_.counted_root().is_complete_set(key);
}

void CheckpointReads::stop() {
  is_stopped_ = true;
  reads_.clear();
}

void CheckpointReads::forget(Rank rank) {
  if (reads_.erase(rank) != 0) trainers_.end_read(rank);
}

void CheckpointReads::forget_unserved() {
  std::vector<Rank> unserved;
  for (const auto& [rank, read] : reads_) {
    if (!is_served(rank)) unserved.push_back(rank);
  }
  for (Rank rank : unserved) forget(rank);
}

bool CheckpointReads::done() {
  forget_unserved();
  return reads_.empty();
}

const std::optional<Violation>& CheckpointReads::check(actors::TimeNs now) {
  if (reads_.empty() || now < next_check_) return violation_;
  next_check_ = now + kCheckEveryNs;
  forget_unserved();
  for (const auto& [rank, read] : reads_) {
    const actors::TimeNs most = read.kind == Kind::newest ? kLongestChoiceNs : kLongestReadNs;
    const actors::TimeNs due = std::max(read.asked, job_.failures_end) + most;
    if (now < due) continue;
    violated("read-ends-in-time",
             fmt::format("rank {} asked at {} ms, and has no answer yet", rank, read.asked / 1'000'000));
  }
  return violation_;
}

void CheckpointReads::save_begins() {
  const auto spread = static_cast<uint64_t>(2 * job_.interval_ns + kLeastSpreadNs);
  for (uint32_t i = 0; i < job_.reads; ++i) {
    const auto rank = static_cast<Rank>(random_.below(job_.ranks));
    events_.schedule(events_.now() + static_cast<actors::TimeNs>(random_.below(spread)),
                     [this, rank] { begin(rank); });
  }
}

// Mostly a checkpoint that exists.
uint64_t CheckpointReads::draw_step() {
  const std::vector<AttemptKey> all = cluster_.root().committed();
  if (all.empty() || random_.below(8) == 0) return 1 + random_.below(job_.saves);
  return all[random_.below(all.size())].step;
}

// Some values: mostly boxes that cross those of the ranks that saved.
local::LoadTargets CheckpointReads::draw_targets(Rank rank) {
  local::LoadTargets targets;
  const bool wants_most = random_.below(2) == 0;
  const LayoutPtr& layout = job_.layouts[random_.below(job_.layouts.size())];
  for (const LayoutEntry& entry : layout->entries()) {
    if (!wants_most && random_.below(4) != 0) continue;
    if (entry.kind == LayoutEntry::Kind::object || is_per_rank(entry)) continue;
    Box box{Dims(entry.shape.size()), entry.shape};
    for (size_t d = 0; d < entry.shape.size() && random_.below(2) == 0; ++d) {
      box.offsets[d] = random_.below(entry.shape[d]);
      box.sizes[d] = 1 + random_.below(entry.shape[d] - box.offsets[d]);
    }
    targets.push_back({value_fqn(entry, rank), entry.kind, entry.dtype, entry.shape, {std::move(box)}});
  }
  return targets;
}

void CheckpointReads::begin(Rank rank) {
  if (is_stopped_ || !is_served(rank) || reads_.contains(rank)) return;
  Read read;
  read.kind = static_cast<Kind>(random_.below(5));
  if (read.kind == Kind::list) {
    constexpr uint32_t kAll = 10'000;
    read.newest = random_.below(2) == 0 ? kAll : static_cast<uint32_t>(1 + random_.below(3));
  }
  if (read.kind == Kind::newest) {
    read.falls_back = random_.below(2) == 0;
    read.last_save = trainers_.last_save(rank);
  }
  // Before its first save, a load of the newest would wait for that save of the others.
  trainers_.begin_read(rank, read.last_save != 0 && trainers_.is_between_saves(rank));
  if (read.kind == Kind::step || read.kind == Kind::open) read.step = draw_step();
  if (read.kind != Kind::list && read.kind != Kind::latest) {
    read.targets = draw_targets(rank);
    read.reads_files = random_.below(2) == 0;
  }
  ++begun_;
  ask(rank, reads_[rank] = std::move(read));
}

void CheckpointReads::ask(Rank rank, Read& read) {
  read.request = ++last_request_;
  read.asked = events_.now();
  read.existed = cluster_.root().committed();
  read.found.reset();
  read.received.clear();
  const auto send = [&](local::LocalMessage message) {
    cluster_.from_client(node_of(rank), cluster_.client(rank), std::move(message));
  };
  switch (read.kind) {
    case Kind::list:
      return send(local::List{read.request, read.newest});
    case Kind::latest:
      return send(local::Latest{read.request});
    case Kind::step:
    case Kind::open:
    case Kind::newest:
      break;
  }
  local::Load load;
  load.request_id = read.request;
  load.latest = read.kind == Kind::newest;
  // A trainer that loads alone: no other rank makes the load of this ordinal.
  if (load.latest) load.ordinal = read.request | (read.falls_back ? kFallbackOrdinal : 0);
  load.step = load.latest ? read.last_save : read.step;
  load.attempt = load.latest && read.last_save != 0 ? 1 : 0;
  load.slab_id = kSimulatedWindowSlab;
  load.targets = read.targets;
  load.keeps_open = read.kind == Kind::open && read.opened == 0;
  load.of = read.opened;
  load.reads_files = read.reads_files;
  send(local::Slab{kSimulatedWindowSlab, actors::kMinWindowBytes});
  send(std::move(load));
}

void CheckpointReads::ask_again(Rank rank, uint32_t opened) {
  const auto found = reads_.find(rank);
  if (found == reads_.end() || found->second.opened != opened) return;
  if (!is_served(rank)) return forget(rank);
  found->second.targets = draw_targets(rank);
  ask(rank, found->second);
}

CheckpointReads::Read* CheckpointReads::find(actors::ClientId client, uint32_t request) {
  const auto found = reads_.find(rank_of(client));
  const bool is_it =
      found != reads_.end() && found->second.request == request && cluster_.client(found->first) == client;
  return is_it ? &found->second : nullptr;
}

void CheckpointReads::hear(actors::ClientId client, const local::LocalMessage& message) {
  std::visit(
      base::Overloaded{[&](const local::Listing& listing) { on_listing(client, listing); },
                       [&](const local::Found& found) { on_found(client, found); },
                       [&](const local::Loaded& loaded) { on_loaded(client, loaded); },
                       [&](const local::FilesToRead& files) { on_files(client, files); },
                       [&](const local::LoadDone& load) { on_done(client, load); },
                       // About saves, and about memory and the node, which these reads do not need.
                       [](const base::OneOf<local::Attached, local::Failed, local::RosterUpdate,
                                            local::SlabFree, local::Decided, local::Refused, local::Pong,
                                            local::StatusReport, local::JobStatusReport, local::PlanUpdate,
                                            local::PlanGathering, local::StagingGranted, local::GiveBack,
                                            local::PartRequest, local::StillWriting> auto&) {},
                       [](const local::OnlyFromClient auto&) {}},
      message);
}

void CheckpointReads::check_found(const Read& read, const AttemptKey& key) {
  const bool is_asked_for = read.step == 0 || key.step == read.step;
  const auto deleted = cluster_.root().deleted_at(key);
  if (deleted && *deleted < read.asked && read.opened == 0) {
    return violated("read-is-committed",
                    fmt::format("a trainer found {}, which was deleted before it asked", to_string(key)));
  }
  if (is_asked_for && (is_committed(key) || cluster_.root().was_deleted(key))) return;
  violated("read-is-committed", fmt::format("a trainer found {}, which {}", to_string(key),
                                            is_asked_for ? "is not committed" : "it did not ask for"));
}

void CheckpointReads::check_failure(const Read& read, const Status& outcome) {
  if (read.kept && cluster_.root().was_deleted(*read.kept)) {
    if (read.opened_at < job_.recovered) return;
    return violated("open-is-kept", fmt::format("{} was deleted while a trainer kept it open: {}",
                                                to_string(*read.kept), outcome.to_string()));
  }
  std::optional<AttemptKey> existing;  // the newest that it asked for
  for (const AttemptKey& key : read.existed) {
    if (read.step != 0 && key.step != read.step) continue;
    if (cluster_.root().was_deleted(key)) return;
    existing = key;
  }
  if (outcome.code() == Code::not_found) {
    if (!existing) return;
    return violated("read-finds", fmt::format("a trainer asked when {} was committed, and received: {}",
                                              to_string(*existing), outcome.to_string()));
  }
  if (outcome.code() == Code::corrupt && is_damaged(read)) return;
  if (is_of_failures(outcome.code()) && read.asked < job_.recovered) return;
  violated("read-is-possible",
           fmt::format("a read of {} failed: {}", existing ? to_string(*existing) : "what does not exist",
                       outcome.to_string()));
}

// A bit has flipped that explains why this read fails.
bool CheckpointReads::is_damaged(const Read& read) const {
  const CountedRoot& root = cluster_.counted_root();
  if (read.found && root.damaged_at(*read.found)) return true;
  if (read.falls_back) {  // what is committed later may come too late for it
    return std::ranges::none_of(read.existed, [&](const AttemptKey& key) {
      return (read.step == 0 || key.step == read.step) && root.is_sound(key);
    });
  }
  // Also of an attempt that is committed only later: its manifest exists before its nodes know.
  return std::ranges::any_of(root.attempts(), [&](const AttemptKey& key) {
    return (read.step == 0 || key.step == read.step) && root.damaged_at(key).has_value();
  });
}

void CheckpointReads::fail(actors::ClientId client, const Read& read, const Status& outcome) {
  ++failed_;
  check_failure(read, outcome);
  forget(rank_of(client));
}

void CheckpointReads::on_listing(actors::ClientId client, const local::Listing& listing) {
  Read* read = find(client, listing.request_id);
  if (read == nullptr) return;
  if (!listing.outcome.ok()) return fail(client, *read, listing.outcome);
  const auto& attempts = listing.list->attempts;
  for (const CheckpointInfo& info : attempts) {
    if (info.committed()) check_found(*read, info.key);
  }
  // It goes further back only until there is a checkpoint that can be read.
  const auto existed = [&](const CheckpointInfo& info) {
    return std::ranges::find(read->existed, info.key) != read->existed.end() &&
           !cluster_.root().damaged_at(info.key);
  };
  if (attempts.size() > read->newest && std::any_of(attempts.begin() + 1, attempts.end(), existed)) {
    violated("read-is-committed",
             fmt::format("a list of the newest {} has {}", read->newest, attempts.size()));
  }
  for (const AttemptKey& key : read->existed) {
    if (cluster_.root().damaged_at(key)) continue;
    const bool is_older = listing.list->omitted != 0 && !attempts.empty() && key < attempts.front().key;
    const bool is_listed = std::ranges::any_of(
        attempts, [&](const CheckpointInfo& info) { return info.key == key && info.committed(); });
    if (is_older || is_listed || cluster_.root().was_deleted(key)) continue;
    violated("read-finds", fmt::format("a list lacks {}, which was committed before", to_string(key)));
  }
  forget(rank_of(client));
}

void CheckpointReads::on_found(actors::ClientId client, const local::Found& found) {
  Read* read = find(client, found.request_id);
  if (read == nullptr) return;
  if (!found.outcome.ok()) return fail(client, *read, found.outcome);
  const AttemptKey& key = found.checkpoint.key;
  check_found(*read, key);
  for (const AttemptKey& existing : read->existed) {
    if (read->falls_back && cluster_.root().damaged_at(existing)) continue;
    if (read->step != 0 || existing <= key || cluster_.root().was_deleted(existing)) continue;
    violated("read-finds", fmt::format("{} is the latest for a trainer, but {} was committed before",
                                       to_string(key), to_string(existing)));
  }
  const auto damaged = cluster_.root().damaged_at(key);
  if (read->falls_back && damaged && *damaged < read->asked) {
    violated("read-is-sound",
             fmt::format("a load that may fall back found {}, which was damaged before", to_string(key)));
  }
  read->found = key;
  if (read->kind == Kind::latest) forget(rank_of(client));
}

// The client places one batch at a time.
void CheckpointReads::on_loaded(actors::ClientId client, const local::Loaded& loaded) {
  Read* read = find(client, loaded.request_id);
  if (read == nullptr) return;
  for (const local::LoadedPiece& piece : loaded.pieces) {
    const local::LoadTarget target = read->targets[piece.target];
    job_.payload->check_loaded(client, read->found.value_or(AttemptKey{}), target, piece);
    read->received.add(target, piece);
  }
  read->copies_until = std::max(read->copies_until, events_.now()) + 1 +
                       static_cast<actors::TimeNs>(random_.below(actors::kMillisecond));
  events_.schedule(read->copies_until, [this, client, request = loaded.request_id, batch = loaded.batch] {
    if (find(client, request) == nullptr || !is_served(rank_of(client))) return;
    cluster_.from_client(node_of(rank_of(client)), client, local::Placed{request, batch});
  });
}

void CheckpointReads::on_files(actors::ClientId client, const local::FilesToRead& files) {
  Read* read = find(client, files.request_id);
  if (read == nullptr) return;
  const auto takes = static_cast<actors::TimeNs>(random_.below(10 * actors::kMillisecond));
  events_.schedule(events_.now() + takes, [this, client, files] {
    Read* reads = find(client, files.request_id);
    if (reads == nullptr || !is_served(rank_of(client))) return;
    local::FilesRead answer{files.request_id, files.batch, read_files(*reads, files)};
    for (const local::FileRange& range : files.ranges) {
      const auto number = static_cast<uint32_t>(&range - files.ranges.data());
      const auto is_it = [&](const local::UnreadRange& unread) { return unread.range == number; };
      if (std::ranges::none_of(answer.unread, is_it)) {
        reads->received.add(reads->targets[range.target], range);
      }
    }
    cluster_.from_client(node_of(rank_of(client)), client, std::move(answer));
  });
}

// As a client does: it verifies each block. What it cannot read, its node reads.
std::vector<local::UnreadRange> CheckpointReads::read_files(const Read& read,
                                                            const local::FilesToRead& files) {
  std::vector<local::UnreadRange> unread;
  size_t digest = 0;
  for (uint32_t i = 0; i < files.ranges.size(); ++i) {
    const local::FileRange& range = files.ranges[i];
    const auto bytes = job_.payload->read_file(files.files.at(range.file), range.file_offset, range.bytes);
    bool is_sound = bytes.ok() && random_.below(1000) >= kUnreadPermille;
    for (uint64_t at = 0; at < range.bytes; at += base::kDigestBlockBytes, ++digest) {
      if (!is_sound) continue;
      const uint64_t length = std::min<uint64_t>(base::kDigestBlockBytes, range.bytes - at);
      is_sound = base::block_digest(ByteView(*bytes).subspan(at, length)) == files.digests.at(digest);
      const bool is_known = job_.payload->is_damaged(read.found.value_or(AttemptKey{}));
      if (!is_sound && !is_known)
        job_.payload->note_difference("the digest of a block of " + files.files[range.file]);
    }
    if (!is_sound) {
      unread.push_back({i, range.piece_offset, range.piece_offset + range.bytes});
      continue;
    }
    job_.payload->check_range(read.found.value_or(AttemptKey{}), read.targets[range.target], range, *bytes);
  }
  return unread;
}

void CheckpointReads::on_done(actors::ClientId client, const local::LoadDone& done) {
  Read* read = find(client, done.request_id);
  if (read == nullptr) return;
  const Rank rank = rank_of(client);
  if (!done.outcome.ok()) return fail(client, *read, done.outcome);
  if (const auto incomplete = read->received.incomplete(read->targets)) {
    violated("read-is-whole", fmt::format("rank {} has read {}, but not all of {}", rank,
                                          to_string(read->found.value_or(AttemptKey{})), *incomplete));
  }
  if (read->kind != Kind::open) return forget(rank);
  if (read->opened != 0) {
    cluster_.from_client(node_of(rank), client, local::Close{read->opened});
    return forget(rank);
  }
  read->opened = read->request;
  read->opened_at = read->asked;
  read->kept = read->found;
  read->request = 0;  // no answer is due
  read->asked = events_.now();
  const auto kept = static_cast<uint64_t>(3 * job_.interval_ns + kLeastSpreadNs);
  events_.schedule(events_.now() + static_cast<actors::TimeNs>(random_.below(kept)),
                   [this, rank, opened = read->opened] { ask_again(rank, opened); });
}

}  // namespace shoal::sim
