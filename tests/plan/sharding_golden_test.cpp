// Shards, compared with those of PyTorch (golden/sharding.txt, made by make_sharding_golden.py).
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "shoal/mesh.h"
#include "tests/plan/test_worlds.h"

namespace shoal::plan {
namespace {

std::vector<Placement> placements_of(const std::string& text) {
  std::vector<Placement> out;
  for (const std::string& part : split_text(text, ' ')) {
    if (part == "R") {
      out.push_back(Placement::replicate());
    } else if (part[0] == 'S') {
      out.push_back(Placement::shard(static_cast<uint32_t>(std::stoul(part.substr(1)))));
    } else {
      const size_t slash = part.find('/');
      out.push_back(Placement::strided_shard(static_cast<uint32_t>(std::stoul(part.substr(1, slash - 1))),
                                             std::stoull(part.substr(slash + 1))));
    }
  }
  return out;
}

std::vector<uint64_t> elements_of_ranges(const std::string& text) {
  std::vector<uint64_t> out;
  for (const std::string& part : split_text(text, ',')) {
    const size_t dash = part.find('-');
    const uint64_t first = std::stoull(part),
                   last = dash == std::string::npos ? first : std::stoull(part.substr(dash + 1));
    for (uint64_t i = first; i <= last; ++i) out.push_back(i);
  }
  return out;
}

// The local tensor, filled with the global numbers of its elements.
std::vector<uint64_t> local_tensor(const LocalShards& shards, const Dims& shape) {
  std::vector<uint64_t> out(element_count(shards.local_shape).value(), ~0ull);
  for (size_t i = 0; i < shards.boxes.size(); ++i) {
    std::vector<uint64_t> global;
    for_each_run(whole(shape), shards.boxes[i], [&](uint64_t at, uint64_t, uint64_t count) {
      for (uint64_t k = 0; k < count; ++k) global.push_back(at + k);
    });
    for_each_run(whole(shards.local_shape), shards.local[i],
                 [&](uint64_t at, uint64_t in_box, uint64_t count) {
                   for (uint64_t k = 0; k < count; ++k) out[at + k] = global[in_box + k];
                 });
  }
  return out;
}

TEST(ShardingGolden, ShardsAreThoseOfPyTorch) {
  std::ifstream in(SHOAL_PLAN_GOLDEN "/sharding.txt");
  ASSERT_TRUE(in.is_open());
  size_t cases = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    std::vector<std::string> fields = split_text(line, ';');
    ASSERT_EQ(fields.size(), 6u);
    const Dims shape = numbers_in(fields[0]);
    const Mesh mesh = Mesh::contiguous(numbers_in(fields[1]));
    const std::vector<Placement> placements = placements_of(fields[2]);
    ASSERT_TRUE(validate_placements(placements, mesh, shape).ok());
    const LocalShards shards = shards_at(shape, mesh, placements, numbers_in(fields[3]));
    ASSERT_EQ(shards.local_shape, numbers_in(fields[4]));
    ASSERT_EQ(local_tensor(shards, shape), elements_of_ranges(fields[5]));
    ++cases;
  }
  EXPECT_GT(cases, 900u);
}

}  // namespace
}  // namespace shoal::plan
