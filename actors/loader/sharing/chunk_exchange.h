// ChunkExchange: carries out a ChunkPlan on one node. Reads the chunks that are this node's to read, asks
// peers for the others, passes on what peers ask for, and copies all of it to the windows of this node's
// clients. docs/reference/protocol.md, "A shared load".
//
// Memory: chunks on their way here, at hand, or on their way to peers take at most `buffer_bytes`, or
// least_buffer_bytes() if that is more; one that is for several peers counts once, until the last has it. A
// peer that takes in nothing of what is sent to it while room is needed, or nothing else is left to do, loses
// its session after chunk_deadline_ms, and with it what was for it. Chunks are fetched in the order in which
// users want them, so that of each group one chunk at most is held for what a user wants later while another
// one still lacks something before it. A chunk that this node's clients have is kept for the peers that will
// ask for it, for chunk_deadline_ms at most where its room is needed. A peer that has sent no chunk for
// chunk_deadline_ms, nor said of one that it was asked for that it comes, is asked no more: the next member
// of the tree is, or this node reads. A node says so of what it is asked for while it waits for its storage
// or for its own peers; not of a read that may never end.
//
// Headers are chunks too. A chunk is read or checked once the headers of its files are here; where one cannot
// be had, whoever needs it opens the file.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/continuations.h"
#include "actors/loader/sharing/chunk_plan.h"
#include "actors/loader/sharing/load_tree.h"
#include "actors/loader/sharing/storage_trial.h"
#include "shoal/load_times.h"

namespace shoal::actors {

// Time during which at least one of several things is under way.
class BusyTime {
 public:
  void begin(TimeNs now) {
    if (under_way_++ == 0) since_ = now;
  }
  void end(TimeNs now) {
    if (--under_way_ == 0) sum_ += now - since_;
  }
  bool is_busy() const { return under_way_ != 0; }
  uint64_t until(TimeNs now) const {
    return static_cast<uint64_t>(sum_ + (under_way_ != 0 ? now - since_ : 0));
  }

 private:
  size_t under_way_ = 0;
  TimeNs since_ = 0, sum_ = 0;
};

class ChunkExchange {
 public:
  struct Settings {
    wire::LoadId id;
    std::vector<std::string> addresses;  // of hosts, by their numbers
    uint32_t own_host = 0;
    uint64_t buffer_bytes = 0;
    bool may_go_direct = true;  // where this node reads faster than it is given
    TimeNs deadline = 0;
  };
  struct Hooks {
    // All parts of a shared batch of a user lie in its window.
    std::function<void(TimeNs, uint32_t user, uint32_t batch, EffectWriter&)> batch_complete;
    std::function<void(TimeNs, uint32_t user, const Status&, EffectWriter&)> failed;
    // A user that was forgotten: nothing is being copied to its window any more.
    std::function<void(TimeNs, uint32_t user, EffectWriter&)> quiet;
  };
  struct Pendings {  // of its Loader
    PendingOperations& operations;
    PendingTimers& timers;
    PendingSends& sends;
  };
  ChunkExchange(Pendings pendings, std::shared_ptr<const ChunkPlan> plan, Settings settings, Hooks hooks);

  void begin(TimeNs now, EffectWriter& out);
  // The batch's part of the window is free for it: it begins at `slab_offset` of that slab.
  void give_room(TimeNs now, uint32_t user, uint32_t batch, const SlabRange& room, EffectWriter& out);
  void forget_user(TimeNs now, uint32_t user, EffectWriter& out);  // nothing is copied for it any more
  // Whether something is still being copied to this user's window.
  bool is_copying(uint32_t user) const { return copying_[user] != 0; }

  void wanted(TimeNs now, NodeId from, const wire::ChunksWanted& said, EffectWriter& out);
  void came(TimeNs now, const wire::ChunkIs& said, EffectWriter& out);
  void not_there(TimeNs now, const wire::ChunksNotHere& said, EffectWriter& out);
  void not_wanted(TimeNs now, const wire::ChunksNotWanted& said, EffectWriter& out);
  void coming(TimeNs now, const wire::ChunksComing& said);

  uint64_t bytes_held() const {
    return bytes_held_;
  }  // of chunks, on their way here, here or on their way out
  // Nothing is left to do here: users have all, peers have been given what they will ask for, or are late,
  // and nothing is on its way to them.
  bool is_over() const { return is_over_; }
  void add_times(TimeNs now, uint32_t user, LoadTimes& times) const;
  const DamageList& damaged() const { return damaged_; }  // what this node read from copies

