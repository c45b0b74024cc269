// Whether two copies of a shard are still bit-equal, for a few nanoseconds a push (reliability
// page, section 3.3 and invariant I8).
//
// Each applied entry adds a 64-bit hash to a sum: of the record's header, of its payload (by the
// checksum that the record carries) and of one of the rows that it changed, as that row is after
// the change. Which row: the LSN decides, so all copies look at the same one, and in time at all
// that change. A row's bytes are the outcome of everything that ever happened to it, so arithmetic
// that differs once shows whenever the row is looked at again.
//
// A sum, not a chain: sums of two copies that began to count at different LSNs differ by a constant
// as long as the copies are equal. So nothing has to be stored: a follower notes that constant when
// it first hears of a primary's sum, and from then on it must not change. A copy that was found on
// a disk replays entries into rows that are ahead of them already; what it cannot see (`row` not
// known) begins the comparison anew.
//
// Thread-compatible; of the shard's strand. 8 KiB a shard that is followed or follows. Costs 10 ns
// an entry, 43 with a row of 512 bytes (one core of an AMD EPYC; rolling_hash_test prints it).
#ifndef HOTBED_SERVER_SHARD_ROLLING_HASH_H_
#define HOTBED_SERVER_SHARD_ROLLING_HASH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "common/ids.h"

namespace hotbed {

class RollingHash {
 public:
  static constexpr Lsn kWindow = 1024;  // LSNs that a primary's sum may lag behind
  enum class Verdict {
    kUnknown,  // not comparable, or noted as the first of its primary
    kSame,
    kDiffers,
  };

  // Counts from behind `lsn`.
  void Start(Lsn lsn) {
    sum_ = kA;
    sums_.assign(kWindow, sum_);
    lsn_ = exact_from_ = lsn;
    expected_lsn_ = 0;
    anchored_ = false;
  }
  bool started() const { return !sums_.empty(); }
  Lsn lsn() const { return lsn_; }

  // Which of `rows` rows an entry's hash covers.
  static uint32_t SampledRow(Lsn lsn, uint32_t rows) {
    return static_cast<uint32_t>(Mix(lsn, 1) % rows);
  }

  // The entry at lsn() + 1 was applied. `record`: at least its header as it stands in the log
  // (shard_log/segment_format.h). `row`: the sampled row after it; empty where it changed none.
  // What comes of a sum that was expected there.
  Verdict Add(absl::Span<const uint8_t> record, absl::Span<const uint8_t> row) {
    sum_ += Mix(HashHeader(record.data()), HashBytes(row));
    sums_[++lsn_ % kWindow] = sum_;
    return lsn_ == expected_lsn_ ? Compare(lsn_, expected_) : Verdict::kUnknown;
  }
  // Likewise, of an entry whose row is not known: nothing before it is compared with what is after.
  void Skip() {
    sums_[++lsn_ % kWindow] = sum_;
    exact_from_ = lsn_;
    anchored_ = false;
    if (lsn_ == expected_lsn_) Compare(lsn_, expected_);
  }

  // What a primary sends, with lsn(). 0, once in 2^64: nothing.
  uint64_t value() const { return sum_; }

  // Another primary is followed: its sum began elsewhere.
  void ForgetPrimary() {
    anchored_ = false;
    expected_lsn_ = 0;
  }
  // The primary's value() was `value` (not 0) at `lsn`, which may not be reached here yet: then Add
  // says what comes of it. kDiffers: an entry since the first comparison, or what it did, was
  // another one there.
  Verdict Compare(Lsn lsn, uint64_t value) {
    if (!started() || lsn < exact_from_ || lsn + kWindow <= lsn_) return Verdict::kUnknown;
    if (lsn > lsn_) {
      if (expected_lsn_ <= lsn_) {  // the first that is to come, so that one is reached
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

  // A 64x64 multiplication folded: each bit of the result depends on all of the input.
  static uint64_t Mix(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a ^ kA) * (b ^ kB);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  static uint64_t Word(const uint8_t* at) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    return word;
  }
  // The 128 bytes but for the header's own checksum and for what is synced: those are each log's.
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
    if (bytes.size() >= 64) {  // four at a time: a multiplication need not wait for the one before
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
  Lsn exact_from_ = 0;  // sums at or above differ from a primary's by a constant
  uint64_t sum_ = 0;
  Lsn expected_lsn_ = 0;  // above lsn_: a primary's sum there
  uint64_t expected_ = 0;
  bool anchored_ = false;
  uint64_t offset_ = 0;  // of a primary's sums over these
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_ROLLING_HASH_H_
