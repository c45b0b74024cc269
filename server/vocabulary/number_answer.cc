#include "server/vocabulary/number_answer.h"

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/metrics.h"
#include "common/tables/vocabulary_row.h"
#include "proto/convert.h"
#include "server/shard/request/requests.h"
#include "server/shard/request/segment_check.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

// A decision that another entry of the log has overtaken is made again so often, before the client
// is asked to come again.
constexpr int kDecisionsMax = 16;
constexpr int64_t kDecideAgainNs = kMillisecondNs / 2;

struct NumberMetrics {
  Counter keys{"hotbed_server_vocabulary_keys_total",
               "Keys that vocabularies were asked for, once per call and key."};
  Counter given{"hotbed_server_vocabulary_given_total", "Numbers given to new keys."};
  Counter full{"hotbed_server_vocabulary_full_total",
               "Keys that got 0 because their vocabulary was full, once per call and key."};
  Counter again{"hotbed_server_vocabulary_again_total",
                "Decisions made again because another entry of the log came first."};
};
NumberMetrics& Numbers() {
  static auto* const metrics = new NumberMetrics;
  return *metrics;
}

template <typename T>
std::vector<T> NumbersOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

struct KeyPull final : PullWork {
  void Done() override { done.Notify(); }
  absl::Notification done;
};

struct NumberPush final : PushWork {
  void Done() override { done.Notify(); }
  absl::Notification done;
};

class Numbering {
 public:
  Numbering(ShardHost* host, const v1::NumberRequest& request, const Clock& clock,
            int64_t deadline_ns)
      : host_(*host),
        request_(request),
        clock_(clock),
        id_(ShardId::FromPacked(request.shard())),
        deadline_ns_(deadline_ns),
        keys_(NumbersOf<uint64_t>(request.keys())),
        counts_(NumbersOf<uint32_t>(request.counts())) {
    counts_.resize(keys_.size(), 1);
    keys_.push_back(kNoKey);  // whose row has the totals
    rows_.resize(keys_.size() * kVocabularyDim);
  }

  v1::NumberReply Run() {
    const std::shared_ptr<Shard> held = host_.Find(id_);
    v1::NumberReply reply;
    if (held == nullptr) {
      reply.set_code(v1::UNKNOWN_SHARD);
      reply.set_detail(absl::StrCat(id_.ToString(), " is not served here"));
      return reply;
    }
    for (int decisions = 1;; ++decisions) {
      if (!Read(held, &reply)) return reply;
      Decide(held->table().vocabulary);
      if (changed_.empty()) return Numbered(reply);
      const SegmentCode code = Push(held, &reply);
      if (code == SegmentCode::kOk) return Numbered(reply);
      if (code != SegmentCode::kUnavailable || decisions == kDecisionsMax) return reply;
      Numbers().again.Add(1);
      clock_.SleepNs(kDecideAgainNs);
    }
  }

 private:
  bool Read(const std::shared_ptr<Shard>& held, v1::NumberReply* reply) {
    KeyPull pull;
    pull.deadline_ns = deadline_ns_;
    PullSegment& segment = pull.segments.emplace_back();
    segment.shard = held.get();
    segment.shard_id = id_;
    segment.epoch = request_.epoch();
    segment.ids = keys_.data();
    segment.count = static_cast<uint32_t>(keys_.size());
    segment.rows = reinterpret_cast<uint8_t*>(rows_.data());
    host_.Pull(&pull);
    pull.done.WaitForNotification();
    Fill(segment.result, reply);
    read_at_ = segment.result.lsn;
    return segment.result.code == SegmentCode::kOk;
  }

  // The rows of the keys in changed_, as they become.
  void Decide(uint64_t numbers_max) {
    const size_t keys = keys_.size() - 1;
    VocabularyRow total = VocabularyRow::Load(RowOf(keys));
    const VocabularyRow before = total;
    full_ = 0;
    changed_.clear();
    changed_rows_.clear();
    numbers_.assign(keys, 0);
    for (size_t i = 0; i < keys; ++i) {
      VocabularyRow row = VocabularyRow::Load(RowOf(i));
      if (row.number == 0 && total.number >= numbers_max) {
        total.count += counts_[i];
        ++full_;
        continue;
      }
      if (row.number == 0) row.number = ++total.number;
      row.count += counts_[i];
      Change(i, row);
      numbers_[i] = static_cast<uint32_t>(row.number);
    }
    total_ = total;
    given_ = total.number - before.number;
    if (given_ > 0 || full_ > 0) Change(keys, total);
  }

  void Change(size_t i, const VocabularyRow& row) {
    row.Store(RowOf(i));
    changed_.push_back(keys_[i]);
    changed_rows_.push_back(reinterpret_cast<const uint8_t*>(RowOf(i)));
  }

