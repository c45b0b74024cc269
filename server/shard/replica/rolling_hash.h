// Tells whether two replicas of a shard are still bit-equal, for a few nanoseconds per push.
//
// Each applied entry adds a 64-bit hash to a sum. The hash covers the record's header, its payload
// (through the checksum in the header), and one of the rows that the entry changed, as the row is
// after the change. The LSN selects the row, so all replicas look at the same one, and over time at
// every row that changes. A row's bytes are the result of all its updates, so arithmetic that
// differed once shows the next time the row is selected.
//
// It is a sum, not a chain: the sums of two equal replicas that began at different LSNs differ by a
// constant. So nothing has to be stored: a follower notes the constant when it first gets a
// primary's sum, and the constant must never change. A replica that was found on disk replays
// entries into rows that are ahead of them already; an entry whose row is unknown restarts the
// comparison.
//
// Thread-compatible; confined to the shard's strand. 8 KiB per shard that is followed or follows.
// Costs 10 ns per entry, 43 ns with a row of 512 bytes (one core of an AMD EPYC; rolling_hash_test
// prints it).
#ifndef HOTBED_SERVER_SHARD_REPLICA_ROLLING_HASH_H_
#define HOTBED_SERVER_SHARD_REPLICA_ROLLING_HASH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"

namespace hotbed {

class RollingHash {
 public:
  static constexpr Lsn kWindow = 1024;  // a primary's sum may be this many LSNs old
  enum class Verdict {
    kUnknown,  // not comparable, or noted as the first of its primary
    kSame,
    kDiffers,
  };

  // Counts the entries above `lsn`.
  void Start(Lsn lsn) {
    sum_ = kA;
    sums_.assign(kWindow, sum_);
    lsn_ = exact_from_ = lsn;
    expected_lsn_ = 0;
    anchored_ = false;
  }
  bool started() const { return !sums_.empty(); }
  Lsn lsn() const { return lsn_; }

  // The index, below `rows`, of the row that an entry's hash covers.
  static uint32_t SampledRow(Lsn lsn, uint32_t rows) {
    return static_cast<uint32_t>(Mix(lsn, 1) % rows);
  }

  // The entry at lsn() + 1 was applied. `record`: at least its header as it stands in the log
  // (shard_log/segment_format.h). `row`: the sampled row after it; empty where it changed none.
  // Returns the verdict on a primary's sum that was expected at this LSN.
  Verdict Add(absl::Span<const uint8_t> record, absl::Span<const uint8_t> row) {
    sum_ += Mix(HashHeader(record.data()), HashBytes(row));
    sums_[++lsn_ % kWindow] = sum_;
    return lsn_ == expected_lsn_ ? Compare(lsn_, expected_) : Verdict::kUnknown;
  }
  // Likewise for an entry whose row is unknown: the comparison starts over above it.
  void Skip() {
    sums_[++lsn_ % kWindow] = sum_;
    exact_from_ = lsn_;
    anchored_ = false;
    if (lsn_ == expected_lsn_) Compare(lsn_, expected_);
  }

  // A primary sends it together with lsn(). 0, once in 2^64, stands for no sum.
  uint64_t value() const { return sum_; }

  // Another primary is followed, whose sum began elsewhere.
  void ForgetPrimary() {
    anchored_ = false;
    expected_lsn_ = 0;
  }
  // The primary's value() was `value` (not 0) at `lsn`. If `lsn` is not reached here yet, Add
  // returns the verdict later. kDiffers: since the first comparison, an entry or its effect was
  // different there.
  Verdict Compare(Lsn lsn, uint64_t value) {
    if (!started() || lsn < exact_from_ || lsn + kWindow <= lsn_) return Verdict::kUnknown;
    if (lsn > lsn_) {
      if (expected_lsn_ <= lsn_) {  // keep the nearest, so that it is reached
        expected_lsn_ = lsn;
        expected_ = value;
      }
      return Verdict::kUnknown;
    }
    const uint64_t offset = value - sums_[lsn % kWindow];
    if (!anchored_) {
      anchored_ = true;
      offset_ = offset;
      return Verdict::kUnknown;
    }
    return offset == offset_ ? Verdict::kSame : Verdict::kDiffers;
  }

 private:
  static constexpr uint64_t kA = 0x9e3779b97f4a7c15;
  static constexpr uint64_t kB = 0xd6e8feb86659fd93;

  // A folded 64x64 multiplication: each bit of the result depends on the whole input.
  static uint64_t Mix(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a ^ kA) * (b ^ kB);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  static uint64_t Word(const uint8_t* at) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    return word;
  }
  // The 128 bytes without the header's own checksum and the synced position, which differ by log.
  static uint64_t HashHeader(const uint8_t* header) {
    constexpr uint64_t kHigh = 0xffffffff00000000;
    uint64_t hash = Mix(Word(header) & ~kHigh, Word(header + 8));
    for (size_t i = 16; i < 128; i += 16) {
      const uint64_t second = i == 80 ? Word(header + 88) & ~kHigh : Word(header + i + 8);
      hash = Mix(hash ^ Word(header + i), second);
    }
    return hash;
  }
  static uint64_t HashBytes(absl::Span<const uint8_t> bytes) {
    uint64_t hash = bytes.size();
    size_t i = 0;
    if (bytes.size() >= 64) {  // four independent lanes, so that multiplications overlap
      uint64_t lanes[4] = {hash, kA, kB, kA ^ kB};
      for (; i + 64 <= bytes.size(); i += 64) {
        for (size_t lane = 0; lane < 4; ++lane) {
          const uint8_t* const at = bytes.data() + i + 16 * lane;
          lanes[lane] = Mix(lanes[lane] ^ Word(at), Word(at + 8));
        }
      }
      hash = Mix(lanes[0] ^ lanes[1], lanes[2]) ^ lanes[3];
    }
    for (; i + 16 <= bytes.size(); i += 16) {
      hash = Mix(hash ^ Word(bytes.data() + i), Word(bytes.data() + i + 8));
    }
    uint8_t rest[16] = {};
    if (i < bytes.size()) std::memcpy(rest, bytes.data() + i, bytes.size() - i);
    return Mix(hash ^ Word(rest), Word(rest + 8));
  }

  std::vector<uint64_t> sums_;  // of (lsn_ - kWindow, lsn_]
  Lsn lsn_ = 0;
  Lsn exact_from_ = 0;  // from here on, sums differ from an equal primary's by a constant
  uint64_t sum_ = 0;
  Lsn expected_lsn_ = 0;  // above lsn_: a primary's sum there
  uint64_t expected_ = 0;
  bool anchored_ = false;
  uint64_t offset_ = 0;  // the constant: the primary's sum minus ours
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_REPLICA_ROLLING_HASH_H_
