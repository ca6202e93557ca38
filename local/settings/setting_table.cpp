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
constexpr const char* kRetention =
    "Retention (a checkpoint stays if any of these rules keeps it; without rules all stay)";
constexpr const char* kDeadlines = "Deadlines";
constexpr const char* kTrainers = "Trainers (`shoal launch` passes them on as variables)";

constexpr Setting kSettings[] = {
    {"transport", kNode, choice, kNetwork, 0, 0, "auto",
     "Transport of messages between nodes: auto, tcp or ucx; auto uses ucx for nodes that connect over the "
     "interface of an active RDMA device, else tcp",
     "auto, tcp, ucx"},
    {"interface", kNode, text, kNetwork, 0, 0, "",
     "Network interface, by name or IPv4 address, on which relays, nodes in shared loads, and a coordinator "
     "with address 0.0.0.0 listen; default: the one that reaches the coordinator"},
    {"ports", kNode, ports, kNetwork, 0, 0, "",
     "TCP ports on which relays and nodes in shared loads listen; default: any free port"},
    {"max-direct-nodes", kNode, count, kNetwork, 1, 16128, "2048",
     "Most nodes that connect to the coordinator directly; further nodes connect to relays"},
    {"load-memory", kNode, bytes, kMemory, 16 * kMiB, kTiB, "256 MiB",
     "Most memory for all loads of this host together, not counting the tensors that they fill"},
    {"staging-memory", kNode, bytes, kMemory, 64 * kMiB, 16 * kTiB, "",
     "Most memory for all saves in flight of this host together; default: what is free on the host"},
    {"catalog", kNode, path, kFiles, 0, 0, "",
     "Folder of the coordinator's catalog; default: a folder in the runtime folder"},
    {"stats-file", kNode, path, kFiles, 0, 0, "",
     "File to which the node writes its counts as key=value lines when it ends; default: none"},
    {"protocol-log", kNode, path, kFiles, 0, 0, "",
     "File to which the node appends a line for every message between it and other nodes; default: none"},
    {"metrics", kNode, address, kFiles, 0, 0, "",
     "HOST:PORT at which the node serves Prometheus metrics (GET /metrics), without access control; default: "
     "none"},
    {"status-page", kNode, address, kFiles, 0, 0, "",
     "HOST:PORT at which the coordinator's node serves a page with the state of the job (GET /), without "
     "access "
     "control; default: none"},
    {"keep-last", kNode, count, kRetention, 1, kMaxU32, "", "Keep the newest N checkpoints"},
    {"keep-every", kNode, count, kRetention, 1, kMaxU64, "",
     "Keep the newest checkpoint of each step that is a multiple of N"},
    {"keep-for", kNode, duration, kRetention, 0, 0, "",
     "Keep checkpoints committed within this time, as in 36h or 7d"},
    {"report-partial-after-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "2000",
     "Report the ranks of this host that have written this long after the first, even if others have not"},
    {"attempt-deadline-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "120000",
     "Abort a save that still misses reports this long after the last report or progress of a write"},
    {"node-deadline-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "300000",
     "Abort a staged save that the coordinator has not decided this long after its last progress; must "
     "exceed attempt-deadline-ms"},
    {"drain-patience-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "5000",
     "Time after a request to stop until the node gives up a save that the remaining ranks cannot complete"},
    {"host-lost-ms", kNode, milliseconds, kDeadlines, kLeastHostLostMs, kMaxSettingTimeMs, "15000",
     "Abort saves that wait for a host this long after its session broke, unless its node or its trainers "
     "come back"},
    {"find-coordinator-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "60000",
     "A starting node that cannot reach its coordinator ends after this time"},
    {"epoch-check-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "5000",
     "Interval at which a coordinator checks whether a later one has replaced it"},
    {"abandoned-after-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "10000",
     "Decide undecided saves of earlier jobs whose files have not changed for this time: commit those that "
     "are complete, abort the others"},
    {"lease-renew-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "5000",
     "Interval at which a load renews the pin that keeps its checkpoint"},
    {"lease-ttl-ms", kNode, milliseconds, kDeadlines, 1, kMaxSettingTimeMs, "60000",
     "A load that has not renewed its pin for this time counts as ended; must be at least twice "
     "lease-renew-ms"},
    {"max-in-flight", kTrainer, count, kTrainers, 1, 63, "2",
     "Most saves in flight of a rank; each of them holds a copy of what the rank writes"},
    {"on-busy", kTrainer, choice, kTrainers, 0, 0, "wait",
     "What save does if max-in-flight is reached: wait for a save, or decline with an error",
     "wait, decline"},
    {"on-failed", kTrainer, choice, kTrainers, 0, 0, "report",
     "What save does after a failure that the trainer has not collected: report it once and save, or refuse "
     "to save until the trainer has collected it",
     "report, refuse"},
    {"max-failed-saves", kTrainer, count, kTrainers, 0, kMaxU32, "0",
     "End the job after this many failed saves in a row; 0: never"},
    {"save-mode", kTrainer, choice, kTrainers, 0, 0, "collective-free",
     "How ranks divide a save; must be equal on all ranks (docs/explanation/planning.md)",
     "collective-free, rank-local, collective"},
    {"save-dedupe", kTrainer, choice, kTrainers, 0, 0, "balanced",
     "Which rank writes a value that several ranks hold; must be equal on all ranks, and none in mode "
     "rank-local",
     "balanced, lowest-rank, none"},
    {"save-unit-bytes", kTrainer, bytes, kTrainers, uint64_t{1} << 10, kTiB, "64 MiB",
     "Size of the units in which replicas divide a value among themselves; must be equal on all ranks"},
    {"save-replica-check", kTrainer, choice, kTrainers, 0, 0, "off",
     "Whether each save compares, by digests, another twentieth of the bytes that several ranks hold: warn "
     "reports replicas that differ, abort also aborts the save; not in mode rank-local, nor from devices",
     "off, warn, abort"},
    {"load-window-bytes", kTrainer, bytes, kTrainers, 4 * kMiB, 16 * kTiB, "16 MiB",
     "Size of the window through which a node passes loaded bytes to a rank"},
    {"load-threads", kTrainer, count, kTrainers, 0, 64, "4",
     "Threads with which a rank reads the files of a load itself; 0: its node reads them"},
    {"load-fallback", kTrainer, choice, kTrainers, 0, 0, "none",
     "What a load of the latest does if the newest checkpoint is damaged: none fails and names it; previous "
     "first reads a whole checkpoint and uses the newest intact one; must be equal on all ranks",
     "none, previous"},
    {"staging-bytes-max", kTrainer, bytes, kTrainers, 0, 16 * kTiB, "0",
     "Most memory for all staged copies of a rank; 0: what its cgroup and its node leave"},
    {"attach-timeout-ms", kTrainer, milliseconds, kTrainers, 1, kMaxSettingTimeMs, "",
     "How long a trainer looks for its node; default: 30000 on one host, find-coordinator-ms + 60000 on "
     "several"},
    {"node-silence-ms", kTrainer, milliseconds, kTrainers, 1, kMaxSettingTimeMs, "30000",
     "The trainer reports a node that sends nothing for this time as stopped or hanging"},
};

