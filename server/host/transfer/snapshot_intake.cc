#include "server/host/transfer/snapshot_intake.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"

namespace hotbed {
namespace {

absl::string_view ViewOf(const SharedBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()};
}

}  // namespace

void SnapshotIntake::OnPeerLost(const Member& peer) {
  const int64_t silent_since_ns = clock_->NowNs() - silent_ns_max_;
  TakeBackWhere([&](const Install& install) -> const char* {
    if (install.from == peer) return "the connection to its sender is lost";
    if (install.heard_ns < silent_since_ns) return "its sender has fallen silent";
    const bool wanted = site_->Wants(install.shard, install.from, install.epoch);
    return wanted ? nullptr : "the shard's record does not want it any more";
  });
  RefuseWaiting(peer);
  BeginWaiting();
  in_flight_.store(installs_.size(), std::memory_order_relaxed);
}

void SnapshotIntake::OnMessage(const Member& from, const ReplicaMessage& message) {
  Take(from, message);
  in_flight_.store(installs_.size(), std::memory_order_relaxed);
}

void SnapshotIntake::Take(const Member& from, const ReplicaMessage& message) {
  using Kind = ReplicaMessage::Kind;
  if (message.kind == Kind::kSnapshotBegin) return Begin(from, message);
  if (message.kind == Kind::kAppend) {
    TakeBackWhere([&](const Install& install) {
      const bool off =
          install.shard == message.shard && install.from == from && install.epoch <= message.epoch;
      return off ? "its sender has given it up" : nullptr;
    });
    return BeginWaiting();
  }
  const auto it = std::find_if(installs_.begin(), installs_.end(), [&](const Install& install) {
    return install.shard == message.shard && install.from == from &&
           install.epoch == message.epoch && install.transfer == message.transfer;
  });
  if (it == installs_.end()) {
    return Answer(InstallOf(from, message), absl::NotFoundError("no such transfer is in flight"),
                  0);
  }
  it->heard_ns = clock_->NowNs();
  if (message.kind == Kind::kSnapshotRows) return Rows(&*it, message);
  if (message.kind == Kind::kSnapshotEnd) End(&*it, message);
}

SnapshotIntake::Install SnapshotIntake::InstallOf(const Member& from,
                                                  const ReplicaMessage& message) const {
  Install install;
  install.shard = message.shard;
  install.from = from;
  install.epoch = message.epoch;
  install.transfer = message.transfer;
  install.lsn = message.lsn;
  install.heard_ns = clock_->NowNs();
  return install;
}

void SnapshotIntake::Begin(const Member& from, const ReplicaMessage& message) {
  const Install install = InstallOf(from, message);
  const bool wanted = site_->Wants(install.shard, install.from, install.epoch);
  if (!wanted) return Answer(install, absl::FailedPreconditionError("not wanted here"), 0);
  // Its sender has given up the previous one.
  TakeBackWhere([&](const Install& other) {
    return other.shard == install.shard ? "another transfer of it begins" : nullptr;
  });
  if (installs_.size() >= kTransfersReceivedMax) {
    std::erase_if(waiting_, [&](const Waiting& w) { return w.begin.shard == install.shard; });
    waiting_.push_back({from, message});
    return;
  }
  const absl::Status begun = site_->Begin(install.shard, install.from, install.epoch, install.lsn);
  if (begun.ok()) installs_.push_back(install);
  Answer(install, begun, 0);
}

void SnapshotIntake::BeginWaiting() {
  while (!waiting_.empty() && installs_.size() < kTransfersReceivedMax) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    Begin(next.from, next.begin);
  }
}

void SnapshotIntake::RefuseWaiting(const Member& from) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->from == from) {
      Answer(InstallOf(it->from, it->begin), absl::UnavailableError("the connection was lost"), 0);
      it = waiting_.erase(it);
    } else {
      ++it;
    }
  }
}

void SnapshotIntake::Rows(Install* install, const ReplicaMessage& message) {
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

void SnapshotIntake::End(Install* install, const ReplicaMessage& message) {
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

void SnapshotIntake::Answer(const Install& install, const absl::Status& status, Lsn lsn) {
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

void SnapshotIntake::TakeBack(size_t index, const char* why) {
  const Install install = installs_[index];
  installs_.erase(installs_.begin() + static_cast<std::ptrdiff_t>(index));
  HOTBED_LOG_EVERY_S(Info, 1) << install.shard.ToString()
                              << ": its snapshot transfer is taken back: " << why;
  site_->Abandon(install.shard);
  // The sender may not have noticed that the connection was lost on the way back.
  Answer(install, absl::UnavailableError(why), 0);
}

void SnapshotIntake::TakeBackWhere(const std::function<const char*(const Install&)>& why) {
  for (size_t i = installs_.size(); i-- > 0;) {
    if (const char* reason = why(installs_[i]); reason != nullptr) TakeBack(i, reason);
  }
}

}  // namespace hotbed
