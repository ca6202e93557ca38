#include "storage/files/watched_file_system.h"

#include <utility>

namespace shoal::storage {

namespace {

using Call = CallWatch::Call;

class WatchedFile final : public OpenFile {
 public:
  WatchedFile(std::unique_ptr<OpenFile> real, std::string path, CallWatch& watch)
      : real_(std::move(real)), path_(std::move(path)), watch_(watch) {}
  ~WatchedFile() override {
    Call call(watch_, "close", path_);
    real_.reset();
  }

  int size(uint64_t* bytes) override { return Call(watch_, "stat", path_).end(real_->size(bytes)); }
  int read_at(uint64_t offset, MutableByteView out, size_t* done) override {
    return Call(watch_, "read", path_).end(real_->read_at(offset, out, done));
  }
  int write_at(uint64_t offset, ByteView data, size_t* done) override {
    return Call(watch_, "write", path_).end(real_->write_at(offset, data, done));
  }
  int sync() override { return Call(watch_, "fsync", path_).end(real_->sync()); }
  void start_writeback(uint64_t offset, uint64_t bytes) override {
    Call call(watch_, "writeback", path_);
    real_->start_writeback(offset, bytes);
  }
  void will_read(uint64_t offset, uint64_t bytes) override {
    Call call(watch_, "read-ahead", path_);
    real_->will_read(offset, bytes);
  }
  int set_direct(bool is_direct) override { return real_->set_direct(is_direct); }

 private:
  std::unique_ptr<OpenFile> real_;
  const std::string path_;
  CallWatch& watch_;
};

class WatchedFolder final : public OpenFolder {
 public:
  WatchedFolder(std::unique_ptr<OpenFolder> real, std::string path, CallWatch& watch)
      : real_(std::move(real)), path_(std::move(path)), watch_(watch) {}

  int is_same(OpenFolder& other, bool* same) override {
    OpenFolder& unwrapped = *static_cast<WatchedFolder&>(other).real_;
    return Call(watch_, "stat", path_).end(real_->is_same(unwrapped, same));
  }
  int open_folder(const std::string& name, std::unique_ptr<OpenFolder>* folder) override {
    std::unique_ptr<OpenFolder> real;
    const int number = Call(watch_, "open", path_, name).end(real_->open_folder(name, &real));
    if (number == 0) *folder = std::make_unique<WatchedFolder>(std::move(real), path_ + "/" + name, watch_);
    return number;
  }
  int make_folder(const std::string& name) override {
    return Call(watch_, "mkdir", path_, name).end(real_->make_folder(name));
  }
  int open_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
    std::unique_ptr<OpenFile> real;
    return wrap(name, Call(watch_, "open", path_, name).end(real_->open_file(name, &real)), real, file);
  }
  int create_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
    std::unique_ptr<OpenFile> real;
    return wrap(name, Call(watch_, "creation", path_, name).end(real_->create_file(name, &real)), real, file);
  }
  int link(const std::string& from, const std::string& to) override {
    return Call(watch_, "link", path_, to).end(real_->link(from, to));
  }
  int rename(const std::string& from, const std::string& to) override {
    return Call(watch_, "rename", path_, from).end(real_->rename(from, to));
  }
  int remove_file(const std::string& name) override {
    return Call(watch_, "removal", path_, name).end(real_->remove_file(name));
  }
  int remove_folder(const std::string& name) override {
    return Call(watch_, "removal", path_, name).end(real_->remove_folder(name));
  }
  int list(std::vector<FolderEntry>* entries) override {
    return Call(watch_, "listing", path_).end(real_->list(entries));
  }
  int sync() override { return Call(watch_, "fsync", path_).end(real_->sync()); }
  int free_space(uint64_t* bytes) override {
    return Call(watch_, "statfs", path_).end(real_->free_space(bytes));
  }

 private:
  int wrap(const std::string& name, int number, std::unique_ptr<OpenFile>& real,
           std::unique_ptr<OpenFile>* file) {
    if (number == 0) *file = std::make_unique<WatchedFile>(std::move(real), path_ + "/" + name, watch_);
    return number;
  }

  const std::unique_ptr<OpenFolder> real_;
  const std::string path_;
  CallWatch& watch_;
};

}  // namespace

int WatchedFileSystem::open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) {
  std::unique_ptr<OpenFolder> real;
  const int number = Call(watch_, "open", path).end(real_.open_root(path, &real));
  if (number == 0) *folder = std::make_unique<WatchedFolder>(std::move(real), path, watch_);
  return number;
}

}  // namespace shoal::storage
