// Blocks of rows for snapshot transfers between the spill tiers of two servers (docs/protocol.md).
//
// A block, little-endian:
//    0 u32 masked CRC-32C of all that follows
//    4 u32 version (1; 0: of this process, without checksums)
//    8 u32 rows, u32 bytes of a record
//   16 rows: u64 position, then the record as it is spilled (spill_tier.h)
//
// The records keep their own checksums, which cover table, slice and position too. A block that
// stays in this process may be unsealed: neither it nor its records have checksums. Pure.
#ifndef HOTBED_SERVER_TIERS_SPILL_ROW_BLOCK_H_
#define HOTBED_SERVER_TIERS_SPILL_ROW_BLOCK_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hotbed {

inline constexpr uint64_t kRowBlockHeaderBytes = 16;
inline constexpr uint64_t kRowBlockPositionBytes = 8;
inline constexpr uint32_t kRowBlockVersion = 1;
inline constexpr uint32_t kUnsealedVersion = 0;

class RowBlockWriter {
 public:
  explicit RowBlockWriter(uint32_t record_bytes, bool sealed = true);
  // `record` has record_bytes, or is the mark of a deleted row as it is stored.
  void Add(uint64_t position, absl::string_view record);
  uint32_t rows() const { return rows_; }
  uint64_t bytes() const { return bytes_.size(); }
  // The block; Add must not be called afterwards.
  std::string Finish();

 private:
  const uint32_t record_bytes_;
  const bool sealed_;
  uint32_t rows_ = 0;
  std::string bytes_;
};

// A view of a block; does not own its memory.
class RowBlock {
 public:
  // DataLoss: too short, too long or the checksum is wrong; FailedPrecondition: another version;
  // InvalidArgument: records of another size. An unsealed block is refused unless it may be one.
  static absl::StatusOr<RowBlock> Parse(absl::string_view bytes, uint32_t record_bytes,
                                        bool may_be_unsealed = false);

  uint32_t rows() const { return rows_; }
  uint64_t position(uint32_t row) const;
  absl::string_view record(uint32_t row) const;

 private:
  RowBlock(absl::string_view rows, uint32_t count, uint32_t record_bytes)
      : bytes_(rows), rows_(count), record_bytes_(record_bytes) {}

  absl::string_view bytes_;
  uint32_t rows_;
  uint32_t record_bytes_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_ROW_BLOCK_H_
