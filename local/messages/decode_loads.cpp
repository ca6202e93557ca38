// Decoders of the messages of loads.
#include "local/messages/decode_internal.h"

namespace shoal::local {

namespace {

Status read_target(schema::LoadTarget::Reader in, local::LoadTarget& target) {
  SHOAL_RETURN_IF_ERROR(read_value(in, target));
  if (auto bytes = dtype_bytes(target.dtype); !bytes.ok()) return as_corrupt(bytes.status(), target.fqn);
  auto boxes = in.getBoxes();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(boxes, kMaxBoxesPerTarget, "boxes of a load target").status());
  if (target.kind == LayoutEntry::Kind::object && boxes.size() != 0) {
    return malformed(fmt::format("load target '{}': an object must not have boxes", target.fqn));
  }
  target.boxes.clear();
  for (auto box_in : boxes) {
    SHOAL_ASSIGN_OR_RETURN(Box box, read_box(box_in));
    if (Status status = validate_box(box, target.shape); !status.ok()) return as_corrupt(status, target.fqn);
    target.boxes.push_back(std::move(box));
  }
  return ok_status();
}

Result<local::Load::Sharing> read_sharing(schema::LoadSharing::Reader in) {
  local::Load::Sharing out;
  if (in.getMethod() > static_cast<uint8_t>(LoadMethod::two_stage)) {
    return Status(Code::corrupt, fmt::format("malformed load: method {} is unknown", in.getMethod()));
  }
  out.method = static_cast<LoadMethod>(in.getMethod());
  out.rank = in.getRank();
  out.world_size = in.getWorldSize();
  if (out.world_size > kMaxWorldSize || out.rank >= out.world_size) {
    return Status(Code::corrupt,
                  fmt::format("malformed load: rank {} is not in a world of {}", out.rank, out.world_size));
  }
  out.round = in.getRound();
  const ByteView layout = schema::view_of(in.getLayout());  // ranks with the same layout hash share the load
  SHOAL_ASSIGN_OR_RETURN(out.layout, plan::decode_layout(layout, xxh3_128(layout)));
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getAmong(), kMaxWorldSize, "ranks that share a load").status());
  for (Rank rank : in.getAmong()) out.among.push_back(rank);
  return out;
}

LoadTimes read_times(schema::LoadTimes::Reader in) {
  return {in.getWasShared(), in.getChoosingNs(),    in.getPlanningNs(),
          in.getReadingNs(), in.getReceivingNs(),   in.getPlacingNs(),
          in.getBytesRead(), in.getBytesReceived(), in.getChunksGivenUp()};
}

Result<ReadDamage> read_damage(schema::ReadDamage::Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getFqn(), kMaxFqnBytes, "fqn").status());
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getFile(), kMaxDamagedPathBytes, "path of a damaged file").status());
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getReadInstead(), kMaxDamagedPathBytes, "path of a copy").status());
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getCause(), kMaxLocalCauseBytes, "cause of an error").status());
  ReadDamage out;
  out.fqn = fit_to_print(schema::view_of(in.getFqn()));
  SHOAL_ASSIGN_OR_RETURN(out.box, read_box(in.getBox()));
  out.rank = in.getRank();
  out.file = fit_to_print(schema::view_of(in.getFile()));
  out.begin = in.getBegin();
  out.end = in.getEnd();
  out.cause = fit_to_print(schema::view_of(in.getCause()));
  out.read_instead = fit_to_print(schema::view_of(in.getReadInstead()));
  out.bytes = in.getBytes();
  return out;
}

template <class Reader>
Status read_range(Reader in, local::StoredRange& out) {
  out.target = in.getTarget();
  SHOAL_ASSIGN_OR_RETURN(out.box, read_box(in.getBox()));
  out.piece_offset = in.getPieceOffset();
  out.bytes = in.getBytes();
  out.piece_bytes = in.getPieceBytes();
  if (out.piece_offset > out.piece_bytes || out.bytes > out.piece_bytes - out.piece_offset) {
    return malformed("loaded piece: its bytes exceed the stored piece");
  }
  return ok_status();
}

// Folders and a name, none of which leaves the folder in which the path begins.
bool stays_under_root(std::string_view path) {
  if (path.empty() || path.size() > kMaxLocalPathBytes) return false;
  if (path.find('\0') != std::string_view::npos) return false;
  for (size_t begin = 0;;) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end == begin || path[begin] == '.') return false;
    if (end == path.size()) return true;
    begin = end + 1;
  }
}

}  // namespace