 private:
  enum class State : uint8_t { waiting, asked, needs_header, reading, checking, here, gone };
  struct Held {
    State state = State::waiting;
    ChunkPtr chunk;           // while it needs a header: what a peer sent, or nullptr to read it
    uint64_t bytes = 0;       // of the buffer
    uint32_t parts_left = 0;  // not copied yet
    uint32_t served = 0;      // peers, or not wanted by them
    uint32_t leaving = 0;     // messages with it that have not left
    uint32_t asked_host = 0;  // while asked
    TimeNs last_word = 0;     // while asked: since when, or when that host last said that it comes
    TimeNs here_since = 0;
    TimeNs read_since = 0;  // while reading
    std::vector<NodeId> wanted_by;
    std::vector<bool> copied;         // of its parts; empty: none
    bool is_known = false;            // of a header: something of its file was read here before it came
    std::vector<uint32_t> needed_by;  // of a header: chunks that wait for it
  };
  struct Peer {
    size_t awaited = 0;          // chunks
    bool has_sent = false;       // one
    TimeNs last_chunk = 0;       // or when the first of those was asked for
    std::vector<uint64_t> asks;  // to be sent
  };
  struct Taker {           // a peer that something is on its way to
    size_t leaving = 0;    // messages
    TimeNs last_left = 0;  // or when the first of those was sent
  };
  struct Room {
    SlabRange range;
    uint32_t parts_left = 0;
  };

  void go_on(TimeNs now, EffectWriter& out);
  void fetch(TimeNs now, uint32_t chunk, EffectWriter& out);
  void read(TimeNs now, uint32_t chunk, EffectWriter& out);
  void check(TimeNs now, uint32_t chunk, ChunkPtr got, EffectWriter& out);
  bool is_header(uint32_t chunk) const { return plan_.chunks[chunk].header_of.has_value(); }
  // Where it lacks a header that is on its way it goes on with `got` once that has come, or is not to be had.
  bool waits_for_header(uint32_t chunk, const ChunkPtr& got);
  void header_settled(TimeNs now, uint32_t header, EffectWriter& out);
  void arrived(TimeNs now, uint32_t chunk, ChunkPtr got, EffectWriter& out);
  void failed(TimeNs now, uint32_t chunk, const Status& why, EffectWriter& out);
  void copy(TimeNs now, uint32_t chunk, const std::vector<size_t>& parts, EffectWriter& out);
  void serve(TimeNs now, uint32_t chunk, NodeId to, EffectWriter& out);
  void serve_waiting(TimeNs now, uint32_t chunk, EffectWriter& out);
  void serve_tried(TimeNs now, EffectWriter& out);
  void has_left(TimeNs now, uint32_t chunk, NodeId to, EffectWriter& out);
  void release(uint32_t chunk);
  bool may_release(const Held& held, uint32_t chunk) const;
  void release_late(TimeNs now);
  bool may_never_end(TimeNs now, const Held& held) const;  // a read
  void give_up_peers(TimeNs now, EffectWriter& out);
  void give_up_takers(TimeNs now, EffectWriter& out);
  void say_coming(TimeNs now, EffectWriter& out);
  void take_back(TimeNs now, Held& held);  // it is asked of nobody any more
  bool has_shared(uint32_t user) const;
  void send_asks(EffectWriter& out);
  void tick(TimeNs now, EffectWriter& out);
  void look_at_speed(TimeNs now, uint32_t chunk, EffectWriter& out);
  void say_not_wanted(const std::vector<uint32_t>& chunks, EffectWriter& out);
  void read_ahead(EffectWriter& out);
  LoadTree tree_of(uint32_t chunk) const;
  static uint32_t place_in(const std::vector<uint32_t>& hosts, uint32_t host);

  PendingOperations& operations_;
  PendingTimers& timers_;
  PendingSends& sends_;
  const std::shared_ptr<const ChunkPlan> kept_plan_;
  const ChunkPlan& plan_;
  const Settings settings_;
  const Hooks hooks_;
  std::vector<Held> held_;
  std::vector<std::map<uint32_t, Room>> rooms_;  // by user and batch
  std::vector<bool> forgotten_;                  // users
  std::vector<size_t> copying_;                  // by user
  std::vector<std::set<uint32_t>> dead_;         // by group, places in it
  std::map<uint32_t, Peer> peers_;               // by host
  std::vector<uint32_t> asking_;                 // hosts that are to be asked
  std::map<NodeId, Taker> takers_;
  std::map<NodeId, TimeNs> told_;      // who wants something: when this node last spoke to it, or it asked
  uint32_t next_ = 0;                  // the first chunk that was not fetched
  uint64_t bytes_held_ = 0;            // on their way here, here, or on their way to peers
  size_t under_way_ = 0;               // asked, reading, checking, or being copied
  const std::vector<uint32_t> tried_;  // read here before anything is asked of peers
  StorageTrial trial_;
  uint32_t read_end_ = 0;  // what was not asked for before is read here up to that chunk
  bool is_over_ = false;
  TimeNs longest_read_ = 0;  // of a chunk that was read here
  BusyTime reading_, receiving_;
  DamageList damaged_;
  uint64_t bytes_read_ = 0, bytes_received_ = 0, given_up_ = 0;
  bool has_served_ = false;                                           // a peer
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what is pending when it goes
};

}  // namespace shoal::actors
