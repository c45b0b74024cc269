// Allocates ranges of one large block: the slabs of tables that are added and removed.
//
// First fit, in units of kUnit bytes; adjacent free ranges are joined. Handles offsets only.
#ifndef HOTBED_DEVICE_BYTE_ARENA_H_
#define HOTBED_DEVICE_BYTE_ARENA_H_

#include <cstdint>
#include <map>

namespace hotbed {
namespace device {

class ByteArena {
 public:
  static constexpr uint64_t kUnit = 256;
  static constexpr uint64_t kNone = ~0ull;

  explicit ByteArena(uint64_t bytes);

  // The offset of a range of `bytes` bytes (at least 1), or kNone.
  uint64_t Take(uint64_t bytes);
  // `at`: an offset that Take returned.
  void Give(uint64_t offset);
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest_free() const;

 private:
  std::map<uint64_t, uint64_t> free_;   // offset -> bytes
  std::map<uint64_t, uint64_t> taken_;  // offset -> bytes
  uint64_t free_bytes_ = 0;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_DEVICE_BYTE_ARENA_H_
