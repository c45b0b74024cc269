#include "kv/rocks_room.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr int64_t kFullNs = 200'000'000;

}  // namespace

bool IsForWantOfRoom(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

void RocksRoom::StartWaiting() {
  absl::MutexLock lock(&mu_);
  ended_ = false;
}

void RocksRoom::StopWaiting() {
  absl::MutexLock lock(&mu_);
  ended_ = true;
}

bool RocksRoom::Try::Again(int error) {
  if (room_ == nullptr || !IsForWantOfRoom(error)) return false;
  absl::MutexLock lock(&room_->mu_);
  if (room_->ended_) return false;
  if (!waits_) {
    waits_ = true;
    ++room_->waiters_;
    HOTBED_LOG_EVERY_S(Warning, 10)
        << "key-value store: " << path_ << " waits for room: " << std::strerror(error);
  }
  room_->refused_ = absl::StrCat(path_, ": ", std::strerror(error));
  room_->refused_ns_ = Clock::Real()->NowNs();
  return !AwaitFor(&room_->mu_, absl::Condition(&room_->ended_), kPause);
}

RocksRoom::Try::~Try() {
  if (!waits_) return;
  absl::MutexLock lock(&room_->mu_);
  --room_->waiters_;
}

rocksdb::Status RocksRoom::error() const {
  absl::MutexLock lock(&mu_);
  if (refused_.empty()) return rocksdb::Status::OK();
  if (waiters_ == 0 && Clock::Real()->NowNs() - refused_ns_ >= kFullNs) {
    return rocksdb::Status::OK();
  }
  return rocksdb::Status::NoSpace("waiting for room", refused_);
}

}  // namespace hotbed