  SegmentCode Push(const std::shared_ptr<Shard>& held, v1::NumberReply* reply) {
    NumberPush push;
    push.session = request_.session();
    push.incarnation = request_.incarnation();
    push.deadline_ns = deadline_ns_;
    push.shards = held;
    PushSegment& segment = push.segments.emplace_back();
    segment.shard = held.get();
    segment.shard_id = id_;
    segment.epoch = request_.epoch();
    segment.ids = changed_.data();
    segment.count = static_cast<uint32_t>(changed_.size());
    segment.gradients = changed_rows_.data();
    segment.seq = request_.seq();
    segment.prev_seq = request_.prev_seq();
    segment.open = request_.open();
    segment.last_part = true;
    segment.assign = true;
    segment.vocabulary = true;
    segment.decided_at = read_at_;
    host_.Push(&push);
    push.done.WaitForNotification();
    Fill(segment.result, reply);
    return segment.result.code;
  }

  // A sequence that was applied before has changed nothing now. Then the rows that were read have
  // it already, and no number was given but in them.
  v1::NumberReply Numbered(v1::NumberReply reply) const {
    Numbers().keys.Add(numbers_.size());
    Numbers().given.Add(given_);
    Numbers().full.Add(full_);
    reply.mutable_numbers()->assign(reinterpret_cast<const char*>(numbers_.data()),
                                    numbers_.size() * sizeof(uint32_t));
    reply.set_given(total_.number);
    reply.set_full(total_.count);
    return reply;
  }

  void Fill(const SegmentResult& result, v1::NumberReply* reply) const {
    reply->Clear();
    reply->set_code(static_cast<v1::Code>(result.code));
    reply->set_detail(result.detail);
    reply->set_retry_after_ms(result.retry_after_ms);
    reply->set_epoch(result.epoch);
    reply->set_lsn(result.lsn);
    reply->set_last_seq(result.last_seq);
    if (result.code != SegmentCode::kWrongEpoch) return;
    const std::optional<ShardRecord> record = host_.RecordOf(id_);
    if (record.has_value()) ToProto(*record, reply->mutable_record());
  }

  float* RowOf(size_t i) { return rows_.data() + i * kVocabularyDim; }

  ShardHost& host_;
  const v1::NumberRequest& request_;
  const Clock& clock_;
  const ShardId id_;
  const int64_t deadline_ns_;
  std::vector<uint64_t> keys_;    // and kNoKey
  std::vector<uint32_t> counts_;  // of the keys
  std::vector<float> rows_;
  Lsn read_at_ = 0;
  std::vector<uint64_t> changed_;
  std::vector<const uint8_t*> changed_rows_;
  std::vector<uint32_t> numbers_;
  VocabularyRow total_;
  uint64_t given_ = 0;  // by this decision
  uint64_t full_ = 0;
};

}  // namespace

void RegisterNumberMetrics() { Numbers(); }

absl::Status CheckNumberRequest(const v1::NumberRequest& request, const TableSpec& table) {
  if (table.vocabulary == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.name,
                     " is no vocabulary; make one with 'hotbed table create NAME --vocabulary "
                     "MAX'"));
  }
  const size_t count = request.keys().size() / sizeof(uint64_t);
  if (request.keys().size() % sizeof(uint64_t) != 0 || count > kNumberKeysMax) {
    return absl::InvalidArgumentError(absl::StrCat("keys has ", request.keys().size(),
                                                   " bytes, allowed: 8 per key, at most ",
                                                   kNumberKeysMax, " keys"));
  }
  if (!request.counts().empty() && request.counts().size() != count * sizeof(uint32_t)) {
    return absl::InvalidArgumentError(absl::StrCat("counts has ", request.counts().size(),
                                                   " bytes for ", count,
                                                   " keys, allowed: none, or 4 per key"));
  }
  const std::vector<uint64_t> keys = NumbersOf<uint64_t>(request.keys());
  for (const uint64_t key : keys) {
    if (key != kNoKey) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table ", table.name, ": -1 (", kNoKey,
                     ") stands for no key and has number 0; leave it out"));
  }
  // A push is refused for that, too, but its sequence would then count as applied.
  const uint32_t again = FirstRepeatedId(keys.data(), static_cast<uint32_t>(count));
  if (again == count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", table.name, ": key ", keys[again],
                                                 " occurs twice in a call, allowed: once, with "
                                                 "its count"));
}

v1::NumberReply AnswerNumber(ShardHost* host, const v1::NumberRequest& request, const Clock& clock,
                             int64_t deadline_ns) {
  return Numbering(host, request, clock, deadline_ns).Run();
}

}  // namespace hotbed
