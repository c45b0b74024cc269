// The bytes of a log segment file. All numbers are little-endian; offsets below are in bytes.
//
// Segment file: a header of 64 bytes, then records and record groups (record_group.h), each a
// multiple of 8 bytes long and so 8-byte aligned.
//
//   segment header
//    0 u64 magic "HOTBDLOG"
//    8 u32 format version, u32 header bytes (64)
//   16 u64 sequence number
//   24 u64 oldest segment that was not known to be synced
//   32 u64 bytes of the segment before, 0: none
//   40 u32 masked CRC32C of that segment's last record header, 0: not known
//   44 u32 flags (1 reused)
//   48 zeros
//   60 u32 masked CRC32C of [0,60)
//
//   record
//    0 u32 length of the record: header, payload, padding
//    4 u32 masked CRC32C of bytes [0,4) and [8,128), and then of the u64 number of the segment
//    8 u32 masked CRC32C of bytes [128,length)
//   12 u8 kind, u8 flags (1 open, 2 last part, 4 assign, 8 staged,
//      16 shows), u8 gradient type, u8 0
//   16 u64 shard, u64 epoch, u64 lsn, u64 session, u64 incarnation, u64 seq, u64 prev_seq
//   72 f32 learning rate, f32 bias correction 1, f32 bias correction 2
//   84 u32 ids, u32 dim, u32 words known to be synced
//   96 f32 gradient scale, f32 value clip, f32 row norm clip, u32 time in s since 1970 (touches)
//  112 u64 run of the server that wrote it (identity_file.h), u64 0
//  128 u64 ids[], then the gradient rows, with f32 shows and f32 clicks behind each if the flag
//      is set, then zeros
//
// A reused segment is a file that was an older segment: behind its last record follow bytes of that
// one. The header of the next segment says where its records end (segment_files.h), and the number
// of the segment, which the checksums of its records cover, tells the bytes apart. The number is
// left out for records in memory and on the wire (0).
//
// The header has a checksum of its own, so that a damaged payload can be reported with its shard
// and length.
#ifndef HOTBED_SERVER_SHARD_LOG_SEGMENT_FORMAT_H_
#define HOTBED_SERVER_SHARD_LOG_SEGMENT_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/files/file_system.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {

inline constexpr uint32_t kSegmentFormatVersion = 6;
// Versions that are still read. In 5, checksums cover no number of a segment; 4 has no groups
// either.
inline constexpr uint32_t kSegmentWithoutNumbers = 5;
inline constexpr uint32_t kSegmentWithoutGroups = 4;
inline constexpr uint64_t kSegmentHeaderBytes = 64;
inline constexpr uint64_t kRecordHeaderBytes = 128;
inline constexpr uint64_t kRecordBytesMax = 64ull << 20;
inline constexpr int kRecordStepShift = 20;  // the upper bits of a seq are its step

// A CRC that is stored next to the data it covers is masked, so that a CRC over both stays useful.
uint32_t MaskCrc(uint32_t crc);
uint32_t UnmaskCrc(uint32_t masked);
// The CRC of a header, continued over the number of its segment; 0 adds nothing.
uint32_t CrcWithNumber(uint32_t crc, uint64_t segment);

struct SegmentHeader {
  uint32_t version = kSegmentFormatVersion;  // of a header that was read; encoded is always the own
  uint64_t sequence = 0;
  // The oldest segment that was not known to be synced when this one was begun. The number after
  // this segment's own: this segment was synced itself and then emptied, since no shard needed it.
  uint64_t unsynced_from = 0;
  // Where the segment before this one ended: its bytes, 0 for the first segment of a log, and the
  // checksum of its last record's header, 0: not known.
  uint64_t previous_bytes = 0;
  uint32_t previous_crc = 0;
  bool reused = false;  // bytes of an older segment may follow the last record

  // The number that the checksums of its records cover.
  uint64_t number() const { return version <= kSegmentWithoutNumbers ? 0 : sequence; }
  // EmptyUnneeded made this file.
  bool emptied() const { return unsynced_from > sequence; }
};

std::string EncodeSegmentHeader(const SegmentHeader& header);
// `bytes` are the first 64 of the file. DataLoss: not a header; FailedPrecondition: another
// version, both named.
absl::StatusOr<SegmentHeader> DecodeSegmentHeader(absl::string_view bytes);
// Reads that of the segment file `path`, which errors name.
absl::StatusOr<SegmentHeader> ReadSegmentHeader(const std::string& path, FileSystem* files);

// "000000000042.log", and back; nullopt for any other name.
std::string SegmentName(uint64_t sequence);
std::optional<uint64_t> ParseSegmentName(absl::string_view name);

// Bytes of the gradient rows that follow the ids; 0 for kinds that carry none (dim 0).
inline uint64_t GradientBytes(const RecordHeader& h) { return h.id_count * GradientRowBytes(h); }
// Bytes of the whole record.
inline uint64_t RecordBytes(const RecordHeader& h) {
  return (kRecordHeaderBytes + 8ull * h.id_count + GradientBytes(h) + 7) & ~7ull;
}

// Fields of headers of records and of parts of groups. False: no such value.
uint8_t FlagsOf(const RecordHeader& header);
bool SetKind(uint8_t kind, RecordHeader* header);
bool SetFlags(uint8_t flags, RecordHeader* header);
bool SetGradientType(uint8_t type, RecordHeader* header);

inline constexpr char kPadding[8] = {};

// The state of the log, of which each record and group tells.
struct RecordOrigin {
  uint64_t synced_bytes = 0;  // of the newest segment; a multiple of 8 below 32 GiB
  uint64_t run = 0;           // ShardLogOptions::run
  uint64_t segment = 0;       // its number, which only the checksum has
};

// Writes kRecordHeaderBytes to `out`. `payload_crc` is the plain CRC32C of ids, gradients and
// padding.
void EncodeRecordHeader(const RecordHeader& header, uint32_t payload_crc,
                        const RecordOrigin& origin, char* out);

// A whole record, for memory and the wire: RecordBytes(header) bytes at `out`, of no log's origin.
// `gradients` has one pointer per row.
void EncodeRecord(const RecordHeader& header, const uint64_t* ids, const uint8_t* const* gradients,
                  char* out);
// Copies the header of such a record, kRecordHeaderBytes, to `out` and sets its origin.
void ResealRecordHeader(const uint8_t* record, const RecordOrigin& origin, char* out);

struct DecodedHeader {
  RecordHeader header;
  uint64_t length = 0;  // of the whole record
  RecordOrigin origin;
  uint32_t payload_crc = 0;  // masked
  uint32_t header_crc = 0;   // masked
};
// The stored checksum of an encoded record header.
uint32_t RecordHeaderCrc(const char* header);
// The plain CRC32C of ids, gradients and padding, as the header of `record` has it.
uint32_t RecordPayloadCrc(const uint8_t* record);
// nullopt when the checksum or a field that the checksum covers is wrong. Reads kRecordHeaderBytes.
std::optional<DecodedHeader> DecodeRecordHeader(const char* bytes, uint64_t segment = 0);

// Whether the bytes after the header of `record` (header.length bytes in all) match its checksum.
bool PayloadIntact(const DecodedHeader& header, const char* record);

// The likely length of a record whose header DecodeRecordHeader refused: computed from the rest of
// the header if its checksum matches, else the length field, which may be wrong. Distinguishes a
// record that the end of the file cut from one whose length was damaged.
uint32_t LikelyRecordLength(const char* bytes, uint64_t segment);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_SEGMENT_FORMAT_H_
