// Zeroed anonymous memory for slabs and indexes: aligned to 2 MiB and advised to be backed by huge
// pages, so that random row reads miss the TLB less. Memory is reserved at once and becomes
// resident page by page as it is touched. Move-only; thread-compatible.
#ifndef HOTBED_COMMON_HUGE_BUFFER_H_
#define HOTBED_COMMON_HUGE_BUFFER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace hotbed {

constexpr size_t kHugePageBytes = size_t{2} << 20;

class HugeBuffer {
 public:
  // At least `bytes`, rounded up to whole huge pages; 0 gives an empty buffer. ResourceExhausted if
  // the system refuses.
  static absl::StatusOr<HugeBuffer> Allocate(size_t bytes);

  HugeBuffer() = default;
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_HUGE_BUFFER_H_
