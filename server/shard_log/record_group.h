// A record group: the records of several shards that one write took, as a rule those of one push
// message. It has one header; a part's header is short, since most of it repeats the part before.
//
//   group
//    0 u32 length of the group: header, table, ids, gradients, padding to 8 bytes
//    4 u32 masked CRC32C of bytes [0,4) and [8,48), and then of the u64 number of the segment
//    8 u32 masked CRC32C of the table
//   12 u8 kind 8, zeros
//   16 u32 parts, u32 bytes of the table, u32 bytes of ids and gradients
//   28 u32 words known to be synced
//   32 u64 run of the server that wrote it, u64 0
//   48 the table: an entry per part
//      then the ids of all parts, and then the gradient rows of all parts
//
//   entry
//    0 u32 masked CRC32C of the part's ids, gradients and padding, as in its own record
//    4 u8 kind, u8 flags, u8 gradient type, as in a record; u8 blocks that follow
//    8 u64 shard, u64 lsn, u64 seq
//   32 u32 ids, u32 seq - prev_seq (0: prev_seq is 0, or a block)
//   40 blocks; a block that is left out is as in the part before
//      1: u64 epoch
//      2: u64 session, u64 incarnation
//      4: f32 learning rate, f32 bias correction 1, f32 bias correction 2, f32 gradient scale,
//         f32 value clip, f32 row norm clip, u32 time in s, u32 dim
//      8: u64 prev_seq
//
// A group is whole or torn as one. Damage of ids or gradients is that of the parts which they
// belong to; damage of the table may be that of any shard.
#ifndef HOTBED_SERVER_SHARD_LOG_RECORD_GROUP_H_
#define HOTBED_SERVER_SHARD_LOG_RECORD_GROUP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "server/shard_log/segment_format.h"

namespace hotbed {

inline constexpr uint64_t kGroupHeaderBytes = 48;
// A group never takes more bytes than its records would by themselves.
inline constexpr uint64_t kGroupBytesMax = 16ull << 20;  // of its records by themselves
inline constexpr size_t kGroupPartsMax = 4096;

// Writes header and table of a group. Thread-compatible; keeps its memory.
class GroupTable {
 public:
  void Clear() { bytes_.clear(); }
  // The next part. `payload_crc`: the plain CRC32C of ids, gradients and padding of its own record.
  void Add(const RecordHeader& header, uint32_t payload_crc);
  // Header and table of the group, valid until the next Clear or Add.
  absl::Span<const char> Seal(const RecordOrigin& origin);

  // After Seal.
  uint64_t length() const { return length_; }    // of the whole group
  uint64_t padding() const { return padding_; }  // zeros behind the gradients
  uint32_t header_crc() const;                   // as stored

 private:
  void Put(const void* data, size_t bytes);

  std::vector<char> bytes_;
  RecordHeader last_;  // the part before
  uint32_t parts_ = 0;
  uint64_t payload_bytes_ = 0;
  uint64_t length_ = 0;
  uint64_t padding_ = 0;
};

struct GroupHeader {
  uint64_t length = 0;
  uint32_t header_crc = 0;  // masked
  uint32_t table_crc = 0;   // masked
  uint32_t parts = 0;
  uint32_t table_bytes = 0;
  RecordOrigin origin;
};
// nullopt: not the header of a group, or a damaged one. Reads kGroupHeaderBytes.
std::optional<GroupHeader> DecodeGroupHeader(const char* bytes, uint64_t segment);
// The length of a group whose header DecodeGroupHeader refused, as LikelyRecordLength; nullopt: not
// a group.
std::optional<uint32_t> LikelyGroupLength(const char* bytes, uint64_t segment);

struct GroupPart {
  RecordHeader header;
  uint64_t at = 0;  // of its entry, in the group
  const uint64_t* ids = nullptr;
  const uint8_t* gradients = nullptr;
  bool intact = false;  // ids and gradients match their checksum
};
// The parts of a whole group at `group`, which is aligned to 8 bytes, into `parts`. False: the
// table is damaged, and it is unknown which shards have parts.
bool DecodeGroup(const GroupHeader& header, const char* group, std::vector<GroupPart>* parts);

}  // namespace hotbed

#endif  // HOTBED_SERVER_SHARD_LOG_RECORD_GROUP_H_
