// Memory of one answer as a server has it: its rows lie at an odd place of whole pages, which are
// pinned where there is a device. The test fails if a device still has it when it goes.
#ifndef HOTBED_TESTS_TIERS_PINNED_ROWS_H_
#define HOTBED_TESTS_TIERS_PINNED_ROWS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "device/device.h"
#include "server/tiers/api/answer_memory.h"

namespace hotbed {

class PinnedRows final : public AnswerMemory {
 public:
  // `pinner` null: plain memory.
  PinnedRows(std::shared_ptr<MemoryPinner> pinner, uint64_t bytes)
      : pinner_(std::move(pinner)),
        pages_((kOffset + bytes + device::kPinUnit - 1) / device::kPinUnit * device::kPinUnit),
        bytes_(bytes),
        memory_(static_cast<uint8_t*>(std::aligned_alloc(device::kPinUnit, pages_))) {
    std::fill_n(memory_, pages_, 0xee);
    pinned_ = pinner_ != nullptr && pinner_->Pin(memory_, pages_);
  }
  ~PinnedRows() {
    EXPECT_EQ(holds_.load(), 0) << "of memory that is freed";
    if (pinned_) pinner_->Unpin(memory_, pages_);
    std::free(memory_);
  }
  PinnedRows(const PinnedRows&) = delete;

  bool pinned() const override { return pinned_; }
  void Hold() override { ++holds_; }
  void Release() override { --holds_; }

  uint8_t* data() const { return memory_ + kOffset; }
  void CopyTo(void* to) const { std::copy_n(data(), bytes_, static_cast<uint8_t*>(to)); }

 private:
  static constexpr uint64_t kOffset = 195;

  const std::shared_ptr<MemoryPinner> pinner_;
  const uint64_t pages_;
  const uint64_t bytes_;
  uint8_t* const memory_;
  bool pinned_ = false;
  std::atomic<int> holds_{0};
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_PINNED_ROWS_H_
