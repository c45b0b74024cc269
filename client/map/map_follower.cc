#include "client/map/map_follower.h"

#include <algorithm>

#include "common/status_macros.h"
#include "common/threads/await_for.h"

namespace hotbed {
namespace {

constexpr absl::Duration kRefreshTimeout = absl::Seconds(5);
// Whole maps may be large, and all clients miss the same server at once. A client that keeps asking
// is therefore served less often; the watch brings the news in any case.
constexpr absl::Duration kRefreshSpacingMin = absl::Milliseconds(20);
constexpr absl::Duration kRefreshSpacingMax = absl::Milliseconds(500);
constexpr absl::Duration kBackoffMin = absl::Milliseconds(50);
constexpr absl::Duration kBackoffMax = absl::Milliseconds(500);

}  // namespace

absl::Status MapFollower::Refresh(absl::Duration timeout) {
  // The whole map and not the difference: the caller has reason to doubt the current map.
  HOTBED_ASSIGN_OR_RETURN(const MapUpdate update, control_->GetMap(0, timeout));
  Apply(update);
  return absl::OkStatus();
}

void MapFollower::Apply(const MapUpdate& update) {
  const ClusterMapPtr before = map_->Get();
  map_->Apply(update);
  if (gone_ == nullptr) return;
  const ClusterMapPtr now = map_->Get();
  for (const auto& [id, was] : before->servers()) {
    const ServerAddress* const is = now->Server(id);
    const bool up = is != nullptr && is->live && is->incarnation == was.incarnation;
    if (was.live && !up) gone_(was.address);
  }
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
  return !AwaitFor(&mu_, absl::Condition(&stopped_), duration);
}

void MapFollower::WatchLoop() {
  absl::Duration backoff = kBackoffMin;
  do {
    // A broken watch only delays news: until it is restored, WRONG_EPOCH and RequestRefresh serve.
    const absl::Status ended =
        control_->Watch(map_->Get()->plan_revision(), [this, &backoff](const MapUpdate& update) {
          Apply(update);
          backoff = kBackoffMin;
        });
    backoff = std::min(backoff * 2, kBackoffMax);
  } while (Sleep(backoff));
}

void MapFollower::RefreshLoop() {
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return refresh_wanted_ || stopped_;
  };
  absl::Duration spacing = kRefreshSpacingMin;
  do {
    {
      absl::MutexLock lock(&mu_);
      const bool still = AwaitFor(&mu_, absl::Condition(&wanted), kRefreshSpacingMax);
      spacing = still ? std::min(spacing * 2, kRefreshSpacingMax) : kRefreshSpacingMin;
      if (!still) mu_.Await(absl::Condition(&wanted));
      if (stopped_) return;
      refresh_wanted_ = false;
    }
    // A failure needs no handling: a caller that still misses something requests a map again.
    Refresh(kRefreshTimeout).IgnoreError();
  } while (Sleep(spacing));
}

}  // namespace hotbed
