// Fixed-width integers in bytes: little-endian on the wire and in records, big-endian in keys that
// must sort by value. No alignment is required.
#ifndef HOTBED_COMMON_FILES_BYTE_ORDER_H_
#define HOTBED_COMMON_FILES_BYTE_ORDER_H_

#include <cstdint>
#include <cstring>

namespace hotbed {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "rows and ids are read in place as little-endian: port the readers first");

template <typename T>
inline T LoadLittle(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
inline void StoreLittle(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

inline uint64_t LoadBig64(const void* from) {
  return __builtin_bswap64(LoadLittle<uint64_t>(from));
}
inline void StoreBig16(void* to, uint16_t value) { StoreLittle(to, __builtin_bswap16(value)); }
inline void StoreBig32(void* to, uint32_t value) { StoreLittle(to, __builtin_bswap32(value)); }
inline void StoreBig64(void* to, uint64_t value) { StoreLittle(to, __builtin_bswap64(value)); }

}  // namespace hotbed

#endif  // HOTBED_COMMON_FILES_BYTE_ORDER_H_
