#include "actors/node/watch/metrics_text.h"

#include <fmt/format.h>

#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

namespace shoal::actors {

namespace {

using Label = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kSharedMemory = "shared_memory";
constexpr std::string_view kRoot = "root";

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

// Writes metric families one after another: HELP and TYPE once, then the samples.
class Families {
 public:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Number>
  void sample(std::initializer_list<Label> labels, Number value, std::string_view suffix = "") {
    text_ += name_;
    text_ += suffix;
    std::string_view before = "{";
    for (const auto& [label, content] : labels) {
      text_ += fmt::format("{}{}=\"{}\"", before, label, escaped(content));
      before = ",";
    }
    text_ += fmt::format("{} {}\n", labels.size() == 0 ? "" : "}", value);
  }
  template <class Number>
  void counter(std::string_view name, std::string_view help, Number value) {
    begin(name, "counter", help);
    sample({}, value);
  }
  // Bytes that went into or came out of one tier: where copies of a checkpoint's bytes are.
  void bytes_of_tier(std::string_view name, std::string_view help, std::string_view tier, uint64_t bytes) {
    begin(name, "counter", help);
    sample({{"tier", tier}}, bytes);
  }
  template <const auto& kBuckets>
  void histogram(std::string_view name, std::string_view help, const Durations<kBuckets>& durations) {
    begin(name, "histogram", help);
    uint64_t sum = 0;
    for (size_t i = 0; i < kBuckets.size(); ++i) {
      sum += durations.counts[i];
      sample({{"le", fmt::format("{}", kBuckets[i])}}, sum, "_bucket");
    }
    sum += durations.counts.back();
    sample({{"le", "+Inf"}}, sum, "_bucket");
    sample({}, durations.sum, "_sum");
    sample({}, sum, "_count");
  }
  template <class Number>
  void gauge(std::string_view name, std::string_view help, Number value) {
    begin(name, "gauge", help);
    sample({}, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_, text_;
};

void add_node(const NodeMetrics& node, Families& out) {
  out.begin("shoal_node_info", "gauge", "Information about this node in labels. The value is always 1.");
  out.sample({{"version", node.version},
              {"host", node.host},
              {"job_id", node.job_id},
              {"root_id", node.root_id},
              {"role", node.coordinates ? "coordinator" : "node"}},
             1);
  out.gauge("shoal_node_start_time_seconds", "When this node began, in seconds since 1970.",
            static_cast<double>(node.start_unix_time_ms) / 1e3);
  out.gauge("shoal_generation", "Generation of the job.", node.generation);
  out.gauge("shoal_epoch", "Epoch of the coordinator.", node.epoch);
  out.gauge("shoal_peers", "Nodes connected to this one now.", node.peers);
  out.gauge("shoal_attached_ranks", "Trainers attached to this node now.", node.activity.ranks_attached);
  out.gauge("shoal_storage_oldest_call_seconds",
            "Age of the oldest storage call that has not returned; 0 if this coordinator knows none.",
            static_cast<double>(node.storage_oldest_call_ns) / 1e9);
  out.gauge("shoal_slab_bytes", "Shared memory of trainers that this node has mapped, for saves and loads.",
            node.slab_bytes);
  out.counter("shoal_warnings_total", "Warnings that this node logged.", node.activity.warnings);
}

void add_saves(const ActivityCounts& activity, Families& out) {
  const local::NodeCounts& counts = activity.node;
  out.counter("shoal_saves_begun_total", "Save attempts that this node has seen.", counts.saves_begun);
  out.counter("shoal_saves_committed_total", "Attempts that became checkpoints.", counts.saves_committed);
  out.begin("shoal_saves_aborted_total", "counter", "Attempts that were aborted, by cause.");
  for (size_t cause = 0; cause < kAbortCauses; ++cause) {
    out.sample({{"cause", kAbortCauseNames[cause]}}, activity.aborted[cause]);
  }
  out.gauge("shoal_saves_in_flight", "Attempts that are not decided yet.", activity.saves_in_flight);
  out.bytes_of_tier("shoal_staged_bytes_total", "Bytes that trainers of this host staged.", kSharedMemory,
                    counts.bytes_staged);
  out.bytes_of_tier("shoal_written_bytes_total", "Bytes of tensors and objects that this host made durable.",
                    kRoot, counts.bytes_written);
  out.histogram("shoal_save_blocked_seconds", "Time for which a call of save held a trainer of this host.",
                activity.blocked_seconds);
  out.counter("shoal_save_waited_seconds_total",
              "Part of the blocked time in which calls of save waited for an earlier save.",
              activity.waited_seconds);
  out.histogram("shoal_commit_seconds",
                "Time from the first message about a save that this node has seen to the commit.",
                activity.commit_seconds);
}

void add_last_commit(const ActivityCounts& activity, Families& out) {
  const std::optional<NewestCheckpoint>& newest = activity.newest;
  out.gauge("shoal_last_commit_timestamp_seconds",
            "When the newest checkpoint was committed, in seconds since 1970; 0 if there is none.",
            newest ? static_cast<double>(newest->unix_time_ns) / 1e9 : 0.0);
  if (!newest) return;
  out.gauge("shoal_last_commit_step", "Step of the newest checkpoint.", newest->key.step);
  out.gauge("shoal_last_commit_bytes", "Payload of the newest checkpoint.", newest->payload_bytes);
  if (!activity.last_commit || activity.last_commit->key != newest->key) return;
  out.gauge("shoal_last_commit_seconds", "Duration of the save of the newest checkpoint.",
            static_cast<double>(activity.last_commit->duration_ms) / 1e3);
}

std::string label_of(Code code) {  // "no_space", "io_error"
  std::string label;
  for (char c : code_name(code)) {
    if (c == ' ') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c != '/') label += c;
  }
  return label;
}

void add_loads(const ActivityCounts& activity, Families& out) {
  const local::NodeCounts& counts = activity.node;
  out.counter("shoal_loads_begun_total", "Loads that trainers of this host requested.", counts.loads_begun);
  out.counter("shoal_loads_done_total", "Loads that ended well.", counts.loads_done);
  out.begin("shoal_loads_failed_total", "counter", "Loads that failed, by the code of their error.");
  for (size_t code = 1; code < activity.loads_failed.size(); ++code) {
    out.sample({{"code", label_of(static_cast<Code>(code))}}, activity.loads_failed[code]);
  }
  out.bytes_of_tier("shoal_read_bytes_total",
                    "Bytes of shards read and verified for loads, by the node or by its trainers.", kRoot,
                    counts.bytes_read);
  out.begin("shoal_shared_bytes_total", "counter", "Bytes that nodes sent to each other in loads.");
  out.sample({{"direction", "sent"}}, counts.bytes_to_peers);
  out.sample({{"direction", "received"}}, counts.bytes_from_peers);
}

void add_transport(const NodeStats& stats, Families& out) {
  const transport::TransportStats& transport = stats.transport;
  out.begin("shoal_transport_frames_total", "counter", "Frames of messages between nodes.");
  out.sample({{"direction", "sent"}}, transport.sent.frames);
  out.sample({{"direction", "received"}}, transport.received.frames);
  out.begin("shoal_transport_bytes_total", "counter", "Bytes of messages between nodes.");
  out.sample({{"direction", "sent"}}, transport.sent.bytes);
  out.sample({{"direction", "received"}}, transport.received.bytes);
  out.begin("shoal_transport_sent_bytes_total", "counter",
            "Bytes sent, by size of message: eager or in chunks.");
  out.sample({{"protocol", "eager"}}, transport.sent_eager.bytes);
  out.sample({{"protocol", "rendezvous"}}, transport.sent_rendezvous.bytes);
  out.begin("shoal_transport_frames_by_kind_total", "counter",
            "Frames sent and received, by transport: tls, or what UCX uses.");
  for (const auto& [name, value] : transport.by_transport) out.sample({{"transport", name}}, value.frames);
  out.begin("shoal_transport_bytes_by_kind_total", "counter",
            "Bytes sent and received, by transport: tls, or what UCX uses.");
  for (const auto& [name, value] : transport.by_transport) out.sample({{"transport", name}}, value.bytes);
  out.counter("shoal_peers_up_total", "Sessions with other nodes that came up.", transport.peers_up);
  out.counter("shoal_peers_lost_total", "Sessions with other nodes that ended.", transport.peers_lost);
  out.counter("shoal_handshakes_rejected_total", "Connections rejected in the handshake.",
              transport.handshakes_rejected);
  out.counter("shoal_malformed_frames_total", "Malformed frames received.", transport.malformed_frames);
  out.counter("shoal_sends_dropped_total", "Messages to other nodes dropped because a queue was full.",
              stats.sends_dropped);
  out.counter("shoal_messages_dropped_total", "Messages from other nodes dropped because a mailbox was full.",
              stats.host.wire_dropped);
  out.counter("shoal_events_total", "Events that the roles of this node handled.", stats.host.events);
}

void add_catalog(const ActivityCounts& activity, Families& out) {
  out.counter("shoal_catalog_recorded_total", "Decisions recorded in the catalog.",
              activity.catalog_recorded);
  out.counter("shoal_catalog_errors_total", "Decisions that could not be recorded in the catalog.",
              activity.catalog_errors);
}

}  // namespace

std::string format_metrics(const NodeMetrics& metrics) {
  Families out;
  add_node(metrics, out);
  add_saves(metrics.activity, out);
  // Other nodes may not know of what was committed before they started.
  const bool knows = metrics.coordinates || metrics.activity.newest;
  if (!metrics.read_only && knows) add_last_commit(metrics.activity, out);
  add_loads(metrics.activity, out);
  add_transport(metrics.stats, out);
  if (metrics.coordinates) add_catalog(metrics.activity, out);
  return out.take();
}

}  // namespace shoal::actors
