#include "client/top_k/top_k_call.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr size_t kTopKThreadsMax = 16;
// A request has at most 64 KiB.
constexpr size_t kTopKVectorBytesMax = 32 << 10;
constexpr size_t kIdsPerRequest = 3'072;
constexpr int64_t kTopKRetryNs = kSecondNs / 10;
constexpr int64_t kTopKTimeoutMsMax = 600'000;

size_t VectorsPerRequest(uint32_t dim, uint32_t k) {
  return std::clamp<size_t>(kTopKVectorBytesMax / (dim * sizeof(float)), 1, kTopKMax / k);
}

// Another server has the shard, or this one may answer later.
bool ShardMayAnswerLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) ||
         absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

TopKCall::TopKCall(const Parts& parts, const TableOptions& table, absl::Span<const float> vectors,
                   uint32_t k, const TopKOptions& options, int64_t deadline_ns)
    : parts_(parts),
      table_(table),
      vectors_(vectors),
      k_(k),
      options_(options),
      deadline_ns_(deadline_ns) {
  const size_t count = vectors.size() / table.dim;
  tops_.resize(count, TopRows(k, SmallerIsNearer(options.metric)));
}

absl::Status TopKCall::Plan() {
  const ClusterMapPtr map = parts_.map->Get();
  const TableRoute* const route = map->Table(table_.id);
  if (route == nullptr) {
    return absl::NotFoundError(absl::StrCat("table ", table_.name, " was dropped"));
  }
  if (route->slices() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table_.name, " has ", route->slices(),
        " column slices, and no server has whole rows of it; top-k takes tables of one"));
  }
  absl::MutexLock lock(&mu_);
  const size_t step = VectorsPerRequest(table_.dim, k_);
  for (size_t first = 0; first < tops_.size(); first += step) {
    for (const auto& [index, record] : route->records) {
      const ShardRange& range = record.range;
      waiting_.push_back({range.first, range.limit, first, std::min(tops_.size(), first + step)});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::vector<ScoredRow>>> TopKCall::Run() {
  HOTBED_RETURN_IF_ERROR(Plan());
  size_t parts = 0;
  {
    absl::MutexLock lock(&mu_);
    parts = waiting_.size();
  }
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(parts, kTopKThreadsMax); ++i)
    threads.emplace_back([this] { Work(); });
  Work();
  for (std::thread& thread : threads) thread.join();
  absl::MutexLock lock(&mu_);
  HOTBED_RETURN_IF_ERROR(error_);
  std::vector<std::vector<ScoredRow>> rows;
  for (TopRows& top : tops_) rows.push_back(top.Take());
  return rows;
}

void TopKCall::Work() {
  for (;;) {
    Part part;
    {
      absl::MutexLock lock(&mu_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return !error_.ok() || !waiting_.empty() || asked_ == 0;
      };
      mu_.Await(absl::Condition(&ready));
      if (!error_.ok() || waiting_.empty()) return;
      part = waiting_.front();
      waiting_.pop_front();
      ++asked_;
    }
    const int64_t wait_ns = part.not_before_ns - parts_.clock->NowNs();
    if (wait_ns > 0) parts_.clock->SleepNs(wait_ns);
    const absl::Status asked = Ask(part);
    absl::MutexLock lock(&mu_);
    --asked_;
    if (error_.ok()) error_ = asked;
  }
}

absl::Status TopKCall::Ask(Part part) {
  const ClusterMapPtr map = parts_.map->Get();
  const TableRoute* const route = map->Table(table_.id);
  if (route == nullptr) {
    return absl::NotFoundError(absl::StrCat("table ", table_.name, " was dropped"));
  }
  std::vector<Part> cut;
  uint64_t covered = 0;
  for (const auto& [index, record] : route->records) {
    const ShardRange& range = record.range;
    if (range.first <= part.range_first && range.limit >= part.range_limit &&
        range.limit - range.first > part.range_limit - part.range_first) {
      return absl::AbortedError("shards were merged while they were read");
    }
    if (range.first < part.range_first || range.limit > part.range_limit) continue;
    if (range.first == part.range_first && range.limit == part.range_limit) {
      const ServerAddress* const server = map->Server(record.primary.server);
      if (server == nullptr) {
        return Postpone(part, absl::UnavailableError("it has no primary that is known"));
      }
      const absl::Status asked = AskShard(part, record, server->address);
      return ShardMayAnswerLater(asked) ? Postpone(part, asked) : asked;
    }
    covered += range.limit - range.first;
    cut.push_back({range.first, range.limit, part.vector_first, part.vector_limit});
  }
  if (covered != part.range_limit - part.range_first) {
    return Postpone(part, absl::UnavailableError("the map has no shards that make it up"));
  }
  absl::MutexLock lock(&mu_);
  waiting_.insert(waiting_.end(), cut.begin(), cut.end());
  return absl::OkStatus();
}

absl::Status TopKCall::Postpone(Part part, const absl::Status& why) {
  const int64_t now_ns = parts_.clock->NowNs();
  if (now_ns + kTopKRetryNs >= deadline_ns_) {
    return absl::DeadlineExceededError(
        absl::StrCat("table ", table_.name, ": the rows of range ", part.range_first, " to ",
                     part.range_limit, " were not read before the deadline: ", why.message()));
  }
  if (!absl::IsResourceExhausted(why)) parts_.follower->RequestRefresh();
  part.not_before_ns = now_ns + kTopKRetryNs;
  absl::MutexLock lock(&mu_);
  waiting_.push_back(part);
  return absl::OkStatus();
}

std::vector<uint64_t> TopKCall::IdsOf(const ShardRange& range) const {
  std::vector<uint64_t> ids;
  for (const uint64_t id : *options_.only_ids) {
    const uint64_t position = table_.hashed ? Mix64(id) : id;
    if (position < range.first_position(table_.hashed) ||
        position > range.last_position(table_.hashed)) {
      continue;
    }
    ids.push_back(id);
  }
  return ids;
}

absl::Status TopKCall::AskShard(const Part& part, const ShardRecord& record,
                                const std::string& address) {
  v1::TopKRequest request;
  request.set_shard(record.shard.packed());
  request.set_range_first(record.range.first);
  request.set_range_limit(record.range.limit);
  request.set_metric(static_cast<v1::TopKMetric>(options_.metric));
  request.set_k(k_);
  const size_t count = part.vector_limit - part.vector_first;
  request.set_vectors(vectors_.data() + part.vector_first * table_.dim,
                      count * table_.dim * sizeof(float));
  request.set_first_id(options_.first_id);
  request.set_last_id(options_.last_id);
  request.set_only_ids(options_.only_ids.has_value());
  std::vector<uint64_t> ids;
  if (options_.only_ids.has_value()) ids = IdsOf(record.range);
  size_t first = 0;
  do {
    const size_t some = std::min(kIdsPerRequest, ids.size() - first);
    if (options_.only_ids.has_value() && some == 0) break;
    request.set_ids(ids.data() + first, some * sizeof(uint64_t));
    first += some;
    const int64_t left_ms = (deadline_ns_ - parts_.clock->NowNs()) / kMillisecondNs;
    if (left_ms < 1) return absl::DeadlineExceededError("no time is left");
    request.set_timeout_ms(static_cast<uint32_t>(std::min(left_ms, kTopKTimeoutMsMax)));
    HOTBED_ASSIGN_OR_RETURN(const v1::TopKReply reply, parts_.cluster->TopK(address, request));
    if (reply.elsewhere()) return absl::UnavailableError("its primary is another server");
    HOTBED_RETURN_IF_ERROR(Take(part, reply));
  } while (first < ids.size());
  return absl::OkStatus();
}

absl::Status TopKCall::Take(const Part& part, const v1::TopKReply& reply) {
  uint64_t rows = 0;
  for (const uint32_t count : reply.counts()) rows += count;
  const size_t vectors = part.vector_limit - part.vector_first;
  if (static_cast<size_t>(reply.counts_size()) != vectors ||
      reply.ids().size() != rows * sizeof(uint64_t) ||
      reply.scores().size() != rows * sizeof(double)) {
    return absl::InternalError(absl::StrCat(
        "a TopKReply has ", reply.counts_size(), " counts, ", reply.ids().size(),
        " bytes of ids and ", reply.scores().size(), " of scores, for ", vectors, " vectors"));
  }
  absl::MutexLock lock(&mu_);
  size_t at = 0;
  for (size_t v = 0; v < vectors; ++v) {
    for (uint32_t i = 0; i < reply.counts(static_cast<int>(v)); ++i, ++at) {
      ScoredRow row;
      std::memcpy(&row.id, reply.ids().data() + at * sizeof(row.id), sizeof(row.id));
      std::memcpy(&row.score, reply.scores().data() + at * sizeof(row.score), sizeof(row.score));
      tops_[part.vector_first + v].Offer(row);
    }
  }
  return absl::OkStatus();
}

}  // namespace hotbed
