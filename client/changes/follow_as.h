// Follow, for programs of the cluster itself: they have an identity of their own.
#ifndef HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_
#define HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hotbed/changes.h"
#include "security/identity.h"

namespace hotbed {

// `coordinators` is HOST:PORT,...
absl::StatusOr<std::unique_ptr<ChangeStream>> FollowAs(const std::string& coordinators,
                                                       const ClientIdentity& identity,
                                                       const std::string& table,
                                                       const FollowOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_
