#include "admin/dcp/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

namespace shoal::admin {

// ---- values ----

double Pickle::real(PickleId id) const {
  return std::bit_cast<double>(values_[id].bits);
}

std::string_view Pickle::text(PickleId id) const {
  return as_text(bytes_.subspan(values_[id].bits, values_[id].count));
}

std::span<const PickleId> Pickle::items(PickleId id) const {
  return std::span(items_).subspan(values_[id].bits, values_[id].count);
}

std::string_view Pickle::module(PickleId id) const {
  if (kind(id) == PickleKind::object) id = items(id)[kCallable];
  return kind(id) == PickleKind::global ? text(items(id)[0]) : std::string_view();
}

std::string_view Pickle::name(PickleId id) const {
  if (kind(id) == PickleKind::object) id = items(id)[kCallable];
  return kind(id) == PickleKind::global ? text(items(id)[1]) : std::string_view();
}

std::span<const PickleId> Pickle::arguments(PickleId id) const {
  return items(items(id)[kArguments]);
}

PickleId Pickle::state(PickleId id) const {
  return items(id)[kState];
}

std::span<const PickleId> Pickle::entries(PickleId id) const {
  if (kind(id) == PickleKind::object) id = items(id)[kEntries];
  return id == kNoPickleId ? std::span<const PickleId>() : items(id);
}

// ---- reading ----

// The machine of a pickle: a stack, marks in it, and a memo of values that are used again.
class PickleReader {
 public:
  PickleReader(ByteView bytes, const PickleRules& rules) : rules_(rules), bytes_(bytes) {
    pickle_.bytes_ = bytes;
  }
  Result<Pickle> run();

 private:
  using Kind = PickleKind;
  using Value = Pickle::Value;

  Status step(uint8_t opcode);
  // Each returns nullopt for an opcode of another group.
  std::optional<Status> number(uint8_t opcode);
  std::optional<Status> text(uint8_t opcode);
  std::optional<Status> container(uint8_t opcode);
  std::optional<Status> addition(uint8_t opcode);
  std::optional<Status> object(uint8_t opcode);
  std::optional<Status> memo(uint8_t opcode);
  std::optional<Status> stack(uint8_t opcode);

  Status corrupt(std::string_view what) const {
    return Status(Code::corrupt, fmt::format("{} cannot be unpickled: {} at byte {}; it is damaged or "
                                             "truncated",
                                             rules_.where, what, at_));
  }
  // `count` little-endian bytes.
  Result<uint64_t> take(size_t count);
  Result<ByteView> take_bytes(uint64_t count);
  Result<std::string_view> take_line();
  Status push(Value value, PickleId* id = nullptr);
  Status push_number(Kind kind, uint64_t bits) { return push({bits, 0, 0, kind}); }
  Status push_text(Kind kind, size_t length_bytes);
  Status push_slice(Kind kind, std::string_view slice, PickleId* id = nullptr);
  Status push_long(size_t length_bytes);
  Status push_items(Kind kind, size_t from);
  Result<PickleId> pop();
  Result<size_t> pop_mark();  // where the values since the last mark begin
  Status push_global(PickleId module, PickleId name);
  Status global_line();
  Status call();
  Status build();
  Status put(uint64_t index);
  Status get(uint64_t index);
  Status add(PickleId target, std::span<const PickleId> items);
  Status add_entries(PickleId target, std::span<const PickleId> items);
  Status grow(PickleId target, std::span<const PickleId> items);

