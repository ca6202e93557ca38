// encode_wire and decode_wire: schema/wire.capnp as the values of actors/messages.h.
#include <capnp/message.h>
#include <fmt/format.h>

#include <set>

#include "actors/messages.h"
#include "plan/codec.h"
#include "plan/options_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/wire.capnp.h"
#include "storage/decision.h"
#include "storage/run_root.h"
#include "storage/storage.h"
#include "transport/transport.h"

namespace shoal {

namespace {

constexpr size_t kMaxFilesPerMessage = kMaxRanksPerNode * kMaxFilesPerRank;
constexpr size_t kMaxHostBytes = 256;

unsigned list_size(size_t size) {
  SHOAL_CHECK(size <= kMaxWorldSize);
  return static_cast<unsigned>(size);
}

void write(schema::AttemptKey::Builder out, const AttemptKey& key) {
  out.setGeneration(key.generation);
  out.setStep(key.step);
  out.setAttempt(key.attempt);
}

void write(capnp::List<schema::RankLayout>::Builder out, const std::vector<wire::RankLayout>& ranks) {
  for (unsigned i = 0; i < out.size(); ++i) {
    out[i].setRank(ranks[i].rank);
    out[i].setLayoutId(data_of(ranks[i].layout_id));
  }
}

std::string cause_of(std::string_view text) {
  return clean_line(text, kMaxCauseBytes);
}

struct Encoder {
  schema::Message::Builder out;

