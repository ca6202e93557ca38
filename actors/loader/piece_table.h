// PieceTable: the stored pieces that a load reads, by number. It keeps all names in one buffer and all
// numbers in another, because a load may read hundreds of thousands of small tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/operation.h"
#include "shoal/page_buffer.h"

namespace shoal::actors {

class PieceTable {
 public:
  // All pieces are of this checkpoint.
  explicit PieceTable(const AttemptKey& key) : key_(key) {}

  const AttemptKey& key() const { return key_; }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  // The views stay valid until something is added.
  std::string_view file_name(uint32_t piece) const { return files_[entries_[piece].file].file_name; }
  std::string_view piece_key(uint32_t piece) const { return text(key_of(entries_[piece])); }
  bool same_file(uint32_t a, uint32_t b) const { return entries_[a].file == entries_[b].file; }
  Box box(uint32_t piece) const;
  // The piece as an argument of an operation. Creates a new one at each call, unless hold_refs() was called.
  std::shared_ptr<const operation::PieceRef> ref(uint32_t piece) const;

  // Room for so many pieces and so many bytes of names in all.
  void reserve(size_t pieces, size_t name_bytes);
  // Adds a piece. add_copy() adds a copy of the last piece.
  uint32_t add(const operation::PiecePlace& place, std::string_view fqn, LayoutEntry::Kind kind, DType dtype,
               const Box& box);
  void add_copy(const operation::PiecePlace& place);
  uint32_t add(const operation::PieceRef& piece);
  // From now on ref() always returns the same objects, for a host that shares the table among many nodes.
  // Nothing may be added afterwards. No other thread may use the table during this call.
  void hold_refs() const;

 private:
  struct Name {
    uint64_t at = 0;  // index into names_
    uint16_t bytes = 0;
  };
  struct Entry {
    uint64_t name_at = 0;     // of the fqn, which the key follows if it differs
    uint32_t numbers_at = 0;  // the sizes of the box, then its offsets unless all are 0
    uint32_t file = 0, first_copy = 0;
    uint16_t fqn_bytes = 0, key_bytes = 0;  // key_bytes 0: the key is the fqn
    uint8_t dims = 0, copies = 0;
    LayoutEntry::Kind kind = LayoutEntry::Kind::tensor;
    DType dtype = DType::u8;
    bool is_at_origin = false;
  };
  struct Copy {
    uint32_t file = 0;
    Name key;
  };

  std::string_view text(const Name& name) const { return {names_.data() + name.at, name.bytes}; }
  static Name fqn_of(const Entry& entry) { return {entry.name_at, entry.fqn_bytes}; }
  static Name key_of(const Entry& entry) {
    if (entry.key_bytes == 0) return fqn_of(entry);
    return {entry.name_at + entry.fqn_bytes, entry.key_bytes};
  }
  operation::PiecePlace place(uint32_t file, std::string_view piece_key) const;
  uint32_t number_of(const operation::PiecePlace& file);
  Name add_name(std::string_view name);

  AttemptKey key_;
  PagedVector<Entry> entries_;
  PagedVector<Copy> copies_;
  PagedVector<char> names_;
  PagedVector<uint64_t> numbers_;
  std::vector<operation::PiecePlace> files_;  // without keys
  std::map<std::string, uint32_t> file_numbers_;
  mutable std::vector<std::shared_ptr<const operation::PieceRef>> refs_;  // filled by hold_refs()
};

}  // namespace shoal::actors
