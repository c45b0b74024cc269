#include "serving/relay_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/served_part.h"

namespace hotbed {
namespace {

constexpr int kShardsMax = 512;  // of a call
constexpr size_t kCallsMax = 256;
constexpr uint32_t kBytesMax = kListPageBytes;  // of an answer, about
constexpr uint32_t kWaitMsMax = 10'000;
constexpr int64_t kLookNs = 100 * kMillisecondNs;

// Null: there is no such copy.
std::shared_ptr<const TableReplica> FindCopy(const TableReplicas& tables,
                                             const v1::CopyName& name) {
  std::shared_ptr<const TableReplica> copy = tables.Find(name.table(), ServedPartOf(name));
  return copy != nullptr && copy->format() == name.format() ? copy : nullptr;
}

}  // namespace

// Owns itself until OnDone.
class RelayCalls::Call final : public grpc::ServerUnaryReactor {
 public:
  explicit Call(AnswerBudget* budget) : budget_(budget) {}
  void OnDone() override {
    budget_->Give(bytes_);
    delete this;
  }
  // The answer has `bytes`, which were taken.
  void End(const absl::Status& status, uint64_t bytes = 0) {
    bytes_ = bytes;
    Finish(
        grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message())));
  }

 private:
  AnswerBudget* const budget_;
  uint64_t bytes_ = 0;
};

RelayCalls::RelayCalls(TableReplicas* tables, const Clock* clock)
    : tables_(tables),
      clock_(clock),
      lists_(clock),
      list_threads_("copy lists", 1),
      thread_([this] { Work(); }) {}

void RelayCalls::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  tables_->relay_memory()->Raise();
  if (thread_.joinable()) thread_.join();
  lists_.Clear();
}

grpc::ServerUnaryReactor* RelayCalls::ListCopy(grpc::CallbackServerContext*,
                                               const v1::ListCopyRequest* request,
                                               v1::ListCopyReply* reply) {
  auto* const call = new Call(&budget_);
  const absl::Status taken = budget_.Take(kListPageBytes);
  if (!taken.ok()) {
    call->End(taken);
    return call;
  }
  list_threads_.Submit([this, call, request, reply] {
    const std::shared_ptr<const TableReplica> copy = FindCopy(*tables_, request->copy());
    call->End(lists_.Read(copy, request->list(), reply), kListPageBytes);
  });
  return call;
}

grpc::ServerUnaryReactor* RelayCalls::FollowCopy(grpc::CallbackServerContext*,
                                                 const v1::FollowCopyRequest* request,
                                                 v1::FollowCopyReply* reply) {
  auto* const call = new Call(&budget_);
  const int shards = request->changes().shards_size();
  if (shards < 1 || shards > kShardsMax) {
    call->End(absl::InvalidArgumentError(
        absl::StrCat("a call follows ", shards, " shards of a copy, allowed: 1..", kShardsMax)));
    return call;
  }
  const int64_t wait_ms = std::min(request->changes().wait_ms(), kWaitMsMax);
  {
    absl::MutexLock lock(&mu_);
    if (!stops_ && waiting_ < kCallsMax) {
      ++waiting_;
      arrived_.push_back({call, request, reply, clock_->NowNs() + wait_ms * kMillisecondNs});
    } else {
      call->End(stops_ ? absl::UnavailableError("this server is stopping")
                       : absl::ResourceExhaustedError(
                             absl::StrCat(kCallsMax,
                                          " calls of followers wait at this server, the limit: "
                                          "follow the primaries, or ask again later")));
      return call;
    }
  }
  tables_->relay_memory()->Raise();
  return call;
}

void RelayCalls::Work() {
  std::vector<Waiting> waiting;
  int64_t swept_ns = 0;
  for (;;) {
    bool stops = false;
    {
      absl::MutexLock lock(&mu_);
      stops = stops_;
      std::move(arrived_.begin(), arrived_.end(), std::back_inserter(waiting));
      arrived_.clear();
    }
    int64_t until_ns = clock_->NowNs() + kLookNs;
    const size_t answered =
        std::erase_if(waiting, [&](const Waiting& call) { return Answer(call, stops); });
    for (const Waiting& call : waiting) until_ns = std::min(until_ns, call.until_ns);
    {
      absl::MutexLock lock(&mu_);
      waiting_ -= answered;
    }
    if (stops) return;
    if (clock_->NowNs() - swept_ns > kSecondNs) {
      swept_ns = clock_->NowNs();
      lists_.DropUnread();
      for (const auto& copy : tables_->All()) copy->relay()->Sweep();
    }
    tables_->relay_memory()->Await(
        absl::Nanoseconds(std::max<int64_t>(until_ns - clock_->NowNs(), kMillisecondNs / 10)));
  }
}

bool RelayCalls::Answer(const Waiting& waiting, bool stops) {
  if (stops) {
    waiting.call->End(absl::UnavailableError("this server is stopping"));
    return true;
  }
  const v1::ReadChangesRequest& asked = waiting.request->changes();
  v1::FollowCopyReply& reply = *waiting.reply;
  reply.Clear();
  const std::shared_ptr<const TableReplica> copy = FindCopy(*tables_, waiting.request->copy());
  if (copy == nullptr || !copy->ready() || !copy->relay()->feeder().empty()) {
    for (const v1::FollowedShard& shard : asked.shards()) {
      v1::ShardChanges& said = *reply.mutable_changes()->add_shards();
      said.set_shard(shard.shard());
      said.set_elsewhere(true);
    }
    waiting.call->End(absl::OkStatus());
    return true;
  }
  const bool over = clock_->NowNs() >= waiting.until_ns;
  const uint64_t bytes_max = std::clamp<uint32_t>(asked.bytes_max(), 1, kBytesMax);
  // Before the changes are read: all that the copy had by then is in the answer.
  reply.set_age_us(static_cast<uint64_t>(
      absl::ToInt64Microseconds(absl::Ceil(copy->Age(), absl::Microseconds(1)))));
  const absl::Status taken = budget_.Take(bytes_max);
  if (!taken.ok()) {
    if (over) waiting.call->End(taken);
    return over;  // else it waits until other answers have left
  }
  const uint64_t bytes = copy->relay()->Read(asked, bytes_max, over, reply.mutable_changes());
  if (reply.changes().shards().empty() && !over) {
    budget_.Give(bytes_max);
    return false;
  }
  if (bytes > bytes_max) budget_.Charge(bytes - bytes_max);
  waiting.call->End(absl::OkStatus(), std::max<uint64_t>(bytes, bytes_max));
  return true;
}

}  // namespace hotbed
