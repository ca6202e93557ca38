#include "local/messages/decode_internal.h"
#include "local/status/status_codec_internal.h"

namespace shoal::local {

namespace {

Result<LocalMessage> read_message(schema::LocalMessage::Attach::Reader in) {
  auto job_id = in.getJobId();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(job_id, base::kMaxJobIdBytes, "job id").status());
  local::Attach out{in.getSchemaVersion(),
                    in.getRank(),
                    in.getWorldSize(),
                    std::string(schema::view_of(job_id)),
                    in.getPid(),
                    Nonce(),
                    0};
  if (in.hasProcess()) {
    SHOAL_ASSIGN_OR_RETURN(out.process, Hash128::from_bytes(schema::view_of(in.getProcess())));
  }
  out.read_only = in.getReadOnly();
  if (!is_clean_utf8(out.job_id)) return malformed("job id");
  if (out.world_size == 0 || out.world_size > kMaxWorldSize || out.rank >= out.world_size) {
    return malformed(fmt::format("attach: rank {} is not in a world of {}", out.rank, out.world_size));
  }
  out.ranks_on_host = in.getRanksOnHost();
  if (out.ranks_on_host > out.world_size) {
    return malformed(
        fmt::format("attach: {} ranks on one host, in a world of {}", out.ranks_on_host, out.world_size));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::Layout::Reader in) {
  local::LayoutUpdate out;
  SHOAL_ASSIGN_OR_RETURN(LayoutId id, Hash128::from_bytes(schema::view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(out.layout, plan::decode_layout(schema::view_of(in.getLayout())));
  if (out.layout->id() != id) return malformed("layout: its bytes do not match its id");
  SHOAL_ASSIGN_OR_RETURN(out.options, plan::read_options(in.getOptions()));
  return LocalMessage(std::move(out));
}

// For every message with a roster and its layouts.

Result<LocalMessage> read_message(schema::LocalMessage::Roster::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<const World> world, read_world(in));
  SHOAL_ASSIGN_OR_RETURN(SaveOptions options, plan::read_options(in.getOptions()));
  return LocalMessage(local::RosterUpdate{std::move(world), in.getRuleVersion(), options});
}

Result<LocalMessage> read_message(schema::LocalMessage::Slab::Reader in) {
  if (in.getBytes() == 0 || in.getBytes() > kMaxSlabBytes) {
    return Status(Code::too_large,
                  fmt::format("a slab has {} bytes: from 1 to {} are allowed", in.getBytes(), kMaxSlabBytes));
  }
  return LocalMessage(local::Slab{in.getSlabId(), in.getBytes()});
}

Result<LocalMessage> read_message(schema::LocalMessage::Staged::Reader in) {
  local::Staged out;
  out.step = in.getStep();
  out.attempt = in.getAttempt();
  SHOAL_ASSIGN_OR_RETURN(out.layout_id, Hash128::from_bytes(schema::view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(out.roster_id, read_hash_or_zero(in.getRosterId()));
  SHOAL_ASSIGN_OR_RETURN(out.plan_id, read_hash_or_zero(in.getPlanId()));
  out.slab_id = in.getSlabId();
  out.again = in.getAgain();
  out.in_parts = in.getInParts();
  auto pieces = in.getPieces();
  SHOAL_ASSIGN_OR_RETURN(size_t count, schema::bounded_size(pieces, kMaxLocalPieces, "staged pieces"));
  out.pieces.reserve(count);
  for (auto piece : pieces) {
    out.pieces.push_back({piece.getEntry(), piece.getLocalBox(), piece.getLocalOffset(), piece.getBytes(),
                          piece.getSlabOffset()});
    const local::StagedPiece& last = out.pieces.back();
    if (last.bytes > kMaxSlabBytes || last.slab_offset > kMaxSlabBytes - last.bytes ||
        last.local_offset > UINT64_MAX - last.bytes) {
      return malformed("staged piece: its bytes exceed the largest slab");
    }
    if (out.pieces.size() < 2) continue;
    const local::StagedPiece& before = out.pieces[out.pieces.size() - 2];
    if (std::tie(before.entry, before.local_box, before.local_offset) >=
        std::tie(last.entry, last.local_box, last.local_offset)) {
      return malformed("staged pieces: they are not in ascending order");
    }
  }
  SHOAL_ASSIGN_OR_RETURN(out.user, plan::read_shared_user(in));
  if (in.hasReplicas()) {
    SHOAL_ASSIGN_OR_RETURN(out.replicas, plan::read_replicas(in.getReplicas()));
  }
  return LocalMessage(std::move(out));
}

Result<local::DurableAssignment> read_durable(schema::DurableAssignment::Reader in) {
  local::DurableAssignment out;
  SHOAL_ASSIGN_OR_RETURN(out.roster_id, Hash128::from_bytes(schema::view_of(in.getRosterId())));
  SHOAL_ASSIGN_OR_RETURN(out.plan_id, Hash128::from_bytes(schema::view_of(in.getPlanId())));
  auto files = in.getFiles();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(files, kMaxFilesPerRank, "files of an assignment").status());
  for (auto file_in : files) {
    local::DurableFile file{file_in.getIndex(), file_in.getSize(), {}, file_in.getPayloadBytes()};
    if (file.index != out.files.size())
      return malformed("files of an assignment: they are not numbered from 0");
    if (file.payload_bytes > file.size)
      return malformed("file of an assignment: its payload exceeds its size");
    SHOAL_ASSIGN_OR_RETURN(file.header_digest,
                           Hash128::from_bytes(schema::view_of(file_in.getHeaderDigest())));
    out.files.push_back(file);
  }
  return out;
}

Result<LocalMessage> read_message(schema::LocalMessage::SlabFree::Reader in) {
  local::SlabFree out{in.getSlabId(), in.getStep(), in.getAttempt(), std::nullopt};
  if (in.hasDurable()) {
    SHOAL_ASSIGN_OR_RETURN(out.durable, read_durable(in.getDurable()));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::Decided::Reader in) {
  local::Decided out;
  out.step = in.getStep();
  out.attempt = in.getAttempt();
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  if (out.outcome.ok() != in.getCommitted())
    return malformed("decision: it must have either a commit or an error");
  if (out.outcome.ok()) {
    SHOAL_ASSIGN_OR_RETURN(Metadata checkpoint, read_metadata(in.getCheckpoint()));
    out.checkpoint = std::make_shared<const Metadata>(std::move(checkpoint));
    out.warning = fit_to_print(schema::view_of(in.getCause()));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::PlanRequest::Reader in) {
  local::PlanRequest out{in.getStep(), in.getAttempt(), {}, {}};
  SHOAL_ASSIGN_OR_RETURN(out.layout_id, Hash128::from_bytes(schema::view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(out.known, read_hash_or_zero(in.getKnown()));
  out.follows_planner = in.getFollowsPlanner();
  return LocalMessage(out);
}

Result<LocalMessage> read_message(schema::LocalMessage::PlanGathering::Reader in) {
  if (in.getStage() >= plan::kGatherStages) return malformed("stage of a plan gather");
  local::PlanGathering out{in.getStep(),
                           in.getAttempt(),
                           static_cast<plan::GatherStage>(in.getStage()),
                           in.getCoordinatorRank(),
                           {},
                           {}};
  SHOAL_ASSIGN_OR_RETURN(out.options, plan::read_options(in.getOptions()));
  const bool of_one = out.stage == plan::GatherStage::offered || out.stage == plan::GatherStage::delivered;
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getPlans(), of_one ? 1 : kMaxWorldSize, "plans of ranks").status());
  if (in.getPlans().size() == 0) return malformed("plan gather: it has no plan");
  for (auto plan : in.getPlans()) {
    out.plans.push_back(std::make_shared<const std::string>(as_text(schema::view_of(plan))));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::Plan::Reader in) {
  local::PlanUpdate out{in.getStep(), in.getAttempt(), {}, nullptr};
  SHOAL_ASSIGN_OR_RETURN(out.roster_id, Hash128::from_bytes(schema::view_of(in.getRosterId())));
  if (in.hasPlan()) {
    SHOAL_ASSIGN_OR_RETURN(out.plan, plan::decode_plan(schema::view_of(in.getPlan())));
    if (out.plan->roster_id != out.roster_id) return malformed("plan: it belongs to another roster");
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::StagingRequest::Reader in) {
  const uint32_t slabs = in.getSlabs();
  if (slabs == 0 || slabs > kMaxSlabsPerClient || in.getBytes() == 0 || in.getBytes() > kMaxSlabBytes) {
    return malformed(fmt::format("staging memory: {} slabs of {} bytes", slabs, in.getBytes()));
  }
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getBecause(), kMaxLocalCauseBytes, "limit of memory").status());
  local::StagingRequest out{in.getBytes(), slabs, in.getBytesMax(),
                            std::string(schema::view_of(in.getBecause())), in.getNumber()};
  if (!is_clean_utf8(out.because)) return malformed("limit of memory");
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::StagingGranted::Reader in) {
  local::StagingGranted out{in.getSlabs(), in.getSlabBytes(), in.getInParts(), {}, in.getNumber()};
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  const bool has_slabs = out.slabs > 0 && out.slabs <= kMaxSlabsPerClient && out.slab_bytes > 0 &&
                         out.slab_bytes <= kMaxSlabBytes;
  if (out.outcome.ok() && !has_slabs) {
    return malformed(fmt::format("grant of staging memory: {} slabs of {} bytes", out.slabs, out.slab_bytes));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::StagingKept::Reader in) {
  local::StagingKept out{in.getBytes(), {}, in.getSlabs()};
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getSlabIds(), kMaxSlabsPerClient, "slabs that are kept").status());
  for (uint32_t id : in.getSlabIds()) out.slab_ids.push_back(id);
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::PartRequest::Reader in) {
  local::PartRequest out{in.getSlabId(), in.getStep(), in.getAttempt(), in.getNumber(), {}};
  SHOAL_ASSIGN_OR_RETURN(size_t count,
                         schema::bounded_size(in.getRanges(), kMaxPartRanges, "ranges of a part"));
  out.ranges.reserve(count);
  for (auto range : in.getRanges()) {
    out.ranges.push_back({range.getFrom(), range.getBytes(), range.getSlabOffset()});
    const local::PartRange& last = out.ranges.back();
    if (last.bytes > kMaxSlabBytes || last.from > kMaxSlabBytes - last.bytes ||
        last.slab_offset > kMaxSlabBytes - last.bytes) {
      return malformed("range of a part: its bytes exceed the largest slab");
    }
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::SaveReturned::Reader in) {
  return LocalMessage(SaveReturned{in.getStep(), in.getAttempt(), in.getBlockedNs(), in.getWaitedNs()});
}

Result<LocalMessage> read_message(schema::LocalMessage::PartStaged::Reader in) {
  local::PartStaged out{in.getSlabId(), in.getNumber(), {}};
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::Attached::Reader in) {
  return LocalMessage(Attached{in.getGeneration(), in.getNodePid(), in.getNodeDeadlineMs(),
                               in.getGrantsStaging(), in.getCountsReturns()});
}

Result<LocalMessage> read_message(schema::LocalMessage::Refused::Reader in) {
  Status why;
  SHOAL_RETURN_IF_ERROR(read_error(in, "refusal", why));
  return LocalMessage(Refused{in.getStep(), in.getAttempt(), std::move(why)});
}

Result<LocalMessage> read_message(schema::LocalMessage::Written::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(DurableAssignment assignment, read_durable(in.getAssignment()));
  SHOAL_ASSIGN_OR_RETURN(UserMetadataPtr user, plan::read_shared_user(in));
  Written out{in.getStep(), in.getAttempt(), std::move(assignment), std::move(user)};
  if (in.hasReplicas()) {
    SHOAL_ASSIGN_OR_RETURN(out.replicas, plan::read_replicas(in.getReplicas()));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::NotStaged::Reader in) {
  Status why;
  SHOAL_RETURN_IF_ERROR(read_error(in, "a save that was not staged", why));
  return LocalMessage(NotStaged{in.getStep(), in.getAttempt(), std::move(why)});
}

// Messages of few fields.
Result<LocalMessage> read_small(schema::LocalMessage::Reader in) {
  switch (in.which()) {
    case schema::LocalMessage::FAILED: {
      Status why;
      SHOAL_RETURN_IF_ERROR(read_error(in.getFailed(), "failure", why));
      return LocalMessage(Failed{std::move(why)});
    }
    case schema::LocalMessage::LIST:
      return LocalMessage(List{in.getList().getRequestId(), in.getList().getNewest()});
    case schema::LocalMessage::PLACED:
      return LocalMessage(Placed{in.getPlaced().getRequestId(), in.getPlaced().getBatch()});
    case schema::LocalMessage::STATUS: {
      SHOAL_ASSIGN_OR_RETURN(NodeStatus status, read_node_status(in.getStatus()));
      return LocalMessage(StatusReport{std::make_shared<const NodeStatus>(std::move(status))});
    }
    case schema::LocalMessage::JOB_STATUS: {
      SHOAL_ASSIGN_OR_RETURN(JobStatus status, read_job_status(in.getJobStatus()));
      return LocalMessage(JobStatusReport{std::make_shared<const JobStatus>(std::move(status))});
    }
    case schema::LocalMessage::JOB_STATUS_REQUEST:
      return LocalMessage(JobStatusRequest{});
    case schema::LocalMessage::LATEST:
      return LocalMessage(Latest{in.getLatest()});
    case schema::LocalMessage::CLOSE:
      return LocalMessage(Close{in.getClose()});
    case schema::LocalMessage::STATUS_REQUEST:
      return LocalMessage(StatusRequest{});
    case schema::LocalMessage::DETACH:
      return LocalMessage(Detach{});
    case schema::LocalMessage::GIVE_BACK:
      return LocalMessage(GiveBack{});
    case schema::LocalMessage::PING:
      return LocalMessage(Ping{});
    case schema::LocalMessage::PONG:
      return LocalMessage(Pong{});
    case schema::LocalMessage::STILL_WRITING:
      return LocalMessage(StillWriting{in.getStillWriting().getStep(), in.getStillWriting().getAttempt()});
    case schema::LocalMessage::SAVE_RETURNED:
      return read_message(in.getSaveReturned());
    case schema::LocalMessage::PART_STAGED:
      return read_message(in.getPartStaged());
    case schema::LocalMessage::STAGING_KEPT:
      return read_message(in.getStagingKept());
    case schema::LocalMessage::REFUSED:
      return read_message(in.getRefused());
    default:
      return Status(Code::version,
                    "a local message has a type that this program does not know: use one version of Shoal in "
                    "the trainer and its node");
  }
}

Result<LocalMessage> read_any(schema::LocalMessage::Reader in) {
  switch (in.which()) {
    case schema::LocalMessage::ATTACH:
      return read_message(in.getAttach());
    case schema::LocalMessage::ATTACHED:
      return read_message(in.getAttached());
    case schema::LocalMessage::LAYOUT:
      return read_message(in.getLayout());
    case schema::LocalMessage::ROSTER:
      return read_message(in.getRoster());
    case schema::LocalMessage::SLAB:
      return read_message(in.getSlab());
    case schema::LocalMessage::STAGED:
      return read_message(in.getStaged());
    case schema::LocalMessage::SLAB_FREE:
      return read_message(in.getSlabFree());
    case schema::LocalMessage::DECIDED:
      return read_message(in.getDecided());
    case schema::LocalMessage::LOAD:
      return read_load_message(in.getLoad());
    case schema::LocalMessage::LISTING:
      return read_load_message(in.getListing());
    case schema::LocalMessage::FOUND:
      return read_load_message(in.getFound());
    case schema::LocalMessage::FILES_TO_READ:
      return read_load_message(in.getFilesToRead());
    case schema::LocalMessage::FILES_READ:
      return read_load_message(in.getFilesRead());
    case schema::LocalMessage::LOADED:
      return read_load_message(in.getLoaded());
    case schema::LocalMessage::LOAD_DONE:
      return read_load_message(in.getLoadDone());
    case schema::LocalMessage::WRITTEN:
      return read_message(in.getWritten());
    case schema::LocalMessage::NOT_STAGED:
      return read_message(in.getNotStaged());
    case schema::LocalMessage::PLAN_REQUEST:
      return read_message(in.getPlanRequest());
    case schema::LocalMessage::PLAN:
      return read_message(in.getPlan());
    case schema::LocalMessage::PLAN_GATHERING:
      return read_message(in.getPlanGathering());
    case schema::LocalMessage::STAGING_REQUEST:
      return read_message(in.getStagingRequest());
    case schema::LocalMessage::STAGING_GRANTED:
      return read_message(in.getStagingGranted());
    case schema::LocalMessage::PART_REQUEST:
      return read_message(in.getPartRequest());
    case schema::LocalMessage::FAILED:
    case schema::LocalMessage::LATEST:
    case schema::LocalMessage::LIST:
    case schema::LocalMessage::PLACED:
    case schema::LocalMessage::STATUS:
    case schema::LocalMessage::CLOSE:
    case schema::LocalMessage::STATUS_REQUEST:
    case schema::LocalMessage::JOB_STATUS:
    case schema::LocalMessage::JOB_STATUS_REQUEST:
    case schema::LocalMessage::DETACH:
    case schema::LocalMessage::GIVE_BACK:
    case schema::LocalMessage::PING:
    case schema::LocalMessage::PONG:
    case schema::LocalMessage::STILL_WRITING:
    case schema::LocalMessage::SAVE_RETURNED:
    case schema::LocalMessage::PART_STAGED:
    case schema::LocalMessage::STAGING_KEPT:
    case schema::LocalMessage::REFUSED:
      break;
  }
  return read_small(in);
}

}  // namespace

Result<LocalMessage> decode_local(ByteView bytes) {
  return schema::read_checked<schema::LocalMessage>(bytes, {kMaxLocalMessageBytes}, read_any);
}

}  // namespace shoal::local
