#include "server/shard_log/record_group.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "common/files/crc32c.h"

namespace hotbed {
namespace {

constexpr uint8_t kGroupKind = 8;  // among the kinds of records
enum Block : uint8_t { kEpochBlock = 1, kSessionBlock = 2, kUpdateBlock = 4, kPrevSeqBlock = 8 };
constexpr uint8_t kAllBlocks = kEpochBlock | kSessionBlock | kUpdateBlock | kPrevSeqBlock;

struct WireGroupHeader {
  uint32_t length;
  uint32_t header_crc;
  uint32_t table_crc;
  uint8_t kind;
  uint8_t zero[3];
  uint32_t parts;
  uint32_t table_bytes;
  uint32_t payload_bytes;
  uint32_t synced_words;
  uint64_t run;
  uint64_t zero2;
};
static_assert(sizeof(WireGroupHeader) == kGroupHeaderBytes);

struct WireEntry {
  uint32_t payload_crc;
  uint8_t kind;
  uint8_t flags;
  uint8_t gradient_type;
  uint8_t blocks;
  uint64_t shard;
  uint64_t lsn;
  uint64_t seq;
  uint32_t id_count;
  uint32_t distance;
};
static_assert(sizeof(WireEntry) == 40);

struct WireSession {
  uint64_t session;
  uint64_t incarnation;
};

struct WireUpdate {
  float learning_rate;
  float bias_correction1;
  float bias_correction2;
  float gradient_scale;
  float clip_value;
  float clip_row_norm;
  uint32_t time_s;
  uint32_t dim;
};
static_assert(sizeof(WireUpdate) == 32);

WireUpdate UpdateOf(const RecordHeader& h) {
  const UpdateScalars& s = h.scalars;
  return {s.learning_rate, s.bias_correction1, s.bias_correction2, s.gradient_scale,
          s.clip_value,    s.clip_row_norm,    s.time_s,           h.dim};
}

bool SameUpdate(const WireUpdate& a, const WireUpdate& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;  // NaN too
}

uint32_t HeaderCrc(const WireGroupHeader& w, uint64_t segment) {
  const char* p = reinterpret_cast<const char*>(&w);
  return MaskCrc(CrcWithNumber(Crc32c(p + 8, kGroupHeaderBytes - 8, Crc32c(p, 4)), segment));
}

uint64_t Padded(uint64_t bytes) { return (bytes + 7) & ~uint64_t{7}; }

uint64_t LengthOf(const WireGroupHeader& w) {
  return Padded(kGroupHeaderBytes + w.table_bytes + uint64_t{w.payload_bytes});
}

WireGroupHeader Load(const char* bytes) {
  WireGroupHeader w;
  std::memcpy(&w, bytes, sizeof(w));
  return w;
}

// Reads the entries of a table one by one.
class TableReader {
 public:
  TableReader(const char* table, uint64_t bytes) : at_(table), left_(bytes) {}

  uint64_t left() const { return left_; }
  // The next entry's header and checksum; false: no such entry.
  bool Next(RecordHeader* h, uint32_t* payload_crc) {
    WireEntry w;
    if (!Take(&w) || (w.blocks & ~kAllBlocks) != 0 || !SetKind(w.kind, h) ||
        !SetFlags(w.flags, h) || !SetGradientType(w.gradient_type, h)) {
      return false;
    }
    *payload_crc = w.payload_crc;
    h->shard = ShardId::FromPacked(w.shard);
    h->lsn = w.lsn;
    h->seq = w.seq;
    h->prev_seq = w.distance == 0 ? 0 : w.seq - w.distance;
    h->id_count = w.id_count;
    if ((w.blocks & kEpochBlock) != 0 && !Take(&h->epoch)) return false;
    WireSession session;
    if ((w.blocks & kSessionBlock) != 0) {
      if (!Take(&session)) return false;
      h->session = session.session;
      h->incarnation = session.incarnation;
    }
    WireUpdate u;
    if ((w.blocks & kUpdateBlock) != 0) {
      if (!Take(&u)) return false;
      h->scalars = {u.learning_rate, u.bias_correction1, u.bias_correction2, u.gradient_scale,
                    u.clip_value,    u.clip_row_norm,    /*step=*/0,         u.time_s};
      h->dim = u.dim;
    }
    h->scalars.step = h->seq >> kRecordStepShift;
    return (w.blocks & kPrevSeqBlock) == 0 || Take(&h->prev_seq);
  }

 private:
  template <typename T>
  bool Take(T* value) {
    if (left_ < sizeof(T)) return false;
    std::memcpy(value, at_, sizeof(T));
    at_ += sizeof(T);
    left_ -= sizeof(T);
    return true;
  }