  const PickleRules& rules_;
  const ByteView bytes_;
  size_t at_ = 0;
  Pickle pickle_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;
  std::vector<PickleId> memo_;
};

Result<Pickle> Pickle::read(ByteView bytes, const PickleRules& rules) {
  if (bytes.size() > std::numeric_limits<uint32_t>::max()) {
    return Status(Code::too_large, fmt::format("{}: a pickle of {} bytes", rules.where, bytes.size()));
  }
  return PickleReader(bytes, rules).run();
}

Result<Pickle> PickleReader::run() {
  constexpr uint8_t kProto = 0x80, kStop = '.', kNewestProtocol = 5;
  SHOAL_ASSIGN_OR_RETURN(const uint64_t first, take(1));
  if (first != kProto) {
    return Status(Code::corrupt, fmt::format("{} is not a pickle of protocol 2 or later", rules_.where));
  }
  SHOAL_ASSIGN_OR_RETURN(const uint64_t protocol, take(1));
  if (protocol < 2 || protocol > kNewestProtocol) {
    return Status(Code::version, fmt::format("{} is a pickle of protocol {}: this program reads 2 to {}",
                                             rules_.where, protocol, kNewestProtocol));
  }
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t opcode, take(1));
    if (opcode == kStop) break;
    SHOAL_RETURN_IF_ERROR(step(static_cast<uint8_t>(opcode)));
  }
  if (stack_.size() != 1 || !marks_.empty()) return corrupt("it ends with values left over");
  pickle_.root_ = stack_.front();
  return std::move(pickle_);
}

Status PickleReader::step(uint8_t opcode) {
  if (auto done = number(opcode)) return *done;
  if (auto done = text(opcode)) return *done;
  if (auto done = container(opcode)) return *done;
  if (auto done = addition(opcode)) return *done;
  if (auto done = object(opcode)) return *done;
  if (auto done = memo(opcode)) return *done;
  if (auto done = stack(opcode)) return *done;
  return corrupt(fmt::format("opcode 0x{:02x}, which no file of PyTorch needs,", opcode));
}

std::optional<Status> PickleReader::number(uint8_t opcode) {
  auto integer = [&](size_t bytes) {
    auto value = take(bytes);
    if (!value.ok()) return value.status();
    return push_number(Kind::integer,
                       bytes == 4 ? static_cast<uint64_t>(static_cast<int32_t>(*value)) : *value);
  };
  switch (opcode) {
    case 'N':
      return push_number(Kind::none, 0);
    case 0x88:
      return push_number(Kind::boolean, 1);
    case 0x89:
      return push_number(Kind::boolean, 0);
    case 'J':  // signed
      return integer(4);
    case 'K':
      return integer(1);
    case 'M':
      return integer(2);
    case 0x8a:
      return push_long(1);
    case 0x8b:
      return push_long(4);
    case 'G': {
      auto bits = take(8);
      return bits.ok() ? push_number(Kind::real, __builtin_bswap64(*bits)) : bits.status();  // big-endian
    }
    default:
      return std::nullopt;
  }
}

std::optional<Status> PickleReader::text(uint8_t opcode) {
  switch (opcode) {
    case 0x8c:
      return push_text(Kind::text, 1);
    case 'X':
      return push_text(Kind::text, 4);
    case 0x8d:
      return push_text(Kind::text, 8);
    case 'C':
      return push_text(Kind::bytes, 1);
    case 'B':
      return push_text(Kind::bytes, 4);
    case 0x8e:
      return push_text(Kind::bytes, 8);
    case 0x96:
      return push_text(Kind::bytearray, 8);
    default:
      return std::nullopt;
  }
}

std::optional<Status> PickleReader::container(uint8_t opcode) {
  auto of_mark = [&](Kind kind) {
    auto from = pop_mark();
    if (!from.ok()) return from.status();
    if (kind == Kind::dict && (stack_.size() - *from) % 2 != 0) return corrupt("a key without a value");
    return push_items(kind, *from);
  };
  auto of_last = [&](size_t count) {
    if (stack_.size() < count || (!marks_.empty() && stack_.size() - count < marks_.back())) {
      return corrupt("too few values on the stack");
    }
    return push_items(Kind::tuple, stack_.size() - count);
  };
  switch (opcode) {
    case ']':
      return push_items(Kind::list, stack_.size());
    case '}':
      return push_items(Kind::dict, stack_.size());
    case 0x8f:
      return push_items(Kind::set, stack_.size());
    case ')':
      return of_last(0);
    case 0x85:
    case 0x86:
    case 0x87:
      return of_last(opcode - 0x84u);
    case 't':
      return of_mark(Kind::tuple);
    case 'l':
      return of_mark(Kind::list);
    case 'd':
      return of_mark(Kind::dict);
    case 0x91:
      return of_mark(Kind::frozenset);
    default:
      return std::nullopt;
  }
}

