#include "sim/failures/root_audit.h"

#include <capnp/serialize.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/digest/digest.h"
#include "schema/manifest.capnp.h"
#include "shoal/bytes.h"
#include "shoal/dtype.h"
#include "shoal/hash.h"
#include "sim/cluster/stored_payload.h"

namespace shoal::sim {

namespace {

constexpr size_t kHeadBytes = 32, kTailBytes = 16, kFramingBytes = 8;
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;
constexpr uint32_t kCommitted = 1;

Status wrong(const std::string& where, const std::string& what) {
  return Status(Code::corrupt, fmt::format("{}: {}", where, what));
}

Result<Bytes> read_file(storage::OpenFolder& folder, const std::string& name) {
  std::unique_ptr<storage::OpenFile> file;
  if (folder.open_file(name, &file) != 0) return wrong(name, "it does not exist");
  uint64_t size = 0;
  if (file->size(&size) != 0 || size > kMaxFileBytes) return wrong(name, "its size cannot be read");
  Bytes bytes(size);
  for (size_t done = 0; done < size;) {
    size_t count = 0;
    if (file->read_at(done, MutableByteView(bytes).subspan(done), &count) != 0 || count == 0) {
      return wrong(name, "it cannot be read");
    }
    done += count;
  }
  return bytes;
}

struct ExpectedTensor {
  DType dtype = DType::u8;
  Dims shape;
  std::vector<bool> found;  // by element
};
using ExpectedTensors = std::map<std::string, ExpectedTensor, std::less<>>;

ExpectedTensors tensors_of(const AuditedRun& run) {
  ExpectedTensors tensors;
  for (const LayoutPtr& layout : run.layouts) {
    for (const LayoutEntry& entry : layout->entries()) {
      if (entry.kind != LayoutEntry::Kind::tensor || is_per_rank(entry)) continue;
      tensors.try_emplace(std::string(entry.fqn),
                          ExpectedTensor{entry.dtype, entry.shape,
                                         std::vector<bool>(element_count(entry.shape).value_or(0))});
    }
  }
  return tensors;
}

// Marks the elements of a piece. False: the piece does not lie in the tensor.
bool mark(ExpectedTensor& tensor, const Box& box) {
  const size_t dims = tensor.shape.size();
  if (box.offsets.size() != dims || box.sizes.size() != dims) return false;
  for (size_t d = 0; d < dims; ++d) {
    if (box.offsets[d] + box.sizes[d] > tensor.shape[d]) return false;
  }
  Dims at(dims, 0);
  const uint64_t count = box.elements();
  for (uint64_t n = 0; n < count; ++n) {
    uint64_t index = 0;
    for (size_t d = 0; d < dims; ++d) index = index * tensor.shape[d] + box.offsets[d] + at[d];
    tensor.found[index] = true;
    for (size_t d = dims; d-- > 0;) {
      if (++at[d] < box.sizes[d]) break;
      at[d] = 0;
    }
  }
  return true;
}

// The pieces of one shard, compared with the bytes that belong there.
Status audit_shard(const Bytes& file, const std::string& name, const AttemptKey& key,
                   ExpectedTensors& tensors) {
  const uint64_t json_bytes = file.size() < 8 ? UINT64_MAX : load_le64(file.data());
  if (json_bytes > file.size() - 8) return wrong(name, "its header is longer than the file");
  const uint64_t data_begin = 8 + json_bytes;
  const auto* text = reinterpret_cast<const char*>(file.data());
  const auto header = nlohmann::ordered_json::parse(text + 8, text + data_begin, nullptr, false);
  if (!header.is_object()) return wrong(name, "its header is no JSON object");
  const auto& metadata = header.at("__metadata__");
  const auto info = nlohmann::json::parse(metadata.at("DCP_SHARDING_INFO").get<std::string>());
  const std::string digests = metadata.at("shoal_digests");
  const auto objects = nlohmann::json::parse(metadata.at("shoal").get<std::string>()).at("objects");
  size_t next_digest = 0;
  for (const auto& [piece_key, piece] : header.items()) {
    if (piece_key == "__metadata__") continue;
    if (std::find(objects.begin(), objects.end(), piece_key) != objects.end()) {  // they come last
      continue;
    }
    const auto& sharding = info.at(piece_key);
    const std::string fqn = sharding.value("logical_fqn", piece_key);
    const auto tensor = tensors.find(fqn);
    if (tensor == tensors.end()) return wrong(name, fmt::format("no rank of the job holds '{}'", fqn));
    const Box box{sharding.at("saved_offsets").get<Dims>(), piece.at("shape").get<Dims>()};
    const uint64_t begin = piece.at("data_offsets").at(0), end = piece.at("data_offsets").at(1);
    const uint64_t element_bytes = dtype_bytes(tensor->second.dtype).value();
    if (end < begin || end > file.size() - data_begin || end - begin != box.elements() * element_bytes) {
      return wrong(name, fmt::format("'{}' has data offsets {} to {}", piece_key, begin, end));
    }
    if (!mark(tensor->second, box)) {
      return wrong(name, fmt::format("'{}' does not lie in its tensor", piece_key));
    }
    const ByteView bytes = ByteView(file).subspan(data_begin + begin, end - begin);
    Bytes expected(bytes.size());
    fill_with_known_bytes(state_of(key), fqn, tensor->second.shape, box, element_bytes, 0, expected);
    if (!std::equal(bytes.begin(), bytes.end(), expected.begin())) {
      return wrong(name, fmt::format("'{}' does not have the bytes of {}", piece_key, to_string(key)));
    }
    for (uint64_t at = 0; at < bytes.size(); at += base::kDigestBlockBytes) {
      const ByteView block =
          bytes.subspan(at, std::min<uint64_t>(base::kDigestBlockBytes, bytes.size() - at));
      const std::string digest = fmt::format("{:016x}", base::block_digest(block));
      if (digests.compare(16 * next_digest++, 16, digest) != 0) {
        return wrong(name, fmt::format("'{}' differs from its digest", piece_key));
      }
    }
  }
  return ok_status();
}

// The body of a record, after its head and digests were checked.
Result<ByteView> body_of(const Bytes& record, const std::string& name) {
  if (record.size() < kHeadBytes + kFramingBytes + kTailBytes) return wrong(name, "it is too short");
  const ByteView all(record);
  if (std::memcmp(record.data(), "SHOALDEC", 8) != 0) return wrong(name, "it is no decision");
  const bool is_whole =
      load_le64(record.data() + 16) == record.size() - kHeadBytes - kTailBytes &&
      load_le64(record.data() + 24) == xxh3_64(all.first(24)) &&
      std::memcmp(record.data() + record.size() - kTailBytes,
                  xxh3_128(all.first(record.size() - kTailBytes)).bytes.data(), kTailBytes) == 0;
  if (!is_whole) return wrong(name, "its digests or its length are wrong");
  return all.subspan(kHeadBytes, record.size() - kHeadBytes - kTailBytes);
}

Status audit_manifest(storage::OpenFolder& folder, const Bytes& record, const AttemptKey& key,
                      ExpectedTensors tensors) {
  SHOAL_ASSIGN_OR_RETURN(const ByteView body, body_of(record, "manifest.shoal"));
  std::vector<capnp::word> words(body.size() / sizeof(capnp::word));
  std::memcpy(words.data(), body.data(), words.size() * sizeof(capnp::word));
  capnp::FlatArrayMessageReader message(kj::arrayPtr(words.data(), words.size()));
  const auto decision = message.getRoot<schema::Decision>();
  const AttemptKey named{decision.getGeneration(), decision.getStep(), decision.getAttempt()};
  if (named != key) return wrong("manifest.shoal", "it is that of " + to_string(named));
  if (!decision.getBody().isManifest()) return wrong("manifest.shoal", "its head and its body differ");
  for (const auto entry : decision.getBody().getManifest().getFiles()) {
    const std::string name = entry.getName().cStr();
    SHOAL_ASSIGN_OR_RETURN(const Bytes file, read_file(folder, name));
    if (file.size() != entry.getSize()) {
      return wrong(name, fmt::format("it has {} bytes, not {}", file.size(), entry.getSize()));
    }
    if (file.size() < 8 || load_le64(file.data()) > file.size() - 8) return wrong(name, "it is too short");
    const Hash128 digest = xxh3_128(ByteView(file).first(8 + load_le64(file.data())));
    const auto stated = entry.getHeaderDigest();
    if (stated.size() != 16 || std::memcmp(stated.begin(), digest.bytes.data(), 16) != 0) {
      return wrong(name, "its header differs from the manifest's digest");
    }
    try {
      SHOAL_RETURN_IF_ERROR(audit_shard(file, name, key, tensors));
    } catch (const nlohmann::json::exception& error) {
      return wrong(name, std::string("its header lacks something: ") + error.what());
    }
  }
  for (const auto& [fqn, tensor] : tensors) {
    const auto missing = std::find(tensor.found.begin(), tensor.found.end(), false);
    if (missing == tensor.found.end()) continue;
    return wrong("manifest.shoal",
                 fmt::format("no file has element {} of '{}'", missing - tensor.found.begin(), fqn));
  }
  return ok_status();
}

}  // namespace

Result<std::set<AttemptKey>> audit_root(storage::FileSystem& file_system, const std::string& root,
                                        const std::vector<AuditedRun>& runs,
                                        const std::function<bool(const AttemptKey&)>& is_damaged) {
  std::set<AttemptKey> committed;
  std::unique_ptr<storage::OpenFolder> top;
  std::vector<storage::FolderEntry> steps;
  if (file_system.open_root(root, &top) != 0 || top->list(&steps) != 0)
    return wrong(root, "it cannot be read");
  for (const storage::FolderEntry& step_entry : steps) {
    AttemptKey key;
    unsigned long step = 0;
    if (std::sscanf(step_entry.name.c_str(), "step-%lu", &step) != 1) continue;
    key.step = step;
    std::unique_ptr<storage::OpenFolder> step_folder;
    std::vector<storage::FolderEntry> attempts;
    if (top->open_folder(step_entry.name, &step_folder) != 0 || step_folder->list(&attempts) != 0) continue;
    for (const storage::FolderEntry& attempt : attempts) {
      char rest = 0;
      if (std::sscanf(attempt.name.c_str(), "g%ua%u%c", &key.generation, &key.attempt, &rest) != 2) continue;
      if (is_damaged && is_damaged(key)) {
        committed.insert(key);
        continue;
      }
      std::unique_ptr<storage::OpenFolder> folder;
      if (step_folder->open_folder(attempt.name, &folder) != 0) continue;
      auto record = read_file(*folder, "manifest.shoal");
      if (!record.ok()) continue;  // undecided
      if (record->size() < kHeadBytes) return wrong(to_string(key), "manifest.shoal is too short");
      uint32_t state = 0;
      std::memcpy(&state, record->data() + 12, sizeof state);
      if (state != kCommitted) continue;
      for (const AuditedRun& run : runs) {
        if (run.generation != key.generation) continue;
        SHOAL_RETURN_IF_ERROR(
            audit_manifest(*folder, *record, key, tensors_of(run)).with_context(to_string(key)));
      }
      committed.insert(key);
    }
  }
  return committed;
}

}  // namespace shoal::sim
