#include <algorithm>

#include "local/messages/messages.h"
#include "local/socket/frame_internal.h"
#include "local/status/status_codec_internal.h"
#include "plan/layout/codec.h"
#include "plan/reading/passed_over_codec.h"
#include "plan/saving/options_codec.h"
#include "plan/saving/replica_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/local.capnp.h"

namespace shoal::local {

namespace {

// Encoded layouts of at least this size are sent without a copy, as separate segments.
constexpr size_t kReferencedFromBytes = size_t{64} << 10;
constexpr uint32_t kMaxReferenced = 256;
static_assert(kMaxReferenced <= schema::kMaxSegments / 2);

uint32_t list_size(size_t size) {
  return static_cast<uint32_t>(size);
}

void set_numbers(capnp::List<uint64_t>::Builder out, const Dims& numbers) {
  for (uint32_t i = 0; i < numbers.size(); ++i) out.set(i, numbers[i]);
}

void write_box(schema::Box::Builder out, const Box& box) {
  set_numbers(out.initOffsets(list_size(box.offsets.size())), box.offsets);
  set_numbers(out.initSizes(list_size(box.sizes.size())), box.sizes);
}

template <class Builder>
void write_range(Builder out, const local::StoredRange& range) {
  out.setTarget(range.target);
  write_box(out.initBox(), range.box);
  out.setPieceOffset(range.piece_offset);
  out.setBytes(range.bytes);
  out.setPieceBytes(range.piece_bytes);
}

std::string cut_cause(const std::string& text) {
  return text.size() <= kMaxLocalCauseBytes ? text : text.substr(0, kMaxLocalCauseBytes);
}

// For every message with `code` and `cause`.
template <class Builder>
void write_status(Builder out, const Status& status) {
  out.setCode(static_cast<uint16_t>(status.code()));
  out.setCause(schema::text_of(cut_cause(status.message())));
}

// For every message that names a save of this run.
template <class Builder, class Message>
void write_save(Builder out, const Message& in) {
  out.setStep(in.step);
  out.setAttempt(in.attempt);
}

template <class Builder>
void write_key(Builder out, const AttemptKey& key) {
  out.setGeneration(key.generation);
  write_save(out, key);
}

void write_damage(schema::ReadDamage::Builder out, const ReadDamage& damage) {
  out.setFqn(schema::text_of(damage.fqn));
  write_box(out.initBox(), damage.box);
  out.setRank(damage.rank);
  out.setFile(schema::text_of(damage.file));
  out.setBegin(damage.begin);
  out.setEnd(damage.end);
  out.setCause(schema::text_of(cut_cause(damage.cause)));
  out.setReadInstead(schema::text_of(damage.read_instead));
  out.setBytes(damage.bytes);
}

void write_value(schema::TensorInfo::Builder out, const std::string& fqn, LayoutEntry::Kind kind, DType dtype,
                 const Dims& shape) {
  out.setFqn(schema::text_of(fqn));
  out.setKind(static_cast<schema::LayoutEntry::Kind>(kind));
  out.setDtype(static_cast<uint8_t>(dtype));
  set_numbers(out.initShape(list_size(shape.size())), shape);
}

void write_values(schema::CheckpointInfo::Builder out, const std::vector<TensorMetadata>& values) {
  auto tensors = out.initTensors(list_size(values.size()));
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    write_value(tensors[i], values[i].fqn, values[i].kind, values[i].dtype, values[i].shape);
  }
}

void write_values_of(schema::CheckpointInfo::Builder out, const World& world) {
  const WorldValues values(world);
  auto tensors = out.initTensors(list_size(values.size()));
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const LayoutEntry& entry = *values[i].entry;
    write_value(tensors[i], *values[i].fqn, entry.kind, entry.dtype, entry.shape);
  }
}

// Writes everything except the values.
void write_checkpoint(schema::CheckpointInfo::Builder out, const Metadata& metadata) {
  write_key(out.initKey(), metadata.key);
  out.setWorldSize(metadata.world_size);
  out.setPayloadBytes(metadata.payload_bytes);
  out.setFiles(metadata.files);
  plan::write_user(out, metadata.user);
  if (!metadata.contents_digest.is_zero()) out.setContentsDigest(schema::data_of(metadata.contents_digest));
}

