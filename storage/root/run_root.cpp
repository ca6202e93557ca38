#include "storage/root/run_root.h"

#include <fmt/format.h>

#include <charconv>

namespace shoal::storage {

namespace {

constexpr std::string_view kStepPrefix = "step-";

// A decimal number without leading zeros, all of `text`.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (text.size() > 1 && text.front() == '0') return std::nullopt;
  return value;
}

std::string step_folder(uint64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::string attempt_name(const AttemptKey& key) {
  return fmt::format("g{}a{}", key.generation, key.attempt);
}

}  // namespace

std::string attempt_folder(const AttemptKey& key) {
  return step_folder(key.step) + "/" + attempt_name(key);
}

std::string decision_path(const AttemptKey& key) {
  return attempt_folder(key) + "/" + std::string(kDecisionName);
}

std::string shard_path(const AttemptKey& key, Rank rank, uint32_t file) {
  return attempt_folder(key) + "/" + shard_file_name(rank, file);
}

std::optional<uint64_t> parse_step_folder(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  std::string_view digits = name.substr(kStepPrefix.size());
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  std::optional<uint64_t> step = parse_number<uint64_t>(digits);
  if (!step || step_folder(*step) != name) return std::nullopt;
  return step;
}

std::optional<AttemptKey> parse_attempt_folder(uint64_t step, std::string_view name) {
  size_t a = name.find('a');
  if (a == std::string_view::npos || name.front() != 'g') return std::nullopt;
  std::optional<uint32_t> generation = parse_number<uint32_t>(name.substr(1, a - 1));
  std::optional<uint32_t> attempt = parse_number<uint32_t>(name.substr(a + 1));
  if (!generation || !attempt) return std::nullopt;
  return AttemptKey{*generation, step, *attempt};
}

}  // namespace shoal::storage
