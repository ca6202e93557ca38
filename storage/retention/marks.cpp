#include "storage/retention/marks.h"

#include <capnp/message.h>

#include <algorithm>

#include "schema/retention.capnp.h"
#include "storage/decisions/record_io_internal.h"
#include "storage/root/run_root.h"

namespace shoal::storage {

namespace {

constexpr uint64_t kMaxMarkBytes = 4096;
constexpr size_t kPinDigits = 32;

struct KindTraits {
  const char* folder;
  RecordKind record;
};
const KindTraits& facts_of(MarkKind kind) {
  static const KindTraits facts[] = {{"pins", {"SHOALPIN", "pin", 1, kMaxMarkBytes}},
                                     {"tags", {"SHOALTAG", "tag", 1, kMaxMarkBytes}},
                                     {"verified", {"SHOALVER", "verified mark", 1, kMaxMarkBytes}}};
  return facts[static_cast<size_t>(kind)];
}

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool is_name(MarkKind kind, std::string_view name) {
  switch (kind) {
    case MarkKind::pin:
      return name.size() == kPinDigits && std::all_of(name.begin(), name.end(), is_hex_digit);
    case MarkKind::tag:
      return validate_tag(name).ok();
    case MarkKind::verified:
      break;
  }
  size_t dot = name.find('.');
  if (dot == std::string_view::npos) return false;
  std::optional<uint64_t> step = parse_step_folder(name.substr(0, dot));
  return step && parse_attempt_folder(*step, name.substr(dot + 1));
}

std::string path_of(MarkKind kind, const std::string& name) {
  return std::string(facts_of(kind).folder) + "/" + name;
}

Result<Bytes> encode(MarkKind kind, const Mark& mark) {
  if (!is_name(kind, mark.name)) {
    return Status(Code::invalid_argument,
                  fmt::format("'{}' is not a valid name of a {}", clean_line(mark.name, kMaxNoteBytes),
                              facts_of(kind).record.what));
  }
  capnp::MallocMessageBuilder message;
  auto root = message.initRoot<schema::Mark>();
  root.setGeneration(mark.key.generation);
  root.setStep(mark.key.step);
  root.setAttempt(mark.key.attempt);
  root.setIsLease(mark.is_lease);
  root.setCounter(mark.counter);
  root.setNote(schema::text_of(clean_line(mark.note, kMaxNoteBytes)));
  root.setUnixTimeNs(mark.unix_time_ns);
  root.setNonce(schema::data_of(mark.nonce));
  return seal_record(facts_of(kind).record, 0, schema::canonical_framed_bytes(root));
}

}  // namespace

std::string pin_name(const Nonce& id) {
  return id.to_hex();
}

std::string verified_name(const AttemptKey& key) {
  std::string folder = attempt_folder(key);
  std::replace(folder.begin(), folder.end(), '/', '.');
  return folder;
}

Status validate_tag(std::string_view name) {
  bool begins_well = !name.empty() && ((name.front() >= 'a' && name.front() <= 'z') ||
                                       (name.front() >= 'A' && name.front() <= 'Z'));
  if (begins_well && name.size() <= kMaxTagBytes && name != "latest" && !is_partial(name) &&
      validate_component(name).ok()) {
    return ok_status();
  }
  return Status(Code::invalid_argument,
                fmt::format("'{}' is not a valid tag: expected 1 to {} characters of [A-Za-z0-9._-], "
                            "beginning with a letter, and not 'latest'",
                            clean_line(std::string(name), kMaxTagBytes), kMaxTagBytes));
}

Result<bool> create_mark(Storage& storage, MarkKind kind, const Mark& mark) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode(kind, mark));
  return storage.create_exclusive(path_of(kind, mark.name), bytes);
}

Status replace_mark(Storage& storage, MarkKind kind, const Mark& mark) {
  SHOAL_ASSIGN_OR_RETURN(Bytes bytes, encode(kind, mark));
  SHOAL_RETURN_IF_ERROR(read_mark(storage, kind, mark.name).status());
  return storage.replace(path_of(kind, mark.name), bytes);
}

Status remove_mark(Storage& storage, MarkKind kind, const std::string& name) {
  SHOAL_RETURN_IF_ERROR(storage.remove(path_of(kind, name)));
  Status synced = storage.sync_folder(facts_of(kind).folder);
  return synced.code() == Code::not_found ? ok_status() : synced;
}

Result<Mark> read_mark(Storage& storage, MarkKind kind, const std::string& name) {
  return read_record<schema::Mark>(
      storage, facts_of(kind).record, path_of(kind, name), [&](schema::Mark::Reader reader) -> Result<Mark> {
        Mark mark;
        mark.name = name;
        mark.key = {reader.getGeneration(), reader.getStep(), reader.getAttempt()};
        mark.is_lease = reader.getIsLease();
        mark.counter = reader.getCounter();
        SHOAL_RETURN_IF_ERROR(schema::bounded_size(reader.getNote(), kMaxNoteBytes, "note").status());
        mark.note = schema::view_of(reader.getNote());
        if (!is_clean_utf8(mark.note)) return Status(Code::corrupt, "its note is not clean text");
        mark.unix_time_ns = reader.getUnixTimeNs();
        SHOAL_ASSIGN_OR_RETURN(mark.nonce, Hash128::from_bytes(schema::view_of(reader.getNonce())));
        if (kind == MarkKind::verified && name != verified_name(mark.key)) {
          return Status(Code::corrupt, fmt::format("it is a mark on {}", to_string(mark.key)));
        }
        return mark;
      });
}

Result<MarkList> list_marks(Storage& storage, MarkKind kind) {
  MarkList out;
  auto listed = storage.list(facts_of(kind).folder);
  if (!listed.ok() && listed.status().code() == Code::not_found) return out;
  if (!listed.ok()) return listed.status();
  for (const ObjectInfo& object : *listed) {
    if (!is_name(kind, object.name)) continue;
    auto mark = read_mark(storage, kind, object.name);
    if (mark.ok()) {
      out.marks.push_back(std::move(*mark));
    } else if (mark.status().code() != Code::not_found) {  // not_found: it was removed meanwhile
      out.damaged.emplace_back(object.name, mark.status());
    }
  }
  return out;
}

}  // namespace shoal::storage
