#include "base/flat_map.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>

namespace shoal::base {
namespace {

template <class Key>
void do_what_an_ordered_map_does(const std::vector<Key>& keys) {
  std::mt19937 random(1);
  FlatMap<Key, std::string> flat;
  std::map<Key, std::string> ordered;
  auto expect_same = [&] {
    ASSERT_EQ(flat.size(), ordered.size());
    ASSERT_EQ(flat.empty(), ordered.empty());
    auto each = flat.begin();
    for (const auto& [key, value] : ordered) {
      ASSERT_EQ(each->first, key);
      ASSERT_EQ(each->second, value);
      ++each;
    }
    ASSERT_TRUE(each == flat.end());
  };
  for (int step = 0; step < 5'000; ++step) {
    const Key& key = keys[random() % keys.size()];
    const std::string value = std::to_string(step) + " is long enough to have memory of its own";
    switch (random() % 5) {
      case 0:
        ASSERT_EQ(flat.try_emplace(key, value).second, ordered.try_emplace(key, value).second);
        break;
      case 1:
        flat[key] += "x", ordered[key] += "x";
        break;
      case 2:
        ASSERT_EQ(flat.erase(key), ordered.erase(key));
        break;
      case 3: {
        const auto place = flat.find(key);
        ASSERT_EQ(place == flat.end(), !ordered.contains(key));
        if (place != flat.end()) {
          const auto next = flat.erase(place);
          const auto after = ordered.erase(ordered.find(key));
          ASSERT_EQ(next == flat.end(), after == ordered.end());
        }
        break;
      }
      default:
        ASSERT_EQ(flat.contains(key), ordered.contains(key));
        if (ordered.contains(key)) {
          ASSERT_EQ(std::as_const(flat).at(key), ordered.at(key));
        }
    }
    expect_same();
  }
  flat.clear();
  EXPECT_TRUE(flat.empty());
}

TEST(FlatMap, DoesWhatAnOrderedMapDoes) {
  do_what_an_ordered_map_does<uint32_t>({8, 9, 10, 11, 12, 13, 14, 15});
  do_what_an_ordered_map_does<uint32_t>({0, 1, 2, 40, 41, 1000, UINT32_MAX - 1, UINT32_MAX});
  do_what_an_ordered_map_does<uint64_t>({0, 5, 6, 7, UINT64_MAX});
  do_what_an_ordered_map_does<int>({-3, -2, 0, 7});
  do_what_an_ordered_map_does<std::string>({"", "a", "ab", "b", "c"});
}

TEST(FlatMap, HoldsWhatCanOnlyBeMoved) {
  FlatMap<uint32_t, std::unique_ptr<int>> flat;
  for (uint32_t key : {5u, 1u, 3u}) flat.try_emplace(key, std::make_unique<int>(key));
  ASSERT_EQ(flat.size(), 3u);
  EXPECT_EQ(*flat.at(1), 1);
  EXPECT_EQ(*flat.at(5), 5);
  EXPECT_EQ(flat.find(2), flat.end());
}

}  // namespace
}  // namespace shoal::base
