#include "client/trainers/commit_delivery.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "client/net/message_limits.h"
#include "common/status_macros.h"
#include "proto/convert.h"
#include "proto/segments.h"

namespace hotbed {
// The answers to one round of messages. Outlives Deliver if that ends at its deadline.
struct CommitDelivery::Round {
  absl::Mutex mu;
  int unanswered ABSL_GUARDED_BY(mu) = 0;
  std::vector<ShardAnswer> answers ABSL_GUARDED_BY(mu);
  bool Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { return unanswered == 0; }
};

class CommitRequest final : public PendingRequest {
 public:
  using Asked = CommitDelivery::Asked;
  CommitRequest(std::shared_ptr<CommitDelivery::Round> round, std::vector<Asked> shards)
      : round_(std::move(round)), shards_(std::move(shards)) {}

  void Done(const absl::Status& transport, const ServerReply* reply) override {
    absl::MutexLock lock(&round_->mu);
    const v1::ReplyHeader* header = transport.ok() ? &reply->view->header : nullptr;
    if (header != nullptr && header->code() == v1::OK && reply->whole &&
        reply->segment_count == shards_.size()) {
      TakeEach(*reply);
    } else {
      v1::SegmentReply alike;
      if (header != nullptr && header->code() != v1::OK) {
        alike = RefusalOf(*header);
      } else {
        alike.set_code(v1::UNAVAILABLE);
        alike.set_detail(std::string(transport.message()));
      }
      for (const Asked& asked : shards_) round_->answers.push_back({asked.shard, alike, 0});
    }
    --round_->unanswered;
  }

