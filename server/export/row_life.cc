#include "server/export/row_life.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "row_math/position.h"
#include "server/export/change_reads.h"

namespace hotbed {
namespace {

absl::StatusOr<std::vector<uint64_t>> LifeIds(const v1::RowLifeRequest& request,
                                              const SpillShard& shard) {
  const std::string& bytes = request.ids();
  if (bytes.size() % sizeof(uint64_t) != 0 || bytes.size() / sizeof(uint64_t) > kRowLifeIdsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ids has ", bytes.size(), " bytes, allowed: 8 per id, at most ", kRowLifeIdsMax, " ids"));
  }
  std::vector<uint64_t> ids(bytes.size() / sizeof(uint64_t));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (const uint64_t id : ids) {
    const uint64_t position = Mix64(id);
    if (position >= shard.first_position && position <= shard.last_position) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("ids: id ", id, " is not of ", shard.shard.ToString()));
  }
  return ids;
}

void AddTouches(const KnownTouches& row, bool shows, v1::RowLifeReply* reply) {
  uint8_t bytes[kTouchBytes];
  if (shows) {
    StoreShows(row.shows, bytes);
    reply->mutable_shows()->append(reinterpret_cast<const char*>(bytes), kShowBytes);
  }
  StoreTouches(row.touches, bytes);
  reply->mutable_found()->push_back(static_cast<char>(row.found));
  reply->mutable_touches()->append(reinterpret_cast<const char*>(bytes), sizeof(bytes));
}

}  // namespace

absl::StatusOr<v1::RowLifeReply> AnswerRowLife(const ShardHost& host,
                                               const v1::RowLifeRequest& request,
                                               absl::FunctionRef<absl::Status()> go_on) {
  v1::RowLifeReply reply;
  const ShardId id = ShardId::FromPacked(request.shard());
  const std::shared_ptr<Shard> shard =
      FindFollowed(host, id, request.range_first(), request.range_limit());
  if (shard == nullptr || !shard->primary() || !shard->active()) {
    reply.set_elsewhere(true);
    return reply;
  }
  if (!shard->table().optimizer.touches) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", shard->table().name,
                     " keeps no touches; make one with touches (a hashed table)"));
  }
  HOTBED_ASSIGN_OR_RETURN(const std::vector<uint64_t> ids, LifeIds(request, shard->spilled()));
  HOTBED_ASSIGN_OR_RETURN(const std::vector<KnownTouches> rows, shard->row_sweep()->Read(ids));
  const bool shows = shard->table().optimizer.shows.kept;
  for (const KnownTouches& row : rows) AddTouches(row, shows, &reply);
  if (!request.has_would_take()) return reply;
  HOTBED_ASSIGN_OR_RETURN(const LifeParams life, FromProto(request.would_take()));
  HOTBED_ASSIGN_OR_RETURN(const SweptRows swept, shard->row_sweep()->DryRun(life, go_on));
  reply.set_rows(swept.rows);
  reply.set_expires(swept.expired);
  reply.set_evicts(swept.evicted);
  return reply;
}

}  // namespace hotbed
