// ReadTouches and CountByLife: one shard after another, at its primary.
#include "hotbed/row_life.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/map/checkpoint_cluster.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "row_math/position.h"
#include "row_math/touches.h"

namespace hotbed {
namespace {

constexpr size_t kLifeIdsPerCall = 4096;
constexpr int64_t kLifeRetryNs = kSecondNs / 10;

bool LifeMayAnswerLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsResourceExhausted(status);
}

class LifeCall {
 public:
  LifeCall(ClientImpl* client, const Table* table, absl::Duration deadline)
      : client_(*client), table_(*table), deadline_ns_(client->DeadlineNs(deadline)) {}

  // Asks about `ids`, which need not be sorted, until each was answered.
  absl::Status Read(absl::Span<const uint64_t> ids, std::vector<RowLife>* rows) {
    std::vector<size_t> left(ids.size());
    for (size_t i = 0; i < left.size(); ++i) left[i] = i;
    while (!left.empty()) {
      HOTBED_ASSIGN_OR_RETURN(const TableRoute* const route, Route());
      std::map<uint32_t, std::vector<size_t>> by_shard;
      for (const size_t i : left) {
        std::vector<size_t>& of = by_shard[route->order[route->locator.Find(Mix64(ids[i]))]];
        if (of.size() < kLifeIdsPerCall) of.push_back(i);
      }
      absl::Status last;
      std::vector<bool> done(ids.size());
      for (const auto& [shard, numbers] : by_shard) {
        v1::RowLifeRequest request;
        for (const size_t i : numbers) {
          request.mutable_ids()->append(reinterpret_cast<const char*>(&ids[i]), sizeof(ids[i]));
        }
        const absl::StatusOr<v1::RowLifeReply> reply = Ask(*route, shard, request);
        if (!reply.ok() && !LifeMayAnswerLater(reply.status())) return reply.status();
        if (!reply.ok()) {
          last = reply.status();
          continue;
        }
        HOTBED_RETURN_IF_ERROR(Take(*reply, numbers, rows));
        for (const size_t i : numbers) done[i] = true;
      }
      std::erase_if(left, [&](size_t i) { return done[i]; });
      if (!last.ok()) HOTBED_RETURN_IF_ERROR(Rest(last));
    }
    return absl::OkStatus();
  }

  // A shard that is cut meanwhile may be counted in part.
  absl::StatusOr<LifeCount> Count(const LifeParams& life) {
    LifeCount count;
    std::map<uint64_t, bool> done;  // by the first bucket
    for (bool again = true; again;) {
      again = false;
      HOTBED_ASSIGN_OR_RETURN(const TableRoute* const route, Route());
      absl::Status last;
      for (const uint32_t shard : route->order) {
        bool& counted = done[route->shards[shard].range.first];
        if (counted) continue;
        v1::RowLifeRequest request;
        *request.mutable_would_take() = ToProto(life);
        const absl::StatusOr<v1::RowLifeReply> reply = Ask(*route, shard, request);
        if (!reply.ok() && !LifeMayAnswerLater(reply.status())) return reply.status();
        again = again || !reply.ok();
        if (!reply.ok()) last = reply.status();
        if (!reply.ok()) continue;
        counted = true;
        count.rows += reply->rows();
        count.expires += reply->expires();
        count.evicts += reply->evicts();
      }
      if (again) HOTBED_RETURN_IF_ERROR(Rest(last));
    }
    return count;
  }

 private:
  absl::StatusOr<const TableRoute*> Route() {
    map_ = client_.map()->Get();
    const TableRoute* const route = map_->Table(table_.options().id);
    if (route != nullptr) return route;
    return absl::NotFoundError(absl::StrCat("table ", table_.name(), " was dropped"));
  }

  absl::StatusOr<v1::RowLifeReply> Ask(const TableRoute& route, uint32_t shard,
                                       v1::RowLifeRequest request) {
    const ShardRecord& record = route.shards[shard];
    const ServerAddress* const server = map_->Server(record.primary.server);
    if (server == nullptr) return absl::UnavailableError("it has no primary that is known");
    request.set_shard(record.shard.packed());
    request.set_range_first(record.range.first);
    request.set_range_limit(record.range.limit);
    const int64_t left_ns = deadline_ns_ - client_.clock()->NowNs();
    if (left_ns <= 0) return absl::DeadlineExceededError("no time is left");
    HOTBED_ASSIGN_OR_RETURN(
        v1::RowLifeReply reply,
        client_.KeptWholeTables()->RowLife(server->address, request, absl::Nanoseconds(left_ns)));
    if (reply.elsewhere()) return absl::UnavailableError("its primary is another server");
    return reply;
  }

  absl::Status Take(const v1::RowLifeReply& reply, const std::vector<size_t>& numbers,
                    std::vector<RowLife>* rows) const {
    if (reply.found().size() != numbers.size() ||
        reply.touches().size() != numbers.size() * kTouchBytes ||
        (!reply.shows().empty() && reply.shows().size() != numbers.size() * kShowBytes)) {
      return absl::InternalError(absl::StrCat("a RowLifeReply has ", reply.found().size(),
                                              " rows for ", numbers.size(), " ids"));
    }
    for (size_t k = 0; k < numbers.size(); ++k) {
      const RowTouches touches =
          LoadTouches(reinterpret_cast<const uint8_t*>(reply.touches().data()) + k * kTouchBytes);
      (*rows)[numbers[k]] = {reply.found()[k] == 1, reply.found()[k] == 2, touches.count,
                             touches.time_s, touches.step};
      if (reply.shows().empty()) continue;
      const RowShows shown =
          LoadShows(reinterpret_cast<const uint8_t*>(reply.shows().data()) + k * kShowBytes);
      (*rows)[numbers[k]].shows = shown.shows;
      (*rows)[numbers[k]].clicks = shown.clicks;
    }
    return absl::OkStatus();
  }

  absl::Status Rest(const absl::Status& why) {
    if (client_.clock()->NowNs() + kLifeRetryNs >= deadline_ns_) {
      return absl::DeadlineExceededError(
          absl::StrCat("table ", table_.name(),
                       ": a shard has not answered before the deadline: ", why.message()));
    }
    client_.follower()->RequestRefresh();
    client_.clock()->SleepNs(kLifeRetryNs);
    return absl::OkStatus();
  }

  ClientImpl& client_;
  const Table& table_;
  const int64_t deadline_ns_;
  ClusterMapPtr map_;
};

absl::Status CheckKeepsTouches(const Table& table) {
  if (table.options().optimizer.touches) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "table ", table.name(), " keeps no touches; make one with touches (a hashed table)"));
}

}  // namespace

absl::StatusOr<std::vector<RowLife>> ReadTouches(Client* client, const Table* table,
                                                 absl::Span<const uint64_t> ids,
                                                 absl::Duration deadline) {
  HOTBED_RETURN_IF_ERROR(CheckKeepsTouches(*table));
  std::vector<RowLife> rows(ids.size());
  LifeCall call(static_cast<ClientImpl*>(client), table, deadline);
  HOTBED_RETURN_IF_ERROR(call.Read(ids, &rows));
  return rows;
}

absl::StatusOr<LifeCount> CountByLife(Client* client, const Table* table, const LifeParams& life,
                                      absl::Duration deadline) {
  HOTBED_RETURN_IF_ERROR(CheckKeepsTouches(*table));
  LifeCall call(static_cast<ClientImpl*>(client), table, deadline);
  return call.Count(life);
}

}  // namespace hotbed
