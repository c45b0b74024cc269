// The plain gather with prefetch that our kernels are compared with.
#ifndef HOTBED_BENCH_ROOFS_GATHER_H_
#define HOTBED_BENCH_ROOFS_GATHER_H_

#include <cstdint>
#include <cstring>

namespace hotbed::roofs {

constexpr uint64_t kPrefetchRows = 10;

// Copies rows ids[0..count) of `table` to `to`, one after another.
inline void GatherBatch(const uint8_t* table, uint64_t row_bytes, const uint64_t* ids,
                        uint64_t count, uint8_t* to) {
  for (uint64_t i = 0; i < count; ++i) {
    if (i + kPrefetchRows < count) {
      const uint8_t* const ahead = table + ids[i + kPrefetchRows] * row_bytes;
      for (uint64_t line = 0; line < row_bytes; line += 64) __builtin_prefetch(ahead + line);
    }
    std::memcpy(to + i * row_bytes, table + ids[i] * row_bytes, row_bytes);
  }
}

}  // namespace hotbed::roofs

#endif  // HOTBED_BENCH_ROOFS_GATHER_H_
