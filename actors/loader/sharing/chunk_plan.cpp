#include "actors/loader/sharing/chunk_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "actors/messages/chunk.h"
#include "shoal/hash.h"

namespace shoal::actors {

namespace {

constexpr uint32_t kReadsItself = ~uint32_t{0};  // a piece that only one user of this host reads

// Every host reads pieces in the order of these names.
using PieceName = std::pair<std::string_view, std::string_view>;  // file, key in it

PieceName name_of(const PieceTable& pieces, uint32_t piece) {
  return {pieces.file_name(piece), pieces.piece_key(piece)};
}

void merge_runs(std::vector<std::pair<uint64_t, uint64_t>>& runs) {
  std::sort(runs.begin(), runs.end());
  size_t last = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[i].first <= runs[last].second) {
      runs[last].second = std::max(runs[last].second, runs[i].second);
    } else {
      runs[++last] = runs[i];
    }
  }
  if (!runs.empty()) runs.resize(last + 1);
}

uint64_t number_of(const PieceTable& pieces, const std::vector<PlannedRead>& reads) {
  std::string text = to_string(pieces.key());
  for (const PlannedRead& read : reads) {
    const auto [file, key] = name_of(pieces, read.piece);
    text.append(1, '\0').append(file).append(1, '\0').append(key);
    text += '\0' + std::to_string(read.begin) + '\0' + std::to_string(read.end);
  }
  return xxh3_64(text);
}

uint64_t number_of_header(const PieceTable& pieces, const PlannedRead& first) {
  const auto [file, key] = name_of(pieces, first.piece);
  std::string text = to_string(pieces.key());
  text.append(2, '\0').append(file).append(1, '\0').append(key);
  return xxh3_64(text + '\0' + std::to_string(first.begin));
}

// The header of a file comes this many chunks of its group before the first that needs it, so that it has
// passed down the tree by then. A file that only one host reads has no such chunk: opening the file reads its
// header.
constexpr size_t kHeadersAhead = 16;

void add_headers(ChunkPlan& plan) {
  struct Header {
    ChunkPlan::PlannedChunk chunk;
    uint32_t place = 0;  // index in the final list of chunks
  };
  std::vector<Header> headers;
  std::vector<std::vector<uint32_t>> before(plan.chunks.size());  // headers before each chunk
  std::vector<std::vector<uint32_t>> of_group(plan.groups.size());
  std::vector<uint64_t> ordinals(plan.groups.size());
  std::map<std::pair<uint32_t, std::string_view>, uint32_t> header_of;
  for (uint32_t at = 0; at < plan.chunks.size(); ++at) {
    ChunkPlan::PlannedChunk& chunk = plan.chunks[at];
    if (plan.groups[chunk.group] == nullptr) continue;
    std::vector<uint32_t>& chunks = of_group[chunk.group];
    chunks.push_back(at);
    for (const PlannedRead& read : chunk.reads) {
      auto [found, fresh] = header_of.try_emplace({chunk.group, plan.pieces->file_name(read.piece)},
                                                  static_cast<uint32_t>(headers.size()));
      if (fresh) {
        ChunkPlan::PlannedChunk& header = headers.emplace_back().chunk;
        header.group = chunk.group;
        header.ordinal = ordinals[chunk.group]++;
        header.number = number_of_header(*plan.pieces, read);
        header.bytes = kMaxPassedHeaderBytes;
        header.header_of = read.piece;
        before[chunks[chunks.size() - std::min(chunks.size(), kHeadersAhead + 1)]].push_back(found->second);
      }
      if (chunk.headers.empty() || chunk.headers.back() != found->second)
        chunk.headers.push_back(found->second);
    }
  }
  std::vector<ChunkPlan::PlannedChunk> all;
  for (uint32_t at = 0; at < plan.chunks.size(); ++at) {
    for (uint32_t header : before[at]) {
      headers[header].place = static_cast<uint32_t>(all.size());
      all.push_back(std::move(headers[header].chunk));
    }
    for (uint32_t& header : plan.chunks[at].headers) header = headers[header].place;
    all.push_back(std::move(plan.chunks[at]));
  }
  plan.chunks = std::move(all);
}

// A host reads several chunks at once, and slow storage completes them all at about the same time. With this
// many chunks a host can send the first ones while it reads the others.
constexpr uint64_t kChunksPerHost = 8;

