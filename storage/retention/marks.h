// Marks: small records under a root, each of which keeps one checkpoint. docs/explanation/retention.md.
//
// A *pin* (pins/UUID) is either a lease, which a load holds while it reads and renews by moving its counter,
// or permanent, until somebody removes it. A *tag* (tags/NAME) is a name for a checkpoint. A *verified* mark
// (verified/STEP.ATTEMPT) says that every byte of it was once read back and found right. Any thread.
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
  std::string note;       // who made it, or why
  int64_t unix_time_ns = 0;
  Nonce nonce;
};

std::string pin_name(const Nonce& id);             // 32 hexadecimal digits
std::string verified_name(const AttemptKey& key);  // "step-00001000.g3a1"
// 1 to kMaxTagBytes of [A-Za-z0-9._-], beginning with a letter, and not "latest". Code::invalid_argument.
Status validate_tag(std::string_view name);

// Durable before it returns. false: the name is taken.
Result<bool> create_mark(Storage& storage, MarkKind kind, const Mark& mark);
// Puts this one in the place of the one with its name, durably. Code::not_found where there is none.
Status replace_mark(Storage& storage, MarkKind kind, const Mark& mark);
Status remove_mark(Storage& storage, MarkKind kind,
                   const std::string& name);  // durably; OK if it is not there
Result<Mark> read_mark(Storage& storage, MarkKind kind, const std::string& name);  // Code::not_found

struct MarkList {
  std::vector<Mark> marks;                              // by name
  std::vector<std::pair<std::string, Status>> damaged;  // names of those that cannot be read
};
Result<MarkList> list_marks(Storage& storage, MarkKind kind);

}  // namespace shoal::storage
