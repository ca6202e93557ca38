// decode_wire: schema/wire.capnp as the values of actors/messages/messages.h.
#include <fmt/format.h>

#include <set>

#include "actors/messages/messages.h"
#include "plan/layout/codec.h"
#include "plan/reading/passed_over_codec.h"
#include "plan/saving/options_codec.h"
#include "plan/saving/replica_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/wire.capnp.h"
#include "storage/decisions/decision.h"
#include "storage/root/run_root.h"
#include "storage/storage.h"
#include "transport/transport.h"

namespace shoal::actors {

namespace {

constexpr size_t kMaxFilesPerMessage = kMaxRanksPerNode * kMaxFilesPerRank;
constexpr size_t kMaxHostBytes = 256;

Status malformed(std::string_view what) {
  return Status(Code::corrupt, fmt::format("malformed {}", what));
}

// A fault in a peer's message is never the fault of the caller.
Status as_corrupt(const Status& status) {
  return status.code() == Code::invalid_argument ? Status(Code::corrupt, status.message()) : status;
}

AttemptKey read_key(schema::AttemptKey::Reader in) {
  return {in.getGeneration(), in.getStep(), in.getAttempt()};
}

Result<Hash128> read_hash(capnp::Data::Reader in) {
  return Hash128::from_bytes(schema::view_of(in));
}

Result<std::string> read_line(capnp::Text::Reader in, size_t bytes_max, std::string_view what) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, bytes_max, what).status());
  if (!is_clean_utf8(schema::view_of(in))) return malformed(what);
  return std::string(schema::view_of(in));
}

// Checks that a rank of an ascending list lies in the world. `*ranks_end` is one past the previous rank.
Status next_rank(Rank rank, uint64_t* ranks_end, uint32_t world_size) {
  if (rank < *ranks_end) return malformed("order of ranks");
  if (rank >= world_size) {
    return Status(Code::corrupt, fmt::format("rank {} is outside a world of {} ranks", rank, world_size));
  }
  *ranks_end = uint64_t{rank} + 1;
  return ok_status();
}

Result<std::vector<wire::RankLayout>> read_rank_layouts(capnp::List<schema::RankLayout>::Reader in,
                                                        uint32_t world_size) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxRanksPerNode, "ranks of a host").status());
  std::vector<wire::RankLayout> ranks;
  uint64_t ranks_end = 0;
  for (auto rank : in) {
    SHOAL_RETURN_IF_ERROR(next_rank(rank.getRank(), &ranks_end, world_size));
    SHOAL_ASSIGN_OR_RETURN(LayoutId id, read_hash(rank.getLayoutId()));
    ranks.push_back({rank.getRank(), id});
  }
  return ranks;
}

Result<uint32_t> read_world_size(uint32_t ranks) {
  if (ranks == 0 || ranks > kMaxWorldSize)
    return Status(Code::corrupt, fmt::format("a world of {} ranks, expected 1 to {}", ranks, kMaxWorldSize));
  return ranks;
}

Result<WireBody> read_join_ranks(schema::Message::JoinRanks::Reader in) {
  wire::JoinRanks body;
  SHOAL_ASSIGN_OR_RETURN(body.host, read_line(in.getHost(), kMaxHostBytes, "host"));
  SHOAL_ASSIGN_OR_RETURN(body.world_size, read_world_size(in.getWorldSize()));
  SHOAL_ASSIGN_OR_RETURN(body.ranks, read_rank_layouts(in.getRanks(), body.world_size));
  SHOAL_ASSIGN_OR_RETURN(body.options, plan::read_options(in.getOptions()));
  return WireBody(std::move(body));
}

Result<WireBody> read_layout_request(capnp::List<capnp::Data>::Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxRanksPerNode, "layouts wanted").status());
  wire::LayoutRequest body;
  for (auto id_in : in) {
    SHOAL_ASSIGN_OR_RETURN(LayoutId id, read_hash(id_in));
    body.ids.push_back(id);
  }
  return WireBody(std::move(body));
}

