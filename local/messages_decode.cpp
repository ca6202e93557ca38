#include <fmt/format.h>

#include <algorithm>

#include "local/messages.h"
#include "local/status_codec_internal.h"
#include "plan/codec.h"
#include "plan/options_codec.h"
#include "schema/checked_reader_internal.h"
#include "schema/local.capnp.h"

namespace shoal {

namespace {

Status malformed(std::string_view what) {
  return Status(Code::corrupt, fmt::format("malformed {}", what));
}

// What bytes say is never our caller's fault.
Status as_corrupt(const Status& status, std::string_view what) {
  Code code = status.code() == Code::invalid_argument ? Code::corrupt : status.code();
  return Status(code, status.message()).with_context(what);
}

Result<Dims> read_numbers(capnp::List<uint64_t>::Reader in, std::string_view what) {
  SHOAL_RETURN_IF_ERROR(bounded_size(in, kMaxDims, what).status());
  Dims out;
  out.reserve(in.size());
  for (uint64_t number : in) out.push_back(number);
  return out;
}

Result<Box> read_box(schema::Box::Reader in) {
  Box box;
  SHOAL_ASSIGN_OR_RETURN(box.offsets, read_numbers(in.getOffsets(), "offsets of a box"));
  SHOAL_ASSIGN_OR_RETURN(box.sizes, read_numbers(in.getSizes(), "sizes of a box"));
  if (box.offsets.size() != box.sizes.size()) return malformed("box: as many offsets as sizes are needed");
  return box;
}

Result<Hash128> read_hash_or_zero(capnp::Data::Reader in) {
  if (in.size() == 0) return Hash128{};
  return Hash128::from_bytes(view_of(in));
}

std::string fit_to_print(std::string_view given) {
  std::string text(given);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// For every message with `code` and `cause`. Codes of a newer program become Code::internal; the text is made
// fit to print.
template <class Reader>
Status read_status(Reader in, Status& out) {
  auto cause = in.getCause();
  SHOAL_RETURN_IF_ERROR(bounded_size(cause, kMaxLocalCauseBytes, "cause of an error").status());
  uint16_t code = in.getCode();
  out = Status();
  if (code == 0) return ok_status();
  if (code > static_cast<uint16_t>(kLastCode)) code = static_cast<uint16_t>(Code::internal);
  out = Status(static_cast<Code>(code), fit_to_print(view_of(cause)));
  return ok_status();
}

// The status of a message that exists only to report an error.
template <class Reader>
Status read_error(Reader in, std::string_view what, Status& out) {
  SHOAL_RETURN_IF_ERROR(read_status(in, out));
  if (out.ok()) return malformed(fmt::format("{}: it names no error", what));
  return ok_status();
}

Result<LayoutEntry::Kind> read_kind(schema::LayoutEntry::Kind in) {
  if (static_cast<uint16_t>(in) > static_cast<uint16_t>(LayoutEntry::Kind::object)) {
    return malformed("kind of a value");
  }
  return static_cast<LayoutEntry::Kind>(in);
}

// For TensorInfo and LoadTarget: fqn, kind, dtype and shape, each valid by itself.
template <class Reader, class Value>
Status read_value(Reader in, Value& out) {
  auto fqn = in.getFqn();
  SHOAL_RETURN_IF_ERROR(bounded_size(fqn, kMaxFqnBytes, "fqn").status());
  out.fqn = view_of(fqn);
  if (Status status = validate_fqn(out.fqn); !status.ok()) return as_corrupt(status, "fqn");
  SHOAL_ASSIGN_OR_RETURN(out.kind, read_kind(in.getKind()));
  SHOAL_ASSIGN_OR_RETURN(out.dtype, dtype_from_number(in.getDtype()));
  SHOAL_ASSIGN_OR_RETURN(out.shape, read_numbers(in.getShape(), "shape"));
  if (!element_count(out.shape)) return malformed(fmt::format("shape of '{}': it overflows", out.fqn));
  return ok_status();
}

Result<Metadata> read_metadata(schema::CheckpointInfo::Reader in) {
  Metadata metadata;
  metadata.key = {in.getKey().getGeneration(), in.getKey().getStep(), in.getKey().getAttempt()};
  metadata.world_size = in.getWorldSize();
  metadata.payload_bytes = in.getPayloadBytes();
  metadata.files = in.getFiles();
  auto tensors = in.getTensors();
  SHOAL_RETURN_IF_ERROR(bounded_size(tensors, kMaxEntries, "tensors of a checkpoint").status());
  metadata.state_dict_metadata.reserve(tensors.size());
  for (auto tensor_in : tensors) {
    TensorMetadata tensor;
    SHOAL_RETURN_IF_ERROR(read_value(tensor_in, tensor));
    metadata.state_dict_metadata.push_back(std::move(tensor));
  }
  return metadata;
}

Result<LocalMessage> read_message(schema::LocalMessage::Attach::Reader in) {
  auto job_id = in.getJobId();
  SHOAL_RETURN_IF_ERROR(bounded_size(job_id, kMaxJobIdBytes, "job id").status());
  local::Attach out{in.getSchemaVersion(),        in.getRank(), in.getWorldSize(),
                    std::string(view_of(job_id)), in.getPid(),  Nonce()};
  if (in.hasProcess()) {
    SHOAL_ASSIGN_OR_RETURN(out.process, Hash128::from_bytes(view_of(in.getProcess())));
  }
  if (!is_clean_utf8(out.job_id)) return malformed("job id");
  if (out.world_size == 0 || out.world_size > kMaxWorldSize || out.rank >= out.world_size) {
    return malformed(fmt::format("attach: rank {} of a world of {}", out.rank, out.world_size));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::Layout::Reader in) {
  local::LayoutIs out;
  SHOAL_ASSIGN_OR_RETURN(LayoutId id, Hash128::from_bytes(view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(out.layout, decode_layout(view_of(in.getLayout())));
  if (out.layout->id() != id) return malformed("layout: it has another id than was said");
  SHOAL_ASSIGN_OR_RETURN(out.options, read_options(in.getOptions()));
  return LocalMessage(std::move(out));
}

// Of every message with a roster and its layouts.
template <class Reader>
Result<std::shared_ptr<const World>> read_world(Reader in) {
  SHOAL_ASSIGN_OR_RETURN(Roster roster, decode_roster(view_of(in.getRoster())));
  auto layouts = in.getLayouts();
  if (layouts.size() != roster.layout_ids().size()) {
    return malformed(fmt::format("roster: {} layouts come with it, it names {}", layouts.size(),
                                 roster.layout_ids().size()));
  }
  auto world = std::make_shared<World>(World{std::move(roster), {}});
  for (uint32_t i = 0; i < layouts.size(); ++i) {
    const LayoutId id = world->roster.layout_ids()[i];
    SHOAL_ASSIGN_OR_RETURN(LayoutPtr layout, decode_layout(view_of(layouts[i]), id));
    world->layouts.push_back(std::move(layout));
  }
  if (Status status = validate_world(*world); !status.ok()) return as_corrupt(status, "roster");
  return std::shared_ptr<const World>(std::move(world));
}

Result<LocalMessage> read_message(schema::LocalMessage::Roster::Reader in) {
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<const World> world, read_world(in));
  SHOAL_ASSIGN_OR_RETURN(SaveOptions options, read_options(in.getOptions()));
  return LocalMessage(local::RosterIs{std::move(world), in.getRuleVersion(), options});
}

Result<LocalMessage> read_message(schema::LocalMessage::Slab::Reader in) {
  if (in.getBytes() == 0 || in.getBytes() > kMaxSlabBytes) {
    return Status(Code::too_large,
                  fmt::format("slab of {} bytes: from 1 to {} are allowed", in.getBytes(), kMaxSlabBytes));
  }
  return LocalMessage(local::Slab{in.getSlabId(), in.getBytes()});
}

Result<LocalMessage> read_message(schema::LocalMessage::Staged::Reader in) {
  local::Staged out;
  out.step = in.getStep();
  out.attempt = in.getAttempt();
  SHOAL_ASSIGN_OR_RETURN(out.layout_id, Hash128::from_bytes(view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(out.roster_id, read_hash_or_zero(in.getRosterId()));
  SHOAL_ASSIGN_OR_RETURN(out.plan_id, read_hash_or_zero(in.getPlanId()));
  out.slab_id = in.getSlabId();
  out.again = in.getAgain();
  auto pieces = in.getPieces();
  SHOAL_ASSIGN_OR_RETURN(size_t count, bounded_size(pieces, kMaxLocalPieces, "staged pieces"));
  out.pieces.reserve(count);
  for (auto piece : pieces) {
    out.pieces.push_back({piece.getEntry(), piece.getLocalBox(), piece.getLocalOffset(), piece.getBytes(),
                          piece.getSlabOffset()});
    const local::StagedPiece& last = out.pieces.back();
    if (last.bytes > kMaxSlabBytes || last.slab_offset > kMaxSlabBytes - last.bytes ||
        last.local_offset > UINT64_MAX - last.bytes) {
      return malformed("staged piece: its bytes lie beyond every slab");
    }
    if (out.pieces.size() < 2) continue;
    const local::StagedPiece& before = out.pieces[out.pieces.size() - 2];
    if (std::tie(before.entry, before.local_box, before.local_offset) >=
        std::tie(last.entry, last.local_box, last.local_offset)) {
      return malformed("staged pieces: they do not ascend");
    }
  }
  return LocalMessage(std::move(out));
}

Result<local::DurableShare> read_durable(schema::DurableShare::Reader in) {
  local::DurableShare out;
  SHOAL_ASSIGN_OR_RETURN(out.roster_id, Hash128::from_bytes(view_of(in.getRosterId())));
  SHOAL_ASSIGN_OR_RETURN(out.plan_id, Hash128::from_bytes(view_of(in.getPlanId())));
  auto files = in.getFiles();
  SHOAL_RETURN_IF_ERROR(bounded_size(files, kMaxFilesPerRank, "files of a share").status());
  for (auto file_in : files) {
    local::DurableFile file{file_in.getIndex(), file_in.getSize(), {}, file_in.getPayloadBytes()};
    if (file.index != out.files.size()) return malformed("files of a share: they do not count up from 0");
    if (file.payload_bytes > file.size) return malformed("file of a share: its payload is larger than it is");
    SHOAL_ASSIGN_OR_RETURN(file.header_digest, Hash128::from_bytes(view_of(file_in.getHeaderDigest())));
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
  if (out.outcome.ok() != in.getCommitted()) return malformed("decision: committed, and with an error");
  if (out.outcome.ok()) {
    SHOAL_ASSIGN_OR_RETURN(Metadata checkpoint, read_metadata(in.getCheckpoint()));
    out.checkpoint = std::make_shared<const Metadata>(std::move(checkpoint));
  }
  return LocalMessage(std::move(out));
}

Result<local::LoadTarget> read_target(schema::LoadTarget::Reader in) {
  local::LoadTarget target;
  SHOAL_RETURN_IF_ERROR(read_value(in, target));
  if (Result<uint64_t> bytes = dtype_bytes(target.dtype); !bytes.ok()) {
    return as_corrupt(bytes.status(), target.fqn);
  }
  auto boxes = in.getBoxes();
  SHOAL_RETURN_IF_ERROR(bounded_size(boxes, kMaxBoxesPerTarget, "boxes of a load target").status());
  if (target.kind == LayoutEntry::Kind::object && boxes.size() != 0) {
    return malformed(fmt::format("load target '{}': an object has no boxes", target.fqn));
  }
  for (auto box_in : boxes) {
    SHOAL_ASSIGN_OR_RETURN(Box box, read_box(box_in));
    if (Status status = validate_box(box, target.shape); !status.ok()) return as_corrupt(status, target.fqn);
    target.boxes.push_back(std::move(box));
  }
  return target;
}

Result<local::Load::Sharing> read_sharing(schema::LoadSharing::Reader in) {
  local::Load::Sharing out;
  if (in.getWay() > static_cast<uint8_t>(LoadWay::two_stage)) {
    return Status(Code::corrupt, fmt::format("malformed load: way {}", in.getWay()));
  }
  out.way = static_cast<LoadWay>(in.getWay());
  out.rank = in.getRank();
  out.world_size = in.getWorldSize();
  if (out.world_size > kMaxWorldSize || out.rank >= out.world_size) {
    return Status(Code::corrupt, fmt::format("malformed load: rank {} of {}", out.rank, out.world_size));
  }
  out.round = in.getRound();
  const ByteView layout = view_of(in.getLayout());  // by whose hash ranks find each other
  SHOAL_ASSIGN_OR_RETURN(out.layout, decode_layout(layout, xxh3_128(layout)));
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getAmong(), kMaxWorldSize, "ranks that share a load").status());
  for (Rank rank : in.getAmong()) out.among.push_back(rank);
  return out;
}

Result<LocalMessage> read_message(schema::LocalMessage::Load::Reader in) {
  local::Load out;
  out.request_id = in.getRequestId();
  out.latest = in.getLatest();
  out.step = in.getStep();
  out.ordinal = in.getOrdinal();
  out.slab_id = in.getSlabId();
  out.keeps_open = in.getKeepsOpen();
  out.of = in.getOf();
  out.wants_layouts = in.getWantsLayouts();
  auto targets = in.getTargets();
  SHOAL_RETURN_IF_ERROR(bounded_size(targets, kMaxEntries, "load targets").status());
  out.targets.reserve(targets.size());
  for (auto target_in : targets) {
    SHOAL_ASSIGN_OR_RETURN(local::LoadTarget target, read_target(target_in));
    out.targets.push_back(std::move(target));
  }
  if (in.hasSharing()) {
    SHOAL_ASSIGN_OR_RETURN(out.sharing, read_sharing(in.getSharing()));
  }
  return LocalMessage(std::move(out));
}

LoadTimes read_times(schema::LoadTimes::Reader in) {
  return {in.getWasShared(), in.getChoosingNs(),    in.getPlanningNs(),
          in.getReadingNs(), in.getReceivingNs(),   in.getPlacingNs(),
          in.getBytesRead(), in.getBytesReceived(), in.getChunksGivenUp()};
}

Result<LocalMessage> read_message(schema::LocalMessage::Found::Reader in) {
  local::Found out;
  out.request_id = in.getRequestId();
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  if (out.outcome.ok()) {
    SHOAL_ASSIGN_OR_RETURN(out.checkpoint, read_metadata(in.getCheckpoint()));
  }
  if (!out.outcome.ok() || !in.hasLayouts()) return LocalMessage(std::move(out));
  auto layouts = in.getLayouts();
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<const World> world, read_world(layouts));
  SHOAL_ASSIGN_OR_RETURN(SaveOptions options, read_options(layouts.getOptions()));
  if (!out.checkpoint.state_dict_metadata.empty()) return malformed("checkpoint: its values are said twice");
  if (world->roster.world_size() != out.checkpoint.world_size) {
    return malformed("checkpoint: its roster is of another world size");
  }
  out.checkpoint.state_dict_metadata = list_values(*world);
  out.layouts = local::StoredLayouts{std::move(world), layouts.getRuleVersion(), options};
  return LocalMessage(std::move(out));
}

Result<ReadDamage> read_damage(schema::ReadDamage::Reader in) {
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getFqn(), kMaxFqnBytes, "fqn").status());
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getFile(), kMaxDamagedPathBytes, "path of a damaged file").status());
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getReadInstead(), kMaxDamagedPathBytes, "path of a copy").status());
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getCause(), kMaxLocalCauseBytes, "cause of an error").status());
  ReadDamage out;
  out.fqn = fit_to_print(view_of(in.getFqn()));
  SHOAL_ASSIGN_OR_RETURN(out.box, read_box(in.getBox()));
  out.rank = in.getRank();
  out.file = fit_to_print(view_of(in.getFile()));
  out.begin = in.getBegin();
  out.end = in.getEnd();
  out.cause = fit_to_print(view_of(in.getCause()));
  out.read_instead = fit_to_print(view_of(in.getReadInstead()));
  return out;
}

