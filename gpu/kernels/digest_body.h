// The bodies of the two kernels that digest blocks. The first hashes leaves, one warp a leaf. The second
// combines the hashes of leaves to digests of blocks, one lane a block.
//
// A leaf is hashed in chunks of 1 KiB, which the warp loads at once: lane l loads the 16 bytes of column l %
// 4 in stripes l / 4 and 8 + l / 4. What the stripes of a chunk add to the accumulators may be added in any
// order, so that every lane adds up what its own words contribute. After a chunk the lanes' sums are added,
// which leaves one accumulator in each lane, and are scrambled there.
#pragma once

#include "base/digest/digest.h"
#include "gpu/kernels/memory.h"
#include "gpu/kernels/row_copy_body.h"
#include "gpu/kernels/tables.h"
#include "gpu/kernels/warp.h"
#include "gpu/kernels/xxh3.h"

namespace shoal::gpu {

// The hash of one leaf that is longer than kShortBytesMax.
template <class Warp>
class LeafHash {
 public:
  template <class T>
  using PerLane = typename Warp::template PerLane<T>;

  SHOAL_KERNEL LeafHash(const Warp& warp, const std::byte* source, std::byte* target, uint32_t bytes)
      : warp_(warp), source_(source), target_(target), bytes_(bytes) {}

  // The hash is lane 0's. If there is a target the leaf is copied to it.
  SHOAL_KERNEL PerLane<uint64_t> run() {
    warp_.each_lane([&](unsigned lane) {
      const unsigned key = stripe_of(lane) * 8 + column_of(lane) * 16;
      keys_[lane] = {
          {xxh3::secret(key), xxh3::secret(key + 8), xxh3::secret(key + 64), xxh3::secret(key + 72)},
          xxh3::secret(128 + 8 * accumulator_of(lane))};
      spread(lane, xxh3::first_accumulator(accumulator_of(lane)));
    });
    const uint64_t bases = address_of(source_) | (target_ == nullptr ? 0 : address_of(target_));
    const uint32_t chunks = (bytes_ - 1) / xxh3::kChunkBytes;
    switch (access_width(bases)) {
      case 16:
        add_chunks<16>(chunks);
        break;
      case 8:
        add_chunks<8>(chunks);
        break;
      case 4:
        add_chunks<4>(chunks);
        break;
      case 2:
        add_chunks<2>(chunks);
        break;
      default:
        add_chunks<1>(chunks);
        break;
    }
    add_rest(chunks * xxh3::kChunkBytes);
    return merged();
  }

 private:
  struct Keys {
    uint64_t value[4];  // of the lane's words: two in the lower half of a chunk, two in the upper half
    uint64_t scramble;
  };
  struct Sums {
    uint64_t even = 0;  // of accumulator 2 * column
    uint64_t odd = 0;   // of accumulator 2 * column + 1
  };

  SHOAL_KERNEL static unsigned column_of(unsigned lane) { return lane % 4; }
  SHOAL_KERNEL static unsigned stripe_of(unsigned lane) { return lane / 4; }
  // Which accumulator a lane holds after add_lanes().
  SHOAL_KERNEL static unsigned accumulator_of(unsigned lane) { return 2 * (lane % 4) + lane / 4 % 2; }

  // `accumulator` is the value of accumulator_of(lane), valid in lanes 0 to 7. Sets the sums of those lanes
  // to it, and all other sums to 0.
  SHOAL_KERNEL void spread(unsigned lane, uint64_t accumulator) {
    sums_[lane].even = lane < 4 ? accumulator : 0;
    sums_[lane].odd = lane >= 4 && lane < 8 ? accumulator : 0;
  }
  SHOAL_KERNEL void add_word(unsigned lane, Word16 word, uint64_t even_key, uint64_t odd_key) {
    sums_[lane].even += word.high + xxh3::keyed_product(word.low, even_key);
    sums_[lane].odd += word.low + xxh3::keyed_product(word.high, odd_key);
  }

