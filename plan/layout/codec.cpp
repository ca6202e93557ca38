#include "plan/layout/codec.h"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/helper_threads.h"
#include "schema/checked_reader_internal.h"
#include "schema/layout.capnp.h"

namespace shoal::plan {

namespace {

constexpr int kLayoutNesting = 8;  // Layout, entries, rank boxes, box and list, plus a margin
// Decoding reads every word once. But a struct of zeros takes no word and counts as one: a small entry can
// have a replicate placement for each of kMaxDims mesh dimensions. The slack is for small layouts.
constexpr uint64_t kTraversalSlackWords = 64;
// If every rank has a different layout, there are as many layouts as ranks. Several are decoded at once if
// their total size is large.
constexpr size_t kMaxDecodingThreads = 4;
constexpr size_t kDecodedPerThreadBytes = size_t{2} << 20;
constexpr size_t kWordsAnEntry =
    6;  // The least size of all but unusual entries. Bounds the memory that an untrusted count may reserve.

Status not_canonical(const char* what) {
  return Status(Code::corrupt, fmt::format("{}: the bytes are not in canonical form", what));
}
Status malformed(const char* what) {
  return Status(Code::corrupt, fmt::format("malformed {}", what));
}

template <class Builder>
Bytes canonical_bytes(Builder builder) {
  kj::Array<capnp::word> words = capnp::canonicalize(builder.asReader());
  Bytes out(words.size() * sizeof(capnp::word));
  std::memcpy(out.data(), words.begin(), out.size());
  return out;
}

// Calls body(Root::Reader) on canonical bytes: one segment without a table.
template <class Root, class Body>
auto read_canonical(ByteView bytes, size_t bytes_max, Body&& body)
    -> decltype(body(std::declval<typename Root::Reader>())) {
  if (bytes.size() > bytes_max) {
    return Status(Code::too_large,
                  fmt::format("it has {} bytes: at most {} are allowed", bytes.size(), bytes_max));
  }
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0) {
    return Status(Code::corrupt, fmt::format("{} bytes are not a whole number of words", bytes.size()));
  }
  const size_t words = bytes.size() / sizeof(capnp::word);
  std::vector<uint64_t> aligned;
  const auto* first = reinterpret_cast<const capnp::word*>(bytes.data());
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    aligned.resize(words);
    std::memcpy(aligned.data(), bytes.data(), bytes.size());
    first = reinterpret_cast<const capnp::word*>(aligned.data());
  }
  const kj::ArrayPtr<const capnp::word> segment(first, words);
  capnp::ReaderOptions options;
  options.traversalLimitInWords = words * schema::kTraversalPerWord + kTraversalSlackWords;
  options.nestingLimit = kLayoutNesting;
  try {
    capnp::SegmentArrayMessageReader reader(kj::arrayPtr(&segment, 1), options);
    return body(reader.template getRoot<Root>());
  } catch (const kj::Exception& exception) {
    return schema::status_of(exception);
  }
}

void set_numbers(capnp::List<uint64_t>::Builder out, const Dims& numbers) {
  for (uint32_t i = 0; i < numbers.size(); ++i) out.set(i, numbers[i]);
}

uint32_t list_size(size_t size) {
  return static_cast<uint32_t>(size);
}

void write_mesh(schema::Mesh::Builder out, const Mesh& mesh) {
  set_numbers(out.initShape(list_size(mesh.dims())), mesh.shape());
  if (mesh.is_affine()) {
    auto affine = out.getRanks().initAffine();
    affine.setBase(mesh.base());
    set_numbers(affine.initStrides(list_size(mesh.dims())), mesh.strides());
    return;
  }
  auto listed = out.getRanks().initListed(list_size(mesh.size()));
  for (uint32_t i = 0; i < mesh.listed().size(); ++i) listed.set(i, mesh.listed()[i]);
}

