// Large files bypass the page cache. The file system of the tests is as strict about alignment as a disk, and
// fails where a test requests it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "storage/files/local_storage.h"
#include "storage/files/write_behind.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {
namespace {

using ::testing::HasSubstr;

struct DirectDisk {  // what the files of one test share
  bool can_direct = true;
  int error_number = 0;  // what the direct write at `error_offset` answers
  uint64_t error_offset = 0;
  uint64_t short_offset = UINT64_MAX;  // the direct write that is cut in half
  std::atomic<int> direct_writes{0};
  std::atomic<int> misaligned{0};
  ByteView kept;  // the bytes that a test has kept, and how many direct writes took from there
  std::atomic<uint64_t> bytes_from_kept{0};
};

class DirectFile final : public OpenFile {
 public:
  DirectFile(std::unique_ptr<OpenFile> file, DirectDisk& disk) : file_(std::move(file)), disk_(disk) {}
  int size(uint64_t* bytes) override { return file_->size(bytes); }
  int read_at(uint64_t offset, MutableByteView out, size_t* done) override {
    return file_->read_at(offset, out, done);
  }
  int write_at(uint64_t offset, ByteView data, size_t* done) override {
    if (is_direct_) {
      ++disk_.direct_writes;
      const uint64_t all = offset | data.size() | reinterpret_cast<uintptr_t>(data.data());
      if (all % kDirectAlignmentBytes != 0) {
        ++disk_.misaligned;
        return EINVAL;
      }
      if (disk_.error_number != 0 && offset == disk_.error_offset) return disk_.error_number;
      if (data.data() >= disk_.kept.data() && data.data() < disk_.kept.data() + disk_.kept.size()) {
        disk_.bytes_from_kept += data.size();
      }
      if (offset == disk_.short_offset) data = data.first(data.size() / 2 + 17);
    }
    return file_->write_at(offset, data, done);
  }
  int sync() override { return file_->sync(); }
  void start_writeback(uint64_t offset, uint64_t bytes) override { file_->start_writeback(offset, bytes); }
  int set_direct(bool is_direct) override {
    if (is_direct && !disk_.can_direct) return EINVAL;
    is_direct_ = is_direct;
    return 0;
  }

 private:
  std::unique_ptr<OpenFile> file_;
  DirectDisk& disk_;
  std::atomic<bool> is_direct_ = false;
};

// The real file system, with files such as above.
class DirectFolder final : public OpenFolder {
 public:
  DirectFolder(std::unique_ptr<OpenFolder> folder, DirectDisk& disk)
      : folder_(std::move(folder)), disk_(disk) {}
  int is_same(OpenFolder& other, bool* same) override {
    return folder_->is_same(*static_cast<DirectFolder&>(other).folder_, same);
  }
  int open_folder(const std::string& name, std::unique_ptr<OpenFolder>* folder) override {
    const int number = folder_->open_folder(name, folder);
    if (number == 0) *folder = std::make_unique<DirectFolder>(std::move(*folder), disk_);
    return number;
  }
  int make_folder(const std::string& name) override { return folder_->make_folder(name); }
  int open_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
    return folder_->open_file(name, file);
  }
  int create_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
    const int number = folder_->create_file(name, file);
    if (number == 0) *file = std::make_unique<DirectFile>(std::move(*file), disk_);
    return number;
  }
  int link(const std::string& from, const std::string& to) override { return folder_->link(from, to); }
  int rename(const std::string& from, const std::string& to) override { return folder_->rename(from, to); }
  int remove_file(const std::string& name) override { return folder_->remove_file(name); }
  int remove_folder(const std::string& name) override { return folder_->remove_folder(name); }
  int list(std::vector<FolderEntry>* entries) override { return folder_->list(entries); }
  int sync() override { return folder_->sync(); }
  int free_space(uint64_t* bytes) override { return folder_->free_space(bytes); }

 private:
  std::unique_ptr<OpenFolder> folder_;
  DirectDisk& disk_;
};

