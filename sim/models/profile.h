// Profile: the costs of a cluster. Each number states whether it was measured, published or assumed, and its
// source. A profile is a TOML file (sim/profiles/):
//
//   [network]
//   latency_ns = { value = 5000, kind = "assumed", source = "..." }
//
// A profile with `extends = "nvme"` states only what differs from another one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shoal/status.h"

namespace shoal::sim {

struct NetworkCosts {        // LogGOPS: https://doi.org/10.1145/1851476.1851564; o is CpuCosts::message_ns
  int64_t latency_ns = 0;    // L
  int64_t message_ns = 0;    // g: time for which a message occupies an interface, whatever its size
  uint64_t bytes_per_s = 0;  // 1 / G, of each interface
  // Racks: traffic between two racks passes an uplink and a downlink. Each is a queue with the rate
  // hosts_per_rack * bytes_per_s / oversubscription. 0 hosts: one switch with unlimited capacity connects all
  // nodes.
  uint32_t hosts_per_rack = 0;
  uint32_t oversubscription_permille = 1000;
  int64_t rack_latency_ns = 0;  // added to latency_ns between racks

  uint64_t uplink_bytes_per_s() const;  // of a rack. Precondition: hosts_per_rack is not 0
};
struct CpuCosts {                  // of a node's roles; one queue per node
  int64_t message_ns = 0;          // o: to send or to receive a message of another node
  uint64_t codec_bytes_per_s = 0;  // encoding and decoding
  int64_t event_ns = 0;            // a local message, a timer, a finished operation
  int64_t local_latency_ns = 0;    // between a trainer and its node
  int64_t plan_item_ns = 0;        // planning: per tensor of a rank
  int64_t check_item_ns = 0;       // planning by the coordinator, for ranks of one class; 0: plan_item_ns
  int64_t write_item_ns = 0;       // per entry of a shard's header
  // Speed of the coordinator's node for all of this; 1000: as fast as any other.
  uint32_t coordinator_speed_permille = 1000;
  uint32_t shared_cores = 0;  // cores of one machine that all nodes and trainers share; 0: no sharing
};
// Costs of plans that are lists of items, in mode collective (sim/models/item_model.h). Each number is per
// item. All are 0 in a profile without the table [items].
struct ItemCosts {
  int64_t local_ns = 0;     // a rank, per save: to make an item from a tensor
  int64_t encode_ns = 0;    // to pickle an item, at a rank and at the coordinator
  int64_t decode_ns = 0;    // to unpickle an item, at the coordinator and at a rank
  uint64_t item_bytes = 0;  // size of a pickled item
  int64_t dedupe_ns = 0;    // the coordinator, per gathered item
  int64_t plan_ns = 0;      // per item that is left: the global plan and its validation
  // What happens if no plan has changed since the last save. 0: everything is done again. 1: plans are not
  // sent, but the coordinator plans again. 2: the coordinator does not plan again either.
  uint32_t kept = 0;
  int64_t result_encode_ns = 0;  // a rank: to pickle the result of writing an item
  int64_t result_decode_ns = 0;  // the coordinator: to unpickle it
  uint64_t result_bytes = 0;
  int64_t record_ns = 0;  // the coordinator: to add an item to the metadata, pickled to be stored and sent
  int64_t record_decode_ns = 0;  // each rank: to unpickle all metadata, which it receives
  uint64_t record_bytes = 0;     // size of an item in the metadata
  uint32_t deadline_s = 0;       // until a waiting rank gives up; 0: as Shoal's roles do

  bool is_modelled() const { return local_ns + decode_ns + plan_ns != 0; }
};
struct TrainerCosts {
  uint64_t copy_bytes_per_s = 0;  // into shared memory, per rank
  int64_t call_ns = 0;            // per call of save, whatever it stages
  int64_t item_ns = 0;            // per piece that it stages
};
struct StorageCosts {
  bool is_objects = false;             // an object store; otherwise files and folders
  int64_t round_trip_ns = 0;           // of a request to an idle server
  int64_t change_ns = 0;               // time of the metadata server to create, link or remove a name
  int64_t look_ns = 0;                 // to look a name up, or to open it
  int64_t entry_ns = 0;                // to list a name with its size
  uint32_t entries_per_request = 0;    // of a listing
  int64_t sync_ns = 0;                 // to make a file's bytes durable, once they have arrived
  uint64_t client_bytes_per_s = 0;     // of a node
  uint64_t total_bytes_per_s = 0;      // of all nodes together
  uint32_t request_tail_permille = 0;  // sigma of the lognormal factor of round trips and syncs
  uint32_t stream_tail_permille = 0;   // the same for the transfer of each file
  int64_t catalog_ns = 0;              // a durable write to the coordinator's catalog
  // Object stores only. A prefix whose queue is never empty for this time is split in two; 0: never.
  uint32_t prefix_split_after_s = 0;
  // Size of a part of a multipart upload, each part a request; 0: one part of any size.
  uint64_t part_bytes = 0;
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
  ItemCosts items;
  std::vector<Number> numbers;  // all numbers, in the order of this header
};

inline constexpr uint32_t kMostExtended = 8;  // profiles that extend one another

// Errors are "file:line: why", for an unknown or missing key, for a number that is negative or out of range,
// and for a number without a source. A profile that it extends is found as find_profile does, a path from the
// folder of `file`.
Result<Profile> parse_profile(std::string_view text, const std::string& file,
                              const std::vector<std::string>& folders = {});
// The profile as a file that parse_profile reads back, with all of its numbers.
std::string profile_text(const Profile& profile);
// Code::invalid_argument if no profile has this number, or if the value is out of range. The error names the
// number that was most likely meant.
Status check_number(std::string_view key, int64_t value);
// Returns the profile with another value of one number. Code::invalid_argument as check_number, and if the
// profile lacks a number that it cannot lack alone, such as those of [items].
Result<Profile> with_number(Profile profile, std::string_view key, int64_t value);
// The same for several numbers, which then name a user as their source.
Result<Profile> with_numbers(Profile profile, const std::map<std::string, int64_t>& values);
// Reads a profile from a file, or finds a built-in profile by its name in one of `folders`.
Result<Profile> find_profile(const std::string& name_or_path, const std::vector<std::string>& folders);
std::vector<std::string> list_profiles(const std::vector<std::string>& folders);  // names

}  // namespace shoal::sim
