// Follow, for programs of the cluster itself: they have an identity of their own.
#ifndef HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_
#define HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hotbed/changes.h"
#include "proto/types.pb.h"
#include "security/identity.h"

namespace hotbed {

// `coordinators` is HOST:PORT,... NotFound once the table was dropped, also if another one has its
// name by now.
absl::StatusOr<std::unique_ptr<ChangeStream>> FollowAs(const std::string& coordinators,
                                                       const ClientIdentity& identity,
                                                       const v1::TableSpec& table,
                                                       const FollowOptions& options);

}  // namespace hotbed

#endif  // HOTBED_CLIENT_CHANGES_FOLLOW_AS_H_
