#include "sim/reports/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "sim/reports/event_text.h"

namespace shoal::sim {

namespace {

constexpr int kRolesThread = 1;
constexpr size_t kMostFlows = 100'000;  // messages under way at a time

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string micros(actors::TimeNs at) {
  return fmt::format("{}.{:03}", at / 1000, at % 1000);
}

}  // namespace

void Trace::name_node(size_t node, const std::string& ranks) {
  nodes_ = std::max(nodes_, node + 1);
  if (is_traced(node)) node_names_[node] = fmt::format("host{} ({})", node, ranks);
}

bool Trace::is_traced(size_t node) {
  return node < kMostTracedNodes;
}

bool Trace::add(Entry entry) {
  if (entries_.size() >= kMostTraced) return ++dropped_, false;
  ends_ = std::max(ends_, entry.at + entry.lasts);
  entries_.push_back(entry);
  return true;
}

uint32_t Trace::name_of(std::string text) {
  const auto [known, is_new] = known_.try_emplace(std::move(text), static_cast<uint32_t>(names_.size()));
  if (is_new) names_.push_back(known->first);
  return known->second;
}

void Trace::handled(size_t node, actors::TimeNs begin, actors::TimeNs end, const actors::Event& event) {
  if (!is_traced(node)) return;
  const actors::TimeNs at = begins_ + begin;
  // A slice of no length would hold no arrow.
  const actors::TimeNs lasts = std::max<actors::TimeNs>(end - begin, 2);
  const auto index = static_cast<uint32_t>(node);
  if (!add({'X', index, name_of(event_name(event)), at, lasts, 0, 0})) return;
  newest_[node] = at + lasts;
  const auto* received = std::get_if<actors::event::Received>(&event);
  if (received == nullptr) return;
  const auto flow = flows_.find({received->message.body.get(), node});
  if (flow == flows_.end()) return;
  add({'f', index, name_of("message"), at, 0, flow->second, 0});
  flows_.erase(flow);
}

void Trace::sent(size_t from, size_t to, const actors::WireMessage& message) {
  if (!is_traced(from) || !is_traced(to)) return;
  const auto slice = newest_.find(from);
  if (slice == newest_.end() || flows_.size() >= kMostFlows) return;
  const uint64_t id = ++ids_;
  if (!add({'s', static_cast<uint32_t>(from), name_of("message"), slice->second - 1, 0, id, 0})) return;
  flows_[{message.body.get(), to}] = id;
}

void Trace::operation(size_t node, actors::TimeNs begin, actors::TimeNs end, std::string_view name,
                      const Status& outcome) {
  if (!is_traced(node)) return;
  const auto index = static_cast<uint32_t>(node);
  const std::string text =
      outcome.ok() ? std::string(name) : fmt::format("{}: {}", name, code_name(outcome.code()));
  const Entry whole{'b', index, name_of(text), begins_ + begin, 0, ++ids_, name_of("operations")};
  if (!add(whole)) return;
  Entry ends = whole;
  ends.phase = 'e';
  ends.at = begins_ + end;
  ends_ = std::max(ends_, ends.at);
  entries_.push_back(ends);
}

void Trace::failed(actors::TimeNs at, const Failure& failure) {
  add({'i', 0, name_of(to_string(failure)), begins_ + at, 0, 0, 0});
}

void Trace::rank_states(size_t node, const std::string& name, actors::TimeNs begin,
                        const std::vector<State>& states) {
  if (!is_traced(node)) return;
  const auto index = static_cast<uint32_t>(node);
  const uint64_t id = ++ids_;
  const uint32_t ranks = name_of("ranks");
  std::vector<Entry> slices;
  actors::TimeNs at = 0;
  for (const State& state : states) {
    if (state.ended < 0) break;
    const actors::TimeNs ended = std::max(at, state.ended);
    slices.push_back({'b', index, name_of(state.name), begins_ + begin + at, 0, id, ranks});
    slices.push_back({'e', index, name_of(state.name), begins_ + begin + ended, 0, id, ranks});
    at = ended;
  }
  if (slices.empty()) return;
  if (entries_.size() + slices.size() + 2 > kMostTraced) return void(dropped_ += slices.size() + 2);
  add({'b', index, name_of(name), begins_ + begin, 0, id, ranks});
  entries_.insert(entries_.end(), slices.begin(), slices.end());
  add({'e', index, name_of(name), begins_ + begin + at, 0, id, ranks});
}

std::string Trace::json() const {
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  for (const auto& [node, name] : node_names_) {
    out += fmt::format(
        "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_name\",\"args\":{{\"name\":{1}}}}},\n"
        "{{\"ph\":\"M\",\"pid\":{0},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{0}}}}},\n"
        "{{\"ph\":\"M\",\"pid\":{0},\"tid\":{2},\"name\":\"thread_name\",\"args\":{{\"name\":\"roles\"}}}},"
        "\n",
        node + 1, json_text(name), kRolesThread);
  }
  std::vector<std::string> names;
  for (const std::string& name : names_) names.push_back(json_text(name));
  for (const Entry& entry : entries_) {
    fmt::format_to(std::back_inserter(out), "{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"name\":{}",
                   entry.phase, entry.node + 1, kRolesThread, micros(entry.at), names[entry.name]);
    if (entry.phase == 'X') fmt::format_to(std::back_inserter(out), ",\"dur\":{}", micros(entry.lasts));
    if (entry.phase == 's' || entry.phase == 'f') {
      fmt::format_to(std::back_inserter(out), ",\"cat\":\"messages\",\"id\":{}", entry.id);
    }
    if (entry.phase == 'f') out += ",\"bp\":\"e\"";
    if (entry.phase == 'b' || entry.phase == 'e') {
      fmt::format_to(std::back_inserter(out), ",\"cat\":{},\"id\":{}", names[entry.category], entry.id);
    }
    if (entry.phase == 'i') out += ",\"s\":\"g\"";
    out += "},\n";
  }
  // The last one needs no comma.
  out += "{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"simulation\"}}\n],";
  return out + fmt::format("\"otherData\":{{\"hosts\":{},\"traced_hosts\":{},\"dropped_events\":{}}}}}\n",
                           nodes_, std::min(nodes_, kMostTracedNodes), dropped_);
}

}  // namespace shoal::sim