Result<LocalMessage> read_message(schema::LocalMessage::LoadDone::Reader in) {
  local::LoadDone out{in.getRequestId(), ok_status(), read_times(in.getTimes()), {}};
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  auto damaged = in.getDamaged();
  SHOAL_RETURN_IF_ERROR(bounded_size(damaged, kMaxDamageNamed, "damage of a load").status());
  for (auto one : damaged) {
    SHOAL_ASSIGN_OR_RETURN(ReadDamage damage, read_damage(one));
    out.damaged.named.push_back(std::move(damage));
  }
  out.damaged.count = std::max<uint64_t>(in.getDamagedCount(), damaged.size());
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::Loaded::Reader in) {
  local::Loaded out;
  out.request_id = in.getRequestId();
  out.batch = in.getBatch();
  auto pieces = in.getPieces();
  SHOAL_RETURN_IF_ERROR(bounded_size(pieces, kMaxLocalPieces, "loaded pieces").status());
  for (auto piece_in : pieces) {
    local::LoadedPiece piece;
    piece.target = piece_in.getTarget();
    SHOAL_ASSIGN_OR_RETURN(piece.box, read_box(piece_in.getBox()));
    piece.piece_offset = piece_in.getPieceOffset();
    piece.bytes = piece_in.getBytes();
    piece.slab_offset = piece_in.getSlabOffset();
    piece.piece_bytes = piece_in.getPieceBytes();
    if (piece.piece_offset > piece.piece_bytes || piece.bytes > piece.piece_bytes - piece.piece_offset) {
      return malformed("loaded piece: its bytes lie beyond the stored piece");
    }
    if (piece.bytes > kMaxSlabBytes || piece.slab_offset > kMaxSlabBytes - piece.bytes) {
      return malformed("loaded piece: its bytes lie beyond every slab");
    }
    out.pieces.push_back(std::move(piece));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::PlanWanted::Reader in) {
  local::PlanWanted out{in.getStep(), in.getAttempt(), {}, {}};
  SHOAL_ASSIGN_OR_RETURN(out.layout_id, Hash128::from_bytes(view_of(in.getLayoutId())));
  SHOAL_ASSIGN_OR_RETURN(out.known, read_hash_or_zero(in.getKnown()));
  out.follows_planner = in.getFollowsPlanner();
  return LocalMessage(out);
}

Result<LocalMessage> read_message(schema::LocalMessage::PlanExchange::Reader in) {
  if (in.getStage() >= kExchangeStages) return malformed("stage of a plan exchange");
  local::PlanExchange out{in.getStep(),
                          in.getAttempt(),
                          static_cast<ExchangeStage>(in.getStage()),
                          in.getCoordinatorRank(),
                          {},
                          {}};
  SHOAL_ASSIGN_OR_RETURN(out.options, read_options(in.getOptions()));
  const bool of_one = out.stage == ExchangeStage::offered || out.stage == ExchangeStage::told;
  SHOAL_RETURN_IF_ERROR(bounded_size(in.getPlans(), of_one ? 1 : kMaxWorldSize, "plans of ranks").status());
  if (in.getPlans().size() == 0) return malformed("plan exchange without a plan");
  for (auto plan : in.getPlans()) {
    out.plans.push_back(std::make_shared<const std::string>(as_text(view_of(plan))));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_message(schema::LocalMessage::Plan::Reader in) {
  local::PlanIs out{in.getStep(), in.getAttempt(), {}, nullptr};
  SHOAL_ASSIGN_OR_RETURN(out.roster_id, Hash128::from_bytes(view_of(in.getRosterId())));
  if (in.hasPlan()) {
    SHOAL_ASSIGN_OR_RETURN(out.plan, decode_plan(view_of(in.getPlan())));
    if (out.plan->roster_id != out.roster_id) return malformed("plan: it is of another roster");
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_any(schema::LocalMessage::Reader in) {
  switch (in.which()) {
    case schema::LocalMessage::ATTACH:
      return read_message(in.getAttach());
    case schema::LocalMessage::ATTACHED:
      return LocalMessage(local::Attached{in.getAttached().getGeneration(), in.getAttached().getNodePid(),
                                          in.getAttached().getNodeDeadlineMs()});
    case schema::LocalMessage::FAILED: {
      Status why;
      SHOAL_RETURN_IF_ERROR(read_error(in.getFailed(), "failure", why));
      return LocalMessage(local::Failed{std::move(why)});
    }
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
    case schema::LocalMessage::LATEST:
      return LocalMessage(local::Latest{in.getLatest()});
    case schema::LocalMessage::LOAD:
      return read_message(in.getLoad());
    case schema::LocalMessage::CLOSE:
      return LocalMessage(local::Close{in.getClose()});
    case schema::LocalMessage::FOUND:
      return read_message(in.getFound());
    case schema::LocalMessage::LOADED:
      return read_message(in.getLoaded());
    case schema::LocalMessage::PLACED:
      return LocalMessage(local::Placed{in.getPlaced().getRequestId(), in.getPlaced().getBatch()});
    case schema::LocalMessage::LOAD_DONE:
      return read_message(in.getLoadDone());
    case schema::LocalMessage::REFUSED: {
      Status why;
      SHOAL_RETURN_IF_ERROR(read_error(in.getRefused(), "refusal", why));
      return LocalMessage(
          local::Refused{in.getRefused().getStep(), in.getRefused().getAttempt(), std::move(why)});
    }
    case schema::LocalMessage::STATUS_WANTED:
      return LocalMessage(local::StatusWanted{});
    case schema::LocalMessage::STATUS: {
      SHOAL_ASSIGN_OR_RETURN(NodeStatus status, read_node_status(in.getStatus()));
      return LocalMessage(local::StatusIs{std::make_shared<const NodeStatus>(std::move(status))});
    }
    case schema::LocalMessage::DETACH:
      return LocalMessage(local::Detach{});
    case schema::LocalMessage::WRITTEN: {
      SHOAL_ASSIGN_OR_RETURN(local::DurableShare share, read_durable(in.getWritten().getShare()));
      return LocalMessage(
          local::Written{in.getWritten().getStep(), in.getWritten().getAttempt(), std::move(share)});
    }
    case schema::LocalMessage::NOT_STAGED: {
      Status why;
      SHOAL_RETURN_IF_ERROR(read_error(in.getNotStaged(), "a save that was not staged", why));
      return LocalMessage(
          local::NotStaged{in.getNotStaged().getStep(), in.getNotStaged().getAttempt(), std::move(why)});
    }
    case schema::LocalMessage::PLAN_WANTED:
      return read_message(in.getPlanWanted());
    case schema::LocalMessage::PLAN:
      return read_message(in.getPlan());
    case schema::LocalMessage::PLAN_EXCHANGE:
      return read_message(in.getPlanExchange());
    case schema::LocalMessage::PING:
      return LocalMessage(local::Ping{});
    case schema::LocalMessage::PONG:
      return LocalMessage(local::Pong{});
  }
  return Status(Code::version, "a local message that only a newer program knows");
}

}  // namespace

Result<LocalMessage> decode_local(ByteView bytes) {
  return read_checked<schema::LocalMessage>(bytes, {kMaxLocalMessageBytes}, read_any);
}

}  // namespace shoal