class DirectFileSystem final : public FileSystem {
 public:
  explicit DirectFileSystem(DirectDisk& disk) : disk_(disk) {}
  int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) override {
    const int number = posix_.open_root(path, folder);
    if (number == 0) *folder = std::make_unique<DirectFolder>(std::move(*folder), disk_);
    return number;
  }

 private:
  PosixFileSystem posix_;
  DirectDisk& disk_;
};

Bytes pattern(size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 2654435761u >> 15);
  return data;
}

class DirectWrite : public ::testing::Test {
 protected:
  DirectWrite() : file_system_(disk_) {
    auto opened = LocalStorage::open(file_system_, folder_.path(), random_128());
    SHOAL_CHECK(opened.ok());
    storage_ = std::move(opened).value();
  }

  // Appends in uneven parts, patches the beginning, publishes.
  Status write(const Bytes& data) {
    SHOAL_ASSIGN_OR_RETURN(auto file, storage_->create("a/large", nonce_of(1), data.size()));
    size_t step = 1;
    for (ByteView left = data; !left.empty();) {
      const ByteView part = left.first(std::min(left.size(), step));
      SHOAL_RETURN_IF_ERROR(file->append(part));
      left = left.subspan(part.size());
      step = step * 3 % 3'000'001 + 1;
    }
    SHOAL_RETURN_IF_ERROR(file->patch(5, as_view("patched")));
    return file->publish().status();
  }
  void expect_written(Bytes data) {
    std::memcpy(data.data() + 5, "patched", 7);
    auto read = storage_->read("a/large", data.size() + 1);
    ASSERT_OK(read.status());
    EXPECT_TRUE(*read == data);
  }

  MemoryFolder folder_;
  DirectDisk disk_;
  DirectFileSystem file_system_;
  std::unique_ptr<LocalStorage> storage_;
};

constexpr size_t kLarge = 5 * kWriteBehindChunkBytes + 3 * kDirectAlignmentBytes + 1234;

TEST_F(DirectWrite, WritesLargeFilesInAlignedChunksAndTheRestThroughTheCache) {
  for (size_t bytes : {kLarge, 4 * kWriteBehindChunkBytes, 4 * kWriteBehindChunkBytes + 1}) {
    disk_.direct_writes = 0;
    ASSERT_OK(write(pattern(bytes)));
    expect_written(pattern(bytes));
    EXPECT_GE(disk_.direct_writes, 4);
    EXPECT_EQ(disk_.misaligned, 0);
    ASSERT_OK(storage_->remove("a/large"));
  }
}

TEST_F(DirectWrite, WritesSmallFilesAndThoseOfOtherFileSystemsThroughTheCache) {
  ASSERT_OK(write(pattern(1 << 20)));
  expect_written(pattern(1 << 20));
  ASSERT_OK(storage_->remove("a/large"));
  disk_.can_direct = false;
  ASSERT_OK(write(pattern(kLarge)));
  expect_written(pattern(kLarge));
  EXPECT_EQ(disk_.direct_writes, 0);
}

TEST_F(DirectWrite, GoesOnThroughTheCacheWhereTheDiskWantsMoreThanPages) {
  disk_.error_number = EINVAL;
  disk_.error_offset = 2 * kWriteBehindChunkBytes;
  ASSERT_OK(write(pattern(kLarge)));
  expect_written(pattern(kLarge));
}

TEST_F(DirectWrite, GoesOnAfterAShortWrite) {
  disk_.short_offset = kWriteBehindChunkBytes;
  ASSERT_OK(write(pattern(kLarge)));
  expect_written(pattern(kLarge));
}

TEST_F(DirectWrite, NamesTheFileThatADiskRefusesAndLeavesNothing) {
  for (const auto& [number, code] : {std::pair{ENOSPC, Code::no_space}, std::pair{EIO, Code::io}}) {
    for (uint64_t chunk : {0, 3, 5}) {
      disk_.error_number = number;
      disk_.error_offset = chunk * kWriteBehindChunkBytes;
      const Status status = write(pattern(kLarge));
      EXPECT_EQ(status.code(), code) << chunk;
      EXPECT_THAT(status.message(), HasSubstr(folder_.path() + "/a/large"));
      auto left = storage_->list("a");
      ASSERT_OK(left.status());
      EXPECT_TRUE(left->empty()) << left->front().name;
    }
  }
  disk_.error_number = 0;
  ASSERT_OK(write(pattern(kLarge)));
  expect_written(pattern(kLarge));
}

