// The table of a plan's pieces returns each piece as it was added.
#include "actors/loader/piece_table.h"

#include <gtest/gtest.h>

namespace shoal::actors {
namespace {

constexpr AttemptKey kTableKey{1, 5, 2};

operation::PiecePlace place(Rank rank, const std::string& piece_key) {
  return {rank, shard_file_name(rank, 0), 4096 + rank, xxh3_128(as_view(shard_file_name(rank, 0))),
          piece_key};
}

void expect_same(const operation::PiecePlace& a, const operation::PiecePlace& b) {
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.file_name, b.file_name);
  EXPECT_EQ(a.file_size, b.file_size);
  EXPECT_EQ(a.header_digest, b.header_digest);
  EXPECT_EQ(a.piece_key, b.piece_key);
}

void expect_same(const operation::PieceRef& a, const operation::PieceRef& b) {
  expect_same(static_cast<const operation::PiecePlace&>(a), static_cast<const operation::PiecePlace&>(b));
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.fqn, b.fqn);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.box, b.box);
  ASSERT_EQ(a.copies.size(), b.copies.size());
  for (size_t i = 0; i < a.copies.size(); ++i) expect_same(a.copies[i], b.copies[i]);
}

std::vector<operation::PieceRef> some_pieces() {
  using Kind = LayoutEntry::Kind;
  return {{place(0, "w"),
           kTableKey,
           "w",
           Kind::tensor,
           DType::f32,
           Box{{0, 0}, {4, 6}},
           {place(3, "w"), place(1, "w")}},
          {place(0, "w.2"), kTableKey, "w", Kind::tensor, DType::f32, Box{{4, 0}, {4, 6}}, {place(3, "w.7")}},
          {place(1, "scalar"), kTableKey, "scalar", Kind::tensor, DType::i64, Box{}, {}},
          {place(3, "o"), kTableKey, "o", Kind::object, DType::u8, Box{}, {}},
          {place(0, "v"), kTableKey, "v", Kind::tensor, DType::bf16, Box{{0, 7}, {4, 0}}, {}}};
}

TEST(PieceTable, TellsEachPieceAsItWasAdded) {
  PieceTable table(kTableKey);
  const std::vector<operation::PieceRef> pieces = some_pieces();
  for (const operation::PieceRef& piece : pieces) table.add(piece);
  ASSERT_EQ(table.size(), pieces.size());
  for (uint32_t i = 0; i < pieces.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(*table.ref(i), pieces[i]);
    EXPECT_EQ(table.file_name(i), pieces[i].file_name);
    EXPECT_EQ(table.piece_key(i), pieces[i].piece_key);
    EXPECT_EQ(table.box(i), pieces[i].box);
    for (uint32_t k = 0; k < i; ++k) {
      EXPECT_EQ(table.same_file(i, k), pieces[i].file_name == pieces[k].file_name);
    }
  }
}

TEST(PieceTable, GivesOneAndTheSameWhereThoseAreHeld) {
  PieceTable table(kTableKey);
  for (const operation::PieceRef& piece : some_pieces()) table.add(piece);
  EXPECT_NE(table.ref(1), table.ref(1));
  table.hold_refs();
  EXPECT_EQ(table.ref(1), table.ref(1));
  expect_same(*table.ref(1), some_pieces()[1]);
}

}  // namespace
}  // namespace shoal::actors
