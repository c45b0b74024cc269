// Philox4x32-10: a counter-based generator. Four 32-bit draws are a pure function of (key,
// counter), so the first value of any row can be computed anywhere.
//
// Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011; constants and known-answer vectors as in their Random123 library. Keyed here by key = table
// seed, counter = (id, column / 4, 0); draw column % 4 belongs to the column. Part of the format.
#ifndef HOTBED_ROW_MATH_PHILOX_H_
#define HOTBED_ROW_MATH_PHILOX_H_

#include <cstdint>

#include "row_math/isa.h"

namespace hotbed {
inline namespace HOTBED_ISA {

struct PhiloxDraws {
  uint32_t v[4];
};

HOTBED_ROW_FN PhiloxDraws Philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                                     uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The draws of columns 4 * quad .. 4 * quad + 3 of a row.
HOTBED_ROW_FN PhiloxDraws RowDraws(uint64_t seed, uint64_t id, uint32_t quad) {
  return Philox4x32(static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), quad, 0,
                    static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_ROW_MATH_PHILOX_H_
