// Reads the records of one segment file in order, in windows of a few MiB, and finds the next whole
// record after damage. Thread-compatible.
#ifndef HOTBED_SERVER_SHARD_LOG_SEGMENT_READER_H_
#define HOTBED_SERVER_SHARD_LOG_SEGMENT_READER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/files/file_system.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class SegmentReader {
 public:
  // `file_bytes`: where the file ends for this reader.
  SegmentReader(FileSystem* files, std::string path, uint64_t file_bytes);

  absl::StatusOr<SegmentHeader> ReadHeader();

  enum class Found {
    kRecord,      // whole; Next continues after it
    kEnd,         // the end of the file
    kCutShort,    // the file ends inside the record
    kZeros,       // nothing but zero bytes is left
    kBadPayload,  // the header is good, the payload is not
    kBadHeader,   // kind, shard and length are unknown
  };
  // Looks at the record at the next offset. Anything but kRecord is final until SkipDamage. An
  // error is an I/O error.
  absl::StatusOr<Found> Next();

  // After kBadPayload: moves past the record. After kBadHeader: moves to the next offset that
  // holds a good record header. False: there is none.
  absl::StatusOr<bool> SkipDamage();

  uint64_t offset() const { return offset_; }            // of the record that Next looked at
  uint64_t next_offset() const { return next_offset_; }  // of the one that Next looks at next
  const RecordView& record() const { return view_; }     // after kRecord; valid until the next call
  const RecordOrigin& origin() const { return decoded_.origin; }  // after kRecord
  uint32_t header_crc() const { return decoded_.header_crc; }     // as stored, after kRecord
  const RecordHeader& header() const { return decoded_.header; }  // after kRecord, kBadPayload
  // After kBadHeader: LikelyRecordLength. 0 after everything else.
  uint32_t raw_length() const { return raw_length_; }

 private:
  // Pointer to [offset, offset + bytes) of the file, which must lie inside it.
  absl::StatusOr<const char*> Load(uint64_t offset, uint64_t bytes);
  absl::StatusOr<bool> OnlyZerosFrom(uint64_t offset);

  FileSystem* files_;
  std::string path_;
  uint64_t file_bytes_;
  uint64_t offset_ = kSegmentHeaderBytes;
  uint64_t next_offset_ = kSegmentHeaderBytes;
  DecodedHeader decoded_;
  RecordView view_;
  uint32_t raw_length_ = 0;
  bool bad_payload_ = false;
  std::unique_ptr<uint64_t[]> window_;  // of words, for the alignment of the ids
  uint64_t window_capacity_ = 0;
  uint64_t window_offset_ = 0;
  uint64_t window_bytes_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SEGMENT_READER_H_
