#include "server/host/snapshot_receiver.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace hotbed {
namespace {

absl::string_view ViewOf(const SharedBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()};
}

}  // namespace

SnapshotReceiver::SnapshotReceiver(Site* site, const Clock* clock) : site_(site), clock_(clock) {
  thread_ = std::thread([this] { Work(); });
}

void SnapshotReceiver::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void SnapshotReceiver::OnMessage(const Member& from, ReplicaMessage message) {
  absl::MutexLock lock(&mu_);
  // Each sender has one message per transfer in flight, and few transfers.
  if (stops_ || messages_.size() >= kTransferMessagesMax) return;
  messages_.push_back({from, std::move(message)});
}

void SnapshotReceiver::OnPeerLost(const Member& peer) {
  absl::MutexLock lock(&mu_);
  messages_.push_back({peer, ReplicaMessage()});
}

void SnapshotReceiver::Check() {
  absl::MutexLock lock(&mu_);
  if (messages_.empty()) messages_.push_back({Member(), ReplicaMessage()});
}

void SnapshotReceiver::Work() {
  for (;;) {
    Message next;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || !messages_.empty();
      };
      mu_.Await(absl::Condition(&wakes));
      if (stops_) return;
      next = std::move(messages_.front());
      messages_.pop_front();
    }
    CarryOut(std::move(next));
    in_flight_.store(installs_.size(), std::memory_order_relaxed);
  }
}

void SnapshotReceiver::CarryOut(Message next) {
  const ReplicaMessage& message = next.message;
  if (message.kind == ReplicaMessage::Kind::kSnapshotBegin) return Begin(std::move(next));
  if (message.kind == ReplicaMessage::Kind::kNone) {
    const int64_t silent_since_ns = clock_->NowNs() - kTransferSilentNsMax;
    TakeBackWhere([&](const Install& install) -> const char* {
      if (install.from == next.from) return "the connection to its sender is lost";
      if (install.heard_ns < silent_since_ns) return "its sender has fallen silent";
      const bool wanted = site_->Wants(install.shard, install.from, install.epoch);
      return wanted ? nullptr : "the shard's record does not want it any more";
    });
    RefuseWaiting(next.from);
    return BeginWaiting();
  }
  if (message.kind == ReplicaMessage::Kind::kAppend) {
    TakeBackWhere([&](const Install& install) {
      const bool off = install.shard == message.shard && install.from == next.from &&
                       install.epoch <= message.epoch;
      return off ? "its sender has given it up" : nullptr;
    });
    return BeginWaiting();
  }
  const auto it = std::find_if(installs_.begin(), installs_.end(), [&](const Install& install) {
    return install.shard == message.shard && install.from == next.from &&
           install.epoch == message.epoch && install.transfer == message.transfer;
  });
  if (it == installs_.end()) {
    return Answer(InstallOf(next), absl::NotFoundError("no such transfer is in flight"), 0);
  }
  it->heard_ns = clock_->NowNs();
  if (message.kind == ReplicaMessage::Kind::kSnapshotRows) return Rows(&*it, message);
  if (message.kind == ReplicaMessage::Kind::kSnapshotEnd) End(&*it, message);
}

SnapshotReceiver::Install SnapshotReceiver::InstallOf(const Message& message) const {
  Install install;
  install.shard = message.message.shard;
  install.from = message.from;
  install.epoch = message.message.epoch;
  install.transfer = message.message.transfer;
  install.lsn = message.message.lsn;
  install.heard_ns = clock_->NowNs();
  return install;
}

