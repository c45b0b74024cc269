#include "server/export/top_k_calls.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/metrics.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "row_math/position.h"
#include "server/export/change_reads.h"
#include "server/tiers/api/row_ranking.h"

namespace hotbed {
namespace {

constexpr absl::Duration kTopKLook = absl::Milliseconds(500);
constexpr absl::Duration kTopKMemoryLook = absl::Milliseconds(5);
// Rows, reply, message, and gRPC's copy of it.
constexpr uint64_t kTopKAnswerCopies = 4;
constexpr int kTopKThreadsMax = 16;

struct TopKMetrics {
  Counter rows{"hotbed_server_top_k_rows_total",
               "Rows that were compared with vectors of top-k calls."};
  Counter refused{"hotbed_server_top_k_refused_total",
                  "Top-k calls refused because too many waited."};
  LatencyHistogram seconds{"hotbed_server_top_k_seconds",
                           "Time from a top-k call of a shard to its answer."};
};
TopKMetrics& TopKNumbers() {
  static auto* const metrics = new TopKMetrics;
  return *metrics;
}

template <typename T>
std::vector<T> TopKValues(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

absl::Status CheckTopK(const v1::TopKRequest& request) {
  if (request.k() < 1 || request.k() > kTopKRowsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("k is ", request.k(), ", allowed: 1..", kTopKRowsMax));
  }
  if (!v1::TopKMetric_IsValid(request.metric())) {
    return absl::InvalidArgumentError(
        absl::StrCat("metric is ", request.metric(), ", allowed: 0 (dot), 1 (cosine), 2 (l2)"));
  }
  if (request.timeout_ms() < 1 || request.timeout_ms() > kTopKTimeoutMsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_ms is ", request.timeout_ms(), ", allowed: 1..", kTopKTimeoutMsMax));
  }
  if (request.ids().size() % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ids has ", request.ids().size(), " bytes, allowed: multiples of 8"));
  }
  return absl::OkStatus();
}

absl::Status CheckVectors(const v1::TopKRequest& request, const Shard& shard,
                          const std::vector<float>& vectors) {
  const uint32_t dim = shard.dim();
  if (shard.range().column_first != 0 || dim != shard.table().dim) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", shard.table().name,
                     " has column slices, and no server has whole rows of it; top-k takes tables "
                     "that were created with column_slices=1"));
  }
  const size_t row_bytes = dim * sizeof(float);
  if (request.vectors().empty() || request.vectors().size() % row_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("vectors has ", request.vectors().size(), " bytes, allowed: multiples of ",
                     row_bytes, ", since table ", shard.table().name, " has dim ", dim));
  }
  const size_t count = vectors.size() / dim;
  if (count * request.k() > kTopKRowsMax) {
    return absl::InvalidArgumentError(absl::StrCat("k times the vectors is ", count * request.k(),
                                                   ", allowed: at most ", kTopKRowsMax));
  }
  const auto bad = std::find_if(vectors.begin(), vectors.end(),
                                [](float element) { return !std::isfinite(element); });
  if (bad == vectors.end()) return absl::OkStatus();
  const size_t at = static_cast<size_t>(bad - vectors.begin());
  return absl::InvalidArgumentError(absl::StrCat("element ", at % dim, " of vector ", at / dim,
                                                 " is ", *bad, ", allowed: finite numbers"));
}

// The positions of the ids, ascending, each once, without those that the ranking does not want.
absl::StatusOr<std::vector<uint64_t>> TopKPositions(const v1::TopKRequest& request,
                                                    const SpillShard& shard,
                                                    const RowRanking& ranking) {
  std::vector<uint64_t> positions;
  for (const uint64_t id : TopKValues<uint64_t>(request.ids())) {
    const uint64_t position = shard.hashed ? Mix64(id) : id;
    if (position < shard.first_position || position > shard.last_position) {
      return absl::InvalidArgumentError(
          absl::StrCat("ids: id ", id, " is not of ", shard.shard.ToString()));
    }
    if (ranking.WantsId(id)) positions.push_back(position);
  }
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

// The most rows of the answer to a request that is valid.
uint64_t TopKAnswerRows(const ShardHost& host, const v1::TopKRequest& request) {
  const std::shared_ptr<Shard> shard = host.Find(ShardId::FromPacked(request.shard()));
  if (shard == nullptr) return 0;
  const uint64_t vectors = request.vectors().size() / sizeof(float) / shard->dim();
  return std::min<uint64_t>(kTopKRowsMax, request.k() * vectors);
}

void AddRows(const std::vector<std::vector<ScoredRow>>& tops, v1::TopKReply* reply) {
  for (const std::vector<ScoredRow>& top : tops) {
    reply->add_counts(static_cast<uint32_t>(top.size()));
    for (const ScoredRow& row : top) {
      reply->mutable_ids()->append(reinterpret_cast<const char*>(&row.id), sizeof(row.id));
      reply->mutable_scores()->append(reinterpret_cast<const char*>(&row.score), sizeof(row.score));
    }
  }
}

}  // namespace

