// Profile: what things cost on a cluster. Each number says whether it was measured, published or assumed, and
// where. A TOML file (sim/profiles/):
//
//   [network]
//   latency_ns = { value = 5000, kind = "assumed", source = "..." }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace shoal {

struct NetworkCosts {        // LogGOPS: https://doi.org/10.1145/1851476.1851564; o is CpuCosts::message_ns
  int64_t latency_ns = 0;    // L
  int64_t message_ns = 0;    // g: what a message takes of an interface, whatever its size
  uint64_t bytes_per_s = 0;  // 1 / G, of each interface
};
struct CpuCosts {                  // of a node's roles, one queue a node
  int64_t message_ns = 0;          // o: to send or to take a message of another node
  uint64_t codec_bytes_per_s = 0;  // encoding and decoding
  int64_t event_ns = 0;            // a local message, a timer, a finished operation
  int64_t local_latency_ns = 0;    // between a trainer and its node
  int64_t plan_item_ns = 0;        // planning: a tensor of a rank
  int64_t write_item_ns = 0;       // an entry of a shard's header
};
struct TrainerCosts {
  uint64_t copy_bytes_per_s = 0;  // into shared memory, each rank
};
struct StorageCosts {
  bool is_objects = false;             // an object store, else files and folders
  int64_t round_trip_ns = 0;           // of a request that finds no queue
  int64_t change_ns = 0;               // what the metadata server takes to make, link or remove a name
  int64_t look_ns = 0;                 // to look one up, or open it
  int64_t entry_ns = 0;                // to list one, its size with it
  uint32_t entries_per_request = 0;    // of a listing
  int64_t sync_ns = 0;                 // to make a file's bytes durable, once they have arrived
  uint64_t client_bytes_per_s = 0;     // of a node
  uint64_t total_bytes_per_s = 0;      // of all nodes together
  uint32_t request_tail_permille = 0;  // sigma of the lognormal factor of round trips and syncs
  uint32_t stream_tail_permille = 0;   // of each file's transfer
  int64_t catalog_ns = 0;              // a durable write to the coordinator's catalog
};

struct Profile {
  struct Number {
    std::string key;  // "network.latency_ns"
    std::string value, kind, source;
  };
  std::string name, about;
  NetworkCosts network;
  CpuCosts cpu;
  TrainerCosts trainer;
  StorageCosts storage;
  std::vector<Number> numbers;  // all of them, in the order of this header
};

// "file:line: why" of an unknown or missing key, a number that is negative or absurd, or without its source.
Result<Profile> parse_profile(std::string_view text, const std::string& file);
// A file, or the name of a built-in profile in one of `folders`.
Result<Profile> find_profile(const std::string& name_or_path, const std::vector<std::string>& folders);
std::vector<std::string> list_profiles(const std::vector<std::string>& folders);  // names

}  // namespace shoal