void write_metadata(schema::CheckpointInfo::Builder out, const Metadata& metadata) {
  write_checkpoint(out, metadata);
  write_values(out, metadata.state_dict_metadata);
}

// For every message with roster, layouts, rule version and options.
template <class Builder>
void write_world(Builder out, const World& world, uint32_t rule_version, const SaveOptions& options) {
  out.setRoster(schema::data_of(plan::encode_roster(world.roster)));
  auto layouts = out.initLayouts(list_size(world.layouts.size()));
  for (uint32_t i = 0; i < layouts.size(); ++i)
    layouts.set(i, schema::data_of(plan::encode_layout(*world.layouts[i])));
  out.setRuleVersion(rule_version);
  plan::write_options(out.initOptions(), options);
}

// One overload for each message.
class Writer {
 public:
  explicit Writer(schema::LocalMessage::Builder out) : out_(out) {}

  void operator()(const local::Attach& in) {
    auto out = out_.initAttach();
    out.setSchemaVersion(in.schema_version);
    out.setRank(in.rank);
    out.setWorldSize(in.world_size);
    out.setJobId(schema::text_of(in.job_id));
    out.setPid(in.pid);
    if (!in.process.is_zero()) out.setProcess(schema::data_of(in.process));
    out.setRanksOnHost(in.ranks_on_host);
    out.setReadOnly(in.read_only);
  }
  void operator()(const local::Attached& in) {
    auto out = out_.initAttached();
    out.setGeneration(in.generation);
    out.setNodePid(in.node_pid);
    out.setNodeDeadlineMs(in.node_deadline_ms);
    out.setGrantsStaging(in.grants_staging);
    out.setCountsReturns(in.counts_returns);
  }
  void operator()(const local::Failed& in) { write_status(out_.initFailed(), in.why); }
  void operator()(const local::LayoutUpdate& in) {
    auto out = out_.initLayout();
    out.setLayoutId(schema::data_of(in.layout->id()));
    out.setLayout(schema::data_of(plan::encode_layout(*in.layout)));
    plan::write_options(out.initOptions(), in.options);
  }
  void operator()(const local::RosterUpdate& in) {
    write_world(out_.initRoster(), *in.world, in.rule_version, in.options);
  }
  void operator()(const local::Slab& in) {
    auto out = out_.initSlab();
    out.setSlabId(in.slab_id);
    out.setBytes(in.bytes);
  }
  void operator()(const local::Staged& in) {
    auto out = out_.initStaged();
    write_save(out, in);
    out.setLayoutId(schema::data_of(in.layout_id));
    if (!in.roster_id.is_zero()) out.setRosterId(schema::data_of(in.roster_id));
    if (!in.plan_id.is_zero()) out.setPlanId(schema::data_of(in.plan_id));
    out.setSlabId(in.slab_id);
    out.setAgain(in.again);
    out.setInParts(in.in_parts);
    auto pieces = out.initPieces(list_size(in.pieces.size()));
    for (uint32_t i = 0; i < pieces.size(); ++i) {
      auto piece = pieces[i];
      piece.setEntry(in.pieces[i].entry);
      piece.setLocalBox(in.pieces[i].local_box);
      piece.setLocalOffset(in.pieces[i].local_offset);
      piece.setBytes(in.pieces[i].bytes);
      piece.setSlabOffset(in.pieces[i].slab_offset);
    }
    plan::write_user(out, in.user);
    if (in.replicas) plan::write_replicas(out.initReplicas(), *in.replicas);
  }
  void operator()(const local::SlabFree& in) {
    auto out = out_.initSlabFree();
    out.setSlabId(in.slab_id);
    write_save(out, in);
    if (in.durable) write_durable(out.initDurable(), *in.durable);
  }
  void operator()(const local::StillWriting& in) { write_save(out_.initStillWriting(), in); }
  void operator()(const local::SaveReturned& in) {
    auto out = out_.initSaveReturned();
    write_save(out, in);
    out.setBlockedNs(in.blocked_ns);
    out.setWaitedNs(in.waited_ns);
  }
  void operator()(const local::Decided& in) {
    auto out = out_.initDecided();
    write_save(out, in);
    out.setCommitted(in.outcome.ok());
    write_status(out, in.outcome);
    if (!in.outcome.ok()) return;
    if (!in.warning.empty()) out.setCause(schema::text_of(cut_cause(in.warning)));
    write_metadata(out.initCheckpoint(), in.checkpoint ? *in.checkpoint : Metadata());
  }
  void operator()(const local::Latest& in) { out_.setLatest(in.request_id); }
  void operator()(const local::Load& in) {
    auto out = out_.initLoad();
    out.setRequestId(in.request_id);
    out.setLatest(in.latest);
    out.setStep(in.step);
    out.setAttempt(in.attempt);
    out.setOrdinal(in.ordinal);
    out.setSlabId(in.slab_id);
    out.setKeepsOpen(in.keeps_open);
    out.setOf(in.of);
    out.setWantsLayouts(in.wants_layouts);
    out.setReadsFiles(in.reads_files);
    // The layout comes first: encoding it takes memory, and the encoded targets do not exist yet.
    if (in.sharing) write_sharing(out.initSharing(), *in.sharing);
    auto targets = out.initTargets(list_size(in.targets.size()));
    local::LoadTarget target;
    for (uint32_t i = 0; i < targets.size(); ++i) {
      in.targets.read(i, target);
      write_target(targets[i], target);
    }
  }
  void operator()(const local::StagingRequest& in) {
    auto out = out_.initStagingRequest();
    out.setBytes(in.bytes);
    out.setSlabs(in.slabs);
    out.setBytesMax(in.bytes_max);
    out.setBecause(schema::text_of(in.because));
    out.setNumber(in.number);
  }
  void operator()(const local::StagingGranted& in) {
    auto out = out_.initStagingGranted();
    out.setSlabs(in.slabs);
    out.setSlabBytes(in.slab_bytes);
    out.setInParts(in.in_parts);
    write_status(out, in.outcome);
    out.setNumber(in.number);
  }
  void operator()(const local::StagingKept& in) {
    auto out = out_.initStagingKept();
    out.setBytes(in.bytes);
    auto ids = out.initSlabIds(list_size(in.slab_ids.size()));
    for (uint32_t i = 0; i < ids.size(); ++i) ids.set(i, in.slab_ids[i]);
    out.setSlabs(in.slabs);
  }
  void operator()(const local::GiveBack&) { out_.setGiveBack(); }
  void operator()(const local::PartRequest& in) {
    auto out = out_.initPartRequest();
    out.setSlabId(in.slab_id);
    write_save(out, in);
    out.setNumber(in.number);
    auto ranges = out.initRanges(list_size(in.ranges.size()));
    for (uint32_t i = 0; i < ranges.size(); ++i) {
      ranges[i].setFrom(in.ranges[i].from);
      ranges[i].setBytes(in.ranges[i].bytes);
      ranges[i].setSlabOffset(in.ranges[i].slab_offset);
    }
  }
  void operator()(const local::PartStaged& in) {
    auto out = out_.initPartStaged();
    out.setSlabId(in.slab_id);
    out.setNumber(in.number);
    write_status(out, in.outcome);
  }
  void operator()(const local::Close& in) { out_.setClose(in.request_id); }
  void operator()(const local::List& in) {
    auto out = out_.initList();
    out.setRequestId(in.request_id);
    out.setNewest(in.newest);
  }
  void operator()(const local::Listing& in) {
    auto out = out_.initListing();
    out.setRequestId(in.request_id);
    write_status(out, in.outcome);
    if (!in.outcome.ok()) return;
    out.setOmitted(in.list->omitted);
    auto attempts = out.initAttempts(list_size(in.list->attempts.size()));
    for (uint32_t i = 0; i < attempts.size(); ++i) {
      const CheckpointInfo& info = in.list->attempts[i];
      write_key(attempts[i].initKey(), info.key);
      attempts[i].setState(static_cast<uint8_t>(info.state));
      attempts[i].setWorldSize(info.world_size);
      attempts[i].setFiles(info.files);
      attempts[i].setPayloadBytes(info.payload_bytes);
      attempts[i].setUnixTimeNs(info.unix_time_ns);
      attempts[i].setCause(schema::text_of(info.cause));
    }
  }
  void operator()(const local::Found& in) {
    auto out = out_.initFound();
    out.setRequestId(in.request_id);
    write_status(out, in.outcome);
    if (!in.outcome.ok()) return;
    plan::write_passed_over(out, in.passed_over);
    auto checkpoint = out.initCheckpoint();
    write_checkpoint(checkpoint, in.checkpoint);
    if (!in.layouts) {
      in.values_of ? write_values_of(checkpoint, *in.values_of)
                   : write_values(checkpoint, in.checkpoint.state_dict_metadata);
      return;
    }
    if (in.layouts->encoded) {
      write_encoded(out.initLayouts(), *in.layouts);
    } else {
      write_world(out.initLayouts(), *in.layouts->world, in.layouts->rule_version, in.layouts->options);
    }
  }
  void operator()(const local::Loaded& in) {
    auto out = out_.initLoaded();
    out.setRequestId(in.request_id);
    out.setBatch(in.batch);
    auto pieces = out.initPieces(list_size(in.pieces.size()));
    for (uint32_t i = 0; i < pieces.size(); ++i) {
      write_range(pieces[i], in.pieces[i]);
      pieces[i].setSlabOffset(in.pieces[i].slab_offset);
    }
  }
  void operator()(const local::Placed& in) {
    auto out = out_.initPlaced();
    out.setRequestId(in.request_id);
    out.setBatch(in.batch);
  }
  void operator()(const local::FilesToRead& in) {
    auto out = out_.initFilesToRead();
    out.setRequestId(in.request_id);
    out.setBatch(in.batch);
    auto files = out.initFiles(list_size(in.files.size()));
    for (uint32_t i = 0; i < files.size(); ++i) files.set(i, schema::text_of(in.files[i]));
    auto ranges = out.initRanges(list_size(in.ranges.size()));
    for (uint32_t i = 0; i < ranges.size(); ++i) {
      write_range(ranges[i], in.ranges[i]);
      ranges[i].setFile(in.ranges[i].file);
      ranges[i].setFileOffset(in.ranges[i].file_offset);
    }
    set_numbers(out.initDigests(list_size(in.digests.size())), in.digests);
  }
  void operator()(const local::FilesRead& in) {
    auto out = out_.initFilesRead();
    out.setRequestId(in.request_id);
    out.setBatch(in.batch);
    auto unread = out.initUnread(list_size(in.unread.size()));
    for (uint32_t i = 0; i < unread.size(); ++i) {
      unread[i].setRange(in.unread[i].range);
      unread[i].setBegin(in.unread[i].begin);
      unread[i].setEnd(in.unread[i].end);
    }
  }
  void operator()(const local::LoadDone& in) {
    auto out = out_.initLoadDone();
    out.setRequestId(in.request_id);
    write_status(out, in.outcome);
    auto times = out.initTimes();
    times.setWasShared(in.times.was_shared);
    times.setChoosingNs(in.times.choosing_ns);
    times.setPlanningNs(in.times.planning_ns);
    times.setReadingNs(in.times.reading_ns);
    times.setReceivingNs(in.times.receiving_ns);
    times.setPlacingNs(in.times.placing_ns);
    times.setBytesRead(in.times.bytes_read);
    times.setBytesReceived(in.times.bytes_received);
    times.setChunksGivenUp(in.times.chunks_given_up);
    out.setDamagedCount(in.damaged.count);
    auto damaged = out.initDamaged(list_size(in.damaged.named.size()));
    for (uint32_t i = 0; i < damaged.size(); ++i) write_damage(damaged[i], in.damaged.named[i]);
  }
  void operator()(const local::Refused& in) {
    auto out = out_.initRefused();
    write_save(out, in);
    write_status(out, in.why);
  }
  void operator()(const local::Detach&) { out_.setDetach(); }
  void operator()(const local::StatusRequest&) { out_.setStatusRequest(); }
  void operator()(const local::StatusReport& in) { write_node_status(out_.initStatus(), *in.status); }
  void operator()(const local::JobStatusRequest&) { out_.setJobStatusRequest(); }
  void operator()(const local::JobStatusReport& in) { write_job_status(out_.initJobStatus(), *in.status); }
  void operator()(const local::Written& in) {
    auto out = out_.initWritten();
    write_save(out, in);
    write_durable(out.initAssignment(), in.assignment);
    plan::write_user(out, in.user);
    if (in.replicas) plan::write_replicas(out.initReplicas(), *in.replicas);
  }
  void operator()(const local::PlanRequest& in) {
    auto out = out_.initPlanRequest();
    write_save(out, in);
    out.setLayoutId(schema::data_of(in.layout_id));
    if (!in.known.is_zero()) out.setKnown(schema::data_of(in.known));
    out.setFollowsPlanner(in.follows_planner);
  }
  void operator()(const local::PlanGathering& in) {
    auto out = out_.initPlanGathering();
    write_save(out, in);
    out.setStage(static_cast<uint8_t>(in.stage));
    out.setCoordinatorRank(in.coordinator_rank);
    plan::write_options(out.initOptions(), in.options);
    auto plans = out.initPlans(list_size(in.plans.size()));
    for (uint32_t i = 0; i < plans.size(); ++i) plans.set(i, schema::data_of(as_view(*in.plans[i])));
  }
  void operator()(const local::PlanUpdate& in) {
    auto out = out_.initPlan();
    write_save(out, in);
    out.setRosterId(schema::data_of(in.roster_id));
    if (in.plan) out.setPlan(schema::data_of(plan::encode_plan(*in.plan)));
  }
  void operator()(const local::NotStaged& in) {
    auto out = out_.initNotStaged();
    write_save(out, in);
    write_status(out, in.why);
  }
  void operator()(const local::Ping&) { out_.setPing(); }
  void operator()(const local::Pong&) { out_.setPong(); }

