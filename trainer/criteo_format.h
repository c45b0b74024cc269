// Criteo display-advertising lines as examples of 39 fields.
//
// Two spellings: tab-separated without a header (label, 13 integers, 26 hexadecimal categories;
// fields may be empty), and comma-separated with the header label,I1..I13,C1..C26, where integers
// may be written as 260.0.
//
// Fields 0..12 are integers: table 0, bounded, id = field * kIntegerBuckets + bucket. Fields 13..38
// are categories: table 1, hashed, id = a 64-bit hash of (field, text).
#ifndef HOTBED_TRAINER_CRITEO_FORMAT_H_
#define HOTBED_TRAINER_CRITEO_FORMAT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainer/batch.h"

namespace hotbed {

constexpr uint32_t kIntegerBuckets = 512;
constexpr uint64_t kIntegerRows = 13ull * kIntegerBuckets + 1;  // the last row is the model's bias
constexpr uint64_t kBiasId = kIntegerRows - 1;

// Bucket of an integer: 1 for negative values, otherwise 2 + floor(log(value + 1)^2), as is usual
// for Criteo. Bucket 0 is for missing values.
uint32_t IntegerBucket(int64_t value);

// Stable 64-bit hash of a category and its field (FNV-1a, then Mix64). Empty text has a hash of its
// own.
uint64_t CategoryId(int field, absl::string_view text);

// Layout of the 39 fields over `<prefix>_integers` and `<prefix>_categories`.
FieldLayout CriteoLayout(const std::string& prefix);

// Appends one line to the batch. InvalidArgument says which field is wrong and why; then nothing
// was appended. `delimiter` is '\t' or ','.
absl::Status AppendCriteoLine(absl::string_view line, char delimiter, Batch* batch);

// True if the line is the CSV header.
bool IsCriteoHeader(absl::string_view line);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_CRITEO_FORMAT_H_