constexpr OtherVariable kOtherVariables[] = {
    {"SHOAL_ROOT", "folder of the run"},
    {"SHOAL_JOB_ID", "job id: equal on all ranks of one start of the job, and never reused"},
    {"SHOAL_COORDINATOR", "HOST:PORT of the job's coordinator, or :PORT (docs/how-to/clusters.md)"},
    {"SHOAL_TOKEN", "the job's secret"},
    {"SHOAL_TOKEN_FILE", "file of mode 0600 with the job's secret"},
    {"SHOAL_RUNTIME_DIR",
     "folder of a node's lock, socket and log; default: $XDG_RUNTIME_DIR/shoal, else /tmp/shoal-UID"},
    {"SHOAL_SOCKET", "socket at which trainers find the node of this host"},
    {"SHOAL_NODE_PROGRAM", "path of the program `shoal` with which a trainer starts a node"},
    {"SHOAL_START_NODE", "0: trainers start no node; `shoal launch` sets it"},
    {"SHOAL_READ_ONLY", "1: this job only loads, beside the job that trains"},
    {"SHOAL_SAVE_REPORT", "file in which trainers report their saves; `shoal launch` sets it"},
};

}  // namespace

std::span<const Setting> all_settings() {
  return kSettings;
}

std::span<const OtherVariable> other_variables() {
  return kOtherVariables;
}

}  // namespace shoal::local
