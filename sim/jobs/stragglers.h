// Stragglers: hosts that are slower than the others for as long as a job lasts. Which these are is drawn from
// the seed. By flag "0.01:3": one host in a hundred takes three times as long for copies, for messages at its
// interface and for what it asks of the storage. In a scenario:
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
  uint32_t copy_permille = 1000, network_permille = 1000, storage_permille = 1000;  // of another host's time
  friend bool operator==(const Stragglers&, const Stragglers&) = default;
};
std::string to_string(const Stragglers& stragglers);  // "10 permille of hosts: copies x3, ..."; "" without

// Code::invalid_argument: "FRACTION:FACTOR" in decimals, 0 to 1 and 1 to 1000, up to three places.
Result<Stragglers> parse_stragglers(std::string_view text);
Result<Stragglers> parse_stragglers(const TomlTable& said);  // "file:line: why"

// The slow hosts, ascending: so many of a thousand, one at least where there are any.
std::vector<uint32_t> draw_stragglers(const Stragglers& stragglers, uint32_t hosts, uint64_t seed);

}  // namespace shoal::sim