TEST_F(DirectWrite, MayBeGivenUpAtAnyTime) {
  const Bytes data = pattern(kLarge);
  for (size_t bytes : {size_t{0}, size_t{100}, kWriteBehindChunkBytes, 2 * kWriteBehindChunkBytes + 7}) {
    auto file = storage_->create("a/large", nonce_of(1), kLarge);
    ASSERT_OK(file.status());
    ASSERT_OK((*file)->append(ByteView(data).first(bytes)));
  }
  auto left = storage_->list("a");
  ASSERT_OK(left.status());
  EXPECT_TRUE(left->empty());
}

// Memory that begins on a page, as a slab does.
class Pages {
 public:
  explicit Pages(size_t bytes) : memory_(bytes + kDirectAlignmentBytes) {
    const size_t past = reinterpret_cast<uintptr_t>(memory_.data()) % kDirectAlignmentBytes;
    bytes_ = std::span(memory_).subspan((kDirectAlignmentBytes - past) % kDirectAlignmentBytes, bytes);
    for (size_t i = 0; i < bytes; ++i) bytes_[i] = static_cast<std::byte>(i * 2654435761u >> 15);
  }
  MutableByteView bytes() const { return bytes_; }

 private:
  Bytes memory_;
  MutableByteView bytes_;
};

// A header, then pieces of a slab, `gap` bytes apart; each given in parts of at most `part` bytes.
struct KeptPieces {
  size_t header, piece, gap, part;
};

class KeptWrite : public DirectWrite {
 protected:
  void write_pieces(const Pages& slab, const KeptPieces& form) {
    disk_.kept = slab.bytes();
    disk_.bytes_from_kept = 0;
    auto file = storage_->create("a/large", nonce_of(1), slab.bytes().size());
    ASSERT_OK(file.status());
    Bytes expected = pattern(form.header);
    ASSERT_OK((*file)->append(expected));
    for (size_t at = 0; at + form.piece <= slab.bytes().size(); at += form.piece + form.gap) {
      for (ByteView left = slab.bytes().subspan(at, form.piece); !left.empty();) {
        const ByteView part = left.first(std::min(left.size(), form.part));
        ASSERT_OK((*file)->append_kept(part));
        expected.insert(expected.end(), part.begin(), part.end());
        left = left.subspan(part.size());
      }
    }
    ASSERT_OK((*file)->patch(5, as_view("patched")));
    ASSERT_OK((*file)->publish().status());
    expect_written(std::move(expected));
    EXPECT_EQ(disk_.misaligned, 0);
    ASSERT_OK(storage_->remove("a/large"));
  }
};

TEST_F(KeptWrite, TakesWhatLiesAlignedAndInOnePieceFromWhereItLies) {
  const Pages slab(kLarge);
  for (size_t piece : {kLarge, size_t{128} << 10, size_t{3000}}) {
    write_pieces(slab, {36864, piece, 0, 1 << 20});
    EXPECT_GT(disk_.bytes_from_kept, kLarge - kWriteBehindChunkBytes) << piece;
  }
}

TEST_F(KeptWrite, IsRightHoweverThePiecesLie) {
  const Pages slab(kLarge);
  for (size_t header : {4096, 100}) {
    for (size_t piece : {size_t{999}, size_t{300'000}, size_t{5'000'000}, size_t{1 << 20}}) {
      for (size_t gap : {size_t{0}, size_t{25}, size_t{4096}}) {
        write_pieces(slab, {header, piece, gap, 1 << 20});
      }
    }
  }
}

}  // namespace
}  // namespace shoal::storage
