#include "common/files/crc32c.h"

#include <array>

#include "common/files/byte_order.h"

namespace hotbed {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

using SliceTables = std::array<std::array<uint32_t, 256>, 8>;

// Slicing by 8: tables[k][b] is the state after byte b followed by k zero bytes.
constexpr SliceTables MakeSliceTables() {
  SliceTables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (uint32_t b = 0; b < 256; ++b) {
    for (int k = 1; k < 8; ++k) {
      tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
    }
  }
  return tables;
}

constexpr SliceTables kSlices = MakeSliceTables();

}  // namespace

uint32_t Crc32cPortable(const void* data, size_t bytes, uint32_t crc) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, p += 8) {
    const uint64_t v = LoadLittle<uint64_t>(p) ^ crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kSlices[7 - k][(v >> (8 * k)) & 0xff];
  }
  for (; bytes > 0; --bytes, ++p) crc = (crc >> 8) ^ kSlices[0][(crc ^ *p) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)

namespace {

// The instruction takes 8 bytes, has a latency of three cycles and can start once per cycle, so
// three independent streams keep it busy. The streams are joined by advancing a state over a fixed
// number of zero bytes, which is a linear map stored as four byte tables.
class ZeroShift {
 public:
  __attribute__((target("sse4.2"))) explicit ZeroShift(size_t bytes) {
    uint32_t basis[32];
    for (int bit = 0; bit < 32; ++bit) {
      uint64_t state = uint32_t{1} << bit;
      for (size_t i = 0; i < bytes; i += 8) state = __builtin_ia32_crc32di(state, 0);
      basis[bit] = static_cast<uint32_t>(state);
    }
    for (int byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        uint32_t sum = 0;
        for (int bit = 0; bit < 8; ++bit) sum ^= (value >> bit & 1) ? basis[8 * byte + bit] : 0;
        tables_[byte][value] = sum;
      }
    }
  }

  uint64_t operator()(uint64_t state) const {
    return tables_[0][state & 0xff] ^ tables_[1][state >> 8 & 0xff] ^
           tables_[2][state >> 16 & 0xff] ^ tables_[3][state >> 24 & 0xff];
  }

 private:
  uint32_t tables_[4][256];
};

template <size_t kBlock>
__attribute__((target("sse4.2"))) uint64_t ThreeStreams(const uint8_t*& p, size_t& bytes,
                                                        uint64_t state) {
  if (bytes < 3 * kBlock) return state;
  static const ZeroShift shift(kBlock);
  for (; bytes >= 3 * kBlock; bytes -= 3 * kBlock, p += 3 * kBlock) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kBlock; i += 8) {
      state = __builtin_ia32_crc32di(state, LoadLittle<uint64_t>(p + i));
      second = __builtin_ia32_crc32di(second, LoadLittle<uint64_t>(p + kBlock + i));
      third = __builtin_ia32_crc32di(third, LoadLittle<uint64_t>(p + 2 * kBlock + i));
    }
    state = shift(shift(state) ^ second) ^ third;
  }
  return state;
}

__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(const void* data, size_t bytes,
                                                       uint32_t crc) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  uint64_t state = static_cast<uint32_t>(~crc);
  state = ThreeStreams<4096>(p, bytes, state);
  state = ThreeStreams<256>(p, bytes, state);
  for (; bytes >= 8; bytes -= 8, p += 8)
    state = __builtin_ia32_crc32di(state, LoadLittle<uint64_t>(p));
  uint32_t rest = static_cast<uint32_t>(state);
  for (; bytes > 0; --bytes, ++p) rest = __builtin_ia32_crc32qi(rest, *p);
  return ~rest;
}

}  // namespace

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  return has_instruction ? Crc32cSse42(data, bytes, crc) : Crc32cPortable(data, bytes, crc);
}

#else

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  return Crc32cPortable(data, bytes, crc);
}

#endif

}  // namespace hotbed
