#include "base/paged_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

namespace shoal::base {
namespace {

// Keys of three kinds: dense, a page apart, at the end of the range.
uint32_t draw_key(std::mt19937& random) {
  const uint32_t number = random() % 500;
  switch (random() % 8) {
    case 0:
      return number * 64;
    case 1:
      return UINT32_MAX - number;
    default:
      return number;
  }
}

template <class One, class Other>
void expect_same(const One& paged, const Other& ordered) {
  ASSERT_EQ(paged.size(), ordered.size());
  ASSERT_EQ(paged.empty(), ordered.empty());
  auto each = paged.begin();
  for (const auto& expected : ordered) {
    ASSERT_FALSE(each == paged.end());
    ASSERT_TRUE(*each == expected);
    ++each;
  }
  ASSERT_TRUE(each == paged.end());
}

TEST(PagedMap, DoesWhatAnOrderedMapDoes) {
  std::mt19937 random(1);
  PagedMap<uint32_t, std::string> paged;
  std::map<uint32_t, std::string> ordered;
  for (int step = 0; step < 20'000; ++step) {
    const uint32_t key = draw_key(random);
    const std::string value = std::to_string(step) + " is long enough to have memory of its own";
    switch (random() % 6) {
      case 0:
        ASSERT_EQ(paged.try_emplace(key, value).second, ordered.try_emplace(key, value).second);
        break;
      case 1:
        paged.insert_or_assign(key, value), ordered.insert_or_assign(key, value);
        break;
      case 2:
        paged[key] += "x", ordered[key] += "x";
        break;
      case 3:
        ASSERT_EQ(paged.erase(key), ordered.erase(key) != 0);
        break;
      case 4: {
        ASSERT_EQ(paged.contains(key), ordered.contains(key));
        const auto one = paged.lower_bound(key);
        const auto other = ordered.lower_bound(key);
        ASSERT_EQ(one == std::as_const(paged).end(), other == ordered.end());
        if (other != ordered.end()) {
          ASSERT_EQ(one->first, other->first);
        }
        break;
      }
      default:
        if (random() % 100 != 0) break;
        paged.erase_from(key);
        ordered.erase(ordered.lower_bound(key), ordered.end());
    }
    if (step % 100 == 0) expect_same(paged, ordered);
  }
  expect_same(paged, ordered);
  PagedMap<uint32_t, std::string> moved(std::move(paged));
  expect_same(moved, ordered);
  for (auto each = moved.begin(); each != moved.end();) {
    each = each->first % 2 == 0 ? moved.erase(each) : std::next(each);
  }
  std::erase_if(ordered, [](const auto& each) { return each.first % 2 == 0; });
  expect_same(moved, ordered);
  moved.clear();
  EXPECT_TRUE(moved.empty());
  EXPECT_TRUE(moved.begin() == moved.end());
}

TEST(PagedMap, LeavesItsEntriesWhereTheyAre) {
  PagedMap<uint32_t, int> paged;
  const int* first = &paged.try_emplace(1000, 7).first->second;
  for (uint32_t key = 0; key < 5000; ++key) paged[key] += 1;
  EXPECT_EQ(first, &paged.at(1000));
  EXPECT_EQ(*first, 8);
}

TEST(PagedSet, DoesWhatAnOrderedSetDoes) {
  std::mt19937 random(2);
  PagedSet<uint64_t> paged;
  std::set<uint64_t> ordered;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t key = draw_key(random);
    if (random() % 2 == 0) {
      ASSERT_EQ(paged.insert(key), ordered.insert(key).second);
    } else {
      ASSERT_EQ(paged.erase(key), ordered.erase(key) != 0);
    }
    ASSERT_EQ(paged.contains(key), ordered.contains(key));
    if (step % 100 == 0) expect_same(paged, ordered);
  }
}

}  // namespace
}  // namespace shoal::base