void write_sharding(schema::LayoutEntry::Sharding::Builder out, const MeshSharding& sharding) {
  auto mesh = out.initMesh();
  mesh.setIndex(sharding.mesh);
  auto placements = mesh.initPlacements(list_size(sharding.placements.size()));
  for (uint32_t i = 0; i < sharding.placements.size(); ++i) {
    placements[i].setKind(static_cast<schema::Placement::Kind>(sharding.placements[i].kind));
    placements[i].setDim(sharding.placements[i].dim);
    placements[i].setSplitFactor(sharding.placements[i].split_factor);
  }
}
void write_sharding(schema::LayoutEntry::Sharding::Builder out, const GroupSharding& sharding) {
  out.setGroup(sharding.mesh);
}
void write_sharding(schema::LayoutEntry::Sharding::Builder out, const BoxSharding& sharding) {
  auto ranks = out.initBoxes(list_size(sharding.ranks.size()));
  for (uint32_t i = 0; i < sharding.ranks.size(); ++i) {
    const RankBoxes& held = sharding.ranks[i];
    ranks[i].setRank(held.rank);
    auto boxes = ranks[i].initBoxes(list_size(held.boxes.size()));
    for (uint32_t k = 0; k < held.boxes.size(); ++k) {
      set_numbers(boxes[k].initOffsets(list_size(held.boxes[k].dims())), held.boxes[k].offsets);
      set_numbers(boxes[k].initSizes(list_size(held.boxes[k].dims())), held.boxes[k].sizes);
    }
  }
}

void write_sharding(schema::LayoutEntry::Sharding::Builder out, const RankSharding&) {
  out.setPerRank();
}

void write_sharding(schema::LayoutEntry::Sharding::Builder out, const DeviceSharding& sharding) {
  auto tiles = out.initTiles();
  tiles.setIndex(sharding.mesh);
  tiles.setDevicesPerRank(sharding.devices_per_rank);
}

template <class Number>
std::vector<Number> copy_list(typename capnp::List<Number>::Reader in) {
  std::vector<Number> out;
  out.reserve(in.size());
  for (Number number : in) out.push_back(number);
  return out;
}

// Reads at most `most` numbers, so that no caller reserves more.
Status read_numbers(capnp::List<uint64_t>::Reader in, size_t most, const char* what, Dims& out) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, most, what).status());
  out.reserve(in.size());
  for (uint64_t number : in) out.push_back(number);
  return ok_status();
}

Result<Mesh> read_mesh(schema::Mesh::Reader in) {
  Dims shape;
  SHOAL_RETURN_IF_ERROR(read_numbers(in.getShape(), kMaxDims, "mesh shape", shape));
  auto ranks = in.getRanks();
  if (ranks.isAffine()) {
    Dims strides;
    SHOAL_RETURN_IF_ERROR(read_numbers(ranks.getAffine().getStrides(), kMaxDims, "mesh strides", strides));
    // Not canonical. Checking whether they form a mesh at all could take seconds.
    if (!Mesh::strides_nest(shape, strides)) return malformed("the mesh's strides do not nest");
    return Mesh::affine(std::move(shape), ranks.getAffine().getBase(), std::move(strides));
  }
  if (!ranks.isListed()) return malformed("mesh");
  auto listed = ranks.getListed();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(listed, kMaxMeshSize, "mesh ranks").status());
  return Mesh::from_ranks(std::move(shape), copy_list<Rank>(listed));
}

Status read_mesh_sharding(schema::LayoutEntry::Sharding::Mesh::Reader in, MeshSharding& out) {
  out.mesh = in.getIndex();
  auto placements = in.getPlacements();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(placements, kMaxDims, "placements").status());
  out.placements.reserve(placements.size());
  for (auto placement : placements) {
    auto kind = static_cast<uint16_t>(placement.getKind());
    if (kind > static_cast<uint16_t>(Placement::Kind::strided_shard)) return malformed("placement");
    out.placements.push_back(
        {static_cast<Placement::Kind>(kind), placement.getDim(), placement.getSplitFactor()});
  }
  return ok_status();
}

Status read_box_sharding(capnp::List<schema::RankBoxes>::Reader in, size_t dims, BoxSharding& out) {
  for (auto held : in) {
    RankBoxes& boxes = out.ranks.emplace_back();
    boxes.rank = held.getRank();
    auto list = held.getBoxes();
    // A scalar's boxes take no bytes. No box is listed twice, so more than one is always an error.
    if (dims == 0 && list.size() > 1) return malformed("boxes of a scalar");
    for (auto box : list) {
      Box& added = boxes.boxes.emplace_back();
      SHOAL_RETURN_IF_ERROR(read_numbers(box.getOffsets(), kMaxDims, "box offsets", added.offsets));
      SHOAL_RETURN_IF_ERROR(read_numbers(box.getSizes(), kMaxDims, "box sizes", added.sizes));
    }
  }
  return ok_status();
}

