// The hash index of resident rows: find, insert and erase of one row. Buckets of one cache line,
// linear probing from bucket to bucket; at most 84 % of the entries are used (kept by the owner).
// C++17, shared by all kernels.
#ifndef HOTBED_SERVER_KERNELS_ROW_INDEX_H_
#define HOTBED_SERVER_KERNELS_ROW_INDEX_H_

#include <cstdint>

#include "row_math/isa.h"
#include "server/kernels/row_table.h"
#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
#include <emmintrin.h>
#endif

namespace hotbed {
inline namespace HOTBED_ISA {

struct IndexHash {
  uint32_t bucket;
  uint8_t digest;  // 1..255
};

// Positions of bounded tables are plain ids, so they are mixed here; the upper half picks the
// bucket, the lower half the digest.
HOTBED_ROW_FN IndexHash HashPosition(const RowTable& table, uint64_t position) {
  uint64_t h = position * 0x9e3779b97f4a7c15ull;
  h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93ull;
  const uint32_t bucket = static_cast<uint32_t>(((h >> 32) * table.bucket_count) >> 32);
  const uint32_t low = static_cast<uint32_t>(h) >> 24;
  return {bucket, static_cast<uint8_t>(low == 0 ? 1 : low)};
}

// Bit i set: entry i of the bucket has this digest.
HOTBED_ROW_FN uint32_t MatchDigest(const IndexBucket& bucket, uint8_t digest) {
#if defined(__SSE2__) && !defined(__CUDA_ARCH__)
  const __m128i line = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bucket.digests));
  const __m128i equal = _mm_cmpeq_epi8(line, _mm_set1_epi8(static_cast<char>(digest)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & 0x7fffu;
#else
  uint32_t mask = 0;
  for (uint32_t i = 0; i < kBucketRows; ++i) mask |= uint32_t{bucket.digests[i] == digest} << i;
  return mask;
#endif
}

HOTBED_ROW_FN uint32_t SlotAt(const IndexBucket& bucket, uint32_t entry) {
  const uint8_t* s = bucket.slots[entry];
  return s[0] | (uint32_t{s[1]} << 8) | (uint32_t{s[2]} << 16);
}

HOTBED_ROW_FN uint32_t NextBucket(const RowTable& table, uint32_t bucket) {
  return bucket + 1 == table.bucket_count ? 0 : bucket + 1;
}

HOTBED_ROW_FN uint32_t IndexFind(const RowTable& table, uint64_t position, IndexHash hash) {
  uint32_t at = hash.bucket;
  for (uint32_t steps = 0; steps < table.bucket_count; ++steps) {
    const IndexBucket& bucket = table.buckets[at];
    for (uint32_t mask = MatchDigest(bucket, hash.digest); mask != 0; mask &= mask - 1) {
      const uint32_t slot = SlotAt(bucket, static_cast<uint32_t>(__builtin_ctz(mask)));
      if (table.positions[slot] == position) return slot;
    }
    if (bucket.passed == 0) return kNoSlot;
    at = NextBucket(table, at);
  }
  return kNoSlot;
}

// The row is not in the index, and the index has a free entry.
HOTBED_ROW_FN void IndexInsert(RowTable* table, uint64_t position, uint32_t slot) {
  const IndexHash hash = HashPosition(*table, position);
  uint32_t at = hash.bucket;
  while (true) {
    IndexBucket& bucket = table->buckets[at];
    const uint32_t free = MatchDigest(bucket, 0);
    if (free != 0) {
      const uint32_t entry = static_cast<uint32_t>(__builtin_ctz(free));
      bucket.digests[entry] = hash.digest;
      bucket.slots[entry][0] = static_cast<uint8_t>(slot);
      bucket.slots[entry][1] = static_cast<uint8_t>(slot >> 8);
      bucket.slots[entry][2] = static_cast<uint8_t>(slot >> 16);
      return;
    }
    if (bucket.passed != 255) ++bucket.passed;
    at = NextBucket(*table, at);
  }
}

// The row is in the index.
HOTBED_ROW_FN void IndexErase(RowTable* table, uint64_t position, uint32_t slot) {
  const IndexHash hash = HashPosition(*table, position);
  uint32_t at = hash.bucket;
  while (true) {
    IndexBucket& bucket = table->buckets[at];
    for (uint32_t mask = MatchDigest(bucket, hash.digest); mask != 0; mask &= mask - 1) {
      const uint32_t entry = static_cast<uint32_t>(__builtin_ctz(mask));
      if (SlotAt(bucket, entry) == slot) {
        bucket.digests[entry] = 0;
        return;
      }
    }
    if (bucket.passed != 255) --bucket.passed;  // a saturated count is not exact and stays
    at = NextBucket(*table, at);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_ROW_INDEX_H_
