// Keeps the cluster map fresh: a thread that watches the coordinator, and one that asks for the
// whole map when somebody found the present one wrong. While the coordinator is away the last map
// stays in use. Thread-safe.
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
  // `gone` is called, from whichever thread took the map, for the address of each server that a map
  // says is down, or started anew, and that was up before.
  MapFollower(ControlPlane* control, ClusterMapHolder* map,
              std::function<void(const std::string&)> gone = nullptr)
      : control_(control), map_(map), gone_(std::move(gone)) {}
  ~MapFollower() { Stop(); }

  // Fetches the whole map once, then starts the threads.
  absl::Status Start(absl::Duration timeout);
  // Asks for the whole map soon; several requests become one.
  void RequestRefresh();
  // Fetches the whole map now. Blocks.
  absl::Status Refresh(absl::Duration timeout);
  void Stop();

 private:
  void Apply(const MapUpdate& update);
  void WatchLoop();
  void RefreshLoop();
  // False when stopped meanwhile.
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