std::optional<Status> PickleReader::addition(uint8_t opcode) {
  if (opcode != 'a' && opcode != 's' && opcode != 'e' && opcode != 'u' && opcode != 0x90) return std::nullopt;
  size_t from = 0;
  if (opcode == 'a' || opcode == 's') {
    const size_t count = opcode == 'a' ? 1 : 2;
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() < floor + count + 1) return corrupt("too few values on the stack");
    from = stack_.size() - count;
  } else {
    auto marked = pop_mark();
    if (!marked.ok()) return marked.status();
    from = *marked;
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (from < floor + 1) return corrupt("there is nothing to add to");
  }
  const PickleId target = stack_[from - 1];
  const auto items = std::span<const PickleId>(stack_).subspan(from);
  Status added = opcode == 's' || opcode == 'u' ? add_entries(target, items) : add(target, items);
  stack_.resize(from);
  return added;
}

std::optional<Status> PickleReader::object(uint8_t opcode) {
  switch (opcode) {
    case 'c':
      return global_line();
    case 0x93: {
      auto name = pop();
      if (!name.ok()) return name.status();
      auto module = pop();
      if (!module.ok()) return module.status();
      return push_global(*module, *name);
    }
    case 'R':
    case 0x81:
      return call();
    case 'b':
      return build();
    case 'Q': {
      if (!rules_.has_persistent) return corrupt("a reference to something outside of the pickle");
      if (stack_.empty() || (!marks_.empty() && stack_.size() - 1 < marks_.back())) {
        return corrupt("too few values on the stack");
      }
      return push_items(Kind::persistent, stack_.size() - 1);
    }
    default:
      return std::nullopt;
  }
}

std::optional<Status> PickleReader::memo(uint8_t opcode) {
  auto with_index = [&](size_t bytes, auto use) {
    auto index = take(bytes);
    return index.ok() ? (this->*use)(*index) : index.status();
  };
  switch (opcode) {
    case 0x94:
      return put(memo_.size());
    case 'q':
      return with_index(1, &PickleReader::put);
    case 'r':
      return with_index(4, &PickleReader::put);
    case 'h':
      return with_index(1, &PickleReader::get);
    case 'j':
      return with_index(4, &PickleReader::get);
    default:
      return std::nullopt;
  }
}

std::optional<Status> PickleReader::stack(uint8_t opcode) {
  switch (opcode) {
    case '(':
      marks_.push_back(stack_.size());
      return ok_status();
    case '0':
      return pop().status();
    case '1': {
      auto from = pop_mark();
      if (from.ok()) stack_.resize(*from);
      return from.status();
    }
    case '2': {
      auto top = pop();
      if (top.ok()) stack_.insert(stack_.end(), 2, *top);
      return top.status();
    }
    case 0x95: {  // a frame: only its length, which says how much a reader may buffer
      auto length = take(8);
      if (length.ok() && *length > bytes_.size() - at_) return corrupt("a frame that ends too late");
      return length.status();
    }
    default:
      return std::nullopt;
  }
}

Result<uint64_t> PickleReader::take(size_t count) {
  SHOAL_ASSIGN_OR_RETURN(const ByteView taken, take_bytes(count));
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint64_t>(taken[i]);
  return value;
}

Result<ByteView> PickleReader::take_bytes(uint64_t count) {
  if (count > bytes_.size() - at_) return corrupt("it ends too early");
  const ByteView taken = bytes_.subspan(at_, count);
  at_ += count;
  return taken;
}

