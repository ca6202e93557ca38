// Trace: a simulated run as JSON trace events, which Perfetto (https://ui.perfetto.dev) and chrome://tracing
// show. The format is that of "Trace Event Format" (Google, 2016):
//
//   - a process is a host. Its thread `roles` has a slice for each event that its node handles;
//   - arrows from slice to slice are messages between nodes (flow events);
//   - `operations` are asynchronous slices, from the request to the answer of the storage. Several overlap;
//   - `save N, rank R` and `load N, rank R` are asynchronous slices, with the states of the rank inside.
//
// Times are those of the simulation, in microseconds. A trace is bounded: it has the first kMostTracedNodes
// hosts, and at most kMostTraced events. It says what it leaves out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/role.h"
#include "sim/failures/failure.h"

namespace shoal::sim {

inline constexpr size_t kMostTracedNodes = 64;
inline constexpr size_t kMostTraced = 400'000;

class Trace {
 public:
  // A later run has a clock of its own, which begins at `begins` of the trace.
  void begin_run(actors::TimeNs begins) { begins_ = begins; }
  // `ranks`: those of its host.
  void name_node(size_t node, const std::string& ranks);
  // A node has handled an event from `begin` to `end`. What it sends then leaves it at `end`.
  void handled(size_t node, actors::TimeNs begin, actors::TimeNs end, const actors::Event& event);
  void sent(size_t from, size_t to, const actors::WireMessage& message);
  void operation(size_t node, actors::TimeNs begin, actors::TimeNs end, std::string_view name,
                 const Status& outcome);
  void failed(actors::TimeNs at, const Failure& failure);
  // States of a rank, one after the other, from `begin` on: the time at which each ended, from the begin. A
  // negative time: the rank did not come so far.
  struct State {
    const char* name = nullptr;
    actors::TimeNs ended = 0;
  };
  void rank_states(size_t node, const std::string& name, actors::TimeNs begin,
                   const std::vector<State>& states);

  actors::TimeNs ends() const { return ends_; }  // the latest time of the trace
  uint64_t dropped() const { return dropped_; }  // events beyond kMostTraced
  size_t nodes() const { return nodes_; }        // of the run, also those that are not traced
  std::string json() const;

 private:
  struct Entry {
    char phase = 'X';  // as in the format
    uint32_t node = 0;
    uint32_t name = 0;  // index of names_
    actors::TimeNs at = 0, lasts = 0;
    uint64_t id = 0;        // of a flow or an asynchronous slice
    uint32_t category = 0;  // index of names_
  };
  bool is_traced(size_t node);
  bool add(Entry entry);
  uint32_t name_of(std::string text);

  actors::TimeNs begins_ = 0, ends_ = 0;
  std::vector<Entry> entries_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> known_;
  std::map<size_t, std::string> node_names_;
  std::map<size_t, actors::TimeNs> newest_;  // by node: the end of the newest slice
  // Messages under way, by their body and receiver.
  std::map<std::pair<const void*, size_t>, uint64_t> flows_;
  uint64_t ids_ = 0, dropped_ = 0;
  size_t nodes_ = 0;
};

}  // namespace shoal::sim
