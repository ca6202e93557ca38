#include "schema/checked_reader_internal.h"
#include "storage/decisions/file_entry_internal.h"

namespace shoal::storage {

namespace {

void write_box(schema::Box::Builder builder, const Box& box) {
  auto offsets = builder.initOffsets(static_cast<unsigned>(box.offsets.size()));
  auto sizes = builder.initSizes(static_cast<unsigned>(box.sizes.size()));
  for (unsigned i = 0; i < offsets.size(); ++i) offsets.set(i, box.offsets[i]);
  for (unsigned i = 0; i < sizes.size(); ++i) sizes.set(i, box.sizes[i]);
}

Result<Dims> read_dims(capnp::List<uint64_t>::Reader list) {
  SHOAL_RETURN_IF_ERROR(schema::bounded_size(list, kMaxDims, "dimensions").status());
  Dims dims;
  for (uint64_t number : list) dims.push_back(number);
  return dims;
}

Result<std::vector<FilePiece>> read_pieces(capnp::List<schema::FilePiece>::Reader listed) {
  std::vector<FilePiece> pieces;
  for (auto read : listed) {
    FilePiece piece;
    piece.fqn = schema::view_of(read.getFqn());
    piece.key = schema::view_of(read.getKey());
    SHOAL_ASSIGN_OR_RETURN(piece.box.offsets, read_dims(read.getBox().getOffsets()));
    SHOAL_ASSIGN_OR_RETURN(piece.box.sizes, read_dims(read.getBox().getSizes()));
    if (piece.key.empty()) return Status(Code::invalid_argument, "a piece has no key");
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace

void write_file_entry(schema::FileEntry::Builder builder, const FileEntry& file) {
  builder.setName(schema::text_of(file.name));
  builder.setSize(file.size);
  builder.setHeaderDigest(schema::data_of(file.header_digest));
  builder.setRank(file.rank);
  if (const uint32_t* index = std::get_if<uint32_t>(&file.contents)) {
    builder.getContents().setDerived(*index);
    return;
  }
  const auto& pieces = std::get<std::vector<FilePiece>>(file.contents);
  auto listed = builder.getContents().initListed(static_cast<unsigned>(pieces.size()));
  for (unsigned i = 0; i < listed.size(); ++i) {
    listed[i].setFqn(schema::text_of(pieces[i].fqn));
    listed[i].setKey(schema::text_of(pieces[i].key));
    write_box(listed[i].initBox(), pieces[i].box);
  }
}

Result<FileEntry> read_file_entry(schema::FileEntry::Reader reader) {
  FileEntry file;
  file.name = schema::view_of(reader.getName());
  if (file.name.empty()) return Status(Code::invalid_argument, "a file has no name");
  file.size = reader.getSize();
  SHOAL_ASSIGN_OR_RETURN(file.header_digest, Hash128::from_bytes(schema::view_of(reader.getHeaderDigest())));
  file.rank = reader.getRank();
  auto contents = reader.getContents();
  if (contents.isDerived()) {
    file.contents = contents.getDerived();
    return file;
  }
  if (!contents.isListed())
    return Status(Code::invalid_argument, "the contents of a file are of an unknown kind");
  SHOAL_ASSIGN_OR_RETURN(auto pieces, read_pieces(contents.getListed()));
  file.contents = std::move(pieces);
  return file;
}

}  // namespace shoal::storage