uint64_t chunk_bytes_of(const PlannedReads& reads, const HostGroup& hosts) {
  uint64_t bytes = 0;
  for (const PlannedRead& read : reads) bytes += read.end - read.begin;
  const uint64_t blocks =
      bytes / ((hosts == nullptr ? 1 : hosts->size()) * kChunksPerHost) / base::kDigestBlockBytes;
  return std::clamp(blocks * base::kDigestBlockBytes, base::kDigestBlockBytes, kChunkBytes);
}

class ChunkPlanner {
 public:
  explicit ChunkPlanner(const std::vector<UserReads>& users) : users_(users) {}

  ChunkPlan plan() {
    find_shared();
    cut_chunks();
    add_headers(plan_);
    find_places();
    for (uint32_t user = 0; user < users_.size(); ++user) add_user(user);
    for (uint32_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) {
      plan_.by_number.emplace_back(plan_.chunks[chunk].number, chunk);
    }
    std::sort(plan_.by_number.begin(), plan_.by_number.end());
    return std::move(plan_);
  }

 private:
  struct Want {
    uint32_t user = 0;
    uint32_t read = 0;  // index into the reads of its plan
  };
  // Where the runs of each piece are in chunks.
  struct Place {
    uint32_t piece = 0, chunk = 0;
    uint64_t begin = 0, end = 0;
    uint64_t chunk_offset = 0;
  };

  const PlannedRead& read_of(const Want& want) const { return users_[want.user].plan->reads[want.read]; }
  PieceName name_of_want(const Want& want) const {
    return name_of(*users_[want.user].plan->pieces, read_of(want).piece);
  }

  // Finds the pieces that several users or hosts read, in the order of names, and their runs by group.
  void find_shared() {
    PagedVector<Want> wants;
    for (uint32_t user = 0; user < users_.size(); ++user) {
      const ReadPlan& plan = *users_[user].plan;
      if (!pieces_ && plan.pieces) pieces_ = std::make_shared<PieceTable>(plan.pieces->key());
      numbers_.emplace_back(plan.pieces ? plan.pieces->size() : 0, kReadsItself);
      for (uint32_t read = 0; read < plan.reads.size(); ++read) wants.push_back({user, read});
    }
    std::sort(wants.begin(), wants.end(), [&](const Want& a, const Want& b) {
      const int order = name_of_want(a).first.compare(name_of_want(b).first);
      const int by_key = order != 0 ? order : name_of_want(a).second.compare(name_of_want(b).second);
      return by_key != 0 ? by_key < 0 : std::tie(a.user, a.read) < std::tie(b.user, b.read);
    });
    for (size_t first = 0, end = 0; first < wants.size(); first = end) {
      const PieceName name = name_of_want(wants[first]);
      while (end < wants.size() && name_of_want(wants[end]) == name) ++end;
      add_piece(std::span<const Want>(wants).subspan(first, end - first));
    }
    plan_.pieces = pieces_;
  }

  void add_piece(std::span<const Want> wants) {
    const PlannedRead& sample = read_of(wants.front());
    const HostGroup& hosts = users_[wants.front().user].hosts[sample.target];
    if (hosts == nullptr && wants.front().user == wants.back().user) return;
    const uint32_t number = pieces_->add(*users_[wants.front().user].plan->pieces->ref(sample.piece));
    std::vector<std::pair<uint64_t, uint64_t>> runs;
    for (const Want& want : wants) {
      const PlannedRead& read = read_of(want);
      numbers_[want.user][read.piece] = number;
      runs.emplace_back(read.begin, read.end);
    }
    merge_runs(runs);
    auto [group, fresh] = group_numbers_.try_emplace(hosts == nullptr ? std::vector<uint32_t>() : *hosts,
                                                     static_cast<uint32_t>(by_group_.size()));
    if (fresh) {
      by_group_.emplace_back();
      plan_.groups.push_back(hosts);
    }
    for (const auto& [begin, end] : runs) {
      by_group_[group->second].push_back({0, number, sample.piece_bytes, begin, end});
    }
  }

  void cut_chunks() {
    for (uint32_t group = 0; group < by_group_.size(); ++group) {
      const uint64_t chunk_bytes = chunk_bytes_of(by_group_[group], plan_.groups[group]);
      const ReadBatches batches(plan_.pieces, std::move(by_group_[group]), chunk_bytes);
      for (size_t batch = 0; batch < batches.size(); ++batch) {
        ChunkPlan::PlannedChunk chunk;
        chunk.group = group;
        chunk.ordinal = batch;
        chunk.reads = batches[batch].reads;
        chunk.number = number_of(*plan_.pieces, chunk.reads);
        for (const PlannedRead& read : chunk.reads) chunk.bytes += read.end - read.begin;
        plan_.chunks.push_back(std::move(chunk));
      }
    }
    // Pieces are numbered in the order of names.
    auto first_of = [](const ChunkPlan::PlannedChunk& chunk) {
      return std::pair(chunk.reads.front().piece, chunk.reads.front().begin);
    };
    std::sort(plan_.chunks.begin(), plan_.chunks.end(),
              [&](const auto& a, const auto& b) { return first_of(a) < first_of(b); });
  }

