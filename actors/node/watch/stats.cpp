#include "actors/node/watch/stats.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace shoal::actors {

std::string format_node_stats(const NodeStats& stats) {
  const transport::TransportStats& transport = stats.transport;
  std::string text;
  auto line = [&text](std::string_view key, uint64_t value) { text += fmt::format("{}={}\n", key, value); };
  auto counter = [&](std::string_view what, const transport::TransportStats::Counter& value) {
    line(fmt::format("transport_frames_{}", what), value.frames);
    line(fmt::format("transport_bytes_{}", what), value.bytes);
  };
  counter("sent", transport.sent);
  counter("received", transport.received);
  counter("sent_eager", transport.sent_eager);
  counter("sent_rendezvous", transport.sent_rendezvous);
  for (const auto& [name, value] : transport.by_transport) {
    line(fmt::format("transport.{}.frames", name), value.frames);
    line(fmt::format("transport.{}.bytes", name), value.bytes);
  }
  line("peers_up", transport.peers_up);
  line("peers_lost", transport.peers_lost);
  line("handshakes_rejected", transport.handshakes_rejected);
  line("malformed_frames", transport.malformed_frames);
  line("sends_dropped", stats.sends_dropped);
  line("direct_nodes_most", stats.reach.direct_most);
  line("relayed_nodes_most", stats.reach.relayed_most);
  line("relay_messages_up", stats.relay.messages_up);
  line("relay_messages_down", stats.relay.messages_down);
  line("relay_dropped", stats.relay.dropped);
  line("sharing_chunks_sent", stats.sharing.chunks_sent);
  line("sharing_bytes_sent", stats.sharing.bytes_sent);
  line("sharing_chunks_received", stats.sharing.chunks_received);
  line("sharing_bytes_received", stats.sharing.bytes_received);
  line("sharing_dropped", stats.sharing.dropped);
  line("events_handled", stats.host.events);
  line("messages_dropped", stats.host.wire_dropped);
  line("saves_committed", stats.saves_committed);
  line("saves_aborted", stats.saves_aborted);
  return text;
}

Status write_stats_file(const std::string& path, const NodeStats& stats) {
  std::string text = format_node_stats(stats);
  std::string temporary = path + ".partial";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) return Status(Code::io, fmt::format("{}: {}", temporary, std::strerror(errno)));
  bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  is_written = std::fclose(file) == 0 && is_written;
  if (!is_written || std::rename(temporary.c_str(), path.c_str()) != 0) {
    return Status(Code::io, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  return ok_status();
}

}  // namespace shoal::actors
