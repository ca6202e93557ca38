// Pool: reuses values that are often created and destroyed. Their addresses are stable.
#pragma once

#include <deque>
#include <vector>

namespace shoal::sim {

// A value that is given back keeps its contents and its memory, and is the next one to be taken. All values
// live as long as the pool. One thread.
template <class T>
class Pool {
 public:
  T* take() {
    if (free_.empty()) return &all_.emplace_back();
    T* value = free_.back();
    free_.pop_back();
    return value;
  }
  void give_back(T* value) { free_.push_back(value); }

 private:
  std::deque<T> all_;
  std::vector<T*> free_;
};

}  // namespace shoal::sim
