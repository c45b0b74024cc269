// Vocabulary: the numbers of keys, from the primary of its shard.
#include "hotbed/vocabulary.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/batch/dedupe.h"
#include "client/client_impl.h"
#include "client/map/checkpoint_cluster.h"
#include "client/net/retry.h"
#include "common/status_macros.h"
#include "common/tables/vocabulary_row.h"
#include "proto/convert.h"

namespace hotbed {
namespace {

constexpr size_t kKeysPerCall = 1 << 16;
constexpr int kPartBits = 20;
constexpr int64_t kNumberTimeoutMsMax = 600'000;

bool ServerMayAnswerLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsCancelled(status) ||
         absl::IsResourceExhausted(status) || absl::IsDeadlineExceeded(status);
}

template <typename T>
void AppendBytes(absl::Span<const T> values, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// One call to the primary, repeated until it is answered. Of one caller at a time.
class NumberCall {
 public:
  NumberCall(ClientImpl* client, const TableHandle* table)
      : client_(*client), table_(*table), retry_(table->id()) {}

  absl::Status Ask(absl::Span<const uint64_t> keys, absl::Span<const uint32_t> counts,
                   int64_t deadline_ns, std::vector<uint32_t>* numbers,
                   VocabularySize* size = nullptr) {
    v1::NumberRequest request;
    AppendBytes(keys, request.mutable_keys());
    const bool once = std::all_of(counts.begin(), counts.end(), [](uint32_t n) { return n == 1; });
    if (!once) AppendBytes(counts, request.mutable_counts());
    step_ += keys.empty() ? 0 : 1;
    unsure_ = false;  // of the call before, whose caller knows
    for (int attempt = 1;; ++attempt) {
      if (session_.session == 0) HOTBED_RETURN_IF_ERROR(OpenSession());
      HOTBED_ASSIGN_OR_RETURN(const bool answered,
                              AskOnce(attempt, deadline_ns, &request, keys.size(), numbers));
      if (answered && size != nullptr) *size = size_;
      if (answered) return absl::OkStatus();
      HOTBED_RETURN_IF_ERROR(Rest(attempt, deadline_ns));
    }
  }

 private:
  // A name that was never used: sequences begin at the first step.
  absl::Status OpenSession() {
    static std::atomic<uint64_t> opened{0};
    HOTBED_ASSIGN_OR_RETURN(
        session_, client_.OpenSession(absl::StrCat("vocabulary/", table_.name(), "/",
                                                   client_.clock()->WallUs(), "-", ++opened)));
    opened_ = false;
    known_seq_ = 0;
    return absl::OkStatus();
  }

  // False: it is to be asked again.
  absl::StatusOr<bool> AskOnce(int attempt, int64_t deadline_ns, v1::NumberRequest* request,
                               size_t keys, std::vector<uint32_t>* numbers) {
    const ClusterMapPtr map = client_.map()->Get();
    const TableRoute* const route = map->Table(table_.id());
    if (route == nullptr) {
      return absl::NotFoundError(absl::StrCat("table ", table_.name(), " was dropped"));
    }
    const ShardRecord& record = route->shards[route->order.front()];
    const ServerAddress* const server = map->Server(record.primary.server);
    last_ = absl::UnavailableError("its primary is not known");
    if (server == nullptr) return false;
    request->set_shard(record.shard.packed());
    request->set_epoch(record.epoch);
    request->set_session(session_.session);
    request->set_incarnation(session_.incarnation);
    request->set_seq(step_ << kPartBits | 1);
    request->set_prev_seq(known_seq_);
    request->set_open(!opened_);
    request->set_timeout_ms(static_cast<uint32_t>(std::clamp<int64_t>(
        (deadline_ns - client_.clock()->NowNs()) / kMillisecondNs, 1, kNumberTimeoutMsMax)));
    const absl::StatusOr<v1::NumberReply> reply =
        client_.KeptWholeTables()->Number(server->address, *request);
    if (!reply.ok()) {
      last_ = reply.status();
      busy_ |= absl::IsResourceExhausted(last_);
      unsure_ |= !absl::IsResourceExhausted(last_);
      if (!ServerMayAnswerLater(last_)) return last_;
      return false;
    }
    return Take(attempt, record.shard.index, *reply, keys, numbers);
  }

  absl::StatusOr<bool> Take(int attempt, uint32_t shard, const v1::NumberReply& reply, size_t keys,
                            std::vector<uint32_t>* numbers) {
    const Verdict verdict = VerdictOf(reply.code(), /*push=*/true);
    if (verdict == Verdict::kOk) {
      if (reply.numbers().size() != keys * sizeof(uint32_t)) {
        return absl::InternalError(absl::StrCat("a NumberReply has ", reply.numbers().size(),
                                                " bytes of numbers for ", keys, " keys"));
      }
      numbers->resize(keys);
      std::memcpy(numbers->data(), reply.numbers().data(), reply.numbers().size());
      size_ = {reply.given(), table_.options().vocabulary, reply.full()};
      if (keys == 0) return true;
      known_seq_ = reply.last_seq();
      opened_ = true;
      unsure_ = false;
      table_.NoteAcknowledged(shard, reply.epoch(), reply.lsn());
      return true;
    }
    last_ = StatusOf(reply.code(), table_.WhereOf(shard), reply.detail());
    retry_after_ms_ = reply.retry_after_ms();
    busy_ |= IsOverload(reply.code());
    // A session that was silent for long may be forgotten. Without a try whose end is not known,
    // another one counts nothing twice.
    if (reply.code() == v1::FENCED && attempt == 1 && !unsure_) {
      session_ = {};
      return false;
    }
    if (verdict == Verdict::kFinal) return last_;
    unsure_ |= reply.code() == v1::UNAVAILABLE;
    if (verdict == Verdict::kGap) known_seq_ = reply.last_seq();
    if (verdict == Verdict::kOpenAgain) {
      opened_ = false;
      known_seq_ = 0;
    }
    if (verdict == Verdict::kReroute && reply.has_record()) {
      const absl::StatusOr<ShardRecord> record = FromProto(reply.record());
      if (record.ok()) client_.map()->ApplyRecord(*record);
    }
    return false;
  }

  absl::Status Rest(int attempt, int64_t deadline_ns) {
    client_.follower()->RequestRefresh();
    const int64_t delay_ns = retry_.ResendDelayNs(attempt, std::exchange(retry_after_ms_, 0),
                                                  std::exchange(busy_, false));
    if (client_.clock()->NowNs() + delay_ns >= deadline_ns) {
      return absl::DeadlineExceededError(
          absl::StrCat("table ", table_.name(),
                       ": the primary of the vocabulary has not answered before the deadline, and "
                       "the keys may be counted or not: ",
                       last_.message()));
    }
    client_.clock()->SleepNs(delay_ns);
    return absl::OkStatus();
  }

  ClientImpl& client_;
  const TableHandle& table_;
  RetryPolicy retry_;
  VocabularySize size_;
  SessionIdentity session_;
  bool opened_ = false;
  uint64_t known_seq_ = 0;
  uint64_t step_ = 0;
  bool unsure_ = false;  // a try of this call may have been applied
  absl::Status last_;
  uint32_t retry_after_ms_ = 0;
  bool busy_ = false;
};

class VocabularyImpl final : public Vocabulary {
 public:
  VocabularyImpl(ClientImpl* client, const TableHandle* table, absl::Duration deadline)
      : client_(client), table_(table), deadline_(deadline), call_(client, table) {}

  absl::StatusOr<std::vector<uint32_t>> Lookup(absl::Span<const uint64_t> keys) override {
    if (keys.size() > kIdsPerCallMax) {
      return absl::InvalidArgumentError(absl::StrCat("table ", table_->name(), ": ", keys.size(),
                                                     " keys in one call, the limit is ",
                                                     kIdsPerCallMax, "; make several calls"));
    }
    absl::MutexLock lock(&mu_);
    index_.resize(keys.size());
    skip_.resize(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) skip_[i] = keys[i] == kNoKey;
    unique_.clear();
    deduper_.RunIndexed({{keys, skip_.data()}}, &unique_, index_.data());
    counts_.assign(unique_.size(), 0);
    for (const uint32_t u : index_) {
      if (u != kNoIndex) ++counts_[u];
    }
    const int64_t deadline_ns = client_->DeadlineNs(deadline_);
    std::vector<uint32_t> of_unique;
    for (size_t first = 0; first < unique_.size(); first += kKeysPerCall) {
      const absl::Span<const uint64_t> some =
          absl::MakeConstSpan(unique_).subspan(first, kKeysPerCall);
      HOTBED_RETURN_IF_ERROR(call_.Ask(
          some, absl::MakeConstSpan(counts_).subspan(first, some.size()), deadline_ns, &part_));
      of_unique.insert(of_unique.end(), part_.begin(), part_.end());
    }
    std::vector<uint32_t> numbers(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (index_[i] != kNoIndex) numbers[i] = of_unique[index_[i]];
    }
    return numbers;
  }

  absl::StatusOr<std::vector<VocabularyEntry>> Find(absl::Span<const uint64_t> keys,
                                                    const PullOptions& options) override {
    std::vector<float> rows(keys.size() * kVocabularyDim);
    const PullFeature feature = {.table = table_, .ids = keys, .rows = rows.data()};
    HOTBED_RETURN_IF_ERROR(client_->Pull({&feature, 1}, options).Wait());
    std::vector<VocabularyEntry> entries(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const VocabularyRow row = VocabularyRow::Load(rows.data() + i * kVocabularyDim);
      entries[i] = {row.number, row.count};
    }
    return entries;
  }

  absl::StatusOr<VocabularySize> Size() override {
    absl::MutexLock lock(&mu_);
    VocabularySize size;
    HOTBED_RETURN_IF_ERROR(call_.Ask({}, {}, client_->DeadlineNs(deadline_), &part_, &size));
    return size;
  }

 private:
  ClientImpl* const client_;
  const TableHandle* const table_;
  const absl::Duration deadline_;
  absl::Mutex mu_;
  NumberCall call_ ABSL_GUARDED_BY(mu_);
  Deduper deduper_ ABSL_GUARDED_BY(mu_);
  std::vector<uint8_t> skip_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> unique_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> index_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> counts_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> part_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Vocabulary>> Vocabulary::Open(Client* client, const Table* table,
                                                             absl::Duration deadline) {
  if (table->options().vocabulary == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table->name(),
                     " is no vocabulary; make one with 'hotbed table create NAME --vocabulary "
                     "MAX'"));
  }
  return std::make_unique<VocabularyImpl>(static_cast<ClientImpl*>(client),
                                          static_cast<const TableHandle*>(table), deadline);
}

}  // namespace hotbed
