#include "sim/failures/hazards.h"

#include <algorithm>

#include "actors/operation_traits.h"
#include "sim/basics/integer_math.h"

namespace shoal::sim {

void Hazards::begin(const Failure& failure, actors::TimeNs now) {
  const Active active{failure, now, now + nanoseconds(failure.for_ms)};
  const bool is_link = is_of_link(failure.kind);  // the others are failures of a disk
  std::vector<Active>& list = is_link ? links_ : disks_;
  std::erase_if(list, [&](const Active& each) { return each.until <= now; });
  list.push_back(active);
  actors::TimeNs& until = is_link ? links_until_ : disks_until_;
  // After the failure's end, delayed messages are still held back and must not be overtaken.
  until = std::max(until, active.until + (is_link ? nanoseconds(failure.by_ms) : 0));
}

Hazards::Passage Hazards::pass(size_t from, size_t to, actors::TimeNs now) {
  Passage passage;
  passage.leaves = now;
  bool overtakes = false;
  actors::TimeNs* behind = nullptr;
  if (auto held = held_until_.find({from, to}); held != held_until_.end()) behind = &held->second;
  for (const Active& active : links_) {
    if (now >= active.until || !touches(active, from, to) || !happens(active.failure)) continue;
    const actors::TimeNs by = nanoseconds(active.failure.by_ms);
    switch (active.failure.kind) {
      case Failure::Kind::cut:
      case Failure::Kind::loses:
        passage.is_lost = true;
        break;
      case Failure::Kind::delays:
        passage.leaves += by;
        behind = &held_until_[{from, to}];
        break;
      case Failure::Kind::doubles:
        passage.again = now + static_cast<actors::TimeNs>(random_.below(static_cast<uint64_t>(by)));
        break;
      default:
        overtakes = true;
        passage.leaves += static_cast<actors::TimeNs>(random_.below(static_cast<uint64_t>(by)));
    }
  }
  if (behind != nullptr && !overtakes) passage.leaves = *behind = std::max(*behind, passage.leaves);
  if (passage.again) passage.again = std::max(*passage.again, passage.leaves);
  return passage;
}

bool Hazards::is_cut(size_t from, size_t to, actors::TimeNs now) const {
  return cut_since(from, to, now).has_value();
}

std::optional<actors::TimeNs> Hazards::cut_since(size_t from, size_t to, actors::TimeNs now) const {
  std::optional<actors::TimeNs> since;
  if (now >= links_until_) return since;
  for (const Active& active : links_) {
    if (active.failure.kind != Failure::Kind::cut || now >= active.until || !touches(active, from, to))
      continue;
    since = std::min(since.value_or(active.since), active.since);
  }
  return since;
}

uint64_t Hazards::slowness(size_t host, actors::TimeNs now) const {
  uint64_t factor = 1;
  if (now >= disks_until_) return factor;
  for (const Active& active : disks_) {
    const bool is_here = active.failure.kind == Failure::Kind::disk_slow && now < active.until &&
                         is_one_of_hosts(host, active.failure.host, active.failure.hosts);
    if (is_here) factor = std::max(factor, active.failure.factor);
  }
  return factor;
}

std::optional<Hazards::Hang> Hazards::hang(size_t host, actors::TimeNs now) const {
  std::optional<Hang> hang;
  if (now >= disks_until_) return hang;
  for (const Active& active : disks_) {
    const bool is_here = active.failure.kind == Failure::Kind::disk_hangs && now < active.until &&
                         is_one_of_hosts(host, active.failure.host, active.failure.hosts);
    if (!is_here) continue;
    if (!hang) hang = Hang{active.since, active.until};
    hang = Hang{std::min(hang->since, active.since), std::max(hang->until, active.until)};
  }
  return hang;
}

Status Hazards::try_operation(size_t host, const actors::Operation& operation, actors::TimeNs now) {
  if (now >= disks_until_) return ok_status();
  for (const Active& active : disks_) {
    const Failure& failure = active.failure;
    if (now >= active.until || !is_one_of_hosts(host, failure.host, failure.hosts)) continue;
    const actors::OperationTraits traits = actors::traits_of(operation);
    const std::string what = "host " + std::to_string(host) + ": " + std::string(traits.name);
    if (failure.kind == Failure::Kind::disk_full && traits.creates_files) {
      return Status(Code::no_space, what + ": the disk is full");
    }
    const bool fails =
        failure.kind == Failure::Kind::disk_fails ||
        (failure.kind == Failure::Kind::reads_fail && traits.root_use == actors::RootUse::reads);
    if (fails && happens(failure)) {
      return Status(Code::io, what + ": the disk fails");
    }
  }
  return ok_status();
}

std::optional<Hazards::LostWrite> Hazards::lost_write(size_t host, actors::TimeNs now) {
  if (now >= disks_until_) return std::nullopt;
  for (const Active& active : disks_) {
    const Failure& failure = active.failure;
    const bool is_here = failure.kind == Failure::Kind::disk_loses && now < active.until &&
                         is_one_of_hosts(host, failure.host, failure.hosts);
    if (is_here && happens(failure)) {
      return random_.below(2) == 0 ? LostWrite::missing : LostWrite::too_short;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> Hazards::corrupt_bit(size_t host, uint64_t bits, actors::TimeNs now) {
  if (now >= disks_until_ || bits == 0) return std::nullopt;
  for (const Active& active : disks_) {
    const Failure& failure = active.failure;
    const bool is_here = failure.kind == Failure::Kind::corrupts && now < active.until &&
                         is_one_of_hosts(host, failure.host, failure.hosts);
    if (is_here && happens(failure)) return random_.below(bits);
  }
  return std::nullopt;
}

}  // namespace shoal::sim
