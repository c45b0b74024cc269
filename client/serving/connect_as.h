// ServingClient::Connect, for programs of the cluster itself: they have an identity of their own.
#ifndef HOTBED_CLIENT_SERVING_CONNECT_AS_H_
#define HOTBED_CLIENT_SERVING_CONNECT_AS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hotbed/serving.h"
#include "security/identity.h"

namespace hotbed {

// `coordinators` is HOST:PORT,...
absl::StatusOr<std::unique_ptr<ServingClient>> ConnectServingAs(
    const std::string& coordinators, const ClientIdentity& identity,
    const ServingClientOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_SERVING_CONNECT_AS_H_
