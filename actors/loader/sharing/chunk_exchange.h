// ChunkExchange: carries out a ChunkPlan on one node. It reads the chunks that this node must read, requests
// the others from peers, sends peers what they request, and copies everything to the windows of this node's
// clients. docs/reference/protocol.md, "A shared load".
//
// Memory. Chunks on their way here, held, or on their way to peers take at most `buffer_bytes`, or
// least_buffer_bytes() if that is more. A chunk for several peers counts once, until the last has it. Chunks
// are fetched in the order in which users need them. So in each group at most one chunk is held for a later
// need of one user while another user still lacks an earlier one.
//
// Slow peers. If room is needed, or nothing else is left to do, the session of a peer that receives nothing
// of what was sent to it for chunk_deadline_ms is ended, and its messages are dropped. A chunk that this
// node's clients have is kept for peers that will request it; if room is needed, for at most
// chunk_deadline_ms. A peer that has neither sent a chunk nor announced one (ChunksPending) for
// chunk_deadline_ms gets no more requests: the next member of the tree does, or this node reads the chunk. A
// node announces requested chunks while it waits for its storage or its own peers, but not for a read that
// may never end.
//
// Headers are chunks too. A chunk is read or checked when the headers of its files are here. If a header
// cannot be had, the node opens the file itself.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/continuations.h"
#include "actors/loader/sharing/busy_time.h"
#include "actors/loader/sharing/chunk_plan.h"
#include "actors/loader/sharing/chunk_state.h"
#include "actors/loader/sharing/load_tree.h"
#include "actors/loader/sharing/storage_trial.h"
#include "shoal/load_times.h"

namespace shoal::actors {

class ChunkExchange {
 public:
  struct Settings {
    wire::LoadId id;
    std::shared_ptr<const std::vector<std::string>> addresses;  // of hosts, by their numbers
    uint32_t own_host = 0;
    uint64_t buffer_bytes = 0;
    bool may_go_direct = true;  // if this node reads faster than it receives
    TimeNs deadline = 0;
  };
  struct Hooks {
    // All parts of a shared batch of a user are in its window.
    std::function<void(TimeNs, uint32_t user, uint32_t batch, EffectWriter&)> batch_complete;
    std::function<void(TimeNs, uint32_t user, const Status&, EffectWriter&)> failed;
    // For a user that was forgotten: nothing is being copied to its window any more.
    std::function<void(TimeNs, uint32_t user, EffectWriter&)> quiet;
  };
  struct Pendings {  // of the Loader that owns the exchange
    PendingOperations& operations;
    PendingTimers& timers;
    PendingSends& sends;
    ExchangeCounts& counts;
  };
  ChunkExchange(Pendings pendings, std::shared_ptr<const ChunkPlan> plan, Settings settings, Hooks hooks);

  void begin(TimeNs now, EffectWriter& out);
  // The part of the window for this batch is free; it begins at `slab_offset` of the slab.
  void give_room(TimeNs now, uint32_t user, uint32_t batch, const SlabRange& room, EffectWriter& out);
  void forget_user(TimeNs now, uint32_t user, EffectWriter& out);  // from now on no new copy begins for it
  // Whether a copy to this user's window is in progress.
  bool is_copying(uint32_t user) const { return copying_[user] != 0; }

  void on_request(TimeNs now, NodeId from, const wire::ChunkRequest& message, EffectWriter& out);
  void on_data(TimeNs now, const wire::ChunkData& message, EffectWriter& out);
  void on_unavailable(TimeNs now, const wire::ChunksUnavailable& message, EffectWriter& out);
  void on_cancelled(TimeNs now, const wire::ChunksCancelled& message, EffectWriter& out);
  void on_pending(TimeNs now, const wire::ChunksPending& message);

  uint64_t bytes_held() const { return bytes_held_; }  // on their way here, held, or on their way to peers
  // Nothing is left to do: the users have everything, peers have received what they may request or are late,
  // and nothing is on its way to them.
  bool is_over() const { return is_over_; }
  void add_times(TimeNs now, uint32_t user, LoadTimes& times) const;
  const DamageList& damaged() const { return damaged_; }  // what this node read from copies

 private:
  struct HeldChunk {
    ChunkMachine state{ChunkState::waiting};
    ChunkPtr chunk;               // in needs_header: what a peer sent, or nullptr to read it
    uint64_t bytes = 0;           // of the buffer
    uint32_t parts_left = 0;      // parts that are not copied yet
    uint32_t served = 0;          // peers that have received it, or do not want it
    uint32_t leaving = 0;         // messages with it that have not left
    uint32_t requested_from = 0;  // in requested
    TimeNs last_news = 0;         // in requested: time of the request, or of the host's last ChunksPending
    TimeNs here_since = 0;
    TimeNs read_since = 0;  // in reading
    std::vector<NodeId> requesters;
    std::vector<bool> copied;         // by part; empty: none
    bool is_known = false;            // header: this node read from its file before it came
    std::vector<uint32_t> needed_by;  // header: chunks that wait for it
  };
  struct Peer {
    size_t awaited = 0;                // number of chunks
    bool has_sent = false;             // at least one chunk
    TimeNs last_chunk = 0;             // time of its last chunk, or of the first request
    std::vector<uint64_t> to_request;  // numbers of chunks to request
  };
  struct Taker {           // a peer that messages are on their way to
    size_t leaving = 0;    // number of messages
    TimeNs last_left = 0;  // time when the last one left, or when the first was sent
  };
  struct Room {
    SlabRange range;
    uint32_t parts_left = 0;
  };

