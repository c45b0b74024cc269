#include "server/shard_log/segment_format.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/files/byte_order.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"
#include "server/shard_log/other_version.h"

namespace hotbed {
namespace {

constexpr char kSegmentMagic[9] = "HOTBDLOG";
constexpr size_t kSegmentCrcAt = 60;
constexpr uint8_t kFlagOpen = 1;
constexpr uint8_t kFlagLastPart = 2;
constexpr uint8_t kFlagAssign = 4;
constexpr uint8_t kFlagStaged = 8;
constexpr uint8_t kFlagShows = 16;
constexpr uint8_t kAllFlags = kFlagOpen | kFlagLastPart | kFlagAssign | kFlagStaged | kFlagShows;
constexpr uint32_t kSegmentReused = 1;
constexpr uint32_t kCrcMask = 0xa282ead8u;

// The fixed header as the file has it. No padding: every member is naturally aligned.
struct WireRecordHeader {
  uint32_t length;
  uint32_t header_crc;
  uint32_t payload_crc;
  uint8_t kind;
  uint8_t flags;
  uint8_t gradient_type;
  uint8_t zero0;
  uint64_t shard;
  uint64_t epoch;
  uint64_t lsn;
  uint64_t session;
  uint64_t incarnation;
  uint64_t seq;
  uint64_t prev_seq;
  float learning_rate;
  float bias_correction1;
  float bias_correction2;
  uint32_t id_count;
  uint32_t dim;
  uint32_t synced_words;
  float gradient_scale;
  float clip_value;
  float clip_row_norm;
  uint32_t time_s;
  uint64_t run;
  uint64_t zero2;
};
static_assert(sizeof(WireRecordHeader) == kRecordHeaderBytes);
static_assert(offsetof(WireRecordHeader, shard) == 16);
static_assert(offsetof(WireRecordHeader, learning_rate) == 72);
static_assert(offsetof(WireRecordHeader, run) == 112);

uint32_t HeaderCrc(const WireRecordHeader& w, uint64_t segment) {
  const char* p = reinterpret_cast<const char*>(&w);
  return MaskCrc(CrcWithNumber(Crc32c(p + 8, kRecordHeaderBytes - 8, Crc32c(p, 4)), segment));
}

}  // namespace

uint32_t CrcWithNumber(uint32_t crc, uint64_t segment) {
  if (segment == 0) return crc;
  char number[8];
  StoreLittle(number, segment);
  return Crc32c(number, sizeof(number), crc);
}

// As in LevelDB.
uint32_t MaskCrc(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + kCrcMask; }

uint32_t UnmaskCrc(uint32_t masked) {
  const uint32_t rotated = masked - kCrcMask;
  return (rotated >> 17) | (rotated << 15);
}

uint8_t FlagsOf(const RecordHeader& h) {
  return static_cast<uint8_t>((h.open ? kFlagOpen : 0) | (h.last_part ? kFlagLastPart : 0) |
                              (h.assign ? kFlagAssign : 0) | (h.staged ? kFlagStaged : 0) |
                              (h.shows ? kFlagShows : 0));
}

bool SetKind(uint8_t kind, RecordHeader* header) {
  header->kind = static_cast<RecordKind>(kind);
  return kind >= static_cast<uint8_t>(RecordKind::kPush) &&
         kind <= static_cast<uint8_t>(RecordKind::kDelete);
}

bool SetFlags(uint8_t flags, RecordHeader* header) {
  header->open = (flags & kFlagOpen) != 0;
  header->last_part = (flags & kFlagLastPart) != 0;
  header->assign = (flags & kFlagAssign) != 0;
  header->staged = (flags & kFlagStaged) != 0;
  header->shows = (flags & kFlagShows) != 0;
  return (flags & ~kAllFlags) == 0;
}

bool SetGradientType(uint8_t type, RecordHeader* header) {
  header->gradient_type = static_cast<RowType>(type);
  return type <= static_cast<uint8_t>(RowType::kInt8);
}

std::string EncodeSegmentHeader(const SegmentHeader& header) {
  std::string bytes(kSegmentHeaderBytes, '\0');
  std::memcpy(&bytes[0], kSegmentMagic, 8);
  StoreLittle(&bytes[8], kSegmentFormatVersion);
  StoreLittle(&bytes[12], static_cast<uint32_t>(kSegmentHeaderBytes));
  StoreLittle(&bytes[16], header.sequence);
  StoreLittle(&bytes[24], header.unsynced_from);
  StoreLittle(&bytes[32], header.previous_bytes);
  StoreLittle(&bytes[40], header.previous_crc);
  StoreLittle(&bytes[44], header.reused ? kSegmentReused : 0);
  StoreLittle(&bytes[kSegmentCrcAt], MaskCrc(Crc32c(bytes.data(), kSegmentCrcAt)));
  return bytes;
}

absl::StatusOr<SegmentHeader> DecodeSegmentHeader(absl::string_view bytes) {
  if (bytes.size() < kSegmentHeaderBytes || std::memcmp(bytes.data(), kSegmentMagic, 8) != 0) {
    return absl::DataLossError("not a Hotbed log segment");
  }
  const char* p = bytes.data();
  const uint32_t version = LoadLittle<uint32_t>(p + 8);
  const bool intact = LoadLittle<uint32_t>(p + kSegmentCrcAt) == MaskCrc(Crc32c(p, kSegmentCrcAt));
  // Another version may keep its checksum elsewhere, so the version is checked first.
  if (version < kSegmentWithoutGroups || version > kSegmentFormatVersion) {
    return OtherVersion("log segment", version, kSegmentFormatVersion, intact,
                        kSegmentWithoutGroups);
  }
  if (!intact) return absl::DataLossError("the segment header fails its checksum");
  return SegmentHeader{.version = version,
                       .sequence = LoadLittle<uint64_t>(p + 16),
                       .unsynced_from = LoadLittle<uint64_t>(p + 24),
                       .previous_bytes = LoadLittle<uint64_t>(p + 32),
                       .previous_crc = LoadLittle<uint32_t>(p + 40),
                       .reused = (LoadLittle<uint32_t>(p + 44) & kSegmentReused) != 0};
}

absl::StatusOr<SegmentHeader> ReadSegmentHeader(const std::string& path, FileSystem* files) {
  char bytes[kSegmentHeaderBytes];
  HOTBED_ASSIGN_OR_RETURN(const uint64_t got, files->ReadAt(path, 0, kSegmentHeaderBytes, bytes));
  if (got < kSegmentHeaderBytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", got, " bytes, fewer than the ",
                                            kSegmentHeaderBytes, " of its header"));
  }
  absl::StatusOr<SegmentHeader> header = DecodeSegmentHeader(absl::string_view(bytes, got));
  if (header.ok()) return header;
  return absl::Status(header.status().code(), absl::StrCat(path, ": ", header.status().message()));
}