absl::StatusOr<v1::TopKReply> AnswerTopK(const ShardHost& host, const v1::TopKRequest& request,
                                         absl::FunctionRef<absl::Status()> go_on) {
  HOTBED_RETURN_IF_ERROR(CheckTopK(request));
  v1::TopKReply reply;
  const ShardId id = ShardId::FromPacked(request.shard());
  const std::shared_ptr<Shard> shard =
      FindFollowed(host, id, request.range_first(), request.range_limit());
  if (shard == nullptr) {
    reply.set_elsewhere(true);
    return reply;
  }
  const std::vector<float> vectors = TopKValues<float>(request.vectors());
  HOTBED_RETURN_IF_ERROR(CheckVectors(request, *shard, vectors));
  const Shard::FollowFrom begin = shard->BeginFollowing({}, /*opens_feed=*/false);
  if (!begin.status.ok()) {
    reply.set_elsewhere(true);
    return reply;
  }
  RankQuery query;
  query.metric = static_cast<RowMetric>(request.metric());
  query.k = request.k();
  query.vectors = vectors;
  query.first_id = request.first_id();
  query.last_id = request.last_id();
  const TableSpec& table = shard->table();
  RowRanking ranking(query, table.weight_type, shard->dim(), table.hashed);
  if (request.only_ids()) {
    HOTBED_ASSIGN_OR_RETURN(const std::vector<uint64_t> positions,
                            TopKPositions(request, shard->spilled(), ranking));
    HOTBED_RETURN_IF_ERROR(shard->RankRowsAt(positions, &ranking, go_on));
  } else {
    HOTBED_RETURN_IF_ERROR(shard->RankRows(&ranking, go_on));
  }
  // A shard that has left this server may have lost rows while they were read.
  if (!shard->PrimarySince(begin.epoch)) {
    return absl::AbortedError(
        absl::StrCat(id.ToString(), " left this server while its rows were read"));
  }
  if (shard->MayLackPushes()) {
    return absl::UnavailableError(
        absl::StrCat(id.ToString(), ": this server's lease ran out while its rows were read"));
  }
  TopKNumbers().rows.Add(ranking.rows_read());
  reply.set_rows_read(ranking.rows_read());
  AddRows(ranking.Take(), &reply);
  return reply;
}

int TopKCalls::Threads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency() / 4), 1, kTopKThreadsMax);
}

TopKCalls::TopKCalls(const ShardHost* host, std::shared_ptr<ChangeMemory> memory,
                     const Clock* clock, int threads)
    : host_(host), memory_(std::move(memory)), clock_(clock) {
  TopKNumbers();
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

void TopKCalls::Stop() {
  std::deque<Waiting> waiting;
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
    waiting.swap(waiting_);
  }
  for (const Waiting& call : waiting) {
    call.done(absl::UnavailableError("this server is stopping"), nullptr);
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void TopKCalls::TopK(const v1::TopKRequest& request, ToolCalls::Done done) {
  absl::Status refused;
  {
    absl::MutexLock lock(&mu_);
    if (stops_) {
      refused = absl::UnavailableError("this server is stopping");
    } else if (waiting_.size() >= kTopKCallsMax) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat(waiting_.size(), " top-k calls wait at this server, the limit; ask again"));
    } else {
      waiting_.push_back({request, std::move(done), clock_->NowNs()});
      return;
    }
  }
  TopKNumbers().refused.Add(1);
  done(refused, nullptr);
}

void TopKCalls::Work() {
  for (;;) {
    Waiting call;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || !waiting_.empty();
      };
      AwaitFor(&mu_, absl::Condition(&wakes), kTopKLook);
      if (stops_) return;
      if (waiting_.empty()) continue;
      call = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Answer(call);
    TopKNumbers().seconds.RecordNs(clock_->NowNs() - call.begin_ns);
  }
}

absl::Status TopKCalls::GoOn(const Waiting& call) {
  {
    absl::MutexLock lock(&mu_);
    if (stops_) return absl::UnavailableError("this server is stopping");
  }
  if (clock_->NowNs() - call.begin_ns < call.request.timeout_ms() * kMillisecondNs) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the shard's rows were not read within timeout_ms=", call.request.timeout_ms()));
}

absl::Status TopKCalls::AwaitMemory(const Waiting& call, uint64_t bytes) {
  while (!memory_->TakeForAnswer(bytes)) {
    HOTBED_RETURN_IF_ERROR(GoOn(call));
    absl::MutexLock lock(&mu_);
    AwaitFor(&mu_, absl::Condition(&stops_), kTopKMemoryLook);
  }
  return absl::OkStatus();
}

void TopKCalls::Answer(const Waiting& call) {
  if (const absl::Status valid = CheckTopK(call.request); !valid.ok()) {
    return call.done(valid, nullptr);
  }
  const uint64_t bytes =
      TopKAnswerRows(*host_, call.request) * sizeof(ScoredRow) * kTopKAnswerCopies;
  if (const absl::Status may = AwaitMemory(call, bytes); !may.ok()) return call.done(may, nullptr);
  const std::shared_ptr<const void> held(
      nullptr, [memory = memory_, bytes](const void*) { memory->GiveFromAnswer(bytes); });
  const absl::StatusOr<v1::TopKReply> reply =
      AnswerTopK(*host_, call.request, [this, &call] { return GoOn(call); });
  if (!reply.ok()) return call.done(reply.status(), nullptr);
  call.done(reply->SerializeAsString(), held);
}

}  // namespace hotbed
