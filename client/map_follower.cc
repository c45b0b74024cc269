#include "client/map_follower.h"

#include <algorithm>

#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::Duration kRefreshTimeout = absl::Seconds(5);
constexpr absl::Duration kRefreshSpacing = absl::Milliseconds(20);
constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
constexpr absl::Duration kBackoffMax = absl::Seconds(2);

}  // namespace

absl::Status MapFollower::Refresh(absl::Duration timeout) {
  // Everything, not the difference: whoever asks has reason to doubt what is held.
  HOTBED_ASSIGN_OR_RETURN(const MapUpdate update, control_->GetMap(0, timeout));
  map_->Apply(update);
  return absl::OkStatus();
}

absl::Status MapFollower::Start(absl::Duration timeout) {
  HOTBED_RETURN_IF_ERROR(Refresh(timeout));
  watcher_ = std::thread([this] { WatchLoop(); });
  refresher_ = std::thread([this] { RefreshLoop(); });
  return absl::OkStatus();
}

void MapFollower::RequestRefresh() {
  absl::MutexLock lock(&mu_);
  refresh_wanted_ = true;
}

void MapFollower::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  control_->StopWatching();
  if (watcher_.joinable()) watcher_.join();
  if (refresher_.joinable()) refresher_.join();
}

bool MapFollower::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  return !mu_.AwaitWithTimeout(absl::Condition(&stopped_), duration);
}

void MapFollower::WatchLoop() {
  absl::Duration backoff = kBackoffMin;
  do {
    // A broken watch is only a slower one: WRONG_EPOCH and RequestRefresh carry the client
    // meanwhile.
    const absl::Status ended =
        control_->Watch(map_->Get()->plan_revision(), [this, &backoff](const MapUpdate& update) {
          map_->Apply(update);
          backoff = kBackoffMin;
        });
    backoff = std::min(backoff * 2, kBackoffMax);
  } while (Sleep(backoff));
}

void MapFollower::RefreshLoop() {
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return refresh_wanted_ || stopped_;
  };
  do {
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&wanted));
      if (stopped_) return;
      refresh_wanted_ = false;
    }
    // A failure needs no answer here: whoever still misses something asks again.
    Refresh(kRefreshTimeout).IgnoreError();
  } while (Sleep(kRefreshSpacing));
}

}  // namespace hotbed
