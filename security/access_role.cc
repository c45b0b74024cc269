#include "security/access_role.h"

#include "absl/strings/str_cat.h"

namespace hotbed {

const char* AccessRoleName(AccessRole role) {
  switch (role) {
    case AccessRole::kReader:
      return "reader";
    case AccessRole::kTrainer:
      return "trainer";
    case AccessRole::kOperator:
      return "operator";
    case AccessRole::kServer:
      return "server";
  }
  return "?";
}

absl::StatusOr<AccessRole> AccessRoleOf(absl::string_view name) {
  for (const AccessRole role : kAccessRoles) {
    if (name == AccessRoleName(role)) return role;
  }
  return absl::InvalidArgumentError(absl::StrCat("role \"", name.substr(0, 64),
                                                 "\"; allowed: reader, trainer, operator, server"));
}

}  // namespace hotbed