Result<WireBody> read_layouts(capnp::List<capnp::Data>::Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxRanksPerNode, "layouts").status());
  wire::Layouts body;
  // Checked before decoding, so that each byte of the message is decoded at most once.
  std::set<LayoutId> seen;
  for (auto bytes : in) {
    if (!seen.insert(xxh3_128(schema::view_of(bytes))).second)
      return malformed("layouts: one is listed twice");
    SHOAL_ASSIGN_OR_RETURN(LayoutPtr layout, plan::decode_layout(schema::view_of(bytes)));
    body.layouts.push_back(std::move(layout));
  }
  return WireBody(std::move(body));
}

Result<WireBody> read_roster_update(schema::Message::RosterUpdate::Reader in) {
  wire::RosterUpdate body;
  body.rule_version = in.getRuleVersion();
  if (body.rule_version == 0) return malformed("rule version");
  if (body.rule_version > kRuleVersion) {
    return Status(
        Code::version,
        fmt::format("the peer follows planning rule {}, but this program supports only rules up to {}",
                    body.rule_version, kRuleVersion));
  }
  SHOAL_ASSIGN_OR_RETURN(body.options, plan::read_options(in.getOptions()));
  SHOAL_ASSIGN_OR_RETURN(Roster roster, plan::decode_roster(schema::view_of(in.getRoster())));
  World world{std::move(roster), {}};
  const std::vector<LayoutId>& ids = world.roster.layout_ids();
  auto layouts = in.getLayouts();
  if (layouts.size() != ids.size()) {
    return Status(Code::corrupt,
                  fmt::format("{} layouts are given for a roster of {}", layouts.size(), ids.size()));
  }
  for (unsigned i = 0; i < layouts.size(); ++i) {
    ByteView bytes = schema::view_of(layouts[i]);
    if (xxh3_128(bytes) != ids[i]) return malformed("roster: a layout does not match its id");
    SHOAL_ASSIGN_OR_RETURN(LayoutPtr layout, plan::decode_layout(bytes));
    world.layouts.push_back(std::move(layout));
  }
  SHOAL_RETURN_IF_ERROR(validate_world(world));
  body.world = std::make_shared<const World>(std::move(world));
  return WireBody(std::move(body));
}

Status read_files(capnp::List<schema::WrittenFile>::Reader in, wire::ShardsWritten* body) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxFilesPerMessage, "files written").status());
  size_t plan = 0;
  uint64_t bytes = 0;
  for (auto file_in : in) {
    wire::WrittenFile file{
        file_in.getRank(), file_in.getIndex(), file_in.getSize(), {}, file_in.getPayloadBytes()};
    SHOAL_ASSIGN_OR_RETURN(file.header_digest, read_hash(file_in.getHeaderDigest()));
    if (!body->files.empty()) {
      const wire::WrittenFile& before = body->files.back();
      if (std::pair(file.rank, file.index) <= std::pair(before.rank, before.index)) {
        return malformed("order of files");
      }
    }
    while (plan < body->plans.size() && body->plans[plan].rank < file.rank) ++plan;
    if (plan == body->plans.size() || body->plans[plan].rank != file.rank) {
      return Status(Code::corrupt,
                    fmt::format("a file of rank {} came without the plan of that rank", file.rank));
    }
    if (file.index >= kMaxFilesPerRank || file.size > storage::kMaxObjectBytes - bytes ||
        file.payload_bytes > file.size) {
      return Status(Code::corrupt,
                    fmt::format("rank {} cannot have written file {} of {} bytes, {} of them payload",
                                file.rank, file.index, file.size, file.payload_bytes));
    }
    bytes += file.size;
    body->files.push_back(file);
  }
  return ok_status();
}

// `in`: the group of Message or the struct of the same name.
template <class Reader>
Result<wire::ShardsWritten> read_report(Reader in) {
  wire::ShardsWritten body;
  body.key = read_key(in.getKey());
  SHOAL_ASSIGN_OR_RETURN(body.roster_id, read_hash(in.getRosterId()));
  auto plans = in.getPlans();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(plans, kMaxRanksPerNode, "plans").status());
  uint64_t ranks_end = 0;
  for (auto plan : plans) {
    SHOAL_RETURN_IF_ERROR(next_rank(plan.getRank(), &ranks_end, kMaxWorldSize));
    SHOAL_ASSIGN_OR_RETURN(PlanId id, read_hash(plan.getPlanId()));
    body.plans.push_back({plan.getRank(), id});
  }
  SHOAL_RETURN_IF_ERROR(read_files(in.getFiles(), &body));
  SHOAL_ASSIGN_OR_RETURN(body.user, plan::read_shared_user(in));
  return body;
}