Status read_sharding(schema::LayoutEntry::Sharding::Reader in, size_t dims, Sharding& out) {
  if (in.isMesh()) return read_mesh_sharding(in.getMesh(), out.emplace<MeshSharding>());
  if (in.isBoxes()) return read_box_sharding(in.getBoxes(), dims, out.emplace<BoxSharding>());
  if (in.isGroup()) {
    out = GroupSharding{in.getGroup()};
  } else if (in.isPerRank()) {
    out = RankSharding{};
  } else if (in.isTiles()) {
    out = DeviceSharding{in.getTiles().getIndex(), in.getTiles().getDevicesPerRank()};
  } else {
    return malformed("sharding");
  }
  return ok_status();
}

Status read_entry(schema::LayoutEntry::Reader in, LayoutEntry& out) {
  auto fqn = in.getFqn();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(fqn, kMaxFqnBytes, "fqn").status());
  out.fqn = schema::view_of(fqn);
  auto kind = static_cast<uint16_t>(in.getKind());
  if (kind > static_cast<uint16_t>(LayoutEntry::Kind::object)) return malformed("kind of an entry");
  out.kind = static_cast<LayoutEntry::Kind>(kind);
  SHOAL_ASSIGN_OR_RETURN(out.dtype, dtype_from_number(in.getDtype()));
  SHOAL_RETURN_IF_ERROR(read_numbers(in.getShape(), kMaxDims, "shape", out.shape));
  out.replicated = in.getReplicated();
  return read_sharding(in.getSharding(), out.shape.size(), out.sharding);
}

Result<LayoutPtr> read_layout(schema::Layout::Reader in, size_t words, const LayoutId& id) {
  std::vector<Mesh> meshes;
  std::vector<LayoutEntry> entries;
  for (auto mesh_in : in.getMeshes()) {
    SHOAL_ASSIGN_OR_RETURN(Mesh mesh, read_mesh(mesh_in));
    meshes.push_back(std::move(mesh));
  }
  auto entries_in = in.getEntries();
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(entries_in, kMaxEntries, "layout entries").status());
  entries.reserve(std::min<size_t>(entries_in.size(), words / kWordsAnEntry));
  for (auto entry_in : entries_in) {
    SHOAL_RETURN_IF_ERROR(read_entry(entry_in, entries.emplace_back()));
  }
  return layout_in_order(std::move(meshes), std::move(entries), id);
}

Result<std::vector<Run>> read_runs(capnp::List<schema::Run>::Reader in) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(in, kMaxWorldSize, "runs of a roster").status());
  std::vector<Run> runs;
  for (auto run : in) runs.push_back({run.getCount(), run.getValue()});
  return runs;
}

Result<Roster> read_roster(schema::Roster::Reader in) {
  std::vector<LayoutId> ids;
  for (auto id_in : in.getLayoutIds()) {
    SHOAL_ASSIGN_OR_RETURN(LayoutId id, Hash128::from_bytes(schema::view_of(id_in)));
    ids.push_back(id);
  }
  SHOAL_ASSIGN_OR_RETURN(std::vector<Run> layout_runs, read_runs(in.getLayoutRuns()));
  SHOAL_ASSIGN_OR_RETURN(std::vector<Run> host_runs, read_runs(in.getHostRuns()));
  return Roster::from_runs(in.getWorldSize(), std::move(ids), std::move(layout_runs), std::move(host_runs));
}

void write_runs(capnp::List<schema::Run>::Builder out, const std::vector<Run>& runs) {
  for (uint32_t i = 0; i < runs.size(); ++i) {
    out[i].setCount(runs[i].count);
    out[i].setValue(runs[i].value);
  }
}

// Invalid bytes are never the caller's error.
Status as_corrupt(const Status& status, const char* what) {
  Code code = status.code() == Code::invalid_argument ? Code::corrupt : status.code();
  return Status(code, status.message()).with_context(what);
}

}  // namespace

