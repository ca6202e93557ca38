// encode_wire: the values of actors/messages/messages.h as schema/wire.capnp.
#include <capnp/message.h>

#include <algorithm>

#include "actors/messages/messages.h"
#include "plan/layout/codec.h"
#include "plan/reading/passed_over_codec.h"
#include "plan/saving/options_codec.h"
#include "plan/saving/replica_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/wire.capnp.h"
#include "storage/decisions/decision.h"
#include "storage/root/run_root.h"

namespace shoal::actors {

namespace {

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
    out[i].setLayoutId(schema::data_of(ranks[i].layout_id));
  }
}

void write(schema::LoadId::Builder out, const wire::LoadId& id) {
  out.setLatest(id.latest);
  out.setStep(id.step);
  out.setOrdinal(id.ordinal);
  out.setRound(id.round);
  out.setAttempt(id.attempt);
}

void write(capnp::List<uint64_t>::Builder out, const std::vector<uint64_t>& numbers) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, numbers[i]);
}

void write(capnp::List<capnp::Data>::Builder out, const std::vector<Hash128>& ids) {
  for (unsigned i = 0; i < out.size(); ++i) out.set(i, schema::data_of(ids[i]));
}

// For every message that names chunks of a load.
template <class Body>
void write_chunks(schema::Chunks::Builder out, const Body& body) {
  write(out.initId(), body.id);
  write(out.initChunks(list_size(body.chunks.size())), body.chunks);
}

std::string cause_of(std::string_view text) {
  return clean_line(text, storage::kMaxCauseBytes);
}

// For every message with `code` and `cause`.
template <class Builder>
void write_failure(Builder out, const Status& status) {
  out.setCode(static_cast<uint16_t>(status.code()));
  out.setCause(schema::text_of(cause_of(status.message())));
}

struct Encoder {
  schema::Message::Builder out;

