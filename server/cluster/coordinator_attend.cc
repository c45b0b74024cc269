// CoordinatorLink's heartbeats on the stream, what comes back on it, and activations.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/await_for.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/cluster/coordinator_link.h"
#include "server/net/stream_metrics.h"
#include "server/peers/replica_metrics.h"

namespace hotbed {
namespace {

// A heartbeat that is due while so many are unanswered is left out.
constexpr size_t kUnansweredMax = 4;
constexpr size_t kWhyBytesMax = 300;  // as control.proto has it
// The record of an activation may be lost with its answer: the host is asked again so often.
constexpr absl::Duration kActivationsAgain = absl::Milliseconds(200);
constexpr absl::Duration kActivationsRetry = absl::Milliseconds(50);

bool Same(const ShardHost::JoinReady& a, const ShardHost::JoinReady& b) {
  return a.shard == b.shard && a.epoch == b.epoch && a.member == b.member;
}

bool SameEpoch(const ShardHost::LostReplica& a, const ShardHost::LostReplica& b) {
  return a.shard == b.shard && a.epoch == b.epoch;
}

}  // namespace

bool CoordinatorLink::HasNews() {
  const std::vector<ShardHost::JoinReady> joins = host_->JoinsReady();
  const std::vector<ShardHost::LostReplica> lost = host_->LostReplicas();
  return !std::equal(joins.begin(), joins.end(), joins_said_.begin(), joins_said_.end(), Same) ||
         !std::equal(lost.begin(), lost.end(), lost_said_.begin(), lost_said_.end(), SameEpoch);
}

void CoordinatorLink::FillHeartbeat(v1::HeartbeatRequest* request) {
  load_.Fill(host_->Status(), StreamMetrics::Get().pull_seconds.Read(),
             ReplicaMetrics::Get().copied_bytes.Value(), clock_->NowNs(), request->mutable_load());
  joins_said_ = host_->JoinsReady();
  for (const ShardHost::JoinReady& join : joins_said_) {
    v1::JoinReady* const message = request->add_join_ready();
    message->set_shard(join.shard.packed());
    message->set_epoch(join.epoch);
    message->mutable_member()->set_server(join.member.server);
    message->mutable_member()->set_incarnation(join.member.incarnation);
  }
  lost_said_ = host_->LostReplicas();
  for (const ShardHost::LostReplica& lost : lost_said_) {
    v1::LostCopy* const message = request->add_copies_lost();
    message->set_shard(lost.shard.packed());
    message->set_epoch(lost.epoch);
    message->set_why(lost.why.substr(0, kWhyBytesMax));
  }
  for (const ShardHost::JoinReady& silent : host_->SilentMembers()) {
    v1::SilentMember* const message = request->add_silent();
    message->set_shard(silent.shard.packed());
    message->set_epoch(silent.epoch);
    message->mutable_member()->set_server(silent.member.server);
    message->mutable_member()->set_incarnation(silent.member.incarnation);
  }
  for (const ShardHost::TransferProgress& copy : host_->Transfers()) {
    v1::CopyProgress* const message = request->add_copies();
    message->set_shard(copy.shard.packed());
    message->mutable_to()->set_server(copy.to.server);
    message->mutable_to()->set_incarnation(copy.to.incarnation);
    message->set_bytes_copied(copy.bytes_copied);
    message->set_bytes_total(copy.bytes_total);
    message->set_bytes_per_s(copy.bytes_per_s);
    message->set_passes(copy.passes);
    message->set_changed_bytes_per_s(copy.changed_bytes_per_s);
    message->set_beyond_rate(copy.beyond_rate);
  }
  for (const ShardId shard : intake_.Unnamed()) request->add_held_unnamed(shard.packed());
  const uint64_t applied = intake_.plan_revision();
  absl::MutexLock lock(&mu_);
  request->set_plan_revision_known(heard_revision_ != 0 ? heard_revision_ : applied);
  request->set_server(status_.server);
  request->set_incarnation(status_.incarnation);
  request->set_draining(draining_);
}

absl::Status CoordinatorLink::StreamToUse(std::shared_ptr<AttendStream>* stream) {
  {
    absl::MutexLock lock(&mu_);
    *stream = stream_;
  }
  if (*stream != nullptr && !(*stream)->broken()) return absl::OkStatus();
  if (*stream != nullptr) {
    const grpc::Status ended = (*stream)->status();
    stream->reset();
    EndStream();
    if (ended.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      HOTBED_LOG(Info) << "the coordinator does not know Attend: heartbeats go by calls";
      attends_ = false;
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat("attending: ", ended.error_message()));
  }
  *stream = std::make_shared<AttendStream>(
      stub_.get(), [this](const v1::HeartbeatReply& reply) { OnReply(reply); }, [this] { Kick(); });
  absl::MutexLock lock(&mu_);
  if (stop_) (*stream)->Cancel();
  stream_ = *stream;
  status_.attending = true;
  return absl::OkStatus();
}

void CoordinatorLink::EndStream() {
  std::shared_ptr<AttendStream> stream;
  {
    absl::MutexLock lock(&mu_);
    stream = std::move(stream_);
    stream_ = nullptr;
    unanswered_.clear();
    heard_revision_ = 0;
    status_.attending = false;
  }
  // Its end waits for the reply that is being applied, which may want the lock.
  stream.reset();
}

absl::Status CoordinatorLink::BeatOnStream() {
  std::shared_ptr<AttendStream> stream;
  HOTBED_RETURN_IF_ERROR(StreamToUse(&stream));
  if (stream == nullptr) return absl::OkStatus();  // by a call then
  v1::HeartbeatRequest request;
  FillHeartbeat(&request);
  {
    absl::MutexLock lock(&mu_);
    // The whole map is asked for once.
    const size_t most = request.plan_revision_known() == 0 ? 1 : kUnansweredMax;
    if (unanswered_.size() >= most) return absl::OkStatus();
    unanswered_.push_back({++number_, clock_->NowNs()});
  }
  request.set_number(number_);
  stream->Send(request);  // that it is broken shows at the next turn, which comes at once
  return absl::OkStatus();
}

// Strict pulls rest on this: the time is that before the heartbeat left, by a clock that also
// counts while the process or the machine is stopped. The lease of a new incarnation counts for
// shards that have heard the first map that was made for it: until then they may take themselves
// for primaries as which others have replaced the incarnation before.
void CoordinatorLink::RenewLease(const v1::HeartbeatReply& reply, int64_t sent_ns) {
  if (intake_.plan_revision() == 0) return;
  int64_t ttl_ns = int64_t{1'000'000} * reply.lease_ttl_ms();
  if (ttl_ns == 0) {
    absl::MutexLock lock(&mu_);
    ttl_ns = 1'000'000 * lease_ttl_ms_;
  }
  if (reply.lease_held() && ttl_ns > 0) host_->SetLease(sent_ns + ttl_ns - LeaseMarginNs(ttl_ns));
}

absl::Status CoordinatorLink::TakeReply(const v1::HeartbeatReply& reply) {
  if (!reply.lease_held()) {
    host_->SetLease(0);
    absl::MutexLock lock(&mu_);
    lease_lost_ = true;
    kicked_ = true;
    return absl::OkStatus();
  }
  if (reply.has_copy_limits()) {
    const v1::CopyLimits& limits = reply.copy_limits();
    host_->SetTransferLimits({limits.bytes_per_s(), limits.paused(), limits.pull_p99_ms_max()});
  }
  return intake_.Apply(reply.map());
}

void CoordinatorLink::OnReply(const v1::HeartbeatReply& reply) {
  int64_t sent_ns = 0;
  {
    absl::MutexLock lock(&mu_);
    while (reply.number() != 0 && !unanswered_.empty() &&
           unanswered_.front().number <= reply.number()) {
      if (unanswered_.front().number == reply.number()) sent_ns = unanswered_.front().sent_ns;
      unanswered_.pop_front();
    }
    heard_revision_ = std::max(heard_revision_, reply.map().plan_revision());
  }
  const absl::Status taken = TakeReply(reply);
  if (sent_ns != 0) RenewLease(reply, sent_ns);
  if (!taken.ok()) {  // the next heartbeat asks for it again
    HOTBED_LOG_EVERY_S(Error, 5) << "what the coordinator says: " << taken;
    absl::MutexLock lock(&mu_);
    heard_revision_ = 0;
  }
  Heard(taken);
}

void CoordinatorLink::RunActivations() {
  absl::Duration wait = kActivationsAgain;
  for (;;) {
    bool registered = false;
    {
      absl::MutexLock lock(&mu_);
      const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return activate_ || stop_; };
      AwaitFor(&mu_, absl::Condition(&awake), wait);
      if (stop_) return;
      activate_ = false;
      registered = status_.registered;
    }
    EndStreamIfUnanswered();
    wait = kActivationsAgain;
    if (!registered) continue;
    const absl::Status status = Activate();
    if (status.ok()) continue;
    HOTBED_LOG_EVERY_S(Warning, 10) << "coordinator at " << options_.coordinator << ": "
                                    << status.message() << "; trying again";
    wait = kActivationsRetry;
  }
}

void CoordinatorLink::EndStreamIfUnanswered() {
  {
    absl::MutexLock lock(&mu_);
    if (unanswered_.empty() || stream_ == nullptr) return;
  }
  const int64_t timeout_ns = 1'000'000 * TimeoutMs();
  absl::MutexLock lock(&mu_);
  if (unanswered_.empty() || stream_ == nullptr) return;
  if (clock_->NowNs() - unanswered_.front().sent_ns > timeout_ns) stream_->Cancel();
}

}  // namespace hotbed