Result<std::string_view> PickleReader::take_line() {
  const std::string_view rest = as_text(bytes_.subspan(at_));
  const size_t length = rest.find('\n');
  if (length == std::string_view::npos) return corrupt("it ends too early");
  at_ += length + 1;
  return rest.substr(0, length);
}

Status PickleReader::push(Value value, PickleId* id) {
  if (pickle_.values_.size() >= rules_.values_max) {
    return Status(Code::too_large,
                  fmt::format("{} is a pickle of more than {} values", rules_.where, rules_.values_max));
  }
  stack_.push_back(static_cast<PickleId>(pickle_.values_.size()));
  if (id) *id = stack_.back();
  pickle_.values_.push_back(value);
  return ok_status();
}

Status PickleReader::push_text(Kind kind, size_t length_bytes) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t length, take(length_bytes));
  SHOAL_ASSIGN_OR_RETURN(const ByteView slice, take_bytes(length));
  return push_slice(kind, as_text(slice));
}

Status PickleReader::push_slice(Kind kind, std::string_view slice, PickleId* id) {
  const auto begin = static_cast<uint64_t>(slice.data() - as_text(bytes_).data());
  return push({begin, static_cast<uint32_t>(slice.size()), 0, kind}, id);
}

Status PickleReader::push_long(size_t length_bytes) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t length, take(length_bytes));
  SHOAL_ASSIGN_OR_RETURN(const ByteView digits, take_bytes(length));
  if (length > 8) return push_slice(Kind::big_integer, as_text(digits));
  const bool is_negative = length > 0 && (digits[length - 1] & std::byte{0x80}) != std::byte{0};
  uint64_t value = is_negative ? ~uint64_t{0} : 0;
  for (size_t i = length; i-- > 0;) value = value << 8 | static_cast<uint64_t>(digits[i]);
  return push_number(Kind::integer, value);
}

// A container of the values on the stack from `from` on, which takes their place.
Status PickleReader::push_items(Kind kind, size_t from) {
  const size_t begin = pickle_.items_.size();
  const auto count = static_cast<uint32_t>(stack_.size() - from);
  pickle_.items_.insert(pickle_.items_.end(), stack_.begin() + static_cast<ptrdiff_t>(from), stack_.end());
  stack_.resize(from);
  return push({begin, count, count, kind});
}

Result<PickleId> PickleReader::pop() {
  if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back())) {
    return corrupt("too few values on the stack");
  }
  const PickleId top = stack_.back();
  stack_.pop_back();
  return top;
}

Result<size_t> PickleReader::pop_mark() {
  if (marks_.empty()) return corrupt("a mark is missing");
  const size_t from = marks_.back();
  marks_.pop_back();
  return from;
}

Status PickleReader::push_global(PickleId module, PickleId name) {
  if (pickle_.kind(module) != Kind::text || pickle_.kind(name) != Kind::text) {
    return corrupt("a name that is not text");
  }
  if (!rules_.allows(pickle_.text(module), pickle_.text(name))) {
    constexpr size_t kMaxNamed = 200;
    const std::string full = fmt::format("{}.{}", pickle_.text(module), pickle_.text(name));
    return Status(
        Code::invalid_argument,
        fmt::format("{} names {}, which may run code, and is not imported{}{}", rules_.where,
                    clean_line(full, kMaxNamed), rules_.instead.empty() ? "" : ". ", rules_.instead));
  }
  stack_.push_back(module);
  stack_.push_back(name);
  return push_items(Kind::global, stack_.size() - 2);
}

Status PickleReader::global_line() {
  SHOAL_ASSIGN_OR_RETURN(const std::string_view module_line, take_line());
  SHOAL_ASSIGN_OR_RETURN(const std::string_view name_line, take_line());
  PickleId module = kNoPickleId, name = kNoPickleId;
  SHOAL_RETURN_IF_ERROR(push_slice(Kind::text, module_line, &module));
  SHOAL_RETURN_IF_ERROR(push_slice(Kind::text, name_line, &name));
  stack_.resize(stack_.size() - 2);
  return push_global(module, name);
}

