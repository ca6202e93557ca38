#include "shoal/status.h"

#include <cstdio>
#include <cstdlib>

namespace shoal {

void check_failed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "shoal: internal error at %s:%d: %s is false\n", file, line, condition);
  std::abort();
}

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::not_found:
      return "not found";
    case Code::already_exists:
      return "already exists";
    case Code::refused:
      return "refused";
    case Code::unavailable:
      return "unavailable";
    case Code::deadline_exceeded:
      return "deadline exceeded";
    case Code::corrupt:
      return "corrupt";
    case Code::version:
      return "version";
    case Code::io:
      return "I/O error";
    case Code::no_space:
      return "no space";
    case Code::aborted:
      return "aborted";
    case Code::busy:
      return "busy";
    case Code::too_large:
      return "too large";
    case Code::internal:
      return "internal error";
    case Code::superseded:
      return "superseded";
    case Code::key_mismatch:
      return "key mismatch";
    case Code::earlier_save_failed:
      return "earlier save failed";
  }
  return "unknown code";
}

Status::Status(Code code, std::string message) {
  if (code != Code::ok) rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

const std::string& Status::message() const {
  static const std::string empty;
  return rep_ ? rep_->message : empty;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(code_name(code())) + ": " + message();
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + message());
}

}  // namespace shoal
