// A storage whose user is interrupted by another process between two of its calls to the file system.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/files/local_storage.h"
#include "tests/storage/test_support.h"

namespace shoal::storage {

// A file system that runs another action between two calls of its user.
class InterruptedStorage {
 public:
  // Runs `work` on one storage; before its call number `call`, `other` runs on another.
  static void run(MemoryStorage& memory, uint64_t call, const std::function<void(Storage&)>& work,
                  const std::function<void(Storage&)>& other) {
    auto second = memory.opened(9);
    Interruption interruption{memory.files, call, [&] { other(*second); }};
    auto first = LocalStorage::open(interruption, "/root", nonce_of(uint64_t{8} << 32));
    SHOAL_CHECK(first.ok());
    work(**first);
    interruption.finish();
  }

 private:
  class Interruption final : public FileSystem {
   public:
    Interruption(FileSystem& files, uint64_t call, std::function<void()> action)
        : files_(files), call_(call), action_(std::move(action)) {}
    int open_root(const std::string& path, std::unique_ptr<OpenFolder>* folder) override {
      step();
      std::unique_ptr<OpenFolder> real;
      int error = files_.open_root(path, &real);
      if (error == 0) *folder = std::make_unique<Folder>(*this, std::move(real));
      return error;
    }
    void step() {
      if (count_++ == call_) finish();
    }
    void finish() {
      if (std::exchange(done_, true)) return;
      action_();
    }

   private:
    class Folder final : public OpenFolder {
     public:
      Folder(Interruption& owner, std::unique_ptr<OpenFolder> real) : owner_(owner), real_(std::move(real)) {}
      int is_same(OpenFolder& other, bool* same) override {
        return real_->is_same(*static_cast<Folder&>(other).real_, same);
      }
      int open_folder(const std::string& name, std::unique_ptr<OpenFolder>* folder) override {
        owner_.step();
        std::unique_ptr<OpenFolder> real;
        int error = real_->open_folder(name, &real);
        if (error == 0) *folder = std::make_unique<Folder>(owner_, std::move(real));
        return error;
      }
      int make_folder(const std::string& name) override { return owner_.step(), real_->make_folder(name); }
      int open_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
        return owner_.step(), real_->open_file(name, file);
      }
      int create_file(const std::string& name, std::unique_ptr<OpenFile>* file) override {
        return owner_.step(), real_->create_file(name, file);
      }
      int link(const std::string& from, const std::string& to) override {
        return owner_.step(), real_->link(from, to);
      }
      int rename(const std::string& from, const std::string& to) override {
        return owner_.step(), real_->rename(from, to);
      }
      int remove_file(const std::string& name) override { return owner_.step(), real_->remove_file(name); }
      int remove_folder(const std::string& name) override {
        return owner_.step(), real_->remove_folder(name);
      }
      int list(std::vector<FolderEntry>* entries) override { return owner_.step(), real_->list(entries); }
      int sync() override { return owner_.step(), real_->sync(); }
      int free_space(uint64_t* bytes) override { return owner_.step(), real_->free_space(bytes); }

     private:
      Interruption& owner_;
      std::unique_ptr<OpenFolder> real_;
    };

    FileSystem& files_;
    const uint64_t call_;
    uint64_t count_ = 0;
    bool done_ = false;
    std::function<void()> action_;
  };
};

}  // namespace shoal::storage