 private:
  void TakeEach(const ServerReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(round_->mu) {
    ReplySegments segments(reply.view->header, reply.segment_first);
    for (const Asked& asked : shards_) {
      v1::SegmentReply usual;
      usual.set_epoch(asked.epoch);
      const v1::SegmentReply* const exception = segments.Next();
      round_->answers.push_back(
          {asked.shard, exception == nullptr ? usual : *exception, segments.lsn()});
    }
  }

  const std::shared_ptr<CommitDelivery::Round> round_;
  const std::vector<Asked> shards_;
};

CommitDelivery::Open CommitDelivery::ShardsOf(const v1::GroupCommit& commit, int64_t deadline_ns) {
  ClusterMapPtr map = use_.map->Get();
  const auto unknown = [&](TableId table) { return map->Table(table) == nullptr; };
  if (std::any_of(commit.tables().begin(), commit.tables().end(), unknown)) {
    // Another trainer has just created the table, or it was dropped.
    const int64_t left_ns = std::max<int64_t>(deadline_ns - use_.clock->NowNs(), 1'000'000);
    (void)use_.follower->Refresh(absl::Nanoseconds(left_ns));
    map = use_.map->Get();
  }
  Open open;
  for (const TableId table : commit.tables()) {
    const TableRoute* route = map->Table(table);
    if (route == nullptr) continue;
    for (const auto& [index, record] : route->records) {
      open[record.shard] = absl::UnavailableError("not asked yet");
    }
  }
  return open;
}

void CommitDelivery::Send(const std::string& address, const v1::PushHeader& head,
                          std::vector<Asked> shards, const std::shared_ptr<Round>& round) {
  v1::PushHeader header = head;
  v1::PushGroup* group = nullptr;
  for (const Asked& asked : shards) {
    if (group == nullptr || group->table() != asked.shard.table) {
      group = header.add_groups();
      group->set_table(asked.shard.table);
      group->set_commit(1);
    }
    group->add_shards(asked.shard.index);
    group->add_epochs(asked.epoch);
  }
  {
    absl::MutexLock lock(&round->mu);
    ++round->unanswered;
  }
  OutgoingMessage message;
  message.header = header.SerializeAsString();
  message.segments = static_cast<uint32_t>(shards.size());
  use_.retry->CountRequest();
  use_.transport->Send(address, Lane::kPush, std::move(message),
                       std::make_shared<CommitRequest>(round, std::move(shards)));
}

absl::Status CommitDelivery::RunRound(const v1::GroupCommit& commit,
                                      const SessionIdentity& identity, int64_t deadline_ns,
                                      Open* open, uint32_t* retry_after_ms) {
  v1::PushHeader head;
  head.set_session(identity.session);
  head.set_incarnation(identity.incarnation);
  v1::StepCommit* body = head.add_commits();
  body->set_step(commit.step());
  *body->mutable_sessions() = commit.sessions();
  const ClusterMapPtr map = use_.map->Get();
  std::map<std::string, std::vector<Asked>> messages;
  auto round = std::make_shared<Round>();
  for (auto it = open->begin(); it != open->end();) {
    const ShardRecord* record = map->Shard(it->first);
    if (record == nullptr) {  // its table was dropped
      it = open->erase(it);
      continue;
    }
    const ServerAddress* server = map->Server(record->primary.server);
    if (server == nullptr) {
      it->second = absl::UnavailableError("its server is not known");
      use_.follower->RequestRefresh();
      ++it;
      continue;
    }
    std::vector<Asked>& shards = messages[server->address];
    shards.push_back({it->first, record->epoch});
    if (shards.size() == kSegmentsPerMessageMax) {
      Send(server->address, head, std::move(shards), round);
      messages.erase(server->address);
    }
    ++it;
  }
  for (auto& [address, shards] : messages) Send(address, head, std::move(shards), round);
  std::vector<ShardAnswer> answers;
  {
    absl::MutexLock lock(&round->mu);
    (void)use_.transport->AwaitAnswers(use_.clock, &round->mu,
                                       absl::Condition(round.get(), &Round::Over), deadline_ns);
    answers.swap(round->answers);
  }
  for (const ShardAnswer& answer : answers) {
    HOTBED_RETURN_IF_ERROR(TakeAnswer(answer, open, retry_after_ms));
  }
  return absl::OkStatus();
}

absl::Status CommitDelivery::TakeAnswer(const ShardAnswer& of_shard, Open* open,
                                        uint32_t* retry_after_ms) {
  const ShardId shard = of_shard.shard;
  const v1::SegmentReply& answer = of_shard.answer;
  const auto it = open->find(shard);
  if (it == open->end()) return absl::OkStatus();
  const Verdict verdict = VerdictOf(answer.code(), /*push=*/true);
  if (verdict == Verdict::kOk) {
    open->erase(it);
    for (const TableHandle* table : tables_()) {
      if (table->id() == shard.table) {
        table->NoteAcknowledged(shard.index, answer.epoch(), of_shard.lsn);
      }
    }
    return absl::OkStatus();
  }
  it->second = StatusOf(answer.code(), shard.ToString(), answer.detail());
  if (verdict == Verdict::kReroute) {
    const auto record = FromProto(answer.record());
    const bool known = answer.has_record() && record.ok() && use_.map->ApplyRecord(*record);
    if (!known) use_.follower->RequestRefresh();
    return absl::OkStatus();
  }
  if (verdict == Verdict::kLater) {
    *retry_after_ms = std::max(*retry_after_ms, answer.retry_after_ms());
    if (answer.code() == v1::UNAVAILABLE) use_.follower->RequestRefresh();
    return absl::OkStatus();
  }
  return it->second;
}

absl::Status CommitDelivery::Deliver(const v1::GroupCommit& commit, const SessionIdentity& identity,
                                     int64_t deadline_ns) {
  Open open = ShardsOf(commit, deadline_ns);
  absl::flat_hash_set<ShardId> asked;
  for (const auto& [shard, status] : open) asked.insert(shard);
  absl::Mutex never_mu;
  for (int attempt = 1; !open.empty(); ++attempt) {
    uint32_t retry_after_ms = 0;
    HOTBED_RETURN_IF_ERROR(RunRound(commit, identity, deadline_ns, &open, &retry_after_ms));
    // A shard that was cut meanwhile has parts that must apply the step too; a part of one that had
    // applied it answers that it has.
    for (auto& [shard, status] : ShardsOf(commit, deadline_ns)) {
      if (asked.insert(shard).second) open[shard] = std::move(status);
    }
    if (open.empty()) break;
    const int64_t now_ns = use_.clock->NowNs();
    if (now_ns >= deadline_ns) {
      const auto& [shard, why] = *open.begin();
      return absl::DeadlineExceededError(absl::StrCat(
          "commit of step ", commit.step(), ", ", shard.ToString(), " and ", open.size() - 1,
          " more have not applied it: ", why.message(), "; end the step again"));
    }
    const int64_t delay_ns = use_.retry->SoonNs(attempt, retry_after_ms);
    const auto never = [] { return false; };
    absl::MutexLock lock(&never_mu);
    (void)use_.transport->AwaitAnswers(use_.clock, &never_mu, absl::Condition(&never),
                                       std::min(deadline_ns, now_ns + delay_ns));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