 private:
  static void write_encoded(schema::CheckpointLayouts::Builder out, const local::StoredLayouts& in) {
    out.setRoster(schema::data_of(in.encoded->roster));
    auto layouts = out.initLayouts(list_size(in.encoded->layouts.size()));
    uint32_t referenced = 0;
    for (uint32_t i = 0; i < layouts.size(); ++i) {
      const ByteView layout = in.encoded->layouts[i];
      const uintptr_t place = reinterpret_cast<uintptr_t>(layout.data());
      const bool is_aligned = (place | layout.size()) % sizeof(capnp::word) == 0;
      if (is_aligned && layout.size() >= kReferencedFromBytes && referenced < kMaxReferenced) {
        ++referenced;
        auto orphanage = capnp::Orphanage::getForMessageContaining(out);
        layouts.adopt(i, orphanage.referenceExternalData(schema::data_of(layout)));
      } else {
        layouts.set(i, schema::data_of(layout));
      }
    }
    out.setRuleVersion(in.rule_version);
    plan::write_options(out.initOptions(), in.options);
  }
  static void write_durable(schema::DurableAssignment::Builder out, const local::DurableAssignment& in) {
    out.setRosterId(schema::data_of(in.roster_id));
    out.setPlanId(schema::data_of(in.plan_id));
    auto files = out.initFiles(list_size(in.files.size()));
    for (uint32_t i = 0; i < files.size(); ++i) {
      files[i].setIndex(in.files[i].index);
      files[i].setSize(in.files[i].size);
      files[i].setHeaderDigest(schema::data_of(in.files[i].header_digest));
      files[i].setPayloadBytes(in.files[i].payload_bytes);
    }
  }
  static void write_sharing(schema::LoadSharing::Builder out, const local::Load::Sharing& in) {
    out.setMethod(static_cast<uint8_t>(in.method));
    out.setRank(in.rank);
    out.setWorldSize(in.world_size);
    out.setRound(in.round);
    out.setLayout(schema::data_of(ByteView(plan::encode_layout(*in.layout))));
    auto among = out.initAmong(list_size(in.among.size()));
    for (uint32_t i = 0; i < among.size(); ++i) among.set(i, in.among[i]);
  }
  static void write_target(schema::LoadTarget::Builder out, const local::LoadTarget& in) {
    out.setFqn(schema::text_of(in.fqn));
    out.setKind(static_cast<schema::LayoutEntry::Kind>(in.kind));
    out.setDtype(static_cast<uint8_t>(in.dtype));
    set_numbers(out.initShape(list_size(in.shape.size())), in.shape);
    auto boxes = out.initBoxes(list_size(in.boxes.size()));
    for (uint32_t i = 0; i < boxes.size(); ++i) write_box(boxes[i], in.boxes[i]);
  }

  schema::LocalMessage::Builder out_;
};

}  // namespace

LocalFrame::LocalFrame(const LocalMessage& message) {
  std::visit(Writer(builder_.initRoot<schema::LocalMessage>()), message);
  parts_ = schema::framed_parts(builder_);
}

Bytes encode_local(const LocalMessage& message) {
  return schema::framed_bytes(LocalFrame(message).builder());
}

}  // namespace shoal::local
