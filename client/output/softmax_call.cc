#include "client/output/softmax_call.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr int kShardsPerRequest = 1'024;
// What a server's port takes, which is far more than what it takes as one message of a stream.
constexpr uint64_t kMessagesPerCall = 7;
constexpr int64_t kTimeoutMsMax = 600'000;

// Another server has the shard, or this one may answer later.
bool MayAnswerLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsCancelled(status) ||
         absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status);
}

bool HasTheRightSizes(const v1::SoftmaxRequest& request, const v1::SoftmaxReply& reply,
                      bool gradient) {
  if (gradient) {
    return request.has_update() || reply.hidden_gradient().size() == request.hidden().size();
  }
  const size_t tokens = request.targets().size() / sizeof(uint64_t);
  return reply.maxima().size() == tokens * sizeof(float) &&
         reply.sums().size() == tokens * sizeof(double) &&
         reply.totals().size() == tokens * sizeof(double) &&
         reply.target_logits().size() == tokens * sizeof(float);
}

}  // namespace

SoftmaxCall::SoftmaxCall(const Parts& parts, const TableHandle* table, bool gradient,
                         const v1::SoftmaxRequest* request, SoftmaxChains* chains,
                         int64_t deadline_ns)
    : parts_(parts),
      table_(*table),
      gradient_(gradient),
      request_(*request),
      chains_(chains),
      deadline_ns_(deadline_ns),
      left_({{0, table->options().rows}}) {}

absl::Status SoftmaxCall::Run(Take take) {
  for (int attempt = 1;; ++attempt) {
    HOTBED_ASSIGN_OR_RETURN(std::vector<Ask> asks, Plan());
    AskAll(&asks);
    for (const Ask& ask : asks) {
      HOTBED_RETURN_IF_ERROR(TakeAnswer(ask));
      if (ask.reply.ok()) take(ask.request, *ask.reply);
    }
    if (left_.empty()) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(Pause(attempt));
  }
}

absl::StatusOr<std::vector<SoftmaxCall::Ask>> SoftmaxCall::Plan() {
  const ClusterMapPtr map = parts_.map->Get();
  const TableRoute* const route = map->Table(table_.id());
  if (route == nullptr) {
    return absl::NotFoundError(absl::StrCat("table ", table_.name(), " was dropped"));
  }
  const int64_t left_ms = std::clamp<int64_t>(
      (deadline_ns_ - parts_.clock->NowNs()) / kMillisecondNs, 1, kTimeoutMsMax);
  std::vector<Ask> asks;
  std::map<std::string, size_t> open;  // by address, the ask that takes more shards
  for (const uint32_t index : route->order) {
    const ShardRecord& record = route->shards[index];
    const ShardRange& range = record.range;
    const bool wanted = std::any_of(left_.begin(), left_.end(), [&](const Rows& rows) {
      return rows.first <= range.first && range.limit <= rows.limit;
    });
    const ServerAddress* const server = map->Server(record.primary.server);
    if (!wanted || server == nullptr) continue;
    const auto [found, first] = open.try_emplace(server->address, asks.size());
    if (first || asks[found->second].request.shards_size() == kShardsPerRequest) {
      found->second = asks.size();
      Ask& ask = asks.emplace_back();
      ask.address = server->address;
      ask.request = request_;
      ask.request.set_timeout_ms(static_cast<uint32_t>(left_ms));
    }
    v1::SoftmaxShard& shard = *asks[found->second].request.add_shards();
    shard.set_shard(record.shard.packed());
    shard.set_epoch(record.epoch);
    shard.set_range_first(range.first);
    shard.set_range_limit(range.limit);
    shard.set_lsn_min(table_.LsnMin(index, record.epoch));
    if (chains_ == nullptr) continue;
    const SoftmaxChain& chain = (*chains_)[index];
    shard.set_prev_seq(chain.known_seq);
    shard.set_open(!chain.opened);
  }
  return asks;
}

void SoftmaxCall::AskAll(std::vector<Ask>* asks) {
  const auto ask_one = [this](Ask* ask) {
    ask->reply = parts_.cluster->Softmax(ask->address, gradient_, ask->request);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < asks->size(); ++i) threads.emplace_back(ask_one, &(*asks)[i]);
  if (!asks->empty()) ask_one(asks->data());
  for (std::thread& thread : threads) thread.join();
}

