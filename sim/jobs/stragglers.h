// Stragglers: hosts that are slower than the others for the whole job. The seed selects them. The flag
// "0.01:3" makes one host in a hundred take three times as long for copies, for messages at its interface,
// and for storage requests. In a scenario:
//
//   [stragglers]
//   hosts_permille = 10
//   copy_permille = 3000     # 1000: as fast as the others
//   network_permille = 1000
//   storage_permille = 1500
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.h"
#include "sim/basics/toml_tree.h"

namespace shoal::sim {

inline constexpr uint32_t kMostSlownessPermille = 1'000'000;

struct Stragglers {
  uint32_t hosts_permille = 0;
  // Permille of another host's time.
  uint32_t copy_permille = 1000, network_permille = 1000, storage_permille = 1000;
  friend bool operator==(const Stragglers&, const Stragglers&) = default;
};
std::string to_string(const Stragglers& stragglers);  // "10 permille of hosts: copies x3, ..."; "" if none

// Parses "FRACTION:FACTOR" in decimals with up to three places: a fraction of 0 to 1, a factor of 1 to 1000.
// Code::invalid_argument.
Result<Stragglers> parse_stragglers(std::string_view text);
Result<Stragglers> parse_stragglers(const TomlTable& table);  // "file:line: why"

// The slow hosts, sorted: hosts_permille of all hosts, but at least one if hosts_permille is not 0.
std::vector<uint32_t> draw_stragglers(const Stragglers& stragglers, uint32_t hosts, uint64_t seed);

}  // namespace shoal::sim
