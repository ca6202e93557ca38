// Loader: direct reads. A client reads files itself, by the names, places and digests that this node sends.
#include <utility>

#include "actors/loader/loader.h"
#include "base/digest/digest.h"

namespace shoal::actors {

namespace {

// Whole digest blocks of the read, or all of an empty read.
bool is_part_of(const PlannedRead& read, uint64_t begin, uint64_t end) {
  if (begin < read.begin || end > read.end || begin > end) return false;
  return begin % base::kDigestBlockBytes == 0 && (end % base::kDigestBlockBytes == 0 || end == read.end);
}

}  // namespace

void Loader::give_files(const LoadKey& id, Load& load, TimeNs now, EffectWriter& out) {
  while (load.own.has_next() && load.own.in_progress < kFilesBatches) {
    const uint32_t batch = load.own.next++;
    ++load.own.in_progress;
    load.busy.begin(now);
    operations_.start(operation::LocateRanges{id.first, load.own.batches->ranges_of(batch, 0)}, out,
                      [this, ref = ref_of(id), batch](TimeNs then_now, Result<LocatedRangesPtr> places,
                                                      EffectWriter& then_out) {
                        if (find(ref) != nullptr) located(then_now, ref.key, batch, places, then_out);
                      });
  }
}

void Loader::located(TimeNs now, const LoadKey& id, uint32_t batch, const Result<LocatedRangesPtr>& places,
                     EffectWriter& out) {
  Load& load = loads_.at(id);
  load.busy.end(now);
  if (load.has_failed()) return;
  const std::vector<PlannedRead> reads = load.batch(batch).reads;
  local::FilesToRead message{id.second, batch, {}, {}};
  std::vector<uint32_t> notified;
  for (uint32_t i = 0; i < reads.size(); ++i) {
    const PlannedRead& read = reads[i];
    if (!places.ok() || !(*places)->places.at(i).file) {
      load.unread.push_back(read);  // the node reads it, which names the damage or takes a copy
      continue;
    }
    const LocatedRanges::Place& place = (*places)->places[i];
    const uint64_t bytes = read.end - read.begin;
    message.ranges.push_back(
        {{read.target, load.own.batches->pieces().box(read.piece), read.begin, bytes, read.piece_bytes},
         *place.file,
         place.offset});
    load.times.bytes_read += bytes;
    notified.push_back(i);
  }
  if (notified.empty()) {
    --load.own.in_progress;
    return proceed(now, id, out);
  }
  message.files = (*places)->files;
  message.digests = (*places)->digests;
  load.given[batch] = std::move(notified);
  out.to_client(id.first, std::move(message));
}

void Loader::on_files_read(TimeNs now, const LoadKey& id, const local::FilesRead& received,
                           EffectWriter& out) {
  auto found = loads_.find(id);
  if (found == loads_.end()) return;
  Load& load = found->second;
  const auto given = load.given.extract(received.batch);
  if (given.empty()) return;  // the client does not have this batch
  --load.own.in_progress;
  const std::vector<PlannedRead> reads = load.batch(received.batch).reads;
  for (const local::UnreadRange& unread : received.unread) {
    const bool is_known = unread.range < given.mapped().size();
    if (!is_known || !is_part_of(reads[given.mapped()[unread.range]], unread.begin, unread.end)) {
      return fail(now, id,
                  Status(Code::invalid_argument,
                         "the client reports as unread a range that it was not asked to read"),
                  out);
    }
    PlannedRead& again = load.unread.emplace_back(reads[given.mapped()[unread.range]]);
    again.begin = unread.begin;
    again.end = unread.end;
    load.times.bytes_read -= unread.end - unread.begin;
  }
  proceed(now, id, out);
}

void Loader::read_unread(TimeNs now, const LoadKey& id, Load& load, EffectWriter& out) {
  load.reads_files = false;
  auto plan = std::make_shared<ReadPlan>();
  plan->pieces = load.own.batches->table();
  for (const PlannedRead& read : std::exchange(load.unread, {})) plan->reads.push_back(read);
  load.own = {};
  if (!load.has_window) return wait_for_window(id, load, std::move(plan));
  load.own.batches = config_.plans->batches(std::move(plan), load.part_bytes);
  proceed(now, id, out);
}

}  // namespace shoal::actors