Result<LocalMessage> read_load_message(schema::LocalMessage::Load::Reader in) {
  local::Load out;
  out.request_id = in.getRequestId();
  out.latest = in.getLatest();
  out.step = in.getStep();
  out.attempt = in.getAttempt();
  out.ordinal = in.getOrdinal();
  out.slab_id = in.getSlabId();
  out.keeps_open = in.getKeepsOpen();
  out.of = in.getOf();
  out.wants_layouts = in.getWantsLayouts();
  out.reads_files = in.getReadsFiles();
  auto targets = in.getTargets();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(targets, kMaxEntries, "load targets").status());
  out.targets.reserve(targets.size());
  local::LoadTarget target;
  for (auto target_in : targets) {
    SHOAL_RETURN_IF_ERROR(read_target(target_in, target));
    out.targets.push_back(target);
  }
  if (in.hasSharing()) {
    SHOAL_ASSIGN_OR_RETURN(out.sharing, read_sharing(in.getSharing()));
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_load_message(schema::LocalMessage::Found::Reader in) {
  local::Found out;
  out.request_id = in.getRequestId();
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  if (out.outcome.ok()) {
    SHOAL_ASSIGN_OR_RETURN(out.checkpoint, read_metadata(in.getCheckpoint()));
    SHOAL_ASSIGN_OR_RETURN(out.passed_over, plan::read_passed_over(in));
  }
  if (!out.outcome.ok() || !in.hasLayouts()) return LocalMessage(std::move(out));
  auto layouts = in.getLayouts();
  Result<std::shared_ptr<const World>> decoded = read_world(layouts);
  if (!decoded.ok()) {  // the node did not decode them: the error is in the checkpoint
    out.outcome = decoded.status().with_context(to_string(out.checkpoint.key));
    out.checkpoint = {};
    return LocalMessage(std::move(out));
  }
  std::shared_ptr<const World> world = std::move(decoded).value();
  SHOAL_ASSIGN_OR_RETURN(SaveOptions options, plan::read_options(layouts.getOptions()));
  if (!out.checkpoint.state_dict_metadata.empty())
    return malformed("checkpoint: its values are listed twice");
  if (world->roster.world_size() != out.checkpoint.world_size) {
    return malformed("checkpoint: its roster has another world size");
  }
  out.layouts = local::StoredLayouts{std::move(world), layouts.getRuleVersion(), options};
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_load_message(schema::LocalMessage::Listing::Reader in) {
  local::Listing out{in.getRequestId(), ok_status(), nullptr};
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  if (!out.outcome.ok()) return LocalMessage(std::move(out));
  auto list = std::make_shared<CheckpointList>();
  list->omitted = in.getOmitted();
  auto attempts = in.getAttempts();
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(attempts, kMaxListedCheckpoints, "attempts of a listing").status());
  list->attempts.reserve(attempts.size());
  for (auto one : attempts) {
    CheckpointInfo info;
    info.key = {one.getKey().getGeneration(), one.getKey().getStep(), one.getKey().getAttempt()};
    if (one.getState() > static_cast<uint8_t>(kLastCheckpointState)) return malformed("state of an attempt");
    info.state = static_cast<CheckpointInfo::State>(one.getState());
    info.world_size = one.getWorldSize();
    info.files = one.getFiles();
    info.payload_bytes = one.getPayloadBytes();
    info.unix_time_ns = one.getUnixTimeNs();
    auto cause = one.getCause();
    SHOAL_RETURN_IF_ERROR(schema::bounded_size(cause, kMaxListedCauseBytes, "cause of an attempt").status());
    info.cause = fit_to_print(schema::view_of(cause));
    list->attempts.push_back(std::move(info));
  }
  out.list = std::move(list);
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_load_message(schema::LocalMessage::LoadDone::Reader in) {
  local::LoadDone out{in.getRequestId(), ok_status(), read_times(in.getTimes()), {}};
  SHOAL_RETURN_IF_ERROR(read_status(in, out.outcome));
  auto damaged = in.getDamaged();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(damaged, kMaxDamageNamed, "damage of a load").status());
  for (auto one : damaged) {
    SHOAL_ASSIGN_OR_RETURN(ReadDamage damage, read_damage(one));
    out.damaged.named.push_back(std::move(damage));
  }
  out.damaged.count = std::max<uint64_t>(in.getDamagedCount(), damaged.size());
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_load_message(schema::LocalMessage::FilesToRead::Reader in) {
  local::FilesToRead out{in.getRequestId(), in.getBatch(), {}, {}};
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getRanges(), kMaxLocalPieces, "ranges to read").status());
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in.getFiles(), kMaxLocalPieces, "files to read").status());
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getDigests(), kMaxLocalDigests, "digests of the ranges to read").status());
  for (auto file : in.getFiles()) {
    const std::string_view path = schema::view_of(file);
    if (!stays_under_root(path)) return malformed("path of a file to read");
    out.files.emplace_back(path);
  }
  for (auto range_in : in.getRanges()) {
    local::FileRange range;
    SHOAL_RETURN_IF_ERROR(read_range(range_in, range));
    range.file = range_in.getFile();
    range.file_offset = range_in.getFileOffset();
    if (range.file >= out.files.size())
      return malformed("range to read: it names a file that is not in the list");
    if (range.bytes > kMaxLocalFileBytes || range.file_offset > kMaxLocalFileBytes - range.bytes) {
      return malformed("range to read: it exceeds the largest file");
    }
    out.ranges.push_back(std::move(range));
  }
  out.digests.reserve(in.getDigests().size());
  for (const uint64_t digest : in.getDigests()) out.digests.push_back(digest);
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_load_message(schema::LocalMessage::FilesRead::Reader in) {
  local::FilesRead out{in.getRequestId(), in.getBatch()};
  SHOAL_RETURN_IF_ERROR(
      schema::bounded_size(in.getUnread(), kMaxLocalDigests, "ranges left unread").status());
  for (auto range : in.getUnread()) {
    if (range.getBegin() > range.getEnd()) return malformed("range left unread");
    out.unread.push_back({range.getRange(), range.getBegin(), range.getEnd()});
  }
  return LocalMessage(std::move(out));
}

Result<LocalMessage> read_load_message(schema::LocalMessage::Loaded::Reader in) {
  local::Loaded out;
  out.request_id = in.getRequestId();
  out.batch = in.getBatch();
  auto pieces = in.getPieces();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(pieces, kMaxLocalPieces, "loaded pieces").status());
  for (auto piece_in : pieces) {
    local::LoadedPiece piece;
    SHOAL_RETURN_IF_ERROR(read_range(piece_in, piece));
    piece.slab_offset = piece_in.getSlabOffset();
    if (piece.bytes > kMaxSlabBytes || piece.slab_offset > kMaxSlabBytes - piece.bytes) {
      return malformed("loaded piece: its bytes exceed the largest slab");
    }
    out.pieces.push_back(std::move(piece));
  }
  return LocalMessage(std::move(out));
}

}  // namespace shoal::local