Status PickleReader::call() {
  SHOAL_ASSIGN_OR_RETURN(const PickleId arguments, pop());
  SHOAL_ASSIGN_OR_RETURN(const PickleId callable, pop());
  if (pickle_.kind(callable) != Kind::global || pickle_.kind(arguments) != Kind::tuple) {
    return corrupt("a call of something that has no name");
  }
  const PickleId slots[Pickle::kSlots] = {callable, arguments, kNoPickleId, kNoPickleId};
  stack_.insert(stack_.end(), std::begin(slots), std::end(slots));
  return push_items(Kind::object, stack_.size() - Pickle::kSlots);
}

Status PickleReader::build() {
  SHOAL_ASSIGN_OR_RETURN(const PickleId state, pop());
  SHOAL_ASSIGN_OR_RETURN(const PickleId object, pop());
  if (pickle_.kind(object) != Kind::object || pickle_.state(object) != kNoPickleId) {
    return corrupt("attributes of something that is not a new object");
  }
  pickle_.items_[pickle_.values_[object].bits + Pickle::kState] = state;
  stack_.push_back(object);
  return ok_status();
}

// Python numbers the memo without gaps. Any other index would only cost memory.
Status PickleReader::put(uint64_t index) {
  if (stack_.empty() || index > memo_.size()) return corrupt("an index of the memo that is out of order");
  if (index == memo_.size()) {
    memo_.push_back(stack_.back());
  } else {
    memo_[index] = stack_.back();
  }
  return ok_status();
}

Status PickleReader::get(uint64_t index) {
  if (index >= memo_.size()) return corrupt("an index of the memo that was not written");
  stack_.push_back(memo_[index]);
  return ok_status();
}

Status PickleReader::add(PickleId target, std::span<const PickleId> items) {
  const Kind kind = pickle_.kind(target);
  if (kind != Kind::list && kind != Kind::set) return corrupt("items are added to what is no list");
  return grow(target, items);
}

Status PickleReader::add_entries(PickleId target, std::span<const PickleId> items) {
  if (items.size() % 2 != 0) return corrupt("a key without a value");
  if (pickle_.kind(target) == Kind::object) {
    const size_t slot = pickle_.values_[target].bits + Pickle::kEntries;
    if (pickle_.items_[slot] == kNoPickleId) {
      const std::vector<PickleId> kept(items.begin(), items.end());  // a push may move the stack
      PickleId entries = kNoPickleId;
      SHOAL_RETURN_IF_ERROR(push({pickle_.items_.size(), 0, 0, Kind::dict}, &entries));
      stack_.pop_back();
      pickle_.items_[slot] = entries;
      return grow(entries, kept);
    }
    return grow(pickle_.items_[slot], items);
  }
  if (pickle_.kind(target) != Kind::dict) return corrupt("entries are added to what is no dict");
  return grow(target, items);
}

// Moves a container that is full to the end of all items, with as much room again.
Status PickleReader::grow(PickleId target, std::span<const PickleId> items) {
  Value& value = pickle_.values_[target];
  const uint64_t count = uint64_t{value.count} + items.size();
  if (count > std::numeric_limits<uint32_t>::max()) return corrupt("a container that is too large");
  if (count > value.capacity) {
    const uint64_t begin = pickle_.items_.size();
    const auto capacity = static_cast<uint32_t>(
        std::min<uint64_t>(value.count == 0 ? count : 2 * count, std::numeric_limits<uint32_t>::max()));
    pickle_.items_.resize(begin + capacity, kNoPickleId);
    std::copy_n(pickle_.items_.begin() + static_cast<ptrdiff_t>(value.bits), value.count,
                pickle_.items_.begin() + static_cast<ptrdiff_t>(begin));
    value.bits = begin;
    value.capacity = capacity;
  }
  std::copy(items.begin(), items.end(),
            pickle_.items_.begin() + static_cast<ptrdiff_t>(value.bits + value.count));
  value.count = static_cast<uint32_t>(count);
  return ok_status();
}

}  // namespace shoal::admin
