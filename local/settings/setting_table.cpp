// The table of settings. Defaults and bounds are those of Timeouts, NodeOptions and CheckpointerOptions in
// folders above this one; tests and static_asserts there check that they are equal.
#include <limits>

#include "local/settings/settings.h"

namespace shoal::local {

namespace {

using enum SettingKind;
constexpr SettingOf kNode = SettingOf::node;
constexpr SettingOf kTrainer = SettingOf::trainer;
constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kMaxU64 = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kTiB = uint64_t{1} << 40;

constexpr const char* kNetwork = "Network";
constexpr const char* kMemory = "Memory";
constexpr const char* kFiles = "Files and metrics";
constexpr const char* kRetention = "Retention (what any of these keeps stays; without one, everything does)";
constexpr const char* kDeadlines = "Deadlines";
constexpr const char* kTrainers = "Trainers (passed on to them as variables)";

constexpr Setting kSettings[] = {
    {"transport", kNode, choice, kNetwork, 0, 0, "auto",
     "What messages between nodes pass by: auto, tcp or ucx; auto is ucx for those who come by the interface "
     "of an active RDMA device, else tcp",
     "auto, tcp, ucx"},
    {"interface", kNode, text, kNetwork, 0, 0, "",
     "Network interface, by name or IPv4 address, that relays and nodes that share loads listen on, and a "
     "coordinator whose address is 0.0.0.0; default: that by which the coordinator is reached"},
    {"ports", kNode, ports, kNetwork, 0, 0, "",
     "Ports that relays and nodes that share loads listen on; default: any that is free"},
    {"max-direct-nodes", kNode, count, kNetwork, 1, 16128, "2048",
     "Nodes that connect to the coordinator; further ones go by way of relays"},
    {"load-memory", kNode, bytes, kMemory, 16 * kMiB, kTiB, "256 MiB",
     "Memory that the loads of this host take together, beside what they fill"},
    {"staging-memory", kNode, bytes, kMemory, 64 * kMiB, 16 * kTiB, "",
     "Memory that the saves in flight of this host take together; default: what the host leaves"},
    {"catalog", kNode, path, kFiles, 0, 0, "",
     "Folder of the coordinator's catalog; default: in the runtime folder"},
    {"stats-file", kNode, path, kFiles, 0, 0, "",
     "Write the node's counts as key=value lines to this file at the end; default: nowhere"},
    {"protocol-log", kNode, path, kFiles, 0, 0, "",
     "Append a line for every message between this node and others to this file; default: nowhere"},
    {"metrics", kNode, address, kFiles, 0, 0, "",
     "HOST:PORT to serve Prometheus metrics at, GET /metrics; default: nowhere. No access control"},
    {"keep-last", kNode, count, kRetention, 1, kMaxU32, "", "Keep the newest N checkpoints"},
    {"keep-every", kNode, count, kRetention, 1, kMaxU64, "",
     "Keep the newest checkpoint of each step that N divides"},
    {"keep-for", kNode, duration, kRetention, 0, 0, "",
     "Keep what was committed no longer ago than this, as in 36h or 7d"},
    {"report-partial-after-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "2000",
     "Report the ranks that have written, when others here have not"},
    {"attempt-deadline-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "120000",
     "Abort a save of which not every rank was reported, this long after the last one that was"},
    {"node-deadline-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "300000",
     "Abort a staged save of which the coordinator has said nothing; longer than the former"},
    {"drain-patience-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "5000",
     "After being told to stop: give up a save that nobody left can complete"},
    {"host-lost-ms", kNode, milliseconds, kDeadlines, kLeastHostLostMs, kMaxSettingTimeMs, "15000",
     "Abort saves that wait for a host, this long after its session broke and nobody of it came back"},
    {"find-coordinator-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "60000",
     "A node that starts and cannot reach its coordinator ends after this time"},
    {"epoch-check-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "5000",
     "How often a coordinator looks whether a later one has come"},
    {"abandoned-after-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "10000",
     "Before a load: abort what an earlier job left undecided and nobody has touched this long"},
    {"lease-renew-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "5000",
     "How often a load renews the pin by which it keeps its checkpoint"},
    {"lease-ttl-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "60000",
     "A load that has not renewed its pin for this long is over; several times the former"},
    {"max-in-flight", kTrainer, count, kTrainers, 1, 63, "2",
     "Saves that a rank may have in flight; each has a copy of the rank's share"},
    {"on-busy", kTrainer, choice, kTrainers, 0, 0, "wait",
     "What save does when that many are in flight: wait for one, or decline with an error", "wait, decline"},
    {"on-failed", kTrainer, choice, kTrainers, 0, 0, "report",
     "What save does after a failure that nobody was told of: report it once and save all the same, or "
     "refuse "
     "to save until it was collected",
     "report, refuse"},
    {"max-failed-saves", kTrainer, count, kTrainers, 0, kMaxU32, "0",
     "End the job when so many saves in a row have failed; 0: never"},
    {"save-mode", kTrainer, choice, kTrainers, 0, 0, "collective-free",
     "How ranks divide a save; alike on all ranks (docs/explanation/planning.md)",
     "collective-free, rank-local, collective"},
    {"save-dedupe", kTrainer, choice, kTrainers, 0, 0, "balanced",
     "Who writes what several ranks hold; alike on all ranks, and none in mode rank-local",
     "balanced, lowest-rank, none"},
    {"save-unit-bytes", kTrainer, bytes, kTrainers, uint64_t{1} << 10, kTiB, "64 MiB",
     "Pieces in which what several ranks hold is divided among them; alike on all ranks"},
    {"load-window-bytes", kTrainer, bytes, kTrainers, 4 * kMiB, 16 * kTiB, "16 MiB",
     "Memory of a rank by which its node passes on what it loads"},
    {"load-threads", kTrainer, count, kTrainers, 0, 64, "4",
     "Threads by which a rank reads files of a load itself; 0: its node reads them"},
    {"load-fallback", kTrainer, choice, kTrainers, 0, 0, "none",
     "What a load of the latest does when the newest checkpoint is damaged: none fails and names it, "
     "previous "
     "reads all of a checkpoint first and takes the newest that is sound; alike on all ranks",
     "none, previous"},
    {"staging-bytes-max", kTrainer, bytes, kTrainers, 0, 16 * kTiB, "0",
     "Memory of all copies that a rank may hold; 0: what its cgroup and its node leave"},
    {"attach-timeout-ms", kTrainer, milliseconds, kTrainers, 1, kMaxSettingTimeMs, "",
     "How long a trainer looks for a node that serves it; default: 30000 on one host, on several "
     "find-coordinator-ms and 60000 more"},
    {"node-silence-ms", kTrainer, milliseconds, kTrainers, 1, kMaxSettingTimeMs, "30000",
     "A node that gives no sign of life for this long is reported as stopped or hanging"},
};

constexpr OtherVariable kOtherVariables[] = {
    {"SHOAL_ROOT", "folder of the run"},
    {"SHOAL_JOB_ID", "the same on all ranks of one incarnation of the job, never used again"},
    {"SHOAL_COORDINATOR", "HOST:PORT of the job's coordinator, or :PORT (docs/how-to/clusters.md)"},
    {"SHOAL_TOKEN", "the job's secret"},
    {"SHOAL_TOKEN_FILE", "file of mode 0600 with the job's secret"},
    {"SHOAL_RUNTIME_DIR", "where a node's lock, socket and log lie; default: $XDG_RUNTIME_DIR/shoal"},
    {"SHOAL_SOCKET", "where trainers find the node of this host"},
    {"SHOAL_NODE_PROGRAM", "`shoal` for a trainer to start a node with"},
    {"SHOAL_START_NODE", "0: trainers start no node; `shoal launch` says so"},
    {"SHOAL_READ_ONLY", "1: the job only loads, beside the one that trains"},
    {"SHOAL_SAVE_REPORT", "set by `shoal launch`: where its trainers report their saves"},
};

}  // namespace

std::span<const Setting> all_settings() {
  return kSettings;
}

std::span<const OtherVariable> other_variables() {
  return kOtherVariables;
}

}  // namespace shoal::local