  void operator()(const wire::JoinRanks& body) {
    auto join = out.initJoinRanks();
    join.setHost(text_of(body.host));
    join.setWorldSize(body.world_size);
    auto ranks = join.initRanks(list_size(body.ranks.size()));
    write(ranks, body.ranks);
    write_options(join.initOptions(), body.options);
  }
  void operator()(const wire::LayoutsWanted& body) {
    auto ids = out.initLayoutsWanted(list_size(body.ids.size()));
    for (unsigned i = 0; i < ids.size(); ++i) ids.set(i, data_of(body.ids[i]));
  }
  void operator()(const wire::Layouts& body) {
    auto layouts = out.initLayouts(list_size(body.layouts.size()));
    for (unsigned i = 0; i < layouts.size(); ++i)
      layouts.set(i, data_of(ByteView(encode_layout(*body.layouts[i]))));
  }
  void operator()(const wire::RosterIs& body) {
    auto roster = out.initRosterIs();
    roster.setRoster(data_of(ByteView(encode_roster(body.world->roster))));
    const std::vector<LayoutPtr>& from = body.world->layouts;
    auto layouts = roster.initLayouts(list_size(from.size()));
    for (unsigned i = 0; i < layouts.size(); ++i) layouts.set(i, data_of(ByteView(encode_layout(*from[i]))));
    write_options(roster.initOptions(), body.options);
    roster.setRuleVersion(body.rule_version);
  }
  void operator()(const wire::JoinRefused& body) { out.setJoinRefused(text_of(cause_of(body.cause))); }
  void operator()(const wire::ShardsWritten& body) {
    auto written = out.initShardsWritten();
    write(written.initKey(), body.key);
    written.setRosterId(data_of(body.roster_id));
    auto plans = written.initPlans(list_size(body.plans.size()));
    for (unsigned i = 0; i < plans.size(); ++i) {
      plans[i].setRank(body.plans[i].rank);
      plans[i].setPlanId(data_of(body.plans[i].plan_id));
    }
    auto files = written.initFiles(list_size(body.files.size()));
    for (unsigned i = 0; i < files.size(); ++i) {
      const wire::WrittenFile& file = body.files[i];
      files[i].setRank(file.rank);
      files[i].setIndex(file.index);
      files[i].setSize(file.size);
      files[i].setHeaderDigest(data_of(file.header_digest));
      files[i].setPayloadBytes(file.payload_bytes);
    }
  }
  void operator()(const wire::SaveFailed& body) {
    auto failed = out.initSaveFailed();
    write(failed.initKey(), body.key);
    failed.setRank(body.rank);
    failed.setCode(static_cast<uint16_t>(body.why.code()));
    failed.setCause(text_of(cause_of(body.why.message())));
  }
  void operator()(const wire::Pending& body) { write(out.initPending(), body.key); }
  void operator()(const wire::Decided& body) {
    auto decided = out.initDecided();
    write(decided.initKey(), body.key);
    decided.setCommitted(body.committed);
    decided.setCause(text_of(cause_of(body.cause)));
  }
  void operator()(const wire::Superseded& body) {
    auto superseded = out.initSuperseded();
    superseded.setEpoch(body.epoch);
    superseded.setAddress(text_of(body.address));
  }
  void operator()(const wire::Undecided& body) {
    auto undecided = out.initUndecided();
    write(undecided.initKey(), body.key);
    undecided.setCode(static_cast<uint16_t>(body.why.code()));
    undecided.setCause(text_of(cause_of(body.why.message())));
  }
  void operator()(const wire::LayoutsStaged& body) {
    auto staged = out.initLayoutsStaged();
    write(staged.initKey(), body.key);
    write(staged.initRanks(list_size(body.ranks.size())), body.ranks);
  }
  void operator()(const wire::PlanBy& body) {
    auto plan_by = out.initPlanBy();
    write(plan_by.initKey(), body.key);
    plan_by.setRosterId(data_of(body.roster_id));
  }
  void operator()(const wire::RanksGone& body) {
    auto gone = out.initRanksGone();
    auto ranks = gone.initRanks(list_size(body.ranks.size()));
    for (unsigned i = 0; i < ranks.size(); ++i) {
      ranks[i].setRank(body.ranks[i].rank);
      ranks[i].setEnd(text_of(clean_line(body.ranks[i].end, kMaxEndBytes)));
    }
    auto staged = gone.initStaged(list_size(body.staged.size()));
    for (unsigned i = 0; i < staged.size(); ++i) write(staged[i], body.staged[i]);
  }
};

Status malformed(std::string_view what) {
  return Status(Code::corrupt, fmt::format("malformed {}", what));
}

// What a peer says is never our caller's fault.
Status as_corrupt(const Status& status) {
  return status.code() == Code::invalid_argument ? Status(Code::corrupt, status.message()) : status;
}

AttemptKey read_key(schema::AttemptKey::Reader in) {
  return {in.getGeneration(), in.getStep(), in.getAttempt()};
}

Result<Hash128> read_hash(capnp::Data::Reader in) {
  return Hash128::from_bytes(view_of(in));
}

Result<std::string> read_line(capnp::Text::Reader in, size_t bytes_max, std::string_view what) {
  SHOAL_RETURN_IF_ERROR(bounded_size(in, bytes_max, what).status());
  if (!is_clean_utf8(view_of(in))) return malformed(what);
  return std::string(view_of(in));
}

// A rank of an ascending list, given the end of what came before.
Status next_rank(Rank rank, uint64_t* ranks_end, uint32_t world_size) {
  if (rank < *ranks_end) return malformed("order of ranks");
  if (rank >= world_size) {
    return Status(Code::corrupt, fmt::format("rank {} of a world of {}", rank, world_size));
  }
  *ranks_end = uint64_t{rank} + 1;
  return ok_status();
}

Result<std::vector<wire::RankLayout>> read_rank_layouts(capnp::List<schema::RankLayout>::Reader in,
                                                        uint32_t world_size) {
  SHOAL_RETURN_IF_ERROR(bounded_size(in, kMaxRanksPerNode, "ranks of a host").status());
  std::vector<wire::RankLayout> ranks;
  uint64_t ranks_end = 0;
  for (auto rank : in) {
    SHOAL_RETURN_IF_ERROR(next_rank(rank.getRank(), &ranks_end, world_size));
    SHOAL_ASSIGN_OR_RETURN(LayoutId id, read_hash(rank.getLayoutId()));
    ranks.push_back({rank.getRank(), id});
  }
  return ranks;
}

Result<WireBody> read_join_ranks(schema::Message::JoinRanks::Reader in) {
  wire::JoinRanks body;
  SHOAL_ASSIGN_OR_RETURN(body.host, read_line(in.getHost(), kMaxHostBytes, "host"));
  body.world_size = in.getWorldSize();
  if (body.world_size == 0 || body.world_size > kMaxWorldSize) {
    return Status(Code::corrupt, fmt::format("a world of {} ranks", body.world_size));
  }
  SHOAL_ASSIGN_OR_RETURN(body.ranks, read_rank_layouts(in.getRanks(), body.world_size));
  SHOAL_ASSIGN_OR_RETURN(body.options, read_options(in.getOptions()));
  return WireBody(std::move(body));
}

Result<WireBody> read_layouts_wanted(capnp::List<capnp::Data>::Reader in) {
  SHOAL_RETURN_IF_ERROR(bounded_size(in, kMaxRanksPerNode, "layouts wanted").status());
  wire::LayoutsWanted body;
  for (auto id_in : in) {
    SHOAL_ASSIGN_OR_RETURN(LayoutId id, read_hash(id_in));
    body.ids.push_back(id);
  }
  return WireBody(std::move(body));
}

Result<WireBody> read_layouts(capnp::List<capnp::Data>::Reader in) {
  SHOAL_RETURN_IF_ERROR(bounded_size(in, kMaxRanksPerNode, "layouts").status());
  wire::Layouts body;
  std::set<LayoutId> seen;  // checked before decoding, so that no byte of the message is decoded twice
  for (auto bytes : in) {
    if (!seen.insert(xxh3_128(view_of(bytes))).second) return malformed("layouts: one is given twice");
    SHOAL_ASSIGN_OR_RETURN(LayoutPtr layout, decode_layout(view_of(bytes)));
    body.layouts.push_back(std::move(layout));
  }
  return WireBody(std::move(body));
}

Result<WireBody> read_roster_is(schema::Message::RosterIs::Reader in) {
  wire::RosterIs body;
  body.rule_version = in.getRuleVersion();
  if (body.rule_version == 0) return malformed("rule version");
  if (body.rule_version > kRuleVersion) {
    return Status(Code::version, fmt::format("the peer follows planning rule {}, this program knows up to {}",
                                             body.rule_version, kRuleVersion));
  }
  SHOAL_ASSIGN_OR_RETURN(body.options, read_options(in.getOptions()));
  SHOAL_ASSIGN_OR_RETURN(Roster roster, decode_roster(view_of(in.getRoster())));
  World world{std::move(roster), {}};
  const std::vector<LayoutId>& ids = world.roster.layout_ids();
  auto layouts = in.getLayouts();
  if (layouts.size() != ids.size()) {
    return Status(Code::corrupt, fmt::format("{} layouts for a roster of {}", layouts.size(), ids.size()));
  }
  for (unsigned i = 0; i < layouts.size(); ++i) {
    ByteView bytes = view_of(layouts[i]);
    if (xxh3_128(bytes) != ids[i]) return malformed("roster: a layout is not the one that it names");
    SHOAL_ASSIGN_OR_RETURN(LayoutPtr layout, decode_layout(bytes));
    world.layouts.push_back(std::move(layout));
  }
  SHOAL_RETURN_IF_ERROR(validate_world(world));
  body.world = std::make_shared<const World>(std::move(world));
  return WireBody(std::move(body));
}

Status read_files(capnp::List<schema::WrittenFile>::Reader in, wire::ShardsWritten* body) {
  SHOAL_RETURN_IF_ERROR(bounded_size(in, kMaxFilesPerMessage, "files written").status());
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
      return Status(Code::corrupt, fmt::format("a file of rank {} without its plan", file.rank));
    }
    if (file.index >= kMaxFilesPerRank || file.size > kMaxObjectBytes - bytes ||
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

Result<WireBody> read_shards_written(schema::Message::ShardsWritten::Reader in) {
  wire::ShardsWritten body;
  body.key = read_key(in.getKey());
  SHOAL_ASSIGN_OR_RETURN(body.roster_id, read_hash(in.getRosterId()));
  auto plans = in.getPlans();
  SHOAL_RETURN_IF_ERROR(bounded_size(plans, kMaxRanksPerNode, "plans").status());
  uint64_t ranks_end = 0;
  for (auto plan : plans) {
    SHOAL_RETURN_IF_ERROR(next_rank(plan.getRank(), &ranks_end, kMaxWorldSize));
    SHOAL_ASSIGN_OR_RETURN(PlanId id, read_hash(plan.getPlanId()));
    body.plans.push_back({plan.getRank(), id});
  }
  SHOAL_RETURN_IF_ERROR(read_files(in.getFiles(), &body));
  return WireBody(std::move(body));
}

// What went wrong elsewhere, into `*why`.
Status read_failure(uint16_t code, capnp::Text::Reader text, Status* why) {
  if (code == 0) return malformed("failure: its code is ok");
  SHOAL_ASSIGN_OR_RETURN(std::string cause, read_line(text, kMaxCauseBytes, "cause"));
  bool is_known = code <= static_cast<uint16_t>(kLastCode);  // codes may be appended by newer programs
  *why = Status(is_known ? static_cast<Code>(code) : Code::internal, std::move(cause));
  return ok_status();
}

Result<WireBody> read_save_failed(schema::Message::SaveFailed::Reader in) {
  wire::SaveFailed body;
  body.key = read_key(in.getKey());
  body.rank = in.getRank();
  if (body.rank >= kMaxWorldSize) return malformed("rank");
  SHOAL_RETURN_IF_ERROR(read_failure(in.getCode(), in.getCause(), &body.why));
  return WireBody(std::move(body));
}

Result<WireBody> read_undecided(schema::Message::Undecided::Reader in) {
  wire::Undecided body;
  body.key = read_key(in.getKey());
  SHOAL_RETURN_IF_ERROR(read_failure(in.getCode(), in.getCause(), &body.why));
  return WireBody(std::move(body));
}

Result<WireBody> read_decided(schema::Message::Decided::Reader in) {
  wire::Decided body;
  body.key = read_key(in.getKey());
  body.committed = in.getCommitted();
  SHOAL_ASSIGN_OR_RETURN(body.cause, read_line(in.getCause(), kMaxCauseBytes, "cause"));
  return WireBody(std::move(body));
}

Result<WireBody> read_superseded(schema::Message::Superseded::Reader in) {
  wire::Superseded body;
  body.epoch = in.getEpoch();
  SHOAL_ASSIGN_OR_RETURN(body.address, read_line(in.getAddress(), kMaxAddressBytes, "address"));
  return WireBody(std::move(body));
}

Result<WireBody> read_layouts_staged(schema::Message::LayoutsStaged::Reader in) {
  wire::LayoutsStaged body;
  body.key = read_key(in.getKey());
  SHOAL_ASSIGN_OR_RETURN(body.ranks, read_rank_layouts(in.getRanks(), kMaxWorldSize));
  return WireBody(std::move(body));
}

Result<WireBody> read_plan_by(schema::Message::PlanBy::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(RosterId roster_id, read_hash(in.getRosterId()));
  return WireBody(wire::PlanBy{read_key(in.getKey()), roster_id});
}

Result<WireBody> read_ranks_gone(schema::Message::RanksGone::Reader in) {
  wire::RanksGone body;
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getRanks(), kMaxRanksPerNode, "ranks of a host").status());
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getStaged(), kMaxSavesInFlight, "saves in flight").status());
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
  return WireBody(std::move(body));
}

