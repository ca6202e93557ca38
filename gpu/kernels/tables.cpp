#include "gpu/kernels/tables.h"

#include "base/digest/digest.h"
#include "gpu/dtype_conversion.h"
#include "shoal/check.h"

namespace shoal::gpu {

namespace {

uint64_t parts(uint64_t whole, uint64_t part) {
  return whole / part + (whole % part != 0);
}
uint64_t units_of(const RowCopy& piece) {
  return parts(piece.row_bytes * piece.rows, kRowCopyUnitBytes);
}
uint64_t leaves_of(const DigestPiece& piece) {
  return parts(piece.bytes, base::kDigestLeafBytes);
}
uint64_t units_of(const ConversionPiece& piece) {
  return parts(piece.elements, kConversionUnitElements);
}

}  // namespace

void append_row_copy(RowCopy piece, std::vector<RowCopy>* pieces) {
  if (piece.row_bytes == 0 || piece.rows == 0) return;
  SHOAL_CHECK(piece.rows <= (uint64_t{1} << 63) / piece.row_bytes);
  if (piece.source_stride == piece.row_bytes && piece.target_stride == piece.row_bytes) {
    piece.row_bytes *= piece.rows;
    piece.rows = 1;
  }
  piece.first_unit = table_of(*pieces).units;
  pieces->push_back(piece);
}

void append_row_copy(const RowCopy& piece, RowCopyList* list) {
  if (piece.row_bytes == 0 || piece.rows == 0) return;
  SHOAL_CHECK(list->count < RowCopyList::kMost);
  RowCopy& appended = list->pieces[list->count++] = piece;
  appended.first_unit = list->units;
  list->units += units_of(appended);
}

RowCopyTable table_of(const std::vector<RowCopy>& pieces) {
  if (pieces.empty()) return {};
  return {pieces.data(), static_cast<uint32_t>(pieces.size()),
          pieces.back().first_unit + units_of(pieces.back())};
}

void append_digest_piece(DigestPiece piece, std::vector<DigestPiece>* pieces) {
  if (piece.bytes == 0) return;
  const DigestTable before = table_of(*pieces);
  piece.first_leaf = before.leaves;
  piece.first_block = before.blocks;
  pieces->push_back(piece);
}

void append_digest_piece(const DigestPiece& piece, DigestList* list) {
  if (piece.bytes == 0) return;
  SHOAL_CHECK(list->count < DigestList::kMost);
  DigestPiece& appended = list->pieces[list->count++] = piece;
  appended.first_leaf = list->leaves;
  appended.first_block = list->blocks;
  list->leaves += leaves_of(appended);
  list->blocks += base::digest_count(appended.bytes);
}

DigestTable table_of(const std::vector<DigestPiece>& pieces) {
  if (pieces.empty()) return {};
  const DigestPiece& last = pieces.back();
  return {pieces.data(), static_cast<uint32_t>(pieces.size()), last.first_leaf + leaves_of(last),
          last.first_block + base::digest_count(last.bytes)};
}

void append_conversion(ConversionPiece piece, std::vector<ConversionPiece>* pieces) {
  SHOAL_CHECK(converts_between(piece.from, piece.to));
  if (piece.elements == 0) return;
  piece.first_unit = table_of(*pieces).units;
  pieces->push_back(piece);
}

ConversionTable table_of(const std::vector<ConversionPiece>& pieces) {
  if (pieces.empty()) return {};
  return {pieces.data(), static_cast<uint32_t>(pieces.size()),
          pieces.back().first_unit + units_of(pieces.back())};
}

}  // namespace shoal::gpu