  template <unsigned width>
  SHOAL_KERNEL void add_chunks(uint32_t chunks) {
    constexpr unsigned kHalf = xxh3::kChunkBytes / 2;
    PerLane<Word16> first{};  // the next chunk, loaded while the one before it is added
    PerLane<Word16> second{};
    const auto load_chunk = [&](uint32_t chunk) {
      warp_.each_lane([&](unsigned lane) {
        const std::byte* from = source_ + chunk * xxh3::kChunkBytes + lane * sizeof(Word16);
        first[lane] = load16<width>(from);
        second[lane] = load16<width>(from + kHalf);
      });
    };
    if (chunks > 0) load_chunk(0);
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const PerLane<Word16> low = first;
      const PerLane<Word16> high = second;
      if (chunk + 1 < chunks) load_chunk(chunk + 1);
      warp_.each_lane([&](unsigned lane) {
        if (target_ != nullptr) {
          std::byte* to = target_ + chunk * xxh3::kChunkBytes + lane * sizeof(Word16);
          store16<width>(to, low[lane]);
          store16<width>(to + kHalf, high[lane]);
        }
        const uint64_t* key = keys_[lane].value;
        add_word(lane, low[lane], key[0], key[1]);
        add_word(lane, high[lane], key[2], key[3]);
      });
      PerLane<uint64_t> accumulators = add_lanes();
      warp_.each_lane(
          [&](unsigned lane) { spread(lane, xxh3::scramble(accumulators[lane], keys_[lane].scramble)); });
    }
  }

  // The stripes after the last whole chunk, and the last 64 bytes, which may overlap them.
  SHOAL_KERNEL void add_rest(uint32_t begin) {
    if (target_ != nullptr) copy_span(warp_, target_ + begin, source_ + begin, bytes_ - begin);
    const uint32_t stripes = (bytes_ - 1 - begin) / xxh3::kStripeBytes;
    warp_.each_lane([&](unsigned lane) {
      const std::byte* column = source_ + begin + column_of(lane) * sizeof(Word16);
      const uint64_t* key = keys_[lane].value;
      const uint32_t stripe = stripe_of(lane);
      if (stripe < stripes) add_word(lane, load_any(column + stripe * xxh3::kStripeBytes), key[0], key[1]);
      if (stripe + 8 < stripes) {
        add_word(lane, load_any(column + (stripe + 8) * xxh3::kStripeBytes), key[2], key[3]);
      }
      if (stripe == 0) {
        const std::byte* last = source_ + bytes_ - xxh3::kStripeBytes + column_of(lane) * sizeof(Word16);
        const unsigned last_key = 192 - 64 - 7 + column_of(lane) * 16;
        add_word(lane, load_any(last), xxh3::secret(last_key), xxh3::secret(last_key + 8));
      }
    });
  }

  SHOAL_KERNEL static Word16 load_any(const std::byte* p) {
    return address_of(p) % sizeof(Word16) == 0 ? load16<16>(p) : load16<1>(p);
  }

  // Adds the lanes' sums. The first exchange leaves each lane one accumulator.
  SHOAL_KERNEL PerLane<uint64_t> add_lanes() {
    PerLane<uint64_t> kept{};
    PerLane<uint64_t> given{};
    warp_.each_lane([&](unsigned lane) {
      const bool keeps_odd = lane / 4 % 2 == 1;
      kept[lane] = keeps_odd ? sums_[lane].odd : sums_[lane].even;
      given[lane] = keeps_odd ? sums_[lane].even : sums_[lane].odd;
    });
    const PerLane<uint64_t> received = warp_.shuffle_xor(given, 4);
    warp_.each_lane([&](unsigned lane) { kept[lane] += received[lane]; });
    add_from(&kept, 8);
    add_from(&kept, 16);
    return kept;
  }

