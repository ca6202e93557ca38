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

#include "shoal/status.h"

namespace shoal::sim {

struct NetworkCosts {        // LogGOPS: https://doi.org/10.1145/1851476.1851564; o is CpuCosts::message_ns
  int64_t latency_ns = 0;    // L
  int64_t message_ns = 0;    // g: what a message takes of an interface, whatever its size
  uint64_t bytes_per_s = 0;  // 1 / G, of each interface
  // Racks: what passes between two of them goes through an uplink and a downlink, queues of
  // hosts_per_rack * bytes_per_s / oversubscription. 0 hosts: one switch for all, which is never full.
  uint32_t hosts_per_rack = 0;
  uint32_t oversubscription_permille = 1000;
  int64_t rack_latency_ns = 0;  // more than latency_ns, between racks

  uint64_t uplink_bytes_per_s() const;  // of a rack. Precondition: hosts_per_rack is not 0
};
struct CpuCosts {                  // of a node's roles, one queue a node
  int64_t message_ns = 0;          // o: to send or to take a message of another node
  uint64_t codec_bytes_per_s = 0;  // encoding and decoding
  int64_t event_ns = 0;            // a local message, a timer, a finished operation
  int64_t local_latency_ns = 0;    // between a trainer and its node
  int64_t plan_item_ns = 0;        // planning: a tensor of a rank
  int64_t check_item_ns = 0;       // the same by the coordinator, of ranks that write alike; 0: plan_item_ns
  int64_t write_item_ns = 0;       // an entry of a shard's header
  // How fast the coordinator's node does all of this, 1000: as any other.
  uint32_t hub_speed_permille = 1000;
  uint32_t shared_cores = 0;  // that all nodes and trainers share, on one machine; 0: each has its own
};
// Of plans that are lists of items, in mode collective (sim/models/item_model.h): each number of one item. A
// profile without the table [items] has none of it.
struct ItemCosts {
  int64_t local_ns = 0;     // a rank, each save: to make it of a tensor
  int64_t encode_ns = 0;    // to pickle one, at a rank and at the coordinator
  int64_t decode_ns = 0;    // to unpickle one, at the coordinator and at a rank
  uint64_t item_bytes = 0;  // pickled
  int64_t dedupe_ns = 0;    // the coordinator, of each that was gathered
  int64_t plan_ns = 0;      // of each that is left: the global plan and its validation
  // Where no plan has changed since the last save. 0: all is done again; 1: plans are not sent, but the
  // coordinator plans again; 2: it does not, either.
  uint32_t kept = 0;
  int64_t result_encode_ns = 0;  // a rank: to pickle the result of writing one
  int64_t result_decode_ns = 0;  // the coordinator: to unpickle it
  uint64_t result_bytes = 0;
  int64_t record_ns = 0;         // the coordinator: into the metadata, pickled to be stored and to be sent
  int64_t record_decode_ns = 0;  // each rank: to unpickle all metadata, which it is sent
  uint64_t record_bytes = 0;     // of the metadata
  uint32_t deadline_s = 0;       // until who waits gives up; 0: as Shoal's roles do

  bool is_modelled() const { return local_ns + decode_ns + plan_ns != 0; }
};
struct TrainerCosts {
  uint64_t copy_bytes_per_s = 0;  // into shared memory, each rank
  int64_t call_ns = 0;            // of a call of save, whatever it stages
  int64_t item_ns = 0;            // of each piece that it stages
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
  // Of an object store. A prefix whose queue is never empty for so long is split in two; 0: never.
  uint32_t prefix_split_after_s = 0;
  uint64_t part_bytes = 0;  // of a multipart upload, each part a request; 0: however large, one
};

struct Profile {
  struct Number {
    std::string key;  // "network.latency_ns"
    std::string value, kind, source;
  };
  std::string name, about;
  std::string text;  // of the file
  NetworkCosts network;
  CpuCosts cpu;
  TrainerCosts trainer;
  StorageCosts storage;
  ItemCosts items;
  std::vector<Number> numbers;  // all of them, in the order of this header
};

// "file:line: why" of an unknown or missing key, a number that is negative or absurd, or without its source.
Result<Profile> parse_profile(std::string_view text, const std::string& file);
// The profile with another value of one of its numbers. Code::invalid_argument: no such number, or the value
// is absurd.
Result<Profile> with_number(Profile profile, std::string_view key, int64_t value);
// A file, or the name of a built-in profile in one of `folders`.
Result<Profile> find_profile(const std::string& name_or_path, const std::vector<std::string>& folders);
std::vector<std::string> list_profiles(const std::vector<std::string>& folders);  // names

}  // namespace shoal::sim
