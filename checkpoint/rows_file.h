// The file of one shard's rows in a checkpoint (docs/checkpoints.md has the format for readers in
// other languages).
//
// Little-endian:
//   header   "HOTBDROW", u32 version (1; with compressed blocks 2), u32 flags (1: hashed, 2:
//            compressed blocks), u32 weight bytes per row, u32 payload bytes per row (weights and
//            state), u32 0, u32 CRC-32C of what is before
//   blocks   u32 CRC-32C of the rest of the block, u32 kind, u32 count, u32 packing, then
//              kind 1, rows: u64 id each, then the payload of each; with packing 1 as
//              checkpoint/block_packer.h packs them
//              kind 2, sessions: count bytes
//              kind 3, deleted rows: u64 id each
//              kind 4, counts of touches (common/tables/touch_filter_shape.h): count bytes
//   index    48 bytes per block: u64 offset, u32 bytes, u32 CRC-32C as in the block, u32 kind,
//            u32 pass, u32 count, u32 0, u64 first position, u64 last position
//   trailer  u64 offset of the index, u32 bytes of it, u32 CRC-32C of it, "HOTBDEND"
//
// The positions of a pass ascend, those of rows and those of deleted rows, and none is in both. A
// row of a later pass replaces that of an earlier one, and a deleted row of a later pass removes
// it; so does a file that adds to the parent's, with the parent's rows. The index makes the file
// readable by range. Thread-compatible; calls block.
#ifndef HOTBED_CHECKPOINT_ROWS_FILE_H_
#define HOTBED_CHECKPOINT_ROWS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/block_packer.h"
#include "places/place.h"

namespace hotbed {

struct RowsFileHeader {
  bool hashed = false;
  uint32_t weight_bytes = 0;
  uint32_t payload_bytes = 0;
  bool compressed = false;
  friend bool operator==(const RowsFileHeader&, const RowsFileHeader&) = default;
};

enum class RowsFileBlock : uint32_t { kRows = 1, kSessions = 2, kDeleted = 3, kTouchFilter = 4 };

constexpr bool HoldsRows(RowsFileBlock kind) {
  return kind == RowsFileBlock::kRows || kind == RowsFileBlock::kDeleted;
}

struct RowsFileEntry {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t crc = 0;
  RowsFileBlock kind = RowsFileBlock::kRows;
  uint32_t pass = 0;
  uint32_t count = 0;
  uint64_t first_position = 0;
  uint64_t last_position = 0;
};

class RowsFileWriter {
 public:
  // Makes a new file. AlreadyExists: there is one of that name (Place::Create).
  static absl::StatusOr<std::unique_ptr<RowsFileWriter>> Create(const std::string& path,
                                                                const RowsFileHeader& header,
                                                                Place* place);
  void BeginPass() { ++pass_; }
  // One block. The ids are in the order of their positions, behind those of this pass so far.
  absl::Status AddRows(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads);
  // Likewise.
  absl::Status AddDeleted(absl::Span<const uint64_t> ids);
  absl::Status AddSessions(absl::string_view bytes);
  absl::Status AddTouchFilter(absl::string_view bytes);  // may be called several times
  // Writes the index and makes the file durable.
  absl::Status Finish();

  uint64_t bytes() const { return bytes_; }
  uint64_t rows() const { return rows_; }
  uint64_t deleted() const { return deleted_; }
  uint32_t index_crc() const { return index_crc_; }  // after Finish

 private:
  RowsFileWriter(const RowsFileHeader& header, std::unique_ptr<PlaceWriter> file)
      : header_(header), file_(std::move(file)) {}
  absl::Status Append(std::vector<absl::string_view> pieces);
  RowsFileEntry EntryOf(RowsFileBlock kind, absl::Span<const uint64_t> ids) const;
  absl::Status AddBlock(RowsFileEntry entry, std::vector<absl::string_view> pieces,
                        uint32_t packing = 0);

  const RowsFileHeader header_;
  const std::unique_ptr<PlaceWriter> file_;
  BlockPacker packer_;
  std::vector<RowsFileEntry> index_;
  uint32_t pass_ = 0;
  uint64_t bytes_ = 0;
  uint64_t rows_ = 0;
  uint64_t deleted_ = 0;
  uint32_t index_crc_ = 0;
};

class RowsFileReader {
 public:
  // DataLoss: damaged, cut off, or not the file of `bytes` and `index_crc`. FailedPrecondition:
  // another version. NotFound: there is none. The messages name the file.
  static absl::StatusOr<std::unique_ptr<RowsFileReader>> Open(const std::string& path,
                                                              uint64_t bytes, uint32_t index_crc,
                                                              Place* place);
  const RowsFileHeader& header() const { return header_; }
  const std::vector<RowsFileEntry>& index() const { return index_; }
  // The bytes that a block of rows, or of deleted ones, has when it is not compressed.
  uint64_t PlainBytes(const RowsFileEntry& entry) const;
  // DataLoss: the block is damaged. Deleted rows have no payloads.
  absl::Status ReadRows(const RowsFileEntry& entry, std::vector<uint64_t>* ids,
                        std::vector<uint8_t>* payloads);
  absl::StatusOr<std::string> ReadSessions();     // empty: the file has none
  absl::StatusOr<std::string> ReadTouchFilter();  // likewise; all blocks, one behind the other
  // Calls `visit` with all bytes of the file in their order, each proven by the checksums that the
  // manifest vouches for. DataLoss: they do not match. An error of `visit` ends it.
  absl::Status VisitBytes(absl::FunctionRef<absl::Status(absl::string_view bytes)> visit);

 private:
  RowsFileReader(std::string path, std::unique_ptr<PlaceReader> file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status ReadIndex(uint64_t bytes, uint32_t index_crc);
  absl::Status ReadHeader();
  // The block with its head into block_.
  absl::Status ReadBlock(const RowsFileEntry& entry);
  // Puts the contents of a packed block into block_ as they were.
  absl::Status Unpack(const RowsFileEntry& entry);
  absl::Status ReadBytes(uint64_t offset, uint64_t bytes, std::string* out);
  absl::Status Damaged(absl::string_view what) const;

  const std::string path_;
  const std::unique_ptr<PlaceReader> file_;
  RowsFileHeader header_;
  uint32_t index_crc_ = 0;
  std::vector<RowsFileEntry> index_;
  std::string block_;
  std::string plain_;
};

}  // namespace hotbed

#endif  // HOTBED_CHECKPOINT_ROWS_FILE_H_