  SHOAL_KERNEL void add_from(PerLane<uint64_t>* values, unsigned mask) const {
    const PerLane<uint64_t> received = warp_.shuffle_xor(*values, mask);
    warp_.each_lane([&](unsigned lane) { (*values)[lane] += received[lane]; });
  }

  SHOAL_KERNEL PerLane<uint64_t> merged() {
    PerLane<uint64_t> result = add_lanes();
    const PerLane<uint64_t> odd = warp_.shuffle_xor(result, 4);
    warp_.each_lane([&](unsigned lane) {
      const unsigned key = 11 + 16 * (lane % 4);
      result[lane] = xxh3::fold_product(result[lane] ^ xxh3::secret(key), odd[lane] ^ xxh3::secret(key + 8));
    });
    add_from(&result, 1);
    add_from(&result, 2);
    warp_.each_lane(
        [&](unsigned lane) { result[lane] = xxh3::avalanche(result[lane] + bytes_ * xxh3::kPrime64_1); });
    return result;
  }

  const Warp& warp_;
  const std::byte* source_;
  std::byte* target_;
  uint32_t bytes_;
  PerLane<Keys> keys_{};
  PerLane<Sums> sums_{};
};

// Hashes leaf number warp.index() of the table; beyond the last leaf it does nothing.
template <class Warp>
SHOAL_KERNEL void hash_leaves(const Warp& warp, DigestTable table, uint64_t* leaf_hashes) {
  const uint64_t leaf = warp.index();
  if (leaf >= table.leaves) return;
  const DigestPiece& piece = entry_of(table.pieces, table.count, &DigestPiece::first_leaf, leaf);
  const uint64_t begin = (leaf - piece.first_leaf) * base::kDigestLeafBytes;
  uint64_t bytes = piece.bytes - begin;
  if (bytes > base::kDigestLeafBytes) bytes = base::kDigestLeafBytes;
  const std::byte* source = piece.source + begin;
  std::byte* target = piece.target == nullptr ? nullptr : piece.target + begin;
  if (bytes <= xxh3::kShortBytesMax) {
    if (target != nullptr) copy_span(warp, target, source, bytes);
    warp.each_lane([&](unsigned lane) {
      if (lane == 0) leaf_hashes[leaf] = xxh3::hash_short(source, static_cast<unsigned>(bytes));
    });
    return;
  }
  const auto hash = LeafHash<Warp>(warp, source, target, static_cast<uint32_t>(bytes)).run();
  warp.each_lane([&](unsigned lane) {
    if (lane == 0) leaf_hashes[leaf] = hash[lane];
  });
}

// Combines the leaves of 32 blocks, those from 32 * warp.index() on. hash_leaves must have run for the whole
// table.
template <class Warp>
SHOAL_KERNEL void combine_leaves(const Warp& warp, DigestTable table, const uint64_t* leaf_hashes,
                                 uint64_t* digests) {
  constexpr uint64_t kLeavesMax = base::kDigestBlockBytes / base::kDigestLeafBytes;
  static_assert(kLeavesMax * sizeof(uint64_t) <= xxh3::kShortBytesMax);
  warp.each_lane([&](unsigned lane) {
    const uint64_t block = warp.index() * kWarpLanes + lane;
    if (block >= table.blocks) return;
    const DigestPiece& piece = entry_of(table.pieces, table.count, &DigestPiece::first_block, block);
    const uint64_t first = (block - piece.first_block) * kLeavesMax;
    uint64_t leaves = (piece.bytes + base::kDigestLeafBytes - 1) / base::kDigestLeafBytes - first;
    if (leaves > kLeavesMax) leaves = kLeavesMax;
    const std::byte* hashes = reinterpret_cast<const std::byte*>(leaf_hashes + piece.first_leaf + first);
    digests[block] = xxh3::hash_short(hashes, static_cast<unsigned>(leaves * sizeof(uint64_t)));
  });
}

}  // namespace shoal::gpu
