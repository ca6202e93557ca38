// Writes the seeds of the corpora: the files of a root, and one message of each kind.
//
//   make_fuzz_seeds ROOT CORPUS             e.g. tests/storage/golden/v1 tests/fuzz/corpus
//   make_fuzz_seeds ROOT CORPUS COMMITTED   the same; fails if the corpus COMMITTED lacks one of them
//
// The names of seeds begin with "seed-". Findings of a fuzzer are stored beside them, under descriptive
// names.
#include <fmt/format.h>
#include <algorithm>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/messages/link_messages.h"
#include "actors/messages/messages.h"
#include "local/messages/messages.h"
#include "storage/decisions/rank_manifest.h"
#include "storage/decisions/record.h"
#include "storage/shards/shard_file.h"
#include "tests/local/status/some_status.h"
#include "tests/storage/decisions/decision_samples.h"
#include "transport/handshake.h"

using namespace shoal;
namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxSeedBytes = 16384;

Bytes read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return storage::bytes_of({chars.data(), chars.size()});
}

std::vector<fs::path> seeds_written;

void write_seed(const fs::path& folder, const std::string& name, const Bytes& bytes) {
  fs::create_directories(folder);
  seeds_written.push_back(folder / ("seed-" + name));
  std::ofstream out(seeds_written.back(), std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Bytes joined(const Bytes& first, ByteView second) {
  Bytes both = first;
  both.insert(both.end(), second.begin(), second.end());
  return both;
}

// The JSON of a shard without its filling; nothing where the file is none that is whole.
Bytes trimmed(const Bytes& shard, uint64_t* data_bytes) {
  const uint64_t json_bytes = shard.size() < 8 ? shard.size() : load_le64(shard.data());
  if (shard.size() < 8 || json_bytes > shard.size() - 8) return {};
  *data_bytes = shard.size() - 8 - json_bytes;
  Bytes json(shard.begin() + 8, shard.begin() + 8 + static_cast<ptrdiff_t>(json_bytes));
  while (!json.empty() && json.back() == std::byte{' '}) json.pop_back();
  return json;
}

void seeds_of_rank_manifest(const fs::path& corpus) {
  storage::RankManifest manifest;
  manifest.key = {1, 3, 1};
  manifest.rank = 1;
  manifest.world_size = 4;
  manifest.layout = storage::sample_world()->layouts.front();
  manifest.options.mode = SaveMode::rank_local;
  manifest.options.dedupe = Dedupe::none;
  manifest.files = {{shard_file_name(1, 0), 5000, storage::nonce_of(12), 1, 0u}};
  manifest.payload_bytes = 904;
  const Bytes bytes = storage::encode_rank_manifest(manifest).value();
  const ByteView body = ByteView(bytes).subspan(
      storage::kRecordHeadBytes, bytes.size() - storage::kRecordHeadBytes - storage::kRecordTailBytes);
  write_seed(corpus / "decision", "rank-file", joined({std::byte{255}}, bytes));
  write_seed(corpus / "decision", "rank-body", joined({std::byte{254}}, body));
}

void seeds_of_root(const fs::path& root, const fs::path& corpus) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  int shards = 0, decisions = 0;
  for (const fs::path& path : paths) {
    const Bytes bytes = read_file(path);
    if (path.extension() == ".safetensors") {
      Bytes data_bytes(8);
      uint64_t count = 0;
      const Bytes json = trimmed(bytes, &count);
      store_le64(data_bytes.data(), count);
      if (!json.empty() && json.size() <= kMaxSeedBytes)
        write_seed(corpus / "shard_header", fmt::format("shard-{}", ++shards), joined(data_bytes, json));
    } else if (path.filename() == "manifest.shoal" && bytes.size() <= kMaxSeedBytes) {
      const std::byte state = bytes[12];
      const ByteView body = ByteView(bytes).subspan(
          storage::kRecordHeadBytes, bytes.size() - storage::kRecordHeadBytes - storage::kRecordTailBytes);
      ++decisions;
      write_seed(corpus / "decision", fmt::format("file-{}", decisions), joined({std::byte{0}}, bytes));
      write_seed(corpus / "decision", fmt::format("body-{}", decisions), joined({state}, body));
    }
  }
}

SavePlanPtr sample_plan() {
  return std::make_shared<const SavePlan>(*plan_save(*storage::sample_world(), 1, {}));
}

plan::PlannerPlan planner_plan() {
  return std::make_shared<const std::string>("a plan");
}

plan::ReplicaDigestsPtr digests() {
  return std::make_shared<const plan::ReplicaDigests>(
      plan::ReplicaDigests{ReplicaCheck::warn, 3, storage::nonce_of(5), {7, 0, UINT64_MAX}});
}

std::vector<actors::WireBody> wire_bodies() {
  constexpr AttemptKey key = {1, 3, 1};
  return {
      actors::wire::JoinRanks{
          "host-a", 8, {{2, storage::nonce_of(1)}, {7, storage::nonce_of(2)}}, {Dedupe::lowest_rank, 4096}},
      actors::wire::LayoutRequest{{storage::nonce_of(1), storage::nonce_of(2)}},
      actors::wire::Layouts{storage::sample_world()->layouts},
      actors::wire::RosterUpdate{storage::sample_world(), {Dedupe::none, uint64_t{1} << 20}, kRuleVersion},
      actors::wire::JoinRejected{"two hosts are called 'a'"},
      actors::wire::ShardsWritten{key,
                                  storage::nonce_of(9),
                                  {{2, storage::nonce_of(10)}},
                                  {{2, 0, 5000, storage::nonce_of(12), 904}}},
      actors::wire::SaveFailed{key, 2, Status(Code::no_space, "full")},
      actors::wire::Pending{key},
      actors::wire::Decided{key, false, "rank 2: full"},
      actors::wire::Superseded{7, "host-b:4000"},
      actors::wire::LayoutsStaged{key, {{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}}},
      actors::wire::AttemptRoster{key, storage::nonce_of(9)},
      actors::wire::RanksEnded{{{2, "exit status 1"}, {3, ""}}, {key}},
      actors::wire::LocalPlans{key,
                               "host-a",
                               8,
                               {},
                               {{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}},
                               {storage::nonce_of(5), PlanId{}}},
      actors::wire::GlobalPlan{key, storage::sample_world()->roster.id(), {{0, nullptr}, {1, sample_plan()}}},
      actors::wire::PlanGathering{
          key, plan::GatherStage::offered, "host-a", 8, {}, 5, {{2, planner_plan()}, {7, planner_plan()}}},
      actors::wire::JoinLoad{
          {true, 40, 3, 1, 2}, 8, "host-a:1", {{2, storage::nonce_of(3)}, {5, storage::nonce_of(4)}}, 700},
      actors::wire::LoadRoster{{true, 40, 3, 1, 2},
                               {},
                               key,
                               {storage::nonce_of(3)},
                               {"host-a:1", "host-b:2"},
                               {{0, 4, 0, 0}, {4, 2, 1, 0}}},
      actors::wire::ChunkRequest{{false, 3, 0, 1}, {99, 7}},
      actors::wire::ChunkData{
          {true, 0, 3, 1}, 99, std::make_shared<actors::Chunk>(actors::Chunk{3, Bytes(3), {}})},
      actors::wire::ChunksUnavailable{{true, 0, 3, 1}, {7}},
      actors::wire::ChunksCancelled{{true, 0, 3, 1}, {7, 9}},
      actors::wire::ChunksPending{{true, 0, 3, 1}, {7, 8}},
      actors::wire::SaveProgress{key, 17},
      actors::wire::Undecided{key, Status(Code::io, "the manifest could not be published")},
      actors::wire::ShardsWritten{key,
                                  storage::nonce_of(9),
                                  {{2, storage::nonce_of(10)}, {5, storage::nonce_of(11), digests()}},
                                  {{2, 0, 5000, storage::nonce_of(12), 904}}},
      actors::wire::ManifestsPublished{key, 4, 16}};
}

std::vector<actors::LinkMessage> link_messages(const Bytes& between_roles) {
  return {actors::link::ServeAsRelay{2048},
          actors::link::RelayReady{"10.0.0.2:4000", 2048},
          actors::link::RelayFailed{"no port"},
          actors::link::UseRelay{"10.0.0.2:4000", "full"},
          actors::link::ChildUp{3, "host-c", {}},
          actors::link::ChildLost{3, "no heartbeat for 2 s"},
          actors::link::FromChild{3, between_roles},
          actors::link::ToChild{3, between_roles},
          actors::link::DropChild{3, "it left"},
          actors::link::Welcome{},
          actors::link::JobStatusRequest{},
          actors::link::JobStatusTable{local::encode_job_status(local::some_job_status())},
          actors::link::HostStatusRequest{},
          actors::link::HostStatusReport{local::encode_host_status(local::some_host_status())}};
}

std::vector<local::LocalMessage> local_messages() {
  local::Staged staged;
  staged.step = 9;
  staged.attempt = 1;
  staged.pieces = {{0, 0, 0, 48, 0}, {1, 0, 0, 0, 128}};
  staged.replicas = digests();
  local::Load load;
  load.targets = {{"w", LayoutEntry::Kind::tensor, DType::f32, {8, 6}, {Box{{4, 0}, {4, 6}}}}};
  local::Written written;
  written.step = 9;
  written.attempt = 1;
  Metadata metadata;
  metadata.key = {1, 9, 1};
  metadata.world_size = 4;
  metadata.state_dict_metadata = {{"w", LayoutEntry::Kind::tensor, DType::f32, {8, 6}}};
  Metadata of_layouts;
  of_layouts.key = {1, 9, 1};
  of_layouts.world_size = storage::sample_world()->roster.world_size();
  return {
      local::Attach{local::kLocalSchemaVersion, 1, 2, "job", 77, {}},
      local::Attached{3, 78},
      local::Failed{Status(Code::refused, "another job")},
      local::LayoutUpdate{storage::sample_world()->layouts[0], SaveOptions{}},
      local::RosterUpdate{storage::sample_world(), kRuleVersion, SaveOptions{}},
      local::Slab{1, 4096},
      staged,
      local::SlabFree{1},
      local::Decided{9, 1, ok_status(), std::make_shared<const Metadata>(metadata)},
      local::Latest{5},
      load,
      local::Found{4, ok_status(), metadata},
      local::Loaded{4, 0, {{{0, Box{{0, 0}, {8, 6}}, 12, 24, 192}, 1024}}},
      local::Placed{4, 0},
      local::FilesToRead{
          4, 1, {"step-00000003/g1a1/rank-00000.safetensors"}, {{{0, Box{{8}, {6}}, 0, 6, 6}, 0, 4096}}, {7}},
      local::FilesRead{4, 1, {{0, 0, 6}}},
      local::LoadDone{4, Status(Code::corrupt, "block 3 differs")},
      local::Refused{9, 1, Status(Code::no_space, "full")},
      local::Detach{},
      local::PlanRequest{9, 1, storage::nonce_of(3), storage::nonce_of(4)},
      local::PlanUpdate{9, 1, storage::sample_world()->roster.id(), sample_plan()},
      local::PlanGathering{9, 1, plan::GatherStage::gathered, 1, {}, {planner_plan(), planner_plan()}},
      local::Found{4, ok_status(), of_layouts,
                   local::StoredLayouts{storage::sample_world(), kRuleVersion, {}}},
      local::Close{4},
      local::StagingRequest{uint64_t{1} << 30, 2, uint64_t{3} << 30, "staging_bytes_max", 7},
      local::StagingGranted{1, uint64_t{32} << 20, true, ok_status(), 7},
      local::StagingKept{4096, {0, 1}, 2},
      local::GiveBack{},
      local::PartRequest{1, 9, 1, 7, {{0, 100, 0}, {128, 64, 128}}},
      local::PartStaged{1, 7, Status(Code::aborted, "the save has ended")},
      local::StillWriting{9, 1},
      written,
      local::NotStaged{9, 1, Status(Code::no_space, "no memory to stage")},
      local::Ping{},
      local::Pong{},
      local::StatusRequest{},
      local::StatusReport{std::make_shared<const local::NodeStatus>(local::some_status())},
      local::List{4, 10},
      local::Listing{4, ok_status(),
                     std::make_shared<const CheckpointList>(CheckpointList{
                         {{{1, 9, 1}, CheckpointInfo::State::committed, 2, 3, 4096, 77, ""}}, 0})},
      local::SaveReturned{9, 1, 2'000'000, 1'000},
      local::JobStatusRequest{},
      local::JobStatusReport{std::make_shared<const local::JobStatus>(local::some_job_status())}};
}

// Whether there is a seed of each kind of message; names those without one.
template <class Message>
bool has_each_kind(const std::vector<Message>& seeds, std::string_view of) {
  std::vector<size_t> missing;
  for (size_t kind = 0; kind < std::variant_size_v<Message>; ++kind) {
    auto is_it = [kind](const Message& seed) { return seed.index() == kind; };
    if (std::none_of(seeds.begin(), seeds.end(), is_it)) missing.push_back(kind);
  }
  if (missing.empty()) return true;
  fmt::print(stderr, "make_seeds.cpp has no seed of the alternatives {} of {}\n", fmt::join(missing, ", "),
             of);
  return false;
}

// Whether `committed` has all seeds that were written to `corpus`; names those that it lacks.
bool has_each_seed(const fs::path& corpus, const fs::path& committed) {
  bool is_complete = true;
  for (const fs::path& seed : seeds_written) {
    const fs::path expected = committed / fs::relative(seed, corpus);
    if (fs::exists(expected)) continue;
    fmt::print(stderr, "{} is missing: write the seeds again (docs/how-to/fuzz.md)\n", expected.string());
    is_complete = false;
  }
  return is_complete;
}

Bytes framed(transport::FrameKind kind, const Bytes& payload) {
  transport::FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  if (kind == transport::FrameKind::message) {
    header.tag = 1;
    header.message_bytes = payload.size();
  }
  const transport::FrameHeaderBytes bytes = transport::encode_frame_header(header);
  return joined(Bytes(bytes.begin(), bytes.end()), payload);
}

void seeds_of_handshakes(const fs::path& folder) {
  transport::Identity identity;
  identity.job_id = "job";
  identity.name = "host";
  identity.generation = 1;
  const auto token = std::make_shared<const Bytes>(32, std::byte{7});
  transport::Handshake connector(transport::HandshakeRole::connector, identity, token,
                                 transport::HandshakeNonce{});
  transport::Handshake listener(transport::HandshakeRole::listener, identity, token,
                                transport::HandshakeNonce{std::byte{1}});
  const Bytes hello = connector.hello();
  const Bytes challenge = listener.on_frame(hello).reply;
  const Bytes proof = connector.on_frame(challenge).reply;
  write_seed(folder, "hello", framed(transport::FrameKind::handshake, hello));
  write_seed(folder, "challenge", framed(transport::FrameKind::handshake, challenge));
  write_seed(folder, "proof", framed(transport::FrameKind::handshake, proof));
  write_seed(folder, "refusal",
             framed(transport::FrameKind::handshake,
                    transport::encode_refusal(Status(Code::refused, "another job"))));
  write_seed(folder, "heartbeat", framed(transport::FrameKind::heartbeat, {}));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fmt::print(stderr, "usage: {} ROOT CORPUS [COMMITTED]\n", argv[0]);
    return 2;
  }
  const bool is_complete = has_each_kind(wire_bodies(), "WireBody") &&
                           has_each_kind(link_messages({}), "LinkMessage") &&
                           has_each_kind(local_messages(), "LocalMessage");
  if (!is_complete) return 1;
  const fs::path corpus = argv[2];
  seeds_of_root(argv[1], corpus);
  seeds_of_rank_manifest(corpus);
  int number = 0;
  Bytes between_roles;
  for (const actors::WireBody& body : wire_bodies()) {
    const auto shared = std::make_shared<const actors::WireBody>(body);
    const actors::WireMessage message{actors::RoleKind::planner, actors::RoleKind::coordinator, shared};
    const Bytes bytes = actors::encode_wire(message);
    write_seed(corpus / "wire", fmt::format("{}", ++number), bytes);
    if (number == 8) {
      between_roles = bytes;
      write_seed(corpus / "frame", "message", framed(transport::FrameKind::message, bytes));
    }
  }
  number = 0;
  for (const actors::LinkMessage& message : link_messages(between_roles))
    write_seed(corpus / "wire", fmt::format("link-{}", ++number), actors::encode_link(message));
  number = 0;
  for (const local::LocalMessage& message : local_messages())
    write_seed(corpus / "local", fmt::format("{}", ++number), local::encode_local(message));
  seeds_of_handshakes(corpus / "frame");
  return argc == 3 || has_each_seed(corpus, argv[3]) ? 0 : 1;
}
