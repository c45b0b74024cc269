// The client's control plane over the coordinator of a local engine. Thread-safe.
#ifndef HOTBED_LOCAL_LOCAL_CONTROL_PLANE_H_
#define HOTBED_LOCAL_LOCAL_CONTROL_PLANE_H_

#include <memory>

#include "client/map/control_plane.h"
#include "local/local_engine.h"

namespace hotbed {

std::unique_ptr<ControlPlane> NewLocalControlPlane(std::shared_ptr<LocalEngine> engine);

}  // namespace hotbed

#endif  // HOTBED_LOCAL_LOCAL_CONTROL_PLANE_H_
