#include "server/cluster/attend_stream.h"

#include <algorithm>
#include <utility>

namespace hotbed {

namespace {

constexpr absl::Duration kConnectMax = absl::Milliseconds(500);

}  // namespace

AttendStream::AttendStream(LeaderStub* leader, const Clock* clock, ReplyListener on_reply,
                           EndListener on_end)
    : leader_(leader),
      clock_(clock),
      on_reply_(std::move(on_reply)),
      on_end_(std::move(on_end)),
      place_(leader->Find(kConnectMax, /*patient=*/false)),
      stream_(place_->stub->Attend(&context_)),
      reader_([this] { Read(); }),
      applier_([this] { ApplyAll(); }) {}

AttendStream::~AttendStream() {
  Cancel();
  {
    absl::MutexLock lock(&mu_);
    ends_ = true;
  }
  reader_.join();
  applier_.join();
}

void AttendStream::Send(uint64_t applied, v1::HeartbeatRequest* request) {
  {
    absl::MutexLock lock(&mu_);
    if (broken_) return;
    request->set_number(++number_);
    request->set_plan_revision_known(revision_received_ != 0 ? revision_received_ : applied);
    unanswered_.push_back({number_, clock_->NowNs()});
  }
  stream_->Write(*request);  // a failed write breaks the stream, which ends Read()
}

bool AttendStream::broken() const {
  absl::MutexLock lock(&mu_);
  return broken_;
}

grpc::Status AttendStream::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

size_t AttendStream::unanswered() const {
  absl::MutexLock lock(&mu_);
  return unanswered_.size();
}

int64_t AttendStream::oldest_unanswered_ns() const {
  absl::MutexLock lock(&mu_);
  return unanswered_.empty() ? 0 : unanswered_.front().sent_ns;
}

uint64_t AttendStream::revision_received() const {
  absl::MutexLock lock(&mu_);
  return revision_received_;
}

int64_t AttendStream::TakeAnswered(const v1::HeartbeatReply& reply) {
  int64_t sent_ns = 0;
  while (reply.number() != 0 && !unanswered_.empty() &&
         unanswered_.front().number <= reply.number()) {
    if (unanswered_.front().number == reply.number()) sent_ns = unanswered_.front().sent_ns;
    unanswered_.pop_front();
  }
  if (reply.number() >= maps_again_at_) {
    revision_received_ = std::max(revision_received_, reply.map().plan_revision());
  }
  return sent_ns;
}

void AttendStream::Read() {
  v1::HeartbeatReply reply;
  while (stream_->Read(&reply)) {
    absl::MutexLock lock(&mu_);
    const int64_t sent_ns = TakeAnswered(reply);
    waiting_.push_back({std::move(reply), sent_ns});
    reply.Clear();
    const auto room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return waiting_.size() < kWaitingMax || ends_;
    };
    mu_.Await(absl::Condition(&room));
  }
  absl::MutexLock lock(&mu_);
  read_all_ = true;
}

bool AttendStream::MapFollows(const v1::HeartbeatReply& reply) {
  if (reply.number() != 0 && reply.number() >= maps_again_at_) maps_again_at_ = 0;
  return maps_again_at_ == 0;
}

void AttendStream::ApplyAll() {
  for (;;) {
    Waiting next;
    {
      absl::MutexLock lock(&mu_);
      const auto due = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return read_all_ || (!waiting_.empty() && !ends_);
      };
      mu_.Await(absl::Condition(&due));
      if (waiting_.empty() || ends_) break;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      if (!MapFollows(next.reply)) next.reply.clear_map();
    }
    if (on_reply_(next.reply, next.sent_ns).ok()) continue;
    absl::MutexLock lock(&mu_);
    revision_received_ = 0;
    maps_again_at_ = number_ + 1;
  }
  grpc::Status status = stream_->Finish();
  leader_->Learn(*place_, status, context_);
  if (status.ok()) {
    status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator ended the stream");
  }
  {
    absl::MutexLock lock(&mu_);
    broken_ = true;
    status_ = std::move(status);
  }
  on_end_();
}

}  // namespace hotbed
