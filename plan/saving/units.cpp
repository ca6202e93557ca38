#include "plan/saving/units.h"

#include <algorithm>
#include <map>

#include "plan/layout/canonical_bytes.h"

namespace shoal::plan {

namespace {

// Units of one large box: `full` equal units, then one that may be shorter.
struct Cut {
  uint64_t unit_elements = 0;
  uint64_t units = 0;  // including the last one
};

// Cuts the outermost dimension of which one slice fits into unit_bytes. As many slices as fit make a unit.
Cut cut_large(const SharedBox& shared, uint64_t elements, uint64_t unit_bytes) {
  uint64_t slice = elements;
  for (uint64_t size : shared.box->sizes) {
    slice /= size;
    if (slice <= unit_bytes / shared.element_bytes) break;
  }
  Cut cut;
  cut.unit_elements = unit_bytes / (slice * shared.element_bytes) * slice;
  cut.units = (elements - 1) / cut.unit_elements + 1;
  return cut;
}

// Walks the boxes in order. Calls large(box, elements, cut) for each box that is cut, and pack(first box,
// last box + 1, bytes) for each run of smaller boxes that fit into one unit.
template <class Large, class Pack>
void for_each_unit(std::span<const SharedBox> boxes, uint64_t unit_bytes, Large&& large, Pack&& pack) {
  size_t first = 0;
  uint64_t packed_bytes = 0;
  auto close = [&](size_t end) {
    if (first < end) pack(first, end, packed_bytes);
    packed_bytes = 0;
    first = end;
  };
  for (size_t i = 0; i < boxes.size(); ++i) {
    const uint64_t elements = boxes[i].box->elements();
    const uint64_t bytes = elements * boxes[i].element_bytes;
    if (bytes > unit_bytes) {
      close(i);
      large(i, elements, cut_large(boxes[i], elements, unit_bytes));
      first = i + 1;
      continue;
    }
    if (bytes > unit_bytes - packed_bytes) close(i);
    packed_bytes += bytes;
  }
  close(boxes.size());
}

// Members by load; on a tie the first comes first.
class Loads {
 public:
  explicit Loads(uint64_t members) : heap_(members) {
    for (uint32_t i = 0; i < members; ++i) heap_[i] = {0, i};
  }

  // Gives `bytes` to the least loaded member and returns it.
  uint32_t take(uint64_t bytes) {
    Entry& least = heap_.front();
    const uint32_t member = least.member;
    least.bytes += bytes;
    sift_down();
    return member;
  }

  // Returns in one step what `units` calls of take(bytes) would give each member: ascending by member,
  // without members that get nothing.
  std::vector<std::pair<uint32_t, uint64_t>> take_many(uint64_t bytes, uint64_t units) {
    // The units taken are the smallest of all (load + k * bytes, member). Finds the load below which they
    // stay.
    auto taken_below = [&](uint64_t load) {
      uint64_t taken = 0;
      for (const Entry& entry : heap_) {
        if (entry.bytes < load) taken += (load - entry.bytes - 1) / bytes + 1;
      }
      return taken;
    };
    uint64_t low = heap_.front().bytes, high = low + bytes * (units + 1);
    while (low + 1 < high) {  // taken_below(low) <= units < taken_below(high)
      uint64_t middle = low + (high - low) / 2;
      (taken_below(middle) <= units ? low : high) = middle;
    }
    uint64_t left = units - taken_below(low);  // units at exactly `low`
    std::sort(heap_.begin(), heap_.end(), [](const Entry& a, const Entry& b) { return a.member < b.member; });
    std::vector<std::pair<uint32_t, uint64_t>> counts;
    for (Entry& entry : heap_) {
      uint64_t count = entry.bytes < low ? (low - entry.bytes - 1) / bytes + 1 : 0;
      if (left > 0 && entry.bytes + count * bytes == low) ++count, --left;
      if (count != 0) counts.emplace_back(entry.member, count);
      entry.bytes += count * bytes;
    }
    std::sort(heap_.begin(), heap_.end());
    return counts;
  }

 private:
  struct Entry {
    uint64_t bytes;
    uint32_t member;
    friend auto operator<=>(const Entry&, const Entry&) = default;
  };

  void sift_down() {
    size_t i = 0;
    while (true) {
      size_t least = i;
      for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < heap_.size(); ++child) {
        if (heap_[child] < heap_[least]) least = child;
      }
      if (least == i) return;
      std::swap(heap_[i], heap_[least]);
      i = least;
    }
  }