void SnapshotReceiver::Begin(Message next) {
  const Install install = InstallOf(next);
  const bool wanted = site_->Wants(install.shard, install.from, install.epoch);
  if (!wanted) return Answer(install, absl::FailedPreconditionError("not wanted here"), 0);
  // Its sender has given up the previous one.
  TakeBackWhere([&](const Install& other) {
    return other.shard == install.shard ? "another transfer of it begins" : nullptr;
  });
  if (installs_.size() >= kTransfersReceivedMax) {
    std::erase_if(waiting_, [&](const Message& m) { return m.message.shard == install.shard; });
    waiting_.push_back(std::move(next));
    return;
  }
  const absl::Status begun = site_->Begin(install.shard, install.from, install.epoch, install.lsn);
  if (begun.ok()) installs_.push_back(install);
  Answer(install, begun, 0);
}

void SnapshotReceiver::BeginWaiting() {
  while (!waiting_.empty() && installs_.size() < kTransfersReceivedMax) {
    Message next = std::move(waiting_.front());
    waiting_.pop_front();
    Begin(std::move(next));
  }
}

void SnapshotReceiver::RefuseWaiting(const Member& from) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->from == from) {
      Answer(InstallOf(*it), absl::UnavailableError("the connection was lost"), 0);
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
}

void SnapshotReceiver::Rows(Install* install, const ReplicaMessage& message) {
  if (message.chunk != install->chunks) {  // after a resend: the answer is the same
    return Answer(*install,
                  message.chunk < install->chunks
                      ? absl::OkStatus()
                      : absl::DataLossError("a block of rows is missing"),
                  0);
  }
  const absl::Status written = site_->Write(install->shard, ViewOf(message.body));
  if (written.ok()) ++install->chunks;
  bytes_.fetch_add(message.body.bytes.size(), std::memory_order_relaxed);
  Answer(*install, written, 0);
  if (written.ok()) return;
  TakeBack(static_cast<size_t>(install - installs_.data()), "a block was not written");
  BeginWaiting();
}

void SnapshotReceiver::End(Install* install, const ReplicaMessage& message) {
  absl::Status finished =
      message.chunk == install->chunks
          ? site_->Finish(install->shard, ViewOf(message.body))
          : absl::DataLossError(absl::StrCat(install->chunks, " blocks of rows came, ",
                                             message.chunk, " were sent"));
  const size_t index = static_cast<size_t>(install - installs_.data());
  if (finished.ok()) {
    ++install->chunks;
    installed_.fetch_add(1, std::memory_order_relaxed);
    const Install done = *install;
    installs_.erase(installs_.begin() + static_cast<std::ptrdiff_t>(index));
    Answer(done, finished, done.lsn);
  } else {
    Answer(*install, finished, 0);
    TakeBack(index, "it could not be finished");
  }
  BeginWaiting();
}

void SnapshotReceiver::Answer(const Install& install, const absl::Status& status, Lsn lsn) {
  if (!status.ok()) {
    HOTBED_LOG_EVERY_S(Warning, 1) << install.shard.ToString() << ": a snapshot from server "
                                   << install.from.server << " is not taken: " << status.message();
  }
  ReplicaMessage reply;
  reply.kind = ReplicaMessage::Kind::kSnapshotReply;
  reply.shard = install.shard;
  reply.epoch = install.epoch;
  reply.to = install.from;
  reply.transfer = install.transfer;
  reply.chunk = install.chunks;
  reply.lsn = lsn;
  reply.ok = status.ok();
  site_->Reply(std::move(reply));
}

void SnapshotReceiver::TakeBack(size_t index, const char* why) {
  const Install install = installs_[index];
  installs_.erase(installs_.begin() + static_cast<std::ptrdiff_t>(index));
  HOTBED_LOG(Info) << install.shard.ToString() << ": its snapshot transfer is taken back: " << why;
  site_->Abandon(install.shard);
  // The sender may not have noticed that the connection was lost on the way back.
  Answer(install, absl::UnavailableError(why), 0);
}

void SnapshotReceiver::TakeBackWhere(const std::function<const char*(const Install&)>& why) {
  for (size_t i = installs_.size(); i-- > 0;) {
    if (const char* reason = why(installs_[i]); reason != nullptr) TakeBack(i, reason);
  }
}

}  // namespace hotbed
