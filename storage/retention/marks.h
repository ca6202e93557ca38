// Marks: small records in a root, each of which keeps one checkpoint. docs/explanation/retention.md.
//
// A *pin* (pins/UUID) is a lease or permanent. A load holds a lease while it reads, and renews it by
// incrementing its counter. A permanent pin lasts until someone removes it. A *tag* (tags/NAME) is a name for
// a checkpoint. A *verified* mark (verified/STEP.ATTEMPT) states that every byte of the checkpoint was once
// read and matched its digest. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shoal/hash.h"
#include "shoal/metadata.h"
#include "shoal/status.h"
#include "storage/storage.h"

namespace shoal::storage {

inline constexpr size_t kMaxNoteBytes = 512;  // a longer note is cut
inline constexpr size_t kMaxTagBytes = 64;

enum class MarkKind : uint8_t { pin, tag, verified };

struct Mark {
  std::string name;  // of its file
  AttemptKey key;
  bool is_lease = false;  // pins only
  uint64_t counter = 0;   // of a lease
  std::string note;       // who created it, or why
  int64_t unix_time_ns = 0;
  Nonce nonce;
};

std::string pin_name(const Nonce& id);             // 32 hexadecimal digits
std::string verified_name(const AttemptKey& key);  // "step-00001000.g3a1"
// 1 to kMaxTagBytes of [A-Za-z0-9._-], beginning with a letter, and not "latest". Code::invalid_argument.
Status validate_tag(std::string_view name);

// Durable before it returns. false: the name is taken.
Result<bool> create_mark(Storage& storage, MarkKind kind, const Mark& mark);
// Replaces the mark of the same name, durably. Code::not_found if there is none.
Status replace_mark(Storage& storage, MarkKind kind, const Mark& mark);
Status remove_mark(Storage& storage, MarkKind kind,
                   const std::string& name);  // durably; OK if it does not exist
Result<Mark> read_mark(Storage& storage, MarkKind kind, const std::string& name);  // Code::not_found

struct MarkList {
  std::vector<Mark> marks;                              // by name
  std::vector<std::pair<std::string, Status>> damaged;  // names of the marks that cannot be read
};
Result<MarkList> list_marks(Storage& storage, MarkKind kind);

}  // namespace shoal::storage
