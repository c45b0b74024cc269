// Which accesses to global memory are not ordered, in one launch: two by different lanes to the
// same byte, one of them a plain write, with no warp sync between them in which both took part; or
// by different warps at all, as kernels here have nothing that orders warps.
//
// Atomics do not race with each other. An atomic and a plain read of one byte are told apart: where
// the code means it, the bytes are given as allowed.
#ifndef HOTBED_TESTS_DEVICE_PTX_RACE_CHECK_H_
#define HOTBED_TESTS_DEVICE_PTX_RACE_CHECK_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hotbed {
namespace device {

// The knowledge of each lane of a warp about the others: vector clocks, which count warp syncs.
class WarpClocks {
 public:
  WarpClocks() { Reset(); }
  void Reset();
  // All lanes of the mask come to know what each of them knows.
  void Sync(uint32_t lanes);
  uint32_t Epoch(uint32_t lane) const { return rows_[row_of_[lane]][lane]; }
  // What `other` did in `epoch` is before what `lane` does now.
  bool Knows(uint32_t lane, uint32_t other, uint32_t epoch) const {
    return rows_[row_of_[lane]][other] > epoch;
  }

 private:
  uint32_t rows_[32][32];  // lanes that have just synced share one
  uint32_t members_[32];   // of each row
  uint32_t row_of_[32];
};

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Bytes that may be read one by one while others change them by atomics: those of [begin, end) that
// are `from` or further into a period of `period` bytes.
struct AllowedReads {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t period = 1;
  uint32_t from = 0;
};

struct Accessor {
  uint32_t warp;
  uint32_t lane;
  uint32_t line;
  const WarpClocks* clocks;
};

class RaceCheck {
 public:
  void BeginLaunch(const std::vector<AllowedReads>& allowed);
  void Note(Access access, uint64_t address, uint32_t bytes, const Accessor& by);
  // A line for each pair of PTX lines that race; empty where none do.
  std::vector<std::string> found() const { return found_; }

 private:
  // Lanes of one warp in one epoch; or of several warps, which nothing can order.
  struct Record {
    uint32_t warp;
    uint32_t lanes;
    uint32_t epoch;
    uint32_t line : 31;
    uint32_t is_wide : 1;
  };
  struct Cell {
    Record write;
    Record atomic;
    Record read;
  };
  static constexpr uint32_t kPageBytes = 256;
  static constexpr uint32_t kSeveralWarps = 0xffffffffu;
  static constexpr size_t kPagesMax = 16384;
  struct Page {
    uint64_t launch = 0;
    Cell cells[kPageBytes];
  };

  Page* PageOf(uint64_t address);
  static bool Unordered(const Record& record, const Accessor& by);
  static void Remember(const Accessor& by, bool is_wide, Record* record);
  bool IsAllowed(uint64_t address) const;
  void NoteByte(Access access, uint64_t address, bool is_wide, const Accessor& by, Cell* cell);
  void Add(const char* what, uint64_t address, const Record& before, const Accessor& by);

  uint64_t launch_ = 0;
  std::vector<AllowedReads> allowed_;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t last_number_ = ~0ull;
  Page* last_page_ = nullptr;
  std::set<std::pair<uint32_t, uint32_t>> pairs_;
  std::vector<std::string> found_;
};

}  // namespace device
}  // namespace hotbed

#endif  // HOTBED_TESTS_DEVICE_PTX_RACE_CHECK_H_
