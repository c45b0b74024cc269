#include "kv/rocks_flusher.h"

#include <utility>

#include "absl/time/time.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(10);  // how often to check for a full disk

}  // namespace

RocksFlusher::RocksFlusher(std::function<rocksdb::Status()> flush, const RocksRoom* room)
    : flush_(std::move(flush)), room_(room), thread_([this] { Run(); }) {}

RocksFlusher::~RocksFlusher() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
  }
  thread_.join();
}

// A later flush covers everything that an earlier one did, so its result serves both; if it failed,
// a caller of the earlier one only retries in vain.
rocksdb::Status RocksFlusher::Flush() {
  absl::MutexLock lock(&mu_);
  const uint64_t mine = ++asked_;
  struct Wait {
    const uint64_t* done;
    uint64_t mine;
  } wait{&done_, mine};
  const absl::Condition is_done(
      +[](Wait* w) { return *w->done >= w->mine; }, &wait);
  for (;;) {
    if (const rocksdb::Status full = room_->error(); !full.ok()) return full;
    if (AwaitFor(&mu_, is_done, kLookEvery)) return result_;
  }
}

void RocksFlusher::Run() {
  absl::MutexLock lock(&mu_);
  for (;;) {
    mu_.Await(absl::Condition(
        +[](RocksFlusher* self) ABSL_SHARED_LOCKS_REQUIRED(self->mu_) { return self->IsWanted(); },
        this));
    if (stops_) return;
    const uint64_t all = begun_ = asked_;
    mu_.Unlock();
    rocksdb::Status result = flush_();
    mu_.Lock();
    result_ = std::move(result);
    done_ = all;
  }
}

}  // namespace hotbed
