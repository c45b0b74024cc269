// What a caller may be. A certificate names its holder's roles in its subject alternative names, as
// the URI "hotbed:role:NAME"; a bearer token has one.
#ifndef HOTBED_SECURITY_ACCESS_ROLE_H_
#define HOTBED_SECURITY_ACCESS_ROLE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hotbed {

//   kReader    reads rows and the cluster's map.
//   kTrainer   also pushes, trains in groups, and creates tables.
//   kOperator  may call everything that is not between servers.
//   kServer    servers and coordinators: what they call of each other.
enum class AccessRole : uint8_t { kReader = 0, kTrainer = 1, kOperator = 2, kServer = 3 };
inline constexpr std::array<AccessRole, 4> kAccessRoles = {
    AccessRole::kReader, AccessRole::kTrainer, AccessRole::kOperator, AccessRole::kServer};
inline constexpr char kRoleUri[] = "hotbed:role:";

const char* AccessRoleName(AccessRole role);
// InvalidArgument lists the roles that there are.
absl::StatusOr<AccessRole> AccessRoleOf(absl::string_view name);

struct Caller {
  std::string name;  // of its certificate or token; for people who read a refusal
  std::vector<AccessRole> roles;
};

}  // namespace hotbed

#endif  // HOTBED_SECURITY_ACCESS_ROLE_H_