  const char* at_;
  uint64_t left_;
};

bool Intact(const GroupPart& part, uint32_t payload_crc) {
  const uint64_t ids_bytes = 8ull * part.header.id_count;
  const uint64_t gradient_bytes = GradientBytes(part.header);
  uint32_t crc = Crc32c(part.ids, ids_bytes);
  crc = Crc32c(part.gradients, gradient_bytes, crc);
  crc = Crc32c(kPadding, Padded(gradient_bytes) - gradient_bytes, crc);
  return MaskCrc(crc) == payload_crc;
}

}  // namespace

void GroupTable::Put(const void* data, size_t bytes) {
  const char* const from = static_cast<const char*>(data);
  bytes_.insert(bytes_.end(), from, from + bytes);
}

void GroupTable::Add(const RecordHeader& h, uint32_t payload_crc) {
  const bool first = bytes_.empty();
  if (first) {
    bytes_.resize(kGroupHeaderBytes);
    parts_ = 0;
    payload_bytes_ = 0;
  }
  ++parts_;
  payload_bytes_ += 8ull * h.id_count + GradientBytes(h);
  const WireUpdate update = UpdateOf(h);
  const uint64_t distance = h.seq - h.prev_seq;
  const bool near = h.prev_seq != 0 && h.prev_seq < h.seq && distance <= UINT32_MAX;
  const bool same_session = h.session == last_.session && h.incarnation == last_.incarnation;
  uint8_t blocks = 0;
  if (first || h.epoch != last_.epoch) blocks |= kEpochBlock;
  if (first || !same_session) blocks |= kSessionBlock;
  if (first || !SameUpdate(update, UpdateOf(last_))) blocks |= kUpdateBlock;
  if (!near && h.prev_seq != 0) blocks |= kPrevSeqBlock;
  const WireEntry w = {.payload_crc = MaskCrc(payload_crc),
                       .kind = static_cast<uint8_t>(h.kind),
                       .flags = FlagsOf(h),
                       .gradient_type = static_cast<uint8_t>(h.gradient_type),
                       .blocks = blocks,
                       .shard = h.shard.packed(),
                       .lsn = h.lsn,
                       .seq = h.seq,
                       .id_count = h.id_count,
                       .distance = near ? static_cast<uint32_t>(distance) : 0};
  Put(&w, sizeof(w));
  if ((blocks & kEpochBlock) != 0) Put(&h.epoch, sizeof(h.epoch));
  const WireSession session = {h.session, h.incarnation};
  if ((blocks & kSessionBlock) != 0) Put(&session, sizeof(session));
  if ((blocks & kUpdateBlock) != 0) Put(&update, sizeof(update));
  if ((blocks & kPrevSeqBlock) != 0) Put(&h.prev_seq, sizeof(h.prev_seq));
  last_ = h;
}

absl::Span<const char> GroupTable::Seal(const RecordOrigin& origin) {
  WireGroupHeader w = {};
  w.kind = kGroupKind;
  w.parts = parts_;
  w.table_bytes = static_cast<uint32_t>(bytes_.size() - kGroupHeaderBytes);
  w.payload_bytes = static_cast<uint32_t>(payload_bytes_);
  w.synced_words = static_cast<uint32_t>(origin.synced_bytes / 8);
  w.run = origin.run;
  length_ = LengthOf(w);
  padding_ = length_ - bytes_.size() - payload_bytes_;
  w.length = static_cast<uint32_t>(length_);
  w.table_crc = MaskCrc(Crc32c(bytes_.data() + kGroupHeaderBytes, w.table_bytes));
  w.header_crc = HeaderCrc(w, origin.segment);
  std::memcpy(bytes_.data(), &w, sizeof(w));
  return bytes_;
}

uint32_t GroupTable::header_crc() const { return Load(bytes_.data()).header_crc; }

std::optional<GroupHeader> DecodeGroupHeader(const char* bytes, uint64_t segment) {
  const WireGroupHeader w = Load(bytes);
  if (w.kind != kGroupKind || w.length % 8 != 0 || w.length > kGroupBytesMax ||
      w.length != LengthOf(w) || HeaderCrc(w, segment) != w.header_crc) {
    return std::nullopt;
  }
  return GroupHeader{
      .length = w.length,
      .header_crc = w.header_crc,
      .table_crc = w.table_crc,
      .parts = w.parts,
      .table_bytes = w.table_bytes,
      .origin = {.synced_bytes = 8ull * w.synced_words, .run = w.run, .segment = segment}};
}

std::optional<uint32_t> LikelyGroupLength(const char* bytes, uint64_t segment) {
  WireGroupHeader w = Load(bytes);
  if (w.kind != kGroupKind) return std::nullopt;
  const uint32_t written = w.length;
  if (LengthOf(w) > kGroupBytesMax) return written;
  w.length = static_cast<uint32_t>(LengthOf(w));
  return HeaderCrc(w, segment) == w.header_crc ? w.length : written;
}

bool DecodeGroup(const GroupHeader& header, const char* group, std::vector<GroupPart>* parts) {
  parts->clear();
  const char* const table = group + kGroupHeaderBytes;
  if (MaskCrc(Crc32c(table, header.table_bytes)) != header.table_crc) return false;
  TableReader reader(table, header.table_bytes);
  std::vector<uint32_t> checksums;
  RecordHeader last;
  uint64_t ids = 0;
  uint64_t gradient_bytes = 0;
  while (reader.left() > 0) {
    GroupPart& part = parts->emplace_back();
    part.at = kGroupHeaderBytes + header.table_bytes - reader.left();
    if (!reader.Next(&last, &checksums.emplace_back())) return false;
    part.header = last;
    ids += last.id_count;
    gradient_bytes += GradientBytes(last);
  }
  if (parts->size() != header.parts ||
      Padded(kGroupHeaderBytes + header.table_bytes + 8 * ids + gradient_bytes) != header.length) {
    return false;
  }
  const auto* next_ids = reinterpret_cast<const uint64_t*>(table + header.table_bytes);
  const auto* next_gradients = reinterpret_cast<const uint8_t*>(next_ids + ids);
  for (size_t i = 0; i < parts->size(); ++i) {
    GroupPart& part = (*parts)[i];
    part.ids = next_ids;
    part.gradients = next_gradients;
    part.intact = Intact(part, checksums[i]);
    next_ids += part.header.id_count;
    next_gradients += GradientBytes(part.header);
  }
  return true;
}

}  // namespace hotbed