Result<WireBody> read_shards_written(schema::Message::ShardsWritten::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(wire::ShardsWritten body, read_report(in));
  return WireBody(std::move(body));
}

Result<WireBody> read_shards_written(schema::ShardsWritten::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(wire::ShardsWritten body, read_report(in));
  auto digests = in.getDigests();
  if (digests.size() == 0 || digests.size() > body.plans.size()) return malformed("digests of ranks");
  size_t plan = 0;
  for (auto of_rank : digests) {
    while (plan < body.plans.size() && body.plans[plan].rank != of_rank.getRank()) ++plan;
    if (plan == body.plans.size()) return malformed("digests of a rank");
    SHOAL_ASSIGN_OR_RETURN(body.plans[plan].replicas, plan::read_replicas(of_rank.getDigests()));
    ++plan;
  }
  return WireBody(std::move(body));
}

// Reads a code and a cause that a peer sent into `*why`.
Status read_failure(uint16_t code, capnp::Text::Reader text, Status* why) {
  if (code == 0) return malformed("failure: its code is ok");
  SHOAL_ASSIGN_OR_RETURN(std::string cause, read_line(text, storage::kMaxCauseBytes, "cause"));
  bool is_known = code <= static_cast<uint16_t>(kLastCode);  // a newer program may have appended codes
  *why = Status(is_known ? static_cast<Code>(code) : Code::internal, std::move(cause));
  return ok_status();
}

Result<WireBody> read_save_failed(schema::Message::SaveFailed::Reader in) {
  wire::SaveFailed body;
  body.key = read_key(in.getKey());
  if (!in.getWholeHost()) body.rank = in.getRank();
  if (body.rank && *body.rank >= kMaxWorldSize) return malformed("rank");
  SHOAL_RETURN_IF_ERROR(read_failure(in.getCode(), in.getCause(), &body.why));
  SHOAL_ASSIGN_OR_RETURN(body.host, read_line(in.getHost(), kMaxHostBytes, "host"));
  return WireBody(std::move(body));
}

Result<WireBody> read_undecided(schema::Message::Undecided::Reader in) {
  wire::Undecided body;
  body.key = read_key(in.getKey());
  SHOAL_RETURN_IF_ERROR(read_failure(in.getCode(), in.getCause(), &body.why));
  return WireBody(std::move(body));
}

Result<WireBody> read_manifests_published(schema::Message::ManifestsPublished::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(const uint32_t world_size, read_world_size(in.getWorldSize()));
  if (in.getRanks() == 0 || in.getRanks() > world_size) return malformed("manifests published");
  return WireBody(wire::ManifestsPublished{read_key(in.getKey()), in.getRanks(), world_size});
}

Result<WireBody> read_decided(schema::Message::Decided::Reader in) {
  wire::Decided body;
  body.key = read_key(in.getKey());
  body.committed = in.getCommitted();
  body.is_overdue = in.getOverdue();
  body.give_up = give_up_of(in.getGiveUp());
  SHOAL_ASSIGN_OR_RETURN(body.cause, read_line(in.getCause(), storage::kMaxCauseBytes, "cause"));
  return WireBody(std::move(body));
}

Result<WireBody> read_superseded(schema::Message::Superseded::Reader in) {
  wire::Superseded body;
  body.epoch = in.getEpoch();
  SHOAL_ASSIGN_OR_RETURN(body.address, read_line(in.getAddress(), storage::kMaxAddressBytes, "address"));
  return WireBody(std::move(body));
}

Result<WireBody> read_layouts_staged(schema::Message::LayoutsStaged::Reader in) {
  wire::LayoutsStaged body;
  body.key = read_key(in.getKey());
  SHOAL_ASSIGN_OR_RETURN(body.ranks, read_rank_layouts(in.getRanks(), kMaxWorldSize));
  return WireBody(std::move(body));
}

Result<WireBody> read_attempt_roster(schema::Message::AttemptRoster::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(RosterId roster_id, read_hash(in.getRosterId()));
  return WireBody(wire::AttemptRoster{read_key(in.getKey()), roster_id});
}

