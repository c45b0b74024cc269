#include "server/export/row_reads.h"

#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "row_math/position.h"
#include "row_math/types.h"
#include "server/export/change_reads.h"

namespace hotbed {
namespace {

// The rows that are read of one shard.
struct ReadPart {
  std::shared_ptr<Shard> shard;  // null: it is elsewhere
  Epoch epoch = 0;               // before its rows were read
  std::vector<uint64_t> ids;
  std::vector<uint8_t> rows;
  std::vector<uint8_t> exist;  // a byte per id
  RowReads reads;
  absl::StatusOr<ChangePosition> at = absl::UnavailableError("not read");
  absl::Notification read;

  uint64_t row_bytes() const { return RowWireBytes(RowType::kFp32, shard->dim()); }
};
using ReadParts = std::vector<std::unique_ptr<ReadPart>>;

absl::Status CheckShards(const v1::ReadRowsRequest& request) {
  if (request.shards_size() < 1 || request.shards_size() > kFollowedShardsMax) {
    return absl::InvalidArgumentError(absl::StrCat("a call reads rows of ", request.shards_size(),
                                                   " shards, allowed: 1..", kFollowedShardsMax));
  }
  std::set<uint64_t> seen;
  for (const v1::WantedRows& wanted : request.shards()) {
    if (seen.insert(wanted.shard()).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a call names ", ShardId::FromPacked(wanted.shard()).ToString(), " twice, allowed: once"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> WantedIds(const v1::WantedRows& wanted, const Shard& shard) {
  const std::string& bytes = wanted.ids();
  if (bytes.size() % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ids has ", bytes.size(), " bytes, allowed: 8 per id"));
  }
  std::vector<uint64_t> ids(bytes.size() / sizeof(uint64_t));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (const uint64_t id : ids) {
    const uint64_t position = shard.table().hashed ? Mix64(id) : id;
    if (shard.spilled().first_position <= position && position <= shard.spilled().last_position) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("ids: id ", id, " is not of ", shard.spilled().shard.ToString()));
  }
  return ids;
}

absl::StatusOr<ReadParts> PartsOf(const ShardHost& host, const v1::ReadRowsRequest& request) {
  ReadParts parts;
  for (const v1::WantedRows& wanted : request.shards()) {
    auto part = std::make_unique<ReadPart>();
    part->shard = FindFollowed(host, ShardId::FromPacked(wanted.shard()), wanted.range_first(),
                               wanted.range_limit());
    // Whatever earlier primaries have told must be in the rows before they are read.
    if (part->shard != nullptr) {
      const Shard::FollowFrom begin = part->shard->BeginFollowing({}, /*opens_feed=*/false);
      part->epoch = begin.epoch;
      if (!begin.status.ok()) part->shard = nullptr;
    }
    if (part->shard != nullptr) {
      HOTBED_ASSIGN_OR_RETURN(part->ids, WantedIds(wanted, *part->shard));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// The rows of all parts; an error if an answer may not have so many.
absl::StatusOr<uint64_t> BytesOf(const ReadParts& parts) {
  uint64_t bytes = 0;
  bool many = false;
  for (const auto& part : parts) {
    if (part->shard == nullptr) continue;
    bytes += part->ids.size() * (part->row_bytes() + 1);
    many |= part->ids.size() > 1;
  }
  if (bytes <= kChangeBytesMax || !many) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("a call reads ", bytes,
                                                 " bytes of rows, allowed: at most ",
                                                 kChangeBytesMax, ", or one row of each shard"));
}

void BeginRead(ReadPart* part) {
  if (part->shard == nullptr) return;
  if (part->ids.empty()) {
    part->at = part->shard->AppliedPosition();
    part->read.Notify();
    return;
  }
  part->rows.resize(part->ids.size() * part->row_bytes());
  part->exist.resize(part->ids.size());
  part->reads.ids = part->ids.data();
  part->reads.count = static_cast<uint32_t>(part->ids.size());
  part->reads.rows = part->rows.data();
  part->reads.flags = part->exist.data();
  part->shard->ReadRows(&part->reads, [part](absl::StatusOr<ChangePosition> at) {
    part->at = std::move(at);
    part->read.Notify();
  });
}

// If not, another primary may have told changes before these rows were read, which they lack.
bool WasPrimary(const ReadPart& part) {
  return part.shard->PrimarySince(part.epoch) && !part.shard->MayLackPushes();
}

void AddFound(uint64_t shard, ReadPart* part, v1::ReadRowsReply* reply) {
  v1::FoundRows& found = *reply->add_shards();
  found.set_shard(shard);
  if (part->shard != nullptr) part->read.WaitForNotification();
  if (part->shard == nullptr || !part->at.ok() || !WasPrimary(*part)) {
    found.set_elsewhere(true);
    return;
  }
  found.mutable_at()->set_epoch(part->at->epoch);
  found.mutable_at()->set_lsn(part->at->lsn);
  const uint64_t row_bytes = part->ids.empty() ? 0 : part->row_bytes();
  for (size_t i = 0; i < part->ids.size(); ++i) {
    part->exist[i] &= 1;
    // A row that does not exist would have its first value.
    if (part->exist[i] == 0) std::memset(part->rows.data() + i * row_bytes, 0, row_bytes);
  }
  found.set_found(part->exist.data(), part->exist.size());
  found.set_rows(part->rows.data(), part->rows.size());
  FollowCounters::Get().rows.Add(found.found().size() + found.rows().size());
}

}  // namespace

absl::StatusOr<v1::ReadRowsReply> AnswerReadRows(const ShardHost& host, ChangeMemory* memory,
                                                 const v1::ReadRowsRequest& request) {
  HOTBED_RETURN_IF_ERROR(CheckShards(request));
  HOTBED_ASSIGN_OR_RETURN(const ReadParts parts, PartsOf(host, request));
  HOTBED_ASSIGN_OR_RETURN(const uint64_t bytes, BytesOf(parts));
  if (!memory->TakeForAnswer(kChangeAnswerCopies * bytes)) {
    return absl::ResourceExhaustedError("answers in flight have all of their memory");
  }
  const absl::Cleanup give = [&] { memory->GiveFromAnswer(kChangeAnswerCopies * bytes); };
  for (const auto& part : parts) BeginRead(part.get());
  v1::ReadRowsReply reply;
  for (size_t i = 0; i < parts.size(); ++i) {
    AddFound(request.shards(static_cast<int>(i)).shard(), parts[i].get(), &reply);
  }
  return reply;
}

}  // namespace hotbed
