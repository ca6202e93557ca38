// Status and Result: functions return errors that can happen, and assert what cannot (include/shoal/check.h).
//
// A Status is one pointer, null when OK. Its message is one line that names the first cause and, where they
// apply, the rank and the file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "shoal/check.h"

namespace shoal {

// Messages contain these numbers (schema: `code`): only append.
enum class Code : unsigned short {
  ok = 0,
  invalid_argument = 1,
  not_found = 2,
  already_exists = 3,
  refused = 4,      // an unauthenticated peer, a wrong token, no permission
  unavailable = 5,  // no answer at present
  deadline_exceeded = 6,
  corrupt = 7,  // bytes that violate their format or do not match their digest
  version = 8,  // a format or protocol newer than this program
  io = 9,
  no_space = 10,
  aborted = 11,  // the attempt is decided: it will never be committed
  busy = 12,
  too_large = 13,  // over a stated bound
  internal = 14,
  superseded = 15,           // a later run or coordinator has replaced this one permanently
  key_mismatch = 16,         // keys of state and checkpoint differ: missing, unexpected, or another shape
  earlier_save_failed = 17,  // an earlier save failed, and no call has returned that failure yet
};
inline constexpr Code kLastCode = Code::earlier_save_failed;

std::string_view code_name(Code code);  // "ok", "invalid argument", ...

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(Code code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::ok; }
  const std::string& message() const;  // "" when OK
  // "corrupt: /root/step-00000001/...: digest of block 3 differs"
  std::string to_string() const;
  // The same code, with "context: " before the message; OK stays OK.
  Status with_context(std::string_view context) const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code() == b.code() && a.message() == b.message();
  }

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

inline Status ok_status() {
  return Status();
}

// A value or the Status that prevented it.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    SHOAL_CHECK(!std::get<Status>(state_).ok());
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() & {
    SHOAL_CHECK(ok());
    return std::get<T>(state_);
  }
  const T& value() const& {
    SHOAL_CHECK(ok());
    return std::get<T>(state_);
  }
  T&& value() && {
    SHOAL_CHECK(ok());
    return std::get<T>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> state_;
};

}  // namespace shoal

// Returns the Status from the enclosing function unless it is OK.
#define SHOAL_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                           \
    if (::shoal::Status shoal_status_ = (expression); !shoal_status_.ok()) return shoal_status_; \
  } while (false)

#define SHOAL_CONCAT_INNER(a, b) a##b
#define SHOAL_CONCAT(a, b) SHOAL_CONCAT_INNER(a, b)
// SHOAL_ASSIGN_OR_RETURN(auto x, f());
#define SHOAL_ASSIGN_OR_RETURN(target, expression) \
  SHOAL_ASSIGN_OR_RETURN_INNER(SHOAL_CONCAT(shoal_result_, __LINE__), target, expression)
#define SHOAL_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                    \
  if (!result.ok()) return result.status();                      \
  target = std::move(result).value()
