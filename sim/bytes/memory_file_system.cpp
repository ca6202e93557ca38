#include "sim/bytes/memory_file_system.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "shoal/check.h"

namespace shoal::sim {

namespace {
constexpr size_t kMixedBlockBytes = 512;  // unsynced bytes are kept or lost in blocks of this size
constexpr uint64_t kUnlimitedBytes = uint64_t{1} << 50;

// splitmix64 (https://prng.di.unimi.it/splitmix64.c): the same on every machine.
class Coin {
 public:
  explicit Coin(const MemoryFileSystem::Unsynced& unsynced) : unsynced_(unsynced), state_(unsynced.seed) {}
  bool keeps() {
    using Fate = MemoryFileSystem::Unsynced::Fate;
    if (unsynced_.fate != Fate::mixed) return unsynced_.fate == Fate::kept;
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return ((z ^ (z >> 31)) & 1) != 0;
  }

 private:
  MemoryFileSystem::Unsynced unsynced_;
  uint64_t state_;
};
}  // namespace

struct MemoryFileSystem::Node {
  bool is_folder = false;
  bool is_removed = false;                       // a folder that was removed: no entry can be created in it
  Bytes data;                                    // contents of a file
  std::optional<Bytes> unsynced_from = Bytes();  // durable contents; none: equal to data
  std::map<std::string, NodePtr> entries, durable_entries;  // entries of a folder
  uint32_t links = 0;

  void crash(Coin& coin, std::set<Node*>& done);
  void append_to(Bytes& out) const;

  const Bytes& durable_data() const { return unsynced_from ? *unsynced_from : data; }
  void before_change() {
    if (!unsynced_from) unsynced_from = data;
  }
  void synced() {
    data.shrink_to_fit();
    unsynced_from.reset();
  }
};

void MemoryFileSystem::Node::crash(Coin& coin, std::set<Node*>& done) {
  if (!done.insert(this).second) return;
  if (!is_folder) {
    const Bytes& durable = durable_data();
    bool longer =
        data.size() > durable.size() ? coin.keeps() : !(data.size() < durable.size() && coin.keeps());
    Bytes after(longer ? std::max(data.size(), durable.size()) : std::min(data.size(), durable.size()));
    for (size_t begin = 0; begin < after.size(); begin += kMixedBlockBytes) {
      size_t end = std::min(after.size(), begin + kMixedBlockBytes);
      const Bytes& from = coin.keeps() ? data : durable;
      for (size_t i = begin; i < std::min(end, from.size()); ++i) after[i] = from[i];
    }
    data = std::move(after);
    synced();
    return;
  }
  std::set<std::string> names;
  for (const auto& [name, node] : entries) names.insert(name);
  for (const auto& [name, node] : durable_entries) names.insert(name);
  std::map<std::string, NodePtr> after;
  for (const std::string& name : names) {
    auto now = entries.find(name), before = durable_entries.find(name);
    NodePtr node_now = now == entries.end() ? nullptr : now->second;
    NodePtr node_before = before == durable_entries.end() ? nullptr : before->second;
    NodePtr node = node_now == node_before || coin.keeps() ? node_now : node_before;
    if (node == nullptr) continue;
    after[name] = node;
    node->is_removed = false;
  }
  for (const auto& [name, node] : after) node->crash(coin, done);
  entries = durable_entries = std::move(after);
}

void MemoryFileSystem::Node::append_to(Bytes& out) const {
  auto number = [&out](uint64_t value) {
    out.resize(out.size() + 8);
    store_le64(out.data() + out.size() - 8, value);
  };
  auto bytes = [&](ByteView view) {
    number(view.size());
    out.insert(out.end(), view.begin(), view.end());
  };
  bytes(data);
  bytes(durable_data());
  for (const auto* names : {&entries, &durable_entries}) {
    number(names->size());
    for (const auto& [name, node] : *names) {
      bytes(as_view(name));
      node->append_to(out);
    }
  }
}

class MemoryFileSystem::File final : public storage::OpenFile {
 public:
  File(MemoryFileSystem& owner, NodePtr node)
      : owner_(owner), node_(std::move(node)), born_(owner.incarnation_) {}

