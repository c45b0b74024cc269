// Prefetching of objects that will be needed soon.
#ifndef HOTBED_COMMON_FETCH_LINES_H_
#define HOTBED_COMMON_FETCH_LINES_H_

#include <cstddef>
#include <cstdint>

namespace hotbed {

// Prefetches the cache lines of `bytes` bytes at `from`. The memory is not read, so any address is
// allowed. Inlined always: GCC drops calls of functions that only prefetch.
__attribute__((always_inline)) inline void FetchLines(const void* from, size_t bytes) {
  constexpr uintptr_t kLineBytes = 64;
  const uintptr_t end = reinterpret_cast<uintptr_t>(from) + bytes;
  for (uintptr_t at = reinterpret_cast<uintptr_t>(from) / kLineBytes * kLineBytes; at < end;
       at += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const void*>(at));
  }
}

}  // namespace hotbed

#endif  // HOTBED_COMMON_FETCH_LINES_H_
