// Reads the records of one segment file in order, those of a group one by one, in windows of a few
// MiB, and finds the next whole record after damage. Thread-compatible.
#ifndef HOTBED_SERVER_SHARD_LOG_SEGMENT_READER_H_
#define HOTBED_SERVER_SHARD_LOG_SEGMENT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/files/file_system.h"
#include "server/shard_log/record_group.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

class SegmentReader {
 public:
  // `path` ends with the name of the segment: only records with its number are read. `file_bytes`:
  // where the file ends for this reader.
  SegmentReader(FileSystem* files, std::string path, uint64_t file_bytes);

  // Before Next: says how the records are to be read.
  absl::StatusOr<SegmentHeader> ReadHeader();

  enum class Found {
    kRecord,      // whole; Next continues after it
    kEnd,         // the end of the file
    kCutShort,    // the file ends inside the record or group
    kZeros,       // nothing but zero bytes is left
    kBadPayload,  // the header is good, and the payload of all or some parts (bad_parts) is not
    kBadHeader,   // kind, shard and length are unknown
  };
  // Looks at the record at the next offset. Anything but kRecord is final until SkipDamage. An
  // error is an I/O error.
  absl::StatusOr<Found> Next();

  // After kBadPayload: moves past the record, or to the whole parts of the group. After kBadHeader:
  // moves to the next offset that holds a good header. False: nothing follows.
  absl::StatusOr<bool> SkipDamage();

  // The end of the last record or group from `offset` on whose header is whole; 0: there is none.
  // Leaves the place of Next as it is; ids and gradients of record() are gone.
  absl::StatusOr<uint64_t> EndBehind(uint64_t offset);
  // After Next found damage: the same for records and groups that begin behind it.
  absl::StatusOr<uint64_t> EndBehindDamage() {
    return EndBehind(bad_payload_ ? next_offset_ : offset_ + 8);
  }

  // Where the record begins that Next looked at, or its entry in the group, or the group if a part
  // is damaged.
  uint64_t offset() const { return offset_; }
  uint64_t begin() const { return begin_; }  // of the record, or of its group
  // After kRecord: the record is not the first of its group.
  bool is_later_part() const { return part_next_ > 1; }
  uint64_t next_offset() const { return next_offset_; }  // of the next record or group
  const RecordView& record() const { return view_; }     // after kRecord; valid until the next call
  const RecordHeader& header() const { return view_.header; }  // after kRecord
  // After kRecord: of the record, or of its group.
  const RecordOrigin& origin() const { return origin_; }
  uint32_t header_crc() const { return header_crc_; }  // as stored
  // After kBadPayload: the record, or the damaged parts of the group; empty if the table of the
  // group is damaged, and with it, perhaps, parts of any shard.
  absl::Span<const RecordHeader> bad_parts() const { return bad_parts_; }
  // After kBadHeader: LikelyRecordLength. 0 after everything else.
  uint32_t raw_length() const { return raw_length_; }

 private:
  struct Place {
    uint64_t offset = 0;
    uint64_t length = 0;  // 0: there is none
  };

  // The first record or group from `at` on whose header is whole.
  absl::StatusOr<Place> FindHeader(uint64_t at);
  // Pointer to [offset, offset + bytes) of the file, which must lie inside it.
  absl::StatusOr<const char*> Load(uint64_t offset, uint64_t bytes);
  absl::StatusOr<bool> OnlyZerosFrom(uint64_t offset);
  absl::StatusOr<Found> NextGroup(const GroupHeader& group, uint64_t left);
  Found TakePart();

  FileSystem* files_;
  std::string path_;
  uint64_t file_bytes_;
  uint64_t number_;  // SegmentHeader::number
  uint64_t offset_ = kSegmentHeaderBytes;
  uint64_t begin_ = kSegmentHeaderBytes;
  uint64_t next_offset_ = kSegmentHeaderBytes;
  RecordView view_;
  RecordOrigin origin_;
  uint32_t header_crc_ = 0;
  std::vector<GroupPart> parts_;  // the whole ones of the group that was read last
  size_t part_next_ = 0;
  std::vector<RecordHeader> bad_parts_;
  uint32_t raw_length_ = 0;
  bool bad_payload_ = false;
  std::unique_ptr<uint64_t[]> window_;  // of words, for the alignment of the ids
  uint64_t window_capacity_ = 0;
  uint64_t window_offset_ = 0;
  uint64_t window_bytes_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SEGMENT_READER_H_