Status read_ranks(capnp::List<uint32_t>::Reader in, std::vector<Rank>* ranks) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxRanksPerNode, "ranks of a host").status());
  uint64_t end = 0;
  for (uint32_t rank : in) {
    SHOAL_RETURN_IF_ERROR(next_rank(rank, &end, kMaxWorldSize));
    ranks->push_back(rank);
  }
  return ok_status();
}

Result<WireBody> read_ranks_ended(schema::Message::RanksEnded::Reader in) {
  wire::RanksEnded body;
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getRanks(), kMaxRanksPerNode, "ranks of a host").status());
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getStaged(), kMaxSavesInFlight, "saves in flight").status());
  uint64_t ranks_end = 0;
  for (auto rank : in.getRanks()) {
    SHOAL_RETURN_IF_ERROR(next_rank(rank.getRank(), &ranks_end, kMaxWorldSize));
    SHOAL_ASSIGN_OR_RETURN(std::string end, read_line(rank.getEnd(), kMaxEndBytes, "end of a trainer"));
    body.ranks.push_back({rank.getRank(), std::move(end)});
  }
  for (auto key : in.getStaged()) {
    body.staged.push_back(read_key(key));
    const size_t size = body.staged.size();
    if (size > 1 && !(body.staged[size - 2] < body.staged[size - 1])) return malformed("order of saves");
  }
  SHOAL_ASSIGN_OR_RETURN(body.host, read_line(in.getHost(), kMaxHostBytes, "host"));
  SHOAL_RETURN_IF_ERROR(read_ranks(in.getHere(), &body.here));
  SHOAL_RETURN_IF_ERROR(read_ranks(in.getExpected(), &body.expected));
  body.may_return = in.getMayReturn();
  body.rank_local = in.getRankLocal();
  return WireBody(std::move(body));
}

Result<WireBody> read_local_plans(schema::Message::LocalPlans::Reader in) {
  wire::LocalPlans body;
  body.key = read_key(in.getKey());
  SHOAL_ASSIGN_OR_RETURN(body.host, read_line(in.getHost(), kMaxHostBytes, "host"));
  SHOAL_ASSIGN_OR_RETURN(body.world_size, read_world_size(in.getWorldSize()));
  SHOAL_ASSIGN_OR_RETURN(body.options, plan::read_options(in.getOptions()));
  SHOAL_ASSIGN_OR_RETURN(body.ranks, read_rank_layouts(in.getRanks(), body.world_size));
  if (in.getKnown().size() != body.ranks.size()) return malformed("plans known: one for each rank is needed");
  for (auto hash : in.getKnown()) {
    SHOAL_ASSIGN_OR_RETURN(PlanId known, hash.size() == 0 ? Result<PlanId>(PlanId{}) : read_hash(hash));
    body.known.push_back(known);
  }
  body.follows_planner = in.getFollowsPlanner();
  return WireBody(std::move(body));
}

Result<WireBody> read_plan_gathering(schema::Message::PlanGathering::Reader in) {
  wire::PlanGathering body;
  body.key = read_key(in.getKey());
  if (in.getStage() >= plan::kGatherStages) return malformed("stage of a plan gather");
  body.stage = static_cast<plan::GatherStage>(in.getStage());
  SHOAL_ASSIGN_OR_RETURN(body.host, read_line(in.getHost(), kMaxHostBytes, "host"));
  SHOAL_ASSIGN_OR_RETURN(body.world_size, read_world_size(in.getWorldSize()));
  SHOAL_ASSIGN_OR_RETURN(body.options, plan::read_options(in.getOptions()));
  body.coordinator_rank = in.getCoordinatorRank();
  if (body.coordinator_rank >= body.world_size) return malformed("coordinator rank");
  uint64_t ranks_end = 0;
  for (auto plan : in.getPlans()) {
    SHOAL_RETURN_IF_ERROR(next_rank(plan.getRank(), &ranks_end, body.world_size));
    body.plans.push_back(
        {plan.getRank(), std::make_shared<const std::string>(as_text(schema::view_of(plan.getBytes())))});
  }
  return WireBody(std::move(body));
}

