#include "actors/chunk_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "actors/chunk.h"
#include "base/hash.h"

namespace shoal {

namespace {

// In this order pieces are read, on every host.
using PieceName = std::pair<std::string, std::string>;  // file, key in it

PieceName name_of(const PlannedRead& read) {
  return {read.piece->file_name, read.piece->piece_key};
}

struct Piece {
  PlannedRead sample;
  HostGroup hosts;
  std::set<size_t> users;
  std::vector<std::pair<uint64_t, uint64_t>> runs;
};

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

uint64_t number_of(const std::vector<PlannedRead>& reads) {
  std::string text = to_string(reads.front().piece->key);
  for (const PlannedRead& read : reads) {
    text += '\0' + read.piece->file_name + '\0' + read.piece->piece_key + '\0' + std::to_string(read.begin) +
            '\0' + std::to_string(read.end);
  }
  return xxh3_64(text);
}

uint64_t number_of_header(const PlannedRead& first) {
  const operation::PieceRef& piece = *first.piece;
  return xxh3_64(to_string(piece.key) + '\0' + '\0' + piece.file_name + '\0' + piece.piece_key + '\0' +
                 std::to_string(first.begin));
}

// Before the first chunk of each group that needs it, the header of each file. One host alone reads it when
// it opens the file.
void add_headers(ChunkPlan& plan) {
  std::vector<ChunkPlan::PlannedChunk> all;
  std::vector<uint64_t> headers(plan.groups.size());  // so far
  std::map<std::pair<uint32_t, std::string>, uint32_t> header_of;
  for (ChunkPlan::PlannedChunk& chunk : plan.chunks) {
    if (plan.groups[chunk.group] != nullptr) {
      for (const PlannedRead& read : chunk.reads) {
        auto [found, fresh] =
            header_of.try_emplace({chunk.group, read.piece->file_name}, static_cast<uint32_t>(all.size()));
        if (fresh) {
          ChunkPlan::PlannedChunk& header = all.emplace_back();
          header.group = chunk.group;
          header.ordinal = headers[chunk.group]++;
          header.number = number_of_header(read);
          header.bytes = kMaxPassedHeaderBytes;
          header.header_of = read.piece;
        }
        if (chunk.headers.empty() || chunk.headers.back() != found->second)
          chunk.headers.push_back(found->second);
      }
    }
    all.push_back(std::move(chunk));
  }
  plan.chunks = std::move(all);
}

// Where the runs of each piece lie in chunks, ascending by begin.
struct Place {
  uint64_t begin = 0, end = 0;
  uint32_t chunk = 0;
  uint64_t chunk_offset = 0;
};

}  // namespace

ChunkPlan plan_chunks(const std::vector<UserReads>& users) {
  std::map<PieceName, Piece> pieces;
  for (size_t user = 0; user < users.size(); ++user) {
    for (const PlannedRead& read : users[user].plan->reads) {
      auto [found, fresh] = pieces.try_emplace(name_of(read));
      Piece& piece = found->second;
      if (fresh) {
        piece.sample = read;
        piece.hosts = users[user].hosts[read.target];
      }
      piece.users.insert(user);
      piece.runs.emplace_back(read.begin, read.end);
    }
  }
  ChunkPlan plan;
  std::map<std::vector<uint32_t>, uint32_t> group_numbers;
  std::vector<std::vector<PlannedRead>> by_group;
  std::set<PieceName> shared;
  for (auto& [name, piece] : pieces) {
    if (piece.hosts == nullptr && piece.users.size() < 2) continue;
    shared.insert(name);
    merge_runs(piece.runs);
    auto [group, fresh] =
        group_numbers.try_emplace(piece.hosts == nullptr ? std::vector<uint32_t>() : *piece.hosts,
                                  static_cast<uint32_t>(by_group.size()));
    if (fresh) {
      by_group.emplace_back();
      plan.groups.push_back(piece.hosts);
    }
    for (const auto& [begin, end] : piece.runs) {
      PlannedRead read = piece.sample;
      read.begin = begin;
      read.end = end;
      by_group[group->second].push_back(std::move(read));
    }
  }
  for (uint32_t group = 0; group < by_group.size(); ++group) {
    uint64_t ordinal = 0;
    for (ReadBatchPlan& batch : make_batches(by_group[group], kChunkBytes)) {
      ChunkPlan::PlannedChunk chunk;
      chunk.group = group;
      chunk.ordinal = ordinal++;
      chunk.number = number_of(batch.reads);
      for (const PlannedRead& read : batch.reads) chunk.bytes += read.end - read.begin;
      chunk.reads = std::move(batch.reads);
      plan.chunks.push_back(std::move(chunk));
    }
  }
  auto first_of = [](const ChunkPlan::PlannedChunk& chunk) {
    const PlannedRead& read = chunk.reads.front();
    return std::tie(read.piece->file_name, read.piece->piece_key, read.begin);
  };
  std::sort(plan.chunks.begin(), plan.chunks.end(),
            [&](const auto& a, const auto& b) { return first_of(a) < first_of(b); });
  add_headers(plan);

  std::map<PieceName, std::vector<Place>> places;
  for (uint32_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    uint64_t offset = 0;
    for (const PlannedRead& read : plan.chunks[chunk].reads) {
      places[name_of(read)].push_back({read.begin, read.end, chunk, offset});
      offset += read.end - read.begin;
    }
  }
  for (auto& [name, of_piece] : places) {
    std::sort(of_piece.begin(), of_piece.end(),
              [](const Place& a, const Place& b) { return a.begin < b.begin; });
  }

  for (uint32_t user = 0; user < users.size(); ++user) {
    std::vector<PlannedRead> own, together;
    for (const PlannedRead& read : users[user].plan->reads) {
      (shared.contains(name_of(read)) ? together : own).push_back(read);
    }
    std::sort(together.begin(), together.end(), [](const PlannedRead& a, const PlannedRead& b) {
      return std::tie(a.piece->file_name, a.piece->piece_key, a.begin) <
             std::tie(b.piece->file_name, b.piece->piece_key, b.begin);
    });
    ChunkPlan::User planned;
    const uint64_t own_bytes = users[user].own_bytes != 0 ? users[user].own_bytes : users[user].part_bytes;
    planned.own = make_batches(own, own_bytes);
    planned.shared = make_batches(together, users[user].part_bytes);
    for (uint32_t batch = 0; batch < planned.shared.size(); ++batch) {
      std::vector<ChunkPlan::PartAt>& parts_of = planned.parts_of.emplace_back();
      const ReadBatchPlan& of_batch = planned.shared[batch];
      for (size_t i = 0; i < of_batch.reads.size(); ++i) {
        const PlannedRead& read = of_batch.reads[i];
        const std::vector<Place>& in_chunks = places.at(name_of(read));
        auto place = std::upper_bound(in_chunks.begin(), in_chunks.end(), read.begin,
                                      [](uint64_t at, const Place& each) { return at < each.begin; });
        if (place != in_chunks.begin()) --place;
        for (uint64_t at = read.begin; at < read.end; ++place) {
          SHOAL_CHECK(place != in_chunks.end() && place->begin <= at && at < place->end);
          const uint64_t end = std::min(read.end, place->end);
          std::vector<ChunkPlan::Part>& parts = plan.chunks[place->chunk].parts;
          parts_of.push_back({place->chunk, static_cast<uint32_t>(parts.size())});
          parts.push_back({user, batch, of_batch.offsets[i] + (at - read.begin),
                           place->chunk_offset + (at - place->begin), end - at});
          at = end;
        }
      }
    }
    plan.users.push_back(std::move(planned));
  }
  for (uint32_t chunk = 0; chunk < plan.chunks.size(); ++chunk) {
    plan.by_number.emplace_back(plan.chunks[chunk].number, chunk);
  }
  std::sort(plan.by_number.begin(), plan.by_number.end());
  return plan;
}

std::optional<uint32_t> ChunkPlan::find(uint64_t number) const {
  const auto found = std::lower_bound(by_number.begin(), by_number.end(), std::pair(number, uint32_t{0}));
  if (found == by_number.end() || found->first != number) return std::nullopt;
  return found->second;
}

}  // namespace shoal
