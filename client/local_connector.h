// The place where the local engine, if the program links it, tells Client::Connect of itself: the
// client library sees no server. Thread-safe.
#ifndef HOTBED_CLIENT_LOCAL_CONNECTOR_H_
#define HOTBED_CLIENT_LOCAL_CONNECTOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hotbed/client.h"

namespace hotbed {

using LocalConnector = absl::StatusOr<std::unique_ptr<Client>> (*)(const std::string& directory,
                                                                   const ClientOptions& options);

void SetLocalConnector(LocalConnector connector);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_LOCAL_CONNECTOR_H_
