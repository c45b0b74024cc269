// Who may call what: roles, their methods, and bearer tokens, from one YAML file.
//
//   rules:                      # a role that is not named keeps its default
//     - role: reader
//       methods: [GetClusterMap, WatchClusterMap]
//     - role: reader            # a further rule of the role adds to what it may do
//       methods: [Lookup]
//       tables: [ads.*]         # of these methods alone; without it, of all tables
//   tokens:                     # callers without a certificate
//     - name: dashboard
//       role: reader
//       sha256: 2bb80d53...     # of the token, in hex (hotbed cert hash-token)
//
// A method is named as the protocol names it (proto/*.proto); "*" stands for all but those that
// servers call of each other. docs/security.md lists the defaults.
#ifndef HOTBED_SECURITY_ACCESS_H_
#define HOTBED_SECURITY_ACCESS_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/sha256.h"
#include "security/access_role.h"

namespace hotbed {

// Immutable.
class AccessRules {
 public:
  AccessRules();  // the defaults, and no token
  // InvalidArgument names `path`, the line, and what is allowed. Strict: unknown keys, roles and
  // methods, methods that cannot be limited to tables where a rule names tables, and two tokens of
  // one name or hash, are refused.
  static absl::StatusOr<AccessRules> Parse(const std::string& path, const std::string& yaml);

  // Whether rules may name it: a method of the protocol, or "*".
  static bool Knows(absl::string_view method);

  // OK, or PermissionDenied with the caller, the method and the rule that refuses; such as "Pull".
  // Whether a method that is limited to some tables may be called at all.
  absl::Status Check(const Caller& caller, absl::string_view method) const;
  // The same for one table.
  absl::Status CheckTable(const Caller& caller, absl::string_view method,
                          absl::string_view table) const;
  // The refusal of what concerns more than single tables.
  absl::Status RefuseBeyondTables(const Caller& caller, absl::string_view method,
                                  absl::string_view what) const;
  // Whether CheckTable is OK for every table.
  bool AllTables(const Caller& caller, absl::string_view method) const;
  // Whether any rule limits a method to tables.
  bool names_tables() const { return names_tables_; }
  bool has_tokens() const { return !tokens_.empty(); }
  // Nothing: no token has this hash.
  std::optional<Caller> CallerOfToken(absl::string_view token) const;

 private:
  friend class RulesReader;
  struct Rule {
    std::set<std::string, std::less<>> methods;
    std::vector<std::string> tables;  // patterns; empty: all tables
    int line = 0;                     // of the file; 0: the default

    bool Includes(absl::string_view method) const;
    bool Includes(absl::string_view method, absl::string_view table) const;
  };

  const std::vector<Rule>& RulesOf(AccessRole role) const {
    return rules_[static_cast<size_t>(role)];
  }
  // Whether a rule of a role of the caller is such.
  template <typename Predicate>
  bool AnyRule(const Caller& caller, Predicate is_such) const;
  // `what`: the method, or the method and a table.
  absl::Status Refusal(const Caller& caller, absl::string_view what) const;

  std::array<std::vector<Rule>, kAccessRoles.size()> rules_;
  bool names_tables_ = false;
  std::string path_;
  std::map<std::string, Caller, std::less<>> tokens_;  // by the token's hash
};

// The rules of a file that may change while it is used: it is looked at once per second. A changed
// file that cannot be read or parsed is reported in the log, and the earlier rules stay.
// Thread-safe.
class WatchedRules {
 public:
  // An empty path: the defaults, for ever.
  static absl::StatusOr<std::unique_ptr<WatchedRules>> Open(const std::string& path);

  std::shared_ptr<const AccessRules> Get(int64_t now_ns);
  // Grows with every change of the rules that Get has taken. Calls that began under earlier rules
  // are to be decided again.
  uint64_t version() const {
    absl::MutexLock lock(&mu_);
    return number_;
  }

 private:
  struct Version {
    int64_t modified_ns = 0;
    int64_t bytes = -1;
    uint64_t inode = 0;
    bool operator==(const Version& o) const {
      return modified_ns == o.modified_ns && bytes == o.bytes && inode == o.inode;
    }
  };

  explicit WatchedRules(std::string path) : path_(std::move(path)) {}
  Version Look() const;

  const std::string path_;
  mutable absl::Mutex mu_;
  std::shared_ptr<const AccessRules> rules_ ABSL_GUARDED_BY(mu_);
  Version version_ ABSL_GUARDED_BY(mu_);
  int64_t looked_ns_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t number_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SECURITY_ACCESS_H_
