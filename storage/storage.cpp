#include "storage/storage.h"

#include <fmt/format.h>

#include <algorithm>

namespace shoal::storage {

namespace {
constexpr size_t kNonceDigits = 32;
constexpr std::string_view kPartialSuffix = ".partial";

bool is_component_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
         c == '-';
}
bool is_component(std::string_view text) {
  return !text.empty() && text.size() <= kMaxComponentBytes && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), is_component_character);
}
// Shortens and cleans an untrusted text for an error message.
std::string shown(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, kMaxComponentBytes)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out;
}
}  // namespace

Status validate_component(std::string_view component) {
  if (is_component(component)) return ok_status();
  return Status(
      Code::invalid_argument,
      fmt::format(
          "'{}' is not a valid name: expected 1 to {} characters of [A-Za-z0-9._-], not starting with a dot",
          shown(component), kMaxComponentBytes));
}

Status validate_path(std::string_view path) {
  if (path.empty()) return ok_status();
  for (;;) {
    size_t slash = path.find('/');
    std::string_view component = path.substr(0, slash);
    if (!is_partial(component)) SHOAL_RETURN_IF_ERROR(validate_component(component));
    if (slash == std::string_view::npos) return ok_status();
    path.remove_prefix(slash + 1);
  }
}

bool is_partial(std::string_view name) {
  if (!name.ends_with(kPartialSuffix)) return false;
  name.remove_suffix(kPartialSuffix.size());
  if (name.size() < kNonceDigits + 2 || name[name.size() - kNonceDigits - 1] != '.') return false;
  std::string_view digits = name.substr(name.size() - kNonceDigits);
  bool hex = std::all_of(digits.begin(), digits.end(),
                         [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return hex && is_component(name.substr(0, name.size() - kNonceDigits - 1));
}

std::string partial_name(std::string_view name, const Nonce& nonce) {
  return fmt::format("{}.{}{}", name, nonce.to_hex(), kPartialSuffix);
}

}  // namespace shoal::storage