  int size(uint64_t* bytes) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    *bytes = node_->data.size();
    return 0;
  }
  int read_at(uint64_t offset, MutableByteView out, size_t* done) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    size_t there = offset < node_->data.size() ? node_->data.size() - static_cast<size_t>(offset) : 0;
    *done = std::min(there, out.size());
    std::copy_n(node_->data.begin() + static_cast<ptrdiff_t>(there == 0 ? 0 : offset), *done, out.begin());
    return 0;
  }
  int write_at(uint64_t offset, ByteView data, size_t* done) override {
    std::lock_guard lock(owner_.mutex_);
    uint64_t operation = owner_.operations_;
    if (int error = owner_.begin_call(born_)) return error;
    if (auto cut = owner_.cuts_.find(operation); cut != owner_.cuts_.end()) {
      data = data.first(std::min(data.size(), cut->second));
    }
    uint64_t size = node_->data.size();
    if (owner_.capacity_bytes_ && offset + data.size() > size) {
      uint64_t room = *owner_.capacity_bytes_ - std::min(*owner_.capacity_bytes_, owner_.used_bytes_);
      uint64_t fits = size + room > offset ? size + room - offset : 0;
      if (fits == 0 && !data.empty()) return ENOSPC;
      data = data.first(static_cast<size_t>(std::min<uint64_t>(data.size(), fits)));
    }
    node_->before_change();
    if (offset + data.size() > size) {
      node_->data.resize(static_cast<size_t>(offset) + data.size());
      owner_.used_bytes_ += node_->data.size() - size;
    }
    std::copy(data.begin(), data.end(), node_->data.begin() + static_cast<ptrdiff_t>(offset));
    *done = data.size();
    owner_.changed();
    return 0;
  }
  int sync() override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    node_->synced();
    owner_.changed();
    return 0;
  }
  void start_writeback(uint64_t, uint64_t) override {}

 private:
  MemoryFileSystem& owner_;
  NodePtr node_;
  uint64_t born_;
};

class MemoryFileSystem::Folder final : public storage::OpenFolder {
 public:
  Folder(MemoryFileSystem& owner, NodePtr node)
      : owner_(owner), node_(std::move(node)), born_(owner.incarnation_) {}

  int is_same(storage::OpenFolder& other, bool* same) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    *same = static_cast<Folder&>(other).node_ == node_;
    return 0;
  }
  int open_folder(const std::string& name, std::unique_ptr<storage::OpenFolder>* folder) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    auto found = node_->entries.find(name);
    if (found == node_->entries.end()) return ENOENT;
    if (!found->second->is_folder) return ENOTDIR;
    *folder = std::make_unique<Folder>(owner_, found->second);
    return 0;
  }
  int make_folder(const std::string& name) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    if (node_->is_removed) return ENOENT;
    if (node_->entries.contains(name)) return EEXIST;
    auto made = std::make_shared<Node>();
    made->is_folder = true;
    node_->entries[name] = std::move(made);
    owner_.changed();
    return 0;
  }
  int open_file(const std::string& name, std::unique_ptr<storage::OpenFile>* file) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    auto found = node_->entries.find(name);
    if (found == node_->entries.end()) return ENOENT;
    if (found->second->is_folder) return EINVAL;
    *file = std::make_unique<File>(owner_, found->second);
    return 0;
  }
  int create_file(const std::string& name, std::unique_ptr<storage::OpenFile>* file) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    if (node_->is_removed) return ENOENT;
    if (node_->entries.contains(name)) return EEXIST;
    auto made = std::make_shared<Node>();
    made->links = 1;
    node_->entries[name] = made;
    owner_.changed();
    *file = std::make_unique<File>(owner_, std::move(made));
    return 0;
  }
  int link(const std::string& from, const std::string& to) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    auto found = node_->entries.find(from);
    if (found == node_->entries.end()) return ENOENT;
    if (found->second->is_folder) return EPERM;
    if (node_->entries.contains(to)) return EEXIST;
    ++found->second->links;
    node_->entries[to] = found->second;
    owner_.changed();
    return 0;
  }
  int rename(const std::string& from, const std::string& to) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    auto found = node_->entries.find(from);
    if (found == node_->entries.end()) return ENOENT;
    NodePtr moved = found->second;
    if (auto taken = node_->entries.find(to); taken != node_->entries.end()) {
      Node& old = *taken->second;
      if (&old == moved.get()) return 0;
      if (moved->is_folder && !old.is_folder) return ENOTDIR;
      if (!moved->is_folder && old.is_folder) return EISDIR;
      if (!old.entries.empty()) return ENOTEMPTY;
      if (!old.is_folder && --old.links == 0) owner_.used_bytes_ -= old.data.size();
      old.is_removed = old.is_folder;
    }
    node_->entries.erase(found);
    node_->entries[to] = std::move(moved);
    return 0;
  }
  int remove_file(const std::string& name) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    auto found = node_->entries.find(name);
    if (found == node_->entries.end()) return ENOENT;
    if (found->second->is_folder) return EISDIR;
    if (--found->second->links == 0) owner_.used_bytes_ -= found->second->data.size();
    node_->entries.erase(found);
    owner_.changed();
    return 0;
  }
  int remove_folder(const std::string& name) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    auto found = node_->entries.find(name);
    if (found == node_->entries.end()) return ENOENT;
    if (!found->second->is_folder) return ENOTDIR;
    if (!found->second->entries.empty()) return ENOTEMPTY;
    found->second->is_removed = true;
    node_->entries.erase(found);
    owner_.changed();
    return 0;
  }
  int list(std::vector<storage::FolderEntry>* entries) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    entries->clear();
    for (const auto& [name, node] : node_->entries) {
      entries->push_back(
          {name, node->is_folder ? storage::FolderEntry::Kind::folder : storage::FolderEntry::Kind::file,
           node->data.size()});
    }
    return 0;
  }
  int sync() override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    node_->durable_entries = node_->entries;
    owner_.changed();
    return 0;
  }
  int free_space(uint64_t* bytes) override {
    std::lock_guard lock(owner_.mutex_);
    if (int error = owner_.begin_call(born_)) return error;
    uint64_t capacity = owner_.capacity_bytes_.value_or(kUnlimitedBytes);
    *bytes = capacity - std::min(capacity, owner_.used_bytes_);
    return 0;
  }

 private:
  MemoryFileSystem& owner_;
  NodePtr node_;
  uint64_t born_;
};

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) {
  root_->is_folder = true;
}
MemoryFileSystem::~MemoryFileSystem() = default;

