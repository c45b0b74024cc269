// The rows of a vocabulary: a hashed table of one shard whose rows are keys. A row has dim 4, and
// holds two whole numbers in two elements each: its number, 1 to TableSpec::vocabulary in the order
// in which keys were first looked up, and how often it was looked up. The row of the table's
// padding id, which is no key, holds how many numbers are given, and how many look-ups found the
// vocabulary full.
//
// An element is a digit to the base 2^24, which fp32 holds exactly: pulls, checkpoints, arrays and
// read copies need to know nothing of vocabularies.
#ifndef HOTBED_COMMON_TABLES_VOCABULARY_ROW_H_
#define HOTBED_COMMON_TABLES_VOCABULARY_ROW_H_

#include <cstdint>

#include "common/tables/table_spec.h"

namespace hotbed {

constexpr uint32_t kVocabularyDim = 4;
constexpr uint64_t kVocabularyMax = ~uint32_t{0};
constexpr uint64_t kNoKey = ~uint64_t{0};  // the padding id: -1

struct VocabularyRow {
  uint64_t number = 0;
  uint64_t count = 0;  // stays at its largest value, 2^48 - 1

  static VocabularyRow Load(const float* row) {
    return {Whole(row[0], row[1]), Whole(row[2], row[3])};
  }
  void Store(float* row) const {
    constexpr uint64_t kMost = (uint64_t{1} << 48) - 1;
    const uint64_t kept = count < kMost ? count : kMost;
    row[0] = static_cast<float>(number & kDigit);
    row[1] = static_cast<float>(number >> 24);
    row[2] = static_cast<float>(kept & kDigit);
    row[3] = static_cast<float>(kept >> 24);
  }

 private:
  static constexpr uint64_t kDigit = (1 << 24) - 1;
  static uint64_t Whole(float low, float high) {
    return static_cast<uint64_t>(low) | static_cast<uint64_t>(high) << 24;
  }
};

}  // namespace hotbed

#endif  // HOTBED_COMMON_TABLES_VOCABULARY_ROW_H_
