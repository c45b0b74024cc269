// A queue in one array that doubles when it is full. Unlike std::deque, which takes 576 bytes as
// soon as it exists, it has no memory until something is put in. For queues of which there are very
// many, mostly empty. It keeps its memory, up to kKeptMax slots, when it becomes empty.
//
// Thread-compatible. T is default-constructible and movable; a slot that is free holds a T().
#ifndef HOTBED_COMMON_RING_QUEUE_H_
#define HOTBED_COMMON_RING_QUEUE_H_

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace hotbed {

template <typename T>
class RingQueue {
 public:
  static constexpr size_t kKeptMax = 64;

  RingQueue() = default;
  RingQueue(RingQueue&& other) noexcept { swap(other); }
  RingQueue& operator=(RingQueue&& other) noexcept {
    swap(other);
    return *this;
  }

  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  // The `at`-th from the front.
  T& operator[](size_t at) { return slots_[Place(at)]; }
  const T& operator[](size_t at) const { return slots_[Place(at)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& back() { return (*this)[count_ - 1]; }
  const T& back() const { return (*this)[count_ - 1]; }

  void push_back(T value) {
    if (count_ == slots_.size()) Grow();
    slots_[Place(count_)] = std::move(value);
    ++count_;
  }
  void pop_front() {
    front() = T();
    first_ = Place(1);
    --count_;
    ShrinkIfEmpty();
  }
  void pop_back() {
    back() = T();
    --count_;
    ShrinkIfEmpty();
  }
  void clear() {
    while (!empty()) pop_back();
  }
  void swap(RingQueue& other) noexcept {
    slots_.swap(other.slots_);
    std::swap(first_, other.first_);
    std::swap(count_, other.count_);
  }

  // From the front. Valid until the next change.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;
    Iterator(const RingQueue* of, size_t at) : of_(of), at_(at) {}
    const T& operator*() const { return (*of_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.at_ == b.at_; }

   private:
    const RingQueue* of_;
    size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, count_}; }

 private:
  static constexpr size_t kFirst = 4;  // slots; a power of two, as every size

  size_t Place(size_t at) const { return (first_ + at) & (slots_.size() - 1); }
  void Grow() {
    std::vector<T> slots(slots_.empty() ? kFirst : 2 * slots_.size());
    for (size_t at = 0; at < count_; ++at) slots[at] = std::move((*this)[at]);
    slots_ = std::move(slots);
    first_ = 0;
  }
  void ShrinkIfEmpty() {
    if (count_ == 0 && slots_.size() > kKeptMax) std::vector<T>().swap(slots_);
  }

  std::vector<T> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_RING_QUEUE_H_