Result<WireBody> read_global_plan(schema::Message::GlobalPlan::Reader in) {
  wire::GlobalPlan body;
  body.key = read_key(in.getKey());
  SHOAL_ASSIGN_OR_RETURN(body.roster_id, read_hash(in.getRosterId()));
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getParts(), kMaxRanksPerNode, "parts of a plan").status());
  uint64_t ranks_end = 0;
  for (auto part_in : in.getParts()) {
    wire::RankPart part{part_in.getRank(), nullptr};
    SHOAL_RETURN_IF_ERROR(next_rank(part.rank, &ranks_end, kMaxWorldSize));
    if (part_in.hasPlan()) {
      SHOAL_ASSIGN_OR_RETURN(part.plan, plan::decode_plan(schema::view_of(part_in.getPlan())));
      if (part.plan->rank != part.rank || part.plan->roster_id != body.roster_id) {
        return malformed("plan: it is of another rank or roster");
      }
    }
    body.parts.push_back(std::move(part));
  }
  return WireBody(std::move(body));
}

wire::LoadId read_load_id(schema::LoadId::Reader in) {
  return {in.getLatest(), in.getStep(), in.getOrdinal(), in.getRound(), in.getAttempt()};
}

Result<WireBody> read_join_load(schema::JoinLoad::Reader in) {
  wire::JoinLoad body;
  body.id = read_load_id(in.getId());
  SHOAL_ASSIGN_OR_RETURN(body.world_size, read_world_size(in.getWorldSize()));
  SHOAL_ASSIGN_OR_RETURN(body.address, read_line(in.getAddress(), storage::kMaxAddressBytes, "address"));
  SHOAL_ASSIGN_OR_RETURN(body.ranks, read_rank_layouts(in.getRanks(), body.world_size));
  body.quiet_ms = in.getQuietMs();
  return WireBody(std::move(body));
}

Result<WireBody> read_load_roster(schema::LoadRoster::Reader in) {
  wire::LoadRoster body;
  body.id = read_load_id(in.getId());
  body.key = read_key(in.getKey());
  SHOAL_ASSIGN_OR_RETURN(body.passed_over, plan::read_passed_over(in));
  if (in.getCode() != 0) {
    SHOAL_RETURN_IF_ERROR(read_failure(in.getCode(), in.getCause(), &body.outcome));
  }
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getGroups(), kMaxRanksPerNode, "groups of a load").status());
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getAddresses(), kMaxWorldSize, "hosts of a load").status());
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getMembers(), kMaxWorldSize, "members of a load").status());
  for (auto id_in : in.getGroups()) {
    SHOAL_ASSIGN_OR_RETURN(LayoutId id, read_hash(id_in));
    body.groups.push_back(id);
  }
  for (auto text : in.getAddresses()) {
    SHOAL_ASSIGN_OR_RETURN(std::string address, read_line(text, storage::kMaxAddressBytes, "address"));
    body.addresses.push_back(std::move(address));
  }
  uint64_t ranks_end = 0;
  for (auto member : in.getMembers()) {
    const wire::LoadMembers members{member.getFirst(), member.getCount(), member.getHost(),
                                    member.getGroup()};
    const uint64_t end = uint64_t{members.first} + members.count;
    if (members.count == 0 || members.first < ranks_end || end > kMaxWorldSize ||
        members.host >= body.addresses.size() || members.group >= body.groups.size()) {
      return malformed("members of a load");
    }
    ranks_end = end;
    body.members.push_back(members);
  }
  return WireBody(std::move(body));
}

template <class Body>
Result<WireBody> read_chunks(schema::Chunks::Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getChunks(), kMaxChunksPerMessage, "chunks").status());
  Body body;
  body.id = read_load_id(in.getId());
  for (uint64_t number : in.getChunks()) body.chunks.push_back(number);
  return WireBody(std::move(body));
}

Result<WireBody> read_chunks_pending(schema::Chunks::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(WireBody body, read_chunks<wire::ChunksPending>(in));
  if (in.getSender() != 0) std::get<wire::ChunksPending>(body).host = in.getSender() - 1;
  return body;
}

Result<WireBody> read_chunk(schema::Chunk::Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getBytes(), kChunkBytes, "bytes of a chunk").status());
  auto chunk = std::make_shared<Chunk>();
  const ByteView bytes = schema::view_of(in.getBytes());
  chunk->size = bytes.size();
  chunk->bytes.assign(bytes.begin(), bytes.end());
  return WireBody(wire::ChunkData{read_load_id(in.getId()), in.getNumber(), std::move(chunk)});
}

