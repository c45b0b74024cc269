// When memory that readers may still look at can be used again.
//
// A reader is inside from Enter to Leave. One writer unlinks something, notes now() as the epoch of
// that, and may use its memory again once Advance() returns a later one: every reader that was
// inside then has left. Neither side waits for the other. Thread-safe; Advance is the writer's.
//
// The loads by which readers reach memory, and the stores that unlink it, must be sequentially
// consistent: then a reader that the writer does not see here does not see what was unlinked.
#ifndef HOTBED_SERVING_ROWS_READ_EPOCHS_H_
#define HOTBED_SERVING_ROWS_READ_EPOCHS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>  // NOLINT(build/c++11)

namespace hotbed {

class ReadEpochs {
 public:
  // Returns what Leave takes. More than kPlaces readers at once wait for a place.
  size_t Enter() {
    size_t at = std::hash<std::thread::id>()(std::this_thread::get_id());
    for (;; ++at) {
      std::atomic<uint64_t>& place = places_[at % kPlaces].since;
      uint64_t free = 0;
      if (place.load(std::memory_order_relaxed) == 0 &&
          place.compare_exchange_strong(free, now_.load())) {
        return at % kPlaces;
      }
      if (at % kPlaces == 0) std::this_thread::yield();
    }
  }
  void Leave(size_t place) { places_[place].since.store(0, std::memory_order_release); }

  uint64_t now() const { return now_.load(std::memory_order_relaxed); }
  // Begins the next epoch; returns the oldest one in which a reader may have entered that is still
  // inside.
  uint64_t Advance() {
    uint64_t oldest = now_.fetch_add(1) + 1;
    for (const Place& place : places_) {
      const uint64_t since = place.since.load();
      if (since != 0) oldest = std::min(oldest, since);
    }
    return oldest;
  }

  static constexpr size_t kPlaces = 64;

 private:
  struct alignas(64) Place {
    std::atomic<uint64_t> since{0};  // 0: free
  };
  std::atomic<uint64_t> now_{1};
  std::array<Place, kPlaces> places_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_READ_EPOCHS_H_