uint32_t RecordHeaderCrc(const char* header) {
  return LoadLittle<uint32_t>(header + offsetof(WireRecordHeader, header_crc));
}

uint32_t RecordPayloadCrc(const uint8_t* record) {
  return UnmaskCrc(LoadLittle<uint32_t>(record + offsetof(WireRecordHeader, payload_crc)));
}

std::string SegmentName(uint64_t sequence) { return absl::StrFormat("%012d.log", sequence); }

std::optional<uint64_t> ParseSegmentName(absl::string_view name) {
  uint64_t sequence = 0;
  absl::string_view digits = name;
  if (!absl::ConsumeSuffix(&digits, ".log") || digits.size() < 12 ||
      !absl::SimpleAtoi(digits, &sequence) || SegmentName(sequence) != name) {
    return std::nullopt;
  }
  return sequence;
}

void EncodeRecordHeader(const RecordHeader& h, uint32_t payload_crc, const RecordOrigin& origin,
                        char* out) {
  WireRecordHeader w = {};
  w.length = static_cast<uint32_t>(RecordBytes(h));
  w.payload_crc = MaskCrc(payload_crc);
  w.kind = static_cast<uint8_t>(h.kind);
  w.flags = FlagsOf(h);
  w.gradient_type = static_cast<uint8_t>(h.gradient_type);
  w.zero0 = 0;
  w.shard = h.shard.packed();
  w.epoch = h.epoch;
  w.lsn = h.lsn;
  w.session = h.session;
  w.incarnation = h.incarnation;
  w.seq = h.seq;
  w.prev_seq = h.prev_seq;
  w.learning_rate = h.scalars.learning_rate;
  w.bias_correction1 = h.scalars.bias_correction1;
  w.bias_correction2 = h.scalars.bias_correction2;
  w.id_count = h.id_count;
  w.dim = h.dim;
  w.synced_words = static_cast<uint32_t>(origin.synced_bytes / 8);
  w.run = origin.run;
  w.gradient_scale = h.scalars.gradient_scale;
  w.clip_value = h.scalars.clip_value;
  w.clip_row_norm = h.scalars.clip_row_norm;
  w.time_s = h.scalars.time_s;
  w.header_crc = HeaderCrc(w, origin.segment);
  std::memcpy(out, &w, sizeof(w));
}