absl::Status SoftmaxCall::TakeAnswer(const Ask& ask) {
  wire_bytes_ += ask.request.ByteSizeLong();
  if (!ask.reply.ok()) {
    if (!MayAnswerLater(ask.reply.status())) return ask.reply.status();
    last_error_ = ask.reply.status();
    busy_ |= absl::IsResourceExhausted(last_error_);
    return absl::OkStatus();
  }
  wire_bytes_ += ask.reply->ByteSizeLong();
  if (ask.reply->shards_size() != ask.request.shards_size()) {
    return absl::InternalError(absl::StrCat("the server at ", ask.address, " answered ",
                                            ask.reply->shards_size(), " shards to ",
                                            ask.request.shards_size(), " asked for"));
  }
  if (!HasTheRightSizes(ask.request, *ask.reply, gradient_)) {
    return absl::InternalError(absl::StrCat("the server at ", ask.address,
                                            " answered numbers of other sizes than the request's"));
  }
  for (int i = 0; i < ask.request.shards_size(); ++i) {
    HOTBED_RETURN_IF_ERROR(TakeShard(ask.request.shards(i), ask.reply->shards(i)));
  }
  return absl::OkStatus();
}

absl::Status SoftmaxCall::TakeShard(const v1::SoftmaxShard& asked,
                                    const v1::SoftmaxShardReply& reply) {
  const uint32_t index = ShardId::FromPacked(asked.shard()).index;
  SoftmaxChain* const chain = chains_ == nullptr ? nullptr : &(*chains_)[index];
  const Verdict verdict = VerdictOf(reply.code(), /*push=*/chain != nullptr);
  if (verdict == Verdict::kOk) {
    if (chain != nullptr) {
      chain->known_seq = std::max(chain->known_seq, reply.last_seq());
      chain->opened |= reply.last_seq() != 0;
    }
    if (reply.lsn() != 0) table_.NoteAcknowledged(index, reply.epoch(), reply.lsn());
    Answered(asked);
    return absl::OkStatus();
  }
  last_error_ = StatusOf(reply.code(), table_.WhereOf(index), reply.detail());
  if (verdict == Verdict::kFinal) return last_error_;
  retry_after_ms_ = std::max(retry_after_ms_, reply.retry_after_ms());
  busy_ |= IsOverload(reply.code());
  if (verdict == Verdict::kGap) chain->known_seq = reply.last_seq();
  if (verdict == Verdict::kOpenAgain) *chain = {};
  if (verdict == Verdict::kReroute && reply.has_record()) {
    const absl::StatusOr<ShardRecord> record = FromProto(reply.record());
    if (record.ok()) parts_.map->ApplyRecord(*record);
  }
  return absl::OkStatus();
}

void SoftmaxCall::Answered(const v1::SoftmaxShard& shard) {
  std::vector<Rows> left;
  for (const Rows& rows : left_) {
    if (shard.range_limit() <= rows.first || rows.limit <= shard.range_first()) {
      left.push_back(rows);
      continue;
    }
    if (rows.first < shard.range_first()) left.push_back({rows.first, shard.range_first()});
    if (shard.range_limit() < rows.limit) left.push_back({shard.range_limit(), rows.limit});
  }
  left_ = std::move(left);
}

absl::Status SoftmaxCall::Pause(int attempt) {
  parts_.follower->RequestRefresh();
  const int64_t delay_ns = parts_.retry->ResendDelayNs(attempt, std::exchange(retry_after_ms_, 0),
                                                       std::exchange(busy_, false));
  if (parts_.clock->NowNs() + delay_ns >= deadline_ns_) {
    return absl::DeadlineExceededError(
        absl::StrCat("table ", table_.name(), ": rows ", left_.front().first, " to ",
                     left_.front().limit - 1, left_.size() > 1 ? " and others" : "",
                     " were not answered before the deadline: ", last_error_.message()));
  }
  parts_.clock->SleepNs(delay_ns);
  return absl::OkStatus();
}

}  // namespace hotbed
