// SharedVector: a vector whose copies share their elements until one of them changes.
//
// The const interface is that of std::vector. A change of a vector whose elements are shared copies them
// first, so that no copy sees another copy's change. As with std::shared_ptr, several threads may have
// copies, but only one thread at a time may use one object.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace shoal {

template <class T>
class SharedVector {
 public:
  using value_type = T;
  using const_iterator = const T*;
  using iterator = T*;

  SharedVector() = default;
  SharedVector(std::vector<T> elements)  // NOLINT(google-explicit-constructor): it is one
      : elements_(std::make_shared<std::vector<T>>(std::move(elements))) {}
  SharedVector(std::initializer_list<T> elements) : SharedVector(std::vector<T>(elements)) {}

  bool empty() const { return size() == 0; }
  size_t size() const { return elements_ ? elements_->size() : 0; }
  const T* data() const { return elements_ ? elements_->data() : nullptr; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](size_t i) const { return (*elements_)[i]; }
  const T& front() const { return elements_->front(); }
  const T& back() const { return elements_->back(); }

  const std::vector<T>& vector() const {
    static const std::vector<T> none;
    return elements_ ? *elements_ : none;
  }
  const T& at(size_t i) const { return vector().at(i); }

  // The elements, for a change; copied first if they are shared.
  std::vector<T>& own() {
    if (!elements_) {
      elements_ = std::make_shared<std::vector<T>>();
    } else if (elements_.use_count() != 1) {
      elements_ = std::make_shared<std::vector<T>>(*elements_);
    }
    return *elements_;
  }
  T* begin() { return own().data(); }
  T* end() { return own().data() + size(); }
  T& operator[](size_t i) { return own()[i]; }
  T& front() { return own().front(); }
  T& back() { return own().back(); }
  void reserve(size_t size) { own().reserve(size); }
  void resize(size_t size) { own().resize(size); }
  void push_back(T element) { own().push_back(std::move(element)); }
  void pop_back() { own().pop_back(); }
  void clear() { elements_.reset(); }
  void insert(const T* at, T element) {
    const auto index = at - std::as_const(*this).begin();
    own().insert(own().begin() + index, std::move(element));
  }
  T* erase(const T* at) {
    const auto index = at - std::as_const(*this).begin();
    own().erase(own().begin() + index);
    return own().data() + index;
  }

  friend bool operator==(const SharedVector& a, const SharedVector& b) {
    return a.elements_ == b.elements_ || std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::shared_ptr<std::vector<T>> elements_;  // null: none
};

}  // namespace shoal