Result<WireBody> read_body(schema::Message::Reader in) {
  switch (in.which()) {
    case schema::Message::JOIN_RANKS:
      return read_join_ranks(in.getJoinRanks());
    case schema::Message::LAYOUTS_WANTED:
      return read_layouts_wanted(in.getLayoutsWanted());
    case schema::Message::LAYOUTS:
      return read_layouts(in.getLayouts());
    case schema::Message::ROSTER_IS:
      return read_roster_is(in.getRosterIs());
    case schema::Message::JOIN_REFUSED: {
      SHOAL_ASSIGN_OR_RETURN(std::string cause, read_line(in.getJoinRefused(), kMaxCauseBytes, "cause"));
      return WireBody(wire::JoinRefused{std::move(cause)});
    }
    case schema::Message::SHARDS_WRITTEN:
      return read_shards_written(in.getShardsWritten());
    case schema::Message::SAVE_FAILED:
      return read_save_failed(in.getSaveFailed());
    case schema::Message::PENDING:
      return WireBody(wire::Pending{read_key(in.getPending())});
    case schema::Message::DECIDED:
      return read_decided(in.getDecided());
    case schema::Message::SUPERSEDED:
      return read_superseded(in.getSuperseded());
    case schema::Message::UNDECIDED:
      return read_undecided(in.getUndecided());
    case schema::Message::LAYOUTS_STAGED:
      return read_layouts_staged(in.getLayoutsStaged());
    case schema::Message::PLAN_BY:
      return read_plan_by(in.getPlanBy());
    case schema::Message::RANKS_GONE:
      return read_ranks_gone(in.getRanksGone());
    case schema::Message::LINK:
      return malformed("a word between links in place of a message between roles");
  }
  return Status(Code::version, fmt::format("a message of kind {}, which this program does not know",
                                           static_cast<uint16_t>(in.which())));
}

Result<WireMessage> read_message(schema::Message::Reader in) {
  if (in.getFromRole() >= kRoleCount || in.getToRole() >= kRoleCount) return malformed("role");
  SHOAL_ASSIGN_OR_RETURN(WireBody body, read_body(in));
  return WireMessage{static_cast<RoleKind>(in.getFromRole()), static_cast<RoleKind>(in.getToRole()),
                     std::make_shared<const WireBody>(std::move(body))};
}

}  // namespace

Bytes encode_wire(const WireMessage& message) {
  SHOAL_CHECK(message.body != nullptr);
  capnp::MallocMessageBuilder builder;
  auto out = builder.initRoot<schema::Message>();
  out.setFromRole(static_cast<uint8_t>(message.from));
  out.setToRole(static_cast<uint8_t>(message.to));
  std::visit(Encoder{out}, *message.body);
  return framed_bytes(builder);
}

Result<WireMessage> decode_wire(ByteView bytes) {
  ReadLimits limits;
  limits.bytes_max = kMaxMessageBytes;
  Result<WireMessage> message = read_checked<schema::Message>(bytes, limits, read_message);
  if (!message.ok()) return as_corrupt(message.status()).with_context("message of a node");
  return message;
}

}  // namespace shoal