Bytes encode_layout(const Layout& layout) {
  schema::PagedMessageBuilder message;
  auto out = message.initRoot<schema::Layout>();
  auto meshes = out.initMeshes(list_size(layout.meshes().size()));
  for (uint32_t i = 0; i < layout.meshes().size(); ++i) write_mesh(meshes[i], layout.meshes()[i]);
  auto entries = out.initEntries(list_size(layout.entries().size()));
  for (uint32_t i = 0; i < layout.entries().size(); ++i) {
    const LayoutEntry& entry = layout.entries()[i];
    entries[i].setFqn(schema::text_of(entry.fqn));
    entries[i].setKind(static_cast<schema::LayoutEntry::Kind>(entry.kind));
    entries[i].setDtype(static_cast<uint8_t>(entry.dtype));
    set_numbers(entries[i].initShape(list_size(entry.shape.size())), entry.shape);
    entries[i].setReplicated(entry.replicated);
    std::visit([&](const auto& sharding) { write_sharding(entries[i].getSharding(), sharding); },
               entry.sharding);
  }
  return canonical_bytes(out);
}

Result<LayoutPtr> decode_layout(ByteView bytes) {
  SHOAL_ASSIGN_OR_RETURN(LayoutPtr layout, decode_layout(bytes, xxh3_128(bytes)));
  Bytes again = encode_layout(*layout);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) return not_canonical("layout");
  return layout;
}

Result<LayoutPtr> decode_layout(ByteView bytes, const LayoutId& id) {
  static constexpr const char* what = "layout";
  if (xxh3_128(bytes) != id) {
    return Status(Code::corrupt, fmt::format("{}: the bytes do not match the id {}", what, id.to_hex()));
  }
  Result<LayoutPtr> layout = read_canonical<schema::Layout>(
      bytes, kMaxEncodedLayoutBytes,
      [&](schema::Layout::Reader in) { return read_layout(in, bytes.size() / sizeof(capnp::word), id); });
  if (!layout.ok()) return as_corrupt(layout.status(), what);
  return layout;
}

Bytes encode_roster(const Roster& roster) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<schema::Roster>();
  out.setWorldSize(roster.world_size());
  auto ids = out.initLayoutIds(list_size(roster.layout_ids().size()));
  for (uint32_t i = 0; i < roster.layout_ids().size(); ++i)
    ids.set(i, schema::data_of(roster.layout_ids()[i]));
  write_runs(out.initLayoutRuns(list_size(roster.layout_runs().size())), roster.layout_runs());
  write_runs(out.initHostRuns(list_size(roster.host_runs().size())), roster.host_runs());
  return canonical_bytes(out);
}

Result<Roster> decode_roster(ByteView bytes) {
  static constexpr const char* what = "roster";
  Result<Roster> roster = read_canonical<schema::Roster>(bytes, kMaxEncodedRosterBytes, read_roster);
  if (!roster.ok()) return as_corrupt(roster.status(), what);
  Bytes again = encode_roster(*roster);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) return not_canonical(what);
  return roster;
}

Result<std::shared_ptr<const World>> decode_world(const EncodedWorld& encoded) {
  SHOAL_ASSIGN_OR_RETURN(Roster roster, decode_roster(encoded.roster));
  const std::vector<LayoutId>& ids = roster.layout_ids();
  if (encoded.layouts.size() != ids.size()) {
    return Status(Code::corrupt,
                  fmt::format("{} layouts are given for a roster of {}", encoded.layouts.size(), ids.size()));
  }
  size_t bytes = 0;
  for (const ByteView layout : encoded.layouts) bytes += layout.size();
  const size_t threads = std::min<size_t>({kMaxDecodingThreads, 1 + bytes / kDecodedPerThreadBytes,
                                           std::max(1u, std::thread::hardware_concurrency())});
  std::vector<LayoutPtr> layouts(ids.size());
  std::vector<Status> statuses(ids.size());
  base::for_each_by_threads(ids.size(), threads, [&](size_t i) {
    Result<LayoutPtr> layout = decode_layout(encoded.layouts[i], ids[i]);
    statuses[i] = layout.status();
    if (layout.ok()) layouts[i] = std::move(layout).value();
  });
  for (const Status& status : statuses) SHOAL_RETURN_IF_ERROR(status);
  return std::make_shared<const World>(World{std::move(roster), std::move(layouts)});
}

}  // namespace shoal::plan