void EncodeRecord(const RecordHeader& header, const uint64_t* ids, const uint8_t* const* gradients,
                  char* out) {
  const uint64_t length = RecordBytes(header);
  char* at = out + kRecordHeaderBytes;
  if (header.id_count > 0) std::memcpy(at, ids, 8ull * header.id_count);
  at += 8ull * header.id_count;
  if (GradientBytes(header) > 0) {
    const uint64_t row_bytes = GradientRowBytes(header);
    for (uint32_t i = 0; i < header.id_count; ++i, at += row_bytes) {
      std::memcpy(at, gradients[i], row_bytes);
    }
  }
  std::memset(at, 0, static_cast<size_t>(out + length - at));
  EncodeRecordHeader(header, Crc32c(out + kRecordHeaderBytes, length - kRecordHeaderBytes), {},
                     out);
}

void ResealRecordHeader(const uint8_t* record, const RecordOrigin& origin, char* out) {
  WireRecordHeader w;
  std::memcpy(&w, record, sizeof(w));
  w.synced_words = static_cast<uint32_t>(origin.synced_bytes / 8);
  w.run = origin.run;
  w.header_crc = HeaderCrc(w, origin.segment);
  std::memcpy(out, &w, sizeof(w));
}

std::optional<DecodedHeader> DecodeRecordHeader(const char* bytes, uint64_t segment) {
  WireRecordHeader w;
  std::memcpy(&w, bytes, sizeof(w));
  DecodedHeader d;
  RecordHeader& h = d.header;
  // The cheap tests come first: a search for the next whole record tries every eighth byte.
  if (w.zero0 != 0 || w.length % 8 != 0 || w.length > kRecordBytesMax || !SetKind(w.kind, &h) ||
      !SetGradientType(w.gradient_type, &h) || !SetFlags(w.flags, &h) ||
      HeaderCrc(w, segment) != w.header_crc) {
    return std::nullopt;
  }
  d.length = w.length;
  d.origin = {.synced_bytes = 8ull * w.synced_words, .run = w.run, .segment = segment};
  d.payload_crc = w.payload_crc;
  d.header_crc = w.header_crc;
  h.shard = ShardId::FromPacked(w.shard);
  h.epoch = w.epoch;
  h.lsn = w.lsn;
  h.session = w.session;
  h.incarnation = w.incarnation;
  h.seq = w.seq;
  h.prev_seq = w.prev_seq;
  h.scalars = {w.learning_rate, w.bias_correction1, w.bias_correction2,        w.gradient_scale,
               w.clip_value,    w.clip_row_norm,    w.seq >> kRecordStepShift, w.time_s};
  h.id_count = w.id_count;
  h.dim = w.dim;
  if (RecordBytes(h) != d.length) return std::nullopt;
  return d;
}

bool PayloadIntact(const DecodedHeader& header, const char* record) {
  return header.payload_crc ==
         MaskCrc(Crc32c(record + kRecordHeaderBytes, header.length - kRecordHeaderBytes));
}

uint32_t LikelyRecordLength(const char* bytes, uint64_t segment) {
  WireRecordHeader w;
  std::memcpy(&w, bytes, sizeof(w));
  const uint32_t written = w.length;
  if (w.gradient_type > static_cast<uint8_t>(RowType::kInt8)) return written;
  RecordHeader h;
  h.gradient_type = static_cast<RowType>(w.gradient_type);
  h.id_count = w.id_count;
  h.dim = w.dim;
  const uint64_t implied = RecordBytes(h);
  if (implied > kRecordBytesMax) return written;
  w.length = static_cast<uint32_t>(implied);
  return HeaderCrc(w, segment) == w.header_crc ? w.length : written;
}

}  // namespace hotbed