  void operator()(const wire::JoinRanks& body) {
    auto join = out.initJoinRanks();
    join.setHost(schema::text_of(body.host));
    join.setWorldSize(body.world_size);
    auto ranks = join.initRanks(list_size(body.ranks.size()));
    write(ranks, body.ranks);
    plan::write_options(join.initOptions(), body.options);
  }
  void operator()(const wire::LayoutRequest& body) {
    write(out.initLayoutRequest(list_size(body.ids.size())), body.ids);
  }
  void operator()(const wire::Layouts& body) {
    auto layouts = out.initLayouts(list_size(body.layouts.size()));
    for (unsigned i = 0; i < layouts.size(); ++i)
      layouts.set(i, schema::data_of(ByteView(plan::encode_layout(*body.layouts[i]))));
  }
  void operator()(const wire::RosterUpdate& body) {
    auto roster = out.initRosterUpdate();
    roster.setRoster(schema::data_of(ByteView(plan::encode_roster(body.world->roster))));
    const std::vector<LayoutPtr>& from = body.world->layouts;
    auto layouts = roster.initLayouts(list_size(from.size()));
    for (unsigned i = 0; i < layouts.size(); ++i)
      layouts.set(i, schema::data_of(ByteView(plan::encode_layout(*from[i]))));
    plan::write_options(roster.initOptions(), body.options);
    roster.setRuleVersion(body.rule_version);
  }
  void operator()(const wire::JoinRejected& body) {
    out.setJoinRejected(schema::text_of(cause_of(body.cause)));
  }
  // `written`: the group of Message or the struct of the same name.
  template <class Builder>
  static void write_report(Builder written, const wire::ShardsWritten& body) {
    write(written.initKey(), body.key);
    written.setRosterId(schema::data_of(body.roster_id));
    auto plans = written.initPlans(list_size(body.plans.size()));
    for (unsigned i = 0; i < plans.size(); ++i) {
      plans[i].setRank(body.plans[i].rank);
      plans[i].setPlanId(schema::data_of(body.plans[i].plan_id));
    }
    auto files = written.initFiles(list_size(body.files.size()));
    for (unsigned i = 0; i < files.size(); ++i) {
      const wire::WrittenFile& file = body.files[i];
      files[i].setRank(file.rank);
      files[i].setIndex(file.index);
      files[i].setSize(file.size);
      files[i].setHeaderDigest(schema::data_of(file.header_digest));
      files[i].setPayloadBytes(file.payload_bytes);
    }
    plan::write_user(written, body.user);
  }
  void operator()(const wire::ShardsWritten& body) {
    const auto count =
        std::ranges::count_if(body.plans, [](const auto& plan) { return plan.replicas != nullptr; });
    if (count == 0) return write_report(out.initShardsWritten(), body);
    auto written = out.initShardsWrittenWithDigests();
    write_report(written, body);
    auto digests = written.initDigests(list_size(static_cast<size_t>(count)));
    unsigned i = 0;
    for (const wire::RankPlan& plan : body.plans) {
      if (!plan.replicas) continue;
      digests[i].setRank(plan.rank);
      plan::write_replicas(digests[i++].initDigests(), *plan.replicas);
    }
  }
  void operator()(const wire::SaveFailed& body) {
    auto failed = out.initSaveFailed();
    write(failed.initKey(), body.key);
    failed.setRank(body.rank.value_or(0));
    failed.setWholeHost(!body.rank);
    write_failure(failed, body.why);
    failed.setHost(body.host);
  }
  void operator()(const wire::Pending& body) { write(out.initPending(), body.key); }
  void operator()(const wire::SaveProgress& body) {
    auto progress = out.initSaveProgress();
    write(progress.initKey(), body.key);
    progress.setAmount(body.amount);
    progress.setRankLocal(body.rank_local);
  }
  void operator()(const wire::ManifestsPublished& body) {
    auto published = out.initManifestsPublished();
    write(published.initKey(), body.key);
    published.setRanks(body.ranks);
    published.setWorldSize(body.world_size);
  }
  void operator()(const wire::Decided& body) {
    auto decided = out.initDecided();
    write(decided.initKey(), body.key);
    decided.setCommitted(body.committed);
    decided.setCause(schema::text_of(cause_of(body.cause)));
    decided.setOverdue(body.is_overdue);
    if (body.give_up) decided.setGiveUp(static_cast<uint8_t>(*body.give_up));
  }
  void operator()(const wire::Superseded& body) {
    auto superseded = out.initSuperseded();
    superseded.setEpoch(body.epoch);
    superseded.setAddress(schema::text_of(body.address));
  }
  void operator()(const wire::Undecided& body) {
    auto undecided = out.initUndecided();
    write(undecided.initKey(), body.key);
    write_failure(undecided, body.why);
  }
  void operator()(const wire::LayoutsStaged& body) {
    auto staged = out.initLayoutsStaged();
    write(staged.initKey(), body.key);
    write(staged.initRanks(list_size(body.ranks.size())), body.ranks);
  }
  void operator()(const wire::AttemptRoster& body) {
    auto roster = out.initAttemptRoster();
    write(roster.initKey(), body.key);
    roster.setRosterId(schema::data_of(body.roster_id));
  }
  void operator()(const wire::RanksEnded& body) {
    auto ended = out.initRanksEnded();
    auto ranks = ended.initRanks(list_size(body.ranks.size()));
    for (unsigned i = 0; i < ranks.size(); ++i) {
      ranks[i].setRank(body.ranks[i].rank);
      ranks[i].setEnd(schema::text_of(clean_line(body.ranks[i].end, kMaxEndBytes)));
    }
    auto staged = ended.initStaged(list_size(body.staged.size()));
    for (unsigned i = 0; i < staged.size(); ++i) write(staged[i], body.staged[i]);
    ended.setHost(schema::text_of(body.host));
    auto here = ended.initHere(list_size(body.here.size()));
    for (unsigned i = 0; i < here.size(); ++i) here.set(i, body.here[i]);
    ended.setMayReturn(body.may_return);
    ended.setRankLocal(body.rank_local);
    auto expected = ended.initExpected(list_size(body.expected.size()));
    for (unsigned i = 0; i < expected.size(); ++i) expected.set(i, body.expected[i]);
  }
  void operator()(const wire::LocalPlans& body) {
    auto local = out.initLocalPlans();
    write(local.initKey(), body.key);
    local.setHost(schema::text_of(body.host));
    local.setWorldSize(body.world_size);
    plan::write_options(local.initOptions(), body.options);
    write(local.initRanks(list_size(body.ranks.size())), body.ranks);
    auto known = local.initKnown(list_size(body.known.size()));
    for (unsigned i = 0; i < known.size(); ++i) {
      if (!body.known[i].is_zero()) known.set(i, schema::data_of(body.known[i]));
    }
    local.setFollowsPlanner(body.follows_planner);
  }
  void operator()(const wire::PlanGathering& body) {
    auto exchange = out.initPlanGathering();
    write(exchange.initKey(), body.key);
    exchange.setStage(static_cast<uint8_t>(body.stage));
    exchange.setHost(schema::text_of(body.host));
    exchange.setWorldSize(body.world_size);
    plan::write_options(exchange.initOptions(), body.options);
    exchange.setCoordinatorRank(body.coordinator_rank);
    auto plans = exchange.initPlans(list_size(body.plans.size()));
    for (unsigned i = 0; i < plans.size(); ++i) {
      plans[i].setRank(body.plans[i].rank);
      plans[i].setBytes(schema::data_of(as_view(*body.plans[i].bytes)));
    }
  }
  void operator()(const wire::JoinLoad& body) {
    auto join = out.initJoinLoad();
    write(join.initId(), body.id);
    join.setWorldSize(body.world_size);
    join.setAddress(schema::text_of(body.address));
    write(join.initRanks(list_size(body.ranks.size())), body.ranks);
    join.setQuietMs(body.quiet_ms);
  }
  void operator()(const wire::LoadRoster& body) {
    auto roster = out.initLoadRoster();
    write(roster.initId(), body.id);
    write_failure(roster, body.outcome);
    write(roster.initKey(), body.key);
    write(roster.initGroups(list_size(body.groups.size())), body.groups);
    auto addresses = roster.initAddresses(list_size(body.addresses.size()));
    for (unsigned i = 0; i < addresses.size(); ++i) addresses.set(i, schema::text_of(body.addresses[i]));
    auto members = roster.initMembers(list_size(body.members.size()));
    for (unsigned i = 0; i < members.size(); ++i) {
      members[i].setFirst(body.members[i].first);
      members[i].setCount(body.members[i].count);
      members[i].setHost(body.members[i].host);
      members[i].setGroup(body.members[i].group);
    }
    plan::write_passed_over(roster, body.passed_over);
  }
  void operator()(const wire::ChunkRequest& body) { write_chunks(out.initChunkRequest(), body); }
  void operator()(const wire::ChunkData& body) {
    auto chunk = out.initChunkData();
    write(chunk.initId(), body.id);
    chunk.setNumber(body.number);
    chunk.setBytes(schema::data_of(ByteView(body.chunk->bytes)));
  }
  void operator()(const wire::ChunksUnavailable& body) { write_chunks(out.initChunksUnavailable(), body); }
  void operator()(const wire::ChunksCancelled& body) { write_chunks(out.initChunksCancelled(), body); }
  void operator()(const wire::ChunksPending& body) {
    auto pending = out.initChunksPending();
    write_chunks(pending, body);
    pending.setSender(body.host ? *body.host + 1 : 0);
  }
  void operator()(const wire::GlobalPlan& body) {
    auto global = out.initGlobalPlan();
    write(global.initKey(), body.key);
    global.setRosterId(schema::data_of(body.roster_id));
    auto parts = global.initParts(list_size(body.parts.size()));
    for (unsigned i = 0; i < parts.size(); ++i) {
      parts[i].setRank(body.parts[i].rank);
      if (body.parts[i].plan)
        parts[i].setPlan(schema::data_of(ByteView(plan::encode_plan(*body.parts[i].plan))));
    }
  }
};

}  // namespace

Bytes encode_wire(const WireMessage& message) {
  SHOAL_CHECK(message.body != nullptr);
  capnp::MallocMessageBuilder builder;
  auto out = builder.initRoot<schema::Message>();
  out.setFromRole(static_cast<uint8_t>(message.from));
  out.setToRole(static_cast<uint8_t>(message.to));
  std::visit(Encoder{out}, *message.body);
  return schema::framed_bytes(builder);
}

}  // namespace shoal::actors