Result<WireBody> read_body(schema::Message::Reader in) {
  switch (in.which()) {
    case schema::Message::JOIN_RANKS:
      return read_join_ranks(in.getJoinRanks());
    case schema::Message::LAYOUT_REQUEST:
      return read_layout_request(in.getLayoutRequest());
    case schema::Message::LAYOUTS:
      return read_layouts(in.getLayouts());
    case schema::Message::ROSTER_UPDATE:
      return read_roster_update(in.getRosterUpdate());
    case schema::Message::JOIN_REJECTED: {
      SHOAL_ASSIGN_OR_RETURN(std::string cause,
                             read_line(in.getJoinRejected(), storage::kMaxCauseBytes, "cause"));
      return WireBody(wire::JoinRejected{std::move(cause)});
    }
    case schema::Message::SHARDS_WRITTEN:
      return read_shards_written(in.getShardsWritten());
    case schema::Message::SHARDS_WRITTEN_WITH_DIGESTS:
      return read_shards_written(in.getShardsWrittenWithDigests());
    case schema::Message::SAVE_FAILED:
      return read_save_failed(in.getSaveFailed());
    case schema::Message::PENDING:
      return WireBody(wire::Pending{read_key(in.getPending())});
    case schema::Message::SAVE_PROGRESS:
      return WireBody(wire::SaveProgress{read_key(in.getSaveProgress().getKey()),
                                         in.getSaveProgress().getAmount(),
                                         in.getSaveProgress().getRankLocal()});
    case schema::Message::MANIFESTS_PUBLISHED:
      return read_manifests_published(in.getManifestsPublished());
    case schema::Message::DECIDED:
      return read_decided(in.getDecided());
    case schema::Message::SUPERSEDED:
      return read_superseded(in.getSuperseded());
    case schema::Message::UNDECIDED:
      return read_undecided(in.getUndecided());
    case schema::Message::LAYOUTS_STAGED:
      return read_layouts_staged(in.getLayoutsStaged());
    case schema::Message::ATTEMPT_ROSTER:
      return read_attempt_roster(in.getAttemptRoster());
    case schema::Message::RANKS_ENDED:
      return read_ranks_ended(in.getRanksEnded());
    case schema::Message::LOCAL_PLANS:
      return read_local_plans(in.getLocalPlans());
    case schema::Message::GLOBAL_PLAN:
      return read_global_plan(in.getGlobalPlan());
    case schema::Message::PLAN_GATHERING:
      return read_plan_gathering(in.getPlanGathering());
    case schema::Message::JOIN_LOAD:
      return read_join_load(in.getJoinLoad());
    case schema::Message::LOAD_ROSTER:
      return read_load_roster(in.getLoadRoster());
    case schema::Message::CHUNK_REQUEST:
      return read_chunks<wire::ChunkRequest>(in.getChunkRequest());
    case schema::Message::CHUNK_DATA:
      return read_chunk(in.getChunkData());
    case schema::Message::CHUNKS_UNAVAILABLE:
      return read_chunks<wire::ChunksUnavailable>(in.getChunksUnavailable());
    case schema::Message::CHUNKS_CANCELLED:
      return read_chunks<wire::ChunksCancelled>(in.getChunksCancelled());
    case schema::Message::CHUNKS_PENDING:
      return read_chunks_pending(in.getChunksPending());
    case schema::Message::LINK:
      return malformed("message between roles: it is a message between links");
  }
  return Status(Code::version, fmt::format("this program does not know messages of kind {}",
                                           static_cast<uint16_t>(in.which())));
}

Result<WireMessage> read_message(schema::Message::Reader in) {
  if (in.getFromRole() >= kRoleCount || in.getToRole() >= kRoleCount) return malformed("role");
  SHOAL_ASSIGN_OR_RETURN(WireBody body, read_body(in));
  return WireMessage{static_cast<RoleKind>(in.getFromRole()), static_cast<RoleKind>(in.getToRole()),
                     std::make_shared<const WireBody>(std::move(body))};
}

}  // namespace

Result<WireMessage> decode_wire(ByteView bytes) {
  schema::ReadLimits limits;
  limits.bytes_max = transport::kMaxMessageBytes;
  Result<WireMessage> message = schema::read_checked<schema::Message>(bytes, limits, read_message);
  if (!message.ok()) return as_corrupt(message.status()).with_context("message of a node");
  return message;
}

}  // namespace shoal::actors
