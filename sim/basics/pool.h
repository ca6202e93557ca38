// Pool: values that come and go all the time, and stay where they are meanwhile.
#pragma once

#include <deque>
#include <vector>

namespace shoal::sim {

// A value that is given back keeps what it holds, its memory too, and is the next to be taken. All of them
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
