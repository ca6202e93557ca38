// What `shoal doctor` measures. The measuring functions (measure.h) fill these structs, and the checks
// (checks.h) judge them, so that a test can state any facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "base/memory_headroom.h"
#include "shoal/status.h"

namespace shoal::cli {

// The job that is going to start: from options, else from a launcher's variables.
struct JobShape {
  uint64_t ranks_here = 1;  // of this host
  uint64_t hosts = 1;
  uint64_t staged_bytes = 0;             // of one save on one host; 0: not stated
  std::vector<std::string> host_names;   // if they are stated
  std::string coordinator;               // HOST:PORT; empty: unknown, or a job on one host
  std::optional<bool> coordinates_here;  // whether this host's node coordinates; nullopt: unknown
  bool serves_job_id = false;            // rank 0 serves the job id on the port after the coordinator's
};

// An entry of /proc/self/mountinfo.
struct MountFacts {
  std::string folder, type, source;
  std::string options;  // of the mount and of its file system, separated by commas
};

struct SpaceFacts {
  uint64_t bytes_free = 0;
  uint64_t files_total = 0, files_free = 0;  // inodes; 0 in total: the file system has no such limit
};

struct RootFacts {
  std::string root;
  bool exists = false;
  // The folder in which the trial files were made: the root, or the folder that would contain it.
  std::string tried_in;
  Status usable;                            // a trial folder could be made there
  Status identity;                          // of an existing root: what open_root returns. not_found: no run
  std::string run;                          // the root's id in hex, if it has one
  std::vector<std::string> closed_folders;  // folders of the root in which this user may not create files
  std::vector<std::string> leftovers;       // what killed checks left there
  std::optional<MountFacts> mount;
  std::optional<SpaceFacts> space;
  // The rest only if a trial folder could be made.
  Status probe;  // storage::probe_storage
  // Two threads created the same names; each name must have exactly one creator.
  struct Race {
    uint32_t names = 0, without_creator = 0, with_two_creators = 0;
    Status failed;  // the first error of a call
  } race;
  struct Rate {
    uint64_t bytes = 0;
    double write_seconds = 0, read_seconds = 0;
    Status failed;
  } rate;
  // The file system's time of a new file less this host's clock; 0 if it lies between the times before and
  // after the creation.
  std::optional<int64_t> clock_ahead_ns;
  int64_t creation_ns = 0;  // how long the creation took, which bounds the accuracy
  Status cleaned;           // the trial folder was removed
};

// A root in an object store.
struct BucketFacts {
  std::string root, endpoint, region;
  Status settings;     // whether the settings are valid
  Status credentials;  // whether there are any
  Status listing;      // of the bucket
  Status identity;     // as in RootFacts
  std::string run;     // the root's id in hex, if it has one
  Status probe;        // storage::probe_storage
  RootFacts::Race race;
  RootFacts::Rate rate;
  std::optional<int64_t> clock_ahead_s;  // the store's clock, compared with this host's
};

struct ClockFacts {
  Status readable;
  bool is_synchronised = false;
  uint64_t error_us = 0;  // the kernel's bound of the error
};

struct MemoryFacts {
  base::MemoryHeadroom headroom;
  Status slab;                        // whether a sealed anonymous memory file can be made
  std::optional<uint64_t> shm_bytes;  // size of /dev/shm; nullopt: there is none
  int overcommit = 0;                 // vm.overcommit_memory
  uint64_t commit_limit_bytes = 0, committed_bytes = 0;
  uint64_t memlock_bytes = 0;  // UINT64_MAX: no limit
  bool has_rdma_device = false;
};

struct RuntimeFolderFacts {
  std::string folder;
  Status usable;       // what a node finds when it makes or checks the folder
  Status socket_path;  // whether the socket's path has a length that a socket allows
  uint64_t bytes_free = 0;
  uint64_t running_nodes = 0, stale_sockets = 0;
  uint64_t catalogs = 0, catalog_bytes = 0;
};

// Who uses the root now.
struct UseFacts {
  bool holds_run = false;
  std::string job_here;  // a node of this job serves the root on this host; empty: none does
  Status other_run;      // what a node finds that would start a new run
};

struct TokenFacts {
  Status read;
  uint64_t bytes = 0;  // 0: no token is set
};

// An address on which a node of the job would listen.
struct PortFacts {
  std::string use;      // "the coordinator", "metrics"
  std::string address;  // HOST:PORT
  std::string setting;  // what chooses another one
  Status listening;
};

struct HostFacts {
  std::string name;
  bool is_this_host = false;
  Result<std::string> address_towards = std::string();  // the address of this host that `name` sees
};

struct NetworkFacts {
  std::vector<PortFacts> ports;
  std::vector<HostFacts> hosts;
  Result<std::string> advertised = std::string();  // the address that other nodes connect to
  std::string transport;                           // the setting
  bool has_rdma_device = false;
  std::string rdma_interfaces;  // separated by commas
};

struct VersionFacts {
  std::string program;  // version and build
  std::string version;  // of the program
  std::string library;  // version of the client library that is installed with the program; empty: none
  std::string python;   // version of the Python package; empty: none
};

struct GpuFacts {
  std::string build;   // gpu::cuda_build()
  std::string driver;  // first line of /proc/driver/nvidia/version; empty: there is no driver
  Status usable;       // what a trainer finds when it makes its stager
};

}  // namespace shoal::cli
