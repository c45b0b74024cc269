// Keeps the cluster map up to date: one thread watches the coordinator, another requests the whole
// map when an answer showed the current one to be wrong. While the coordinator is unreachable, the
// last map stays in use. Thread-safe.
#ifndef HOTBED_CLIENT_MAP_MAP_FOLLOWER_H_
#define HOTBED_CLIENT_MAP_MAP_FOLLOWER_H_

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/map/cluster_map.h"
#include "client/map/control_plane.h"

namespace hotbed {

class MapFollower {
 public:
  // `gone` is called with the address of each server that was up before and that a new map reports
  // as down or restarted, on the thread that applied the map.
  MapFollower(ControlPlane* control, ClusterMapHolder* map,
              std::function<void(const std::string&)> gone = nullptr)
      : control_(control), map_(map), gone_(std::move(gone)) {}
  ~MapFollower() { Stop(); }

  // Fetches the whole map once, then starts the threads.
  absl::Status Start(absl::Duration timeout);
  // Requests the whole map soon. Several calls become one request.
  void RequestRefresh();
  // Fetches the whole map now. Blocks.
  absl::Status Refresh(absl::Duration timeout);
  void Stop();

 private:
  void Apply(const MapUpdate& update);
  void WatchLoop();
  void RefreshLoop();
  // False if Stop was called.
  bool Sleep(absl::Duration duration);

  ControlPlane* const control_;
  ClusterMapHolder* const map_;
  const std::function<void(const std::string&)> gone_;
  absl::Mutex mu_;
  bool refresh_wanted_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread watcher_;
  std::thread refresher_;
};

}  // namespace hotbed

#endif  // HOTBED_CLIENT_MAP_MAP_FOLLOWER_H_