  std::vector<Entry> heap_;
};

// Above this many units per member, counting one by one is slower than take_many.
constexpr uint64_t kUnitsAtOnce = 64;

// How many of `units` equal units each member takes: ascending by member, without members that get nothing.
std::vector<std::pair<uint32_t, uint64_t>> take_units(uint64_t bytes, uint64_t units, uint64_t members,
                                                      Loads& loads) {
  if (units / kUnitsAtOnce >= members) return loads.take_many(bytes, units);
  std::vector<uint32_t> takers;
  for (uint64_t i = 0; i < units; ++i) takers.push_back(loads.take(bytes));
  std::sort(takers.begin(), takers.end());
  std::vector<std::pair<uint32_t, uint64_t>> counts;
  for (uint32_t member : takers) {
    if (counts.empty() || counts.back().first != member) counts.emplace_back(member, 0);
    ++counts.back().second;
  }
  return counts;
}

// Deals the units of one large box as contiguous runs, ascending by member, except that the member with the
// last, perhaps shorter unit comes last. So each member keeps exactly its load.
void deal_runs(uint32_t box, uint64_t element_bytes, uint64_t elements, const Cut& cut, uint64_t members,
               Loads& loads, std::vector<Assignment>& assignments) {
  auto counts = take_units(cut.unit_elements * element_bytes, cut.units - 1, members, loads);
  const uint64_t last_elements = elements - (cut.units - 1) * cut.unit_elements;
  const uint32_t last_member = loads.take(last_elements * element_bytes);
  uint64_t begin = 0;
  for (auto [member, count] : counts) {
    if (member == last_member) continue;
    const uint64_t end = begin + count * cut.unit_elements;
    assignments.push_back({box, member, begin, end});
    begin = end;
  }
  assignments.push_back({box, last_member, begin, elements});
}

// For each member, by ascending rank: the number of earlier members on the same host.
std::vector<uint32_t> turns_on_host(const std::vector<Rank>& ranks, const Roster& roster) {
  const std::vector<Run>& runs = roster.host_runs();
  const std::vector<uint32_t>& starts = roster.host_starts();
  std::vector<uint32_t> turns(ranks.size());
  // Counters by host. An array costs as much as there are hosts, a map as much as there are members.
  const bool use_array = ranks.size() >= roster.hosts() / 8;
  std::vector<uint32_t> met_array(use_array ? roster.hosts() : 0);
  std::map<uint32_t, uint32_t> met_map;
  uint32_t* met = nullptr;
  size_t run = 0;
  uint64_t run_end = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] >= run_end) {
      // Usually the next run; otherwise a binary search finds it.
      if (i == 0 || run + 1 == runs.size() || ranks[i] >= uint64_t{starts[run + 1]} + runs[run + 1].count) {
        run = static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), ranks[i]) - starts.begin()) -
              1;
      } else {
        ++run;
      }
      run_end = uint64_t{starts[run]} + runs[run].count;
      met = use_array ? &met_array[runs[run].value] : &met_map[runs[run].value];
    }
    turns[i] = (*met)++;
  }
  return turns;
}

}  // namespace

std::vector<Assignment> divide(std::span<const SharedBox> boxes, uint64_t members, uint64_t unit_bytes) {
  SHOAL_CHECK(members > 0);
  members = std::min(members, count_units(boxes, unit_bytes));
  std::vector<Assignment> assignments;
  assignments.reserve(boxes.size());
  Loads loads(members);
  for_each_unit(
      boxes, unit_bytes,
      [&](size_t i, uint64_t elements, const Cut& cut) {
        deal_runs(static_cast<uint32_t>(i), boxes[i].element_bytes, elements, cut, members, loads,
                  assignments);
      },
      [&](size_t first, size_t end, uint64_t bytes) {
        const uint32_t member = loads.take(bytes);
        for (size_t i = first; i < end; ++i) {
          assignments.push_back({static_cast<uint32_t>(i), member, 0, boxes[i].box->elements()});
        }
      });
  return assignments;
}

uint64_t count_units(std::span<const SharedBox> boxes, uint64_t unit_bytes) {
  uint64_t count = 0;
  for_each_unit(
      boxes, unit_bytes, [&](size_t, uint64_t, const Cut& cut) { count += cut.units; },
      [&](size_t, size_t, uint64_t) { ++count; });
  return count;
}

std::vector<Rank> first_members(const RankSet& group, const Roster& roster, uint64_t count) {
  const std::vector<Rank> ranks = group.ranks();
  count = std::min<uint64_t>(count, ranks.size());
  const std::vector<uint32_t> turns = turns_on_host(ranks, roster);
  // Where the members of each turn begin.
  std::vector<uint64_t> next(*std::max_element(turns.begin(), turns.end()) + 2, 0);
  for (uint32_t turn : turns) ++next[turn + 1];
  for (size_t turn = 1; turn < next.size(); ++turn) next[turn] += next[turn - 1];

  CanonicalBytes bytes;
  bytes.u32(group.lowest());
  bytes.u32(group.highest());
  bytes.u32(static_cast<uint32_t>(group.size()));
  const uint64_t rotation = bytes.hash_64() % ranks.size();
  std::vector<Rank> out(count);
  for (size_t i = 0; i < ranks.size(); ++i) {
    uint64_t place = next[turns[i]]++;
    place = place >= rotation ? place - rotation : place + ranks.size() - rotation;
    if (place < count) out[place] = ranks[i];
  }
  return out;
}

}  // namespace shoal::plan