int MemoryFileSystem::begin_call(uint64_t incarnation) {
  uint64_t operation = operations_++;
  if (dies_at_ && operation >= *dies_at_) return EIO;
  if (incarnation != incarnation_) return ESTALE;
  auto failure = failures_.find(operation);
  return failure == failures_.end() ? 0 : failure->second;
}

int MemoryFileSystem::open_root(const std::string& path, std::unique_ptr<storage::OpenFolder>* folder) {
  std::lock_guard lock(mutex_);
  if (int error = begin_call(incarnation_)) return error;
  if (path != "/root") return ENOENT;
  *folder = std::make_unique<Folder>(*this, root_);
  return 0;
}

uint64_t MemoryFileSystem::operations() const {
  std::lock_guard lock(mutex_);
  return operations_;
}
std::vector<uint64_t> MemoryFileSystem::changes() const {
  std::lock_guard lock(mutex_);
  return changes_;
}
void MemoryFileSystem::stop_failing() {
  std::lock_guard lock(mutex_);
  dies_at_.reset();
  capacity_bytes_.reset();
  failures_.clear();
  cuts_.clear();
}
void MemoryFileSystem::fail_at(uint64_t operation, int error_number) {
  std::lock_guard lock(mutex_);
  failures_[operation] = error_number;
}
void MemoryFileSystem::cut_short_at(uint64_t operation, size_t bytes) {
  std::lock_guard lock(mutex_);
  cuts_[operation] = bytes;
}
void MemoryFileSystem::die_at(uint64_t operation) {
  std::lock_guard lock(mutex_);
  dies_at_ = operation;
}
void MemoryFileSystem::set_capacity(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

void MemoryFileSystem::recount(Node& folder, std::set<Node*>& seen) {
  for (const auto& [name, node] : folder.entries) {
    bool first = seen.insert(node.get()).second;
    if (node->is_folder) {
      recount(*node, seen);
    } else {
      node->links = first ? 1 : node->links + 1;
      if (first) used_bytes_ += node->data.size();
    }
  }
}

void MemoryFileSystem::crash(const Unsynced& unsynced) {
  restart();
  std::lock_guard lock(mutex_);
  Coin coin(unsynced);
  std::set<Node*> done;
  root_->crash(coin, done);
  used_bytes_ = 0;
  std::set<Node*> seen;
  recount(*root_, seen);
}

void MemoryFileSystem::restart() {
  std::lock_guard lock(mutex_);
  ++incarnation_;
  dies_at_.reset();
  failures_.clear();
  cuts_.clear();
}

uint64_t MemoryFileSystem::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

Hash128 MemoryFileSystem::fingerprint() const {
  std::lock_guard lock(mutex_);
  Bytes all;
  root_->append_to(all);
  return xxh3_128(all);
}

MemoryFileSystem::NodePtr MemoryFileSystem::find(const std::string& path) {
  NodePtr node = root_;
  for (size_t begin = 0; begin < path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    auto found = node->entries.find(path.substr(begin, end - begin));
    SHOAL_CHECK(found != node->entries.end());
    node = found->second;
    begin = end + 1;
  }
  return node;
}

void MemoryFileSystem::flip_bit(const std::string& path, uint64_t bit) {
  std::lock_guard lock(mutex_);
  NodePtr node = find(path);
  SHOAL_CHECK(bit / 8 < node->data.size());
  const std::byte flip = std::byte{1} << (bit % 8);
  node->data[bit / 8] ^= flip;
  if (node->unsynced_from && bit / 8 < node->unsynced_from->size()) (*node->unsynced_from)[bit / 8] ^= flip;
}

void MemoryFileSystem::resize(const std::string& path, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  NodePtr node = find(path);
  node->data.resize(bytes);
  node->synced();
}

void MemoryFileSystem::lose(const std::string& path) {
  std::lock_guard lock(mutex_);
  const size_t slash = path.rfind('/');
  const NodePtr folder = slash == std::string::npos ? root_ : find(path.substr(0, slash));
  const std::string name = path.substr(slash + 1);  // slash + 1 is 0 for npos
  const auto found = folder->entries.find(name);
  SHOAL_CHECK(found != folder->entries.end() && !found->second->is_folder);
  if (--found->second->links == 0) used_bytes_ -= found->second->data.size();
  folder->entries.erase(found);
  folder->durable_entries.erase(name);
}

}  // namespace shoal::sim