  void find_places() {
    for (uint32_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) {
      uint64_t offset = 0;
      for (const PlannedRead& read : plan_.chunks[chunk].reads) {
        places_.push_back({read.piece, chunk, read.begin, read.end, offset});
        offset += read.end - read.begin;
      }
    }
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
      return std::tie(a.piece, a.begin) < std::tie(b.piece, b.begin);
    });
  }

  void add_user(uint32_t user) {
    const ReadPlan& plan = *users_[user].plan;
    const std::vector<uint32_t>& numbers = numbers_[user];
    const uint64_t own_bytes = users_[user].own_bytes != 0 ? users_[user].own_bytes : users_[user].part_bytes;
    if (std::ranges::all_of(numbers, [](uint32_t number) { return number == kReadsItself; })) {
      plan_.users.push_back({ReadBatches(users_[user].plan, own_bytes), {}, {}});
      return;
    }
    PlannedReads own, together;
    for (const PlannedRead& read : plan.reads)
      (numbers[read.piece] == kReadsItself ? own : together).push_back(read);
    std::sort(together.begin(), together.end(), [&](const PlannedRead& a, const PlannedRead& b) {
      return std::tie(numbers[a.piece], a.begin) < std::tie(numbers[b.piece], b.begin);
    });
    ChunkPlan::User planned;
    planned.own = ReadBatches(plan.pieces, std::move(own), own_bytes);
    planned.shared = ReadBatches(plan.pieces, std::move(together), users_[user].part_bytes);
    for (uint32_t batch = 0; batch < planned.shared.size(); ++batch) {
      std::vector<ChunkPlan::PartAt>& parts_of = planned.parts_of.emplace_back();
      const ReadBatchPlan of_batch = planned.shared[batch];
      for (size_t i = 0; i < of_batch.reads.size(); ++i) {
        const PlannedRead& read = of_batch.reads[i];
        add_parts({user, batch, of_batch.offsets[i], 0, 0}, numbers[read.piece], read, parts_of);
      }
    }
    plan_.users.push_back(std::move(planned));
  }

  // Adds the parts of chunks that make up a read, whose first byte is at `first.batch_offset`.
  void add_parts(const ChunkPlan::Part& first, uint32_t piece, const PlannedRead& read,
                 std::vector<ChunkPlan::PartAt>& parts_of) {
    auto place = std::upper_bound(places_.begin(), places_.end(), std::pair(piece, read.begin),
                                  [](const std::pair<uint32_t, uint64_t>& at, const Place& each) {
                                    return at < std::pair(each.piece, each.begin);
                                  });
    if (place != places_.begin()) --place;
    for (uint64_t at = read.begin; at < read.end; ++place) {
      SHOAL_CHECK(place != places_.end() && place->piece == piece && place->begin <= at && at < place->end);
      const uint64_t end = std::min(read.end, place->end);
      std::vector<ChunkPlan::Part>& parts = plan_.chunks[place->chunk].parts;
      parts_of.push_back({place->chunk, static_cast<uint32_t>(parts.size())});
      parts.push_back({first.user, first.batch, first.batch_offset + (at - read.begin),
                       place->chunk_offset + (at - place->begin), end - at});
      at = end;
    }
  }

  const std::vector<UserReads>& users_;
  ChunkPlan plan_;
  std::shared_ptr<PieceTable> pieces_;  // nullptr: there is nothing to read
  std::vector<std::vector<uint32_t>>
      numbers_;  // by user: number of each of its pieces in pieces_, or kReadsItself
  std::map<std::vector<uint32_t>, uint32_t> group_numbers_;
  std::vector<PlannedReads> by_group_;
  PagedVector<Place> places_;  // ascending by piece and begin
};

}  // namespace

ChunkPlan plan_chunks(const std::vector<UserReads>& users) {
  return ChunkPlanner(users).plan();
}

std::optional<uint32_t> ChunkPlan::find(uint64_t number) const {
  const auto found = std::lower_bound(by_number.begin(), by_number.end(), std::pair(number, uint32_t{0}));
  if (found == by_number.end() || found->first != number) return std::nullopt;
  return found->second;
}

}  // namespace shoal::actors
