// memcpy of one row, inline: rows are short, so the call and the branches of memcpy would cost as
// much as copying the bytes.
#ifndef HOTBED_SERVER_KERNELS_ROW_COPY_H_
#define HOTBED_SERVER_KERNELS_ROW_COPY_H_

#include <cstdint>

#include "row_math/isa.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hotbed {
inline namespace HOTBED_ISA {

// Answers above this size would only evict the table from the caches, so they bypass the caches.
constexpr uint64_t kStreamBytes = 4ull << 20;

HOTBED_ROW_FN void CopyRow(uint8_t* to, const uint8_t* from, uint64_t bytes) {
  if (bytes >= 64) {
    for (uint64_t at = 0; at + 64 <= bytes; at += 64) __builtin_memcpy(to + at, from + at, 64);
    if (bytes % 64 != 0) __builtin_memcpy(to + bytes - 64, from + bytes - 64, 64);
    return;
  }
  if (bytes >= 16) {
    for (uint64_t at = 0; at + 16 <= bytes; at += 16) __builtin_memcpy(to + at, from + at, 16);
    if (bytes % 16 != 0) __builtin_memcpy(to + bytes - 16, from + bytes - 16, 16);
    return;
  }
  for (uint64_t at = 0; at < bytes; at += 2) __builtin_memcpy(to + at, from + at, 2);
}

// As CopyRow, bypassing the caches; `to` is aligned to 16 and bytes is a multiple of 16.
// StreamFence() ends a series.
HOTBED_ROW_FN void StreamRow(uint8_t* to, const uint8_t* from, uint32_t bytes) {
#if defined(__SSE2__)
  for (uint64_t at = 0; at < bytes; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
#else
  CopyRow(to, from, bytes);
#endif
}

HOTBED_ROW_FN void StreamFence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_ROW_COPY_H_
