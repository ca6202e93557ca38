// Pickle: reads what Python's pickle has written, and executes nothing.
//
// A pickle is a program that can call any function of Python. This reader keeps calls as data: an object with
// the name of its class and its arguments. It rejects every name that it was not given. Values refer to the
// bytes of the pickle, which must outlive them.
//
// Format: pickletools.py of CPython, protocols 2 to 5. Protocols 0 and 1 are text, and nothing that PyTorch
// writes uses them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/bytes.h"
#include "shoal/status.h"

namespace shoal::admin {

class PickleReader;

using PickleId = uint32_t;  // of a value in its Pickle
inline constexpr PickleId kNoPickleId = std::numeric_limits<PickleId>::max();

enum class PickleKind : uint8_t {
  none,
  boolean,
  integer,
  big_integer,  // beyond 64 bits
  real,
  text,
  bytes,
  bytearray,
  list,
  tuple,
  dict,
  set,
  frozenset,
  global,      // a class or a function by its name
  object,      // a call that was not made
  persistent,  // what the pickle refers to, but does not contain
};

struct PickleRules {
  std::string where;  // for errors: "/old/.metadata"
  // Whether the pickle may name it. Code::invalid_argument names every other module and name.
  std::function<bool(std::string_view module, std::string_view name)> allows;
  std::string_view instead;  // what the error for other names says one can do; empty: nothing
  bool has_persistent = false;
  uint32_t values_max = 0;  // each takes some 30 bytes of memory, and each item of a container 4 to 16
};

class Pickle {
 public:
  // Code::invalid_argument: a name that the rules do not allow, or an opcode that could not be read without
  // executing. Code::corrupt: damaged or truncated. Code::too_large: more than values_max.
  static Result<Pickle> read(ByteView bytes, const PickleRules& rules);

  PickleId root() const { return root_; }
  PickleKind kind(PickleId id) const { return values_[id].kind; }
  // Each requires a value of that kind.
  bool boolean(PickleId id) const { return values_[id].bits != 0; }
  int64_t integer(PickleId id) const { return static_cast<int64_t>(values_[id].bits); }
  double real(PickleId id) const;
  // Of text (UTF-8, which may encode surrogates), bytes and bytearray. Of a big_integer: its two's
  // complement, little-endian.
  std::string_view text(PickleId id) const;
  // Of list, tuple, set and frozenset. Of a dict: key, value, key, value, ...; a key may occur again, and
  // then the last one counts. A container may contain itself.
  std::span<const PickleId> items(PickleId id) const;
  // The name of a global, or of the class or function of an object. Both are empty for other values.
  std::string_view module(PickleId id) const;
  std::string_view name(PickleId id) const;
  bool is_named(PickleId id, std::string_view module_wanted, std::string_view name_wanted) const {
    return module(id) == module_wanted && name(id) == name_wanted;
  }
  // Of an object.
  std::span<const PickleId> arguments(PickleId id) const;
  PickleId state(PickleId id) const;  // kNoPickleId: it has none
  // Key, value, key, value, ... of a dict, or what was put into an object that is a dict.
  std::span<const PickleId> entries(PickleId id) const;
  // The identity of a persistent value.
  PickleId identity(PickleId id) const { return items(id).front(); }

 private:
  friend class PickleReader;
  struct Value {
    uint64_t bits = 0;  // a number, where the text begins, or where the items begin in items_
    uint32_t count = 0;
    uint32_t capacity = 0;  // of items that may grow
    PickleKind kind = PickleKind::none;
  };
  enum Slot : size_t { kCallable, kArguments, kState, kEntries, kSlots };  // of an object, in items_

  ByteView bytes_;
  std::vector<Value> values_;
  std::vector<PickleId> items_;
  PickleId root_ = kNoPickleId;
};

}  // namespace shoal::admin