  void on(HeldChunk& held, ChunkTrigger trigger) { held.state.on(trigger, counts_.chunks); }
  void go_on(TimeNs now, EffectWriter& out);
  void fetch(TimeNs now, uint32_t chunk, EffectWriter& out);
  void read(TimeNs now, uint32_t chunk, EffectWriter& out);
  void check(TimeNs now, uint32_t chunk, ChunkPtr got, EffectWriter& out);
  bool is_header(uint32_t chunk) const { return plan_.chunks[chunk].header_of.has_value(); }
  // If the chunk lacks a header that is on its way, continues with `got` when that has come or cannot be had.
  bool waits_for_header(uint32_t chunk, const ChunkPtr& got);
  void header_settled(TimeNs now, uint32_t header, EffectWriter& out);
  void arrived(TimeNs now, uint32_t chunk, ChunkPtr got, EffectWriter& out);
  void failed(TimeNs now, uint32_t chunk, const Status& why, EffectWriter& out);
  void copy(TimeNs now, uint32_t chunk, const std::vector<size_t>& parts, EffectWriter& out);
  void serve(TimeNs now, uint32_t chunk, NodeId to, EffectWriter& out);
  void serve_waiting(TimeNs now, uint32_t chunk, EffectWriter& out);
  void serve_tried(TimeNs now, EffectWriter& out);
  void on_left(TimeNs now, uint32_t chunk, NodeId to, EffectWriter& out);
  void release(uint32_t chunk, ChunkTrigger how = ChunkTrigger::released);
  bool may_release(const HeldChunk& held, uint32_t chunk) const;
  void release_late(TimeNs now);
  bool may_never_end(TimeNs now, const HeldChunk& held) const;  // whether its read may never end
  void give_up_peers(TimeNs now, EffectWriter& out);
  void give_up_takers(TimeNs now, EffectWriter& out);
  void send_pending(TimeNs now, EffectWriter& out);
  void take_back(TimeNs now, HeldChunk& held);  // its request no longer counts
  bool has_shared(uint32_t user) const;
  void send_requests(EffectWriter& out);
  void tick(TimeNs now, EffectWriter& out);
  void look_at_speed(TimeNs now, uint32_t chunk, EffectWriter& out);
  void send_cancelled(const std::vector<uint32_t>& chunks, EffectWriter& out);
  void read_ahead(EffectWriter& out);
  LoadTree tree_of(uint32_t chunk) const;
  static uint32_t place_in(const std::vector<uint32_t>& hosts, uint32_t host);

  PendingOperations& operations_;
  PendingTimers& timers_;
  PendingSends& sends_;
  ExchangeCounts& counts_;
  const std::shared_ptr<const ChunkPlan> kept_plan_;
  const ChunkPlan& plan_;
  const Settings settings_;
  const Hooks hooks_;
  std::vector<HeldChunk> held_;
  std::vector<std::map<uint32_t, Room>> rooms_;  // by user and batch
  std::vector<bool> forgotten_;                  // by user
  std::vector<size_t> copying_;                  // by user
  std::vector<std::set<uint32_t>> dead_;         // by group: places of members that get no more requests
  std::map<uint32_t, Peer> peers_;               // by host
  std::vector<uint32_t> hosts_to_request_;       // hosts with requests to send
  std::map<NodeId, Taker> takers_;
  // Peers that want chunks: time of the last message to, or request from, each.
  std::map<NodeId, TimeNs> last_contact_;
  uint32_t next_ = 0;                  // the first chunk that was not fetched
  uint64_t bytes_held_ = 0;            // on their way here, held, or on their way to peers
  size_t in_progress_ = 0;             // requested, reading, checking, or being copied
  const std::vector<uint32_t> tried_;  // chunks of the storage trial
  StorageTrial trial_;
  uint32_t read_end_ = 0;  // chunks below this that were not requested are read here
  bool is_over_ = false;
  TimeNs longest_read_ = 0;  // of a chunk
  BusyTime reading_, receiving_;
  DamageList damaged_;
  uint64_t bytes_read_ = 0, bytes_received_ = 0, given_up_ = 0;
  bool has_served_ = false;                                           // at least one peer
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for callbacks that outlive this
};

}  // namespace shoal::actors
