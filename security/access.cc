#include "security/access.h"

#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/file_system.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr char kAll[] = "*";
constexpr int64_t kLookEveryNs = 1'000'000'000;

using Methods = std::set<std::string, std::less<>>;

// The methods that servers call of each other and of the coordinator. Nobody else may: they move
// rows and primaries.
const Methods& ServerMethods() {
  static const Methods* const methods =
      new Methods{"ActivateShards", "Attend",   "Check", "CommitCut",      "GetClusterMap",
                  "RegisterServer", "Transfer", "Watch", "WatchClusterMap"};
  return *methods;
}

const Methods& ReaderMethods() {
  static const Methods* const methods = new Methods{
      "Check",  "GetClusterMap", "ListEvents",  "ListMoves", "ListRows",       "ListTrainers",
      "Lookup", "Pull",          "ReadChanges", "Watch",     "WatchClusterMap"};
  return *methods;
}

const Methods& TrainerMethods() {
  static const Methods* const methods = [] {
    auto* made = new Methods(ReaderMethods());
    for (const char* method : {"CreateTable", "CreateTables", "OpenSession", "Push", "Train"}) {
      made->insert(method);
    }
    return made;
  }();
  return *methods;
}

// What an operator may call beyond the other roles, so that rules can name it.
const Methods& OperatorMethods() {
  static const Methods* const methods =
      new Methods{"AlterTable",          "BeginSave",     "WatchRestore", "WatchSave",
                  "BackupMetadata",      "ChooseReplica", "ControlMoves", "CutShard",
                  "DrainServer",         "DropTable",     "MoveShards",   "RebuildMetadata",
                  "ServerReflectionInfo"};
  return *methods;
}

bool AmongServers(absl::string_view method) {
  static const Methods* const only =
      new Methods{"ActivateShards", "Attend", "CommitCut", "RegisterServer", "Transfer"};
  return only->contains(method);
}

}  // namespace

bool AccessRules::Knows(absl::string_view method) {
  return method == kAll || TrainerMethods().contains(method) ||
         OperatorMethods().contains(method) || ServerMethods().contains(method);
}

AccessRules::AccessRules() {
  methods_[static_cast<size_t>(AccessRole::kReader)] = ReaderMethods();
  methods_[static_cast<size_t>(AccessRole::kTrainer)] = TrainerMethods();
  methods_[static_cast<size_t>(AccessRole::kOperator)] = {kAll};
  methods_[static_cast<size_t>(AccessRole::kServer)] = ServerMethods();
}

absl::Status AccessRules::Check(const Caller& caller, absl::string_view method) const {
  std::vector<std::string> refusing;
  for (const AccessRole role : caller.roles) {
    const auto& methods = methods_[static_cast<size_t>(role)];
    if (methods.contains(method)) return absl::OkStatus();
    if (methods.contains(kAll) && !AmongServers(method)) return absl::OkStatus();
    const int line = lines_[static_cast<size_t>(role)];
    refusing.push_back(
        absl::StrCat("role ", AccessRoleName(role),
                     line == 0 ? " by default" : absl::StrCat(" by ", path_, " line ", line)));
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "\"", caller.name, "\" may not call ", method, ": ",
      refusing.empty() ? "it has no role"
                       : absl::StrCat(absl::StrJoin(refusing, " and "), " does not include it")));
}

std::optional<Caller> AccessRules::CallerOfToken(absl::string_view token) const {
  const auto found = tokens_.find(Sha256Hex(token));
  if (found == tokens_.end()) return std::nullopt;
  return found->second;
}

// Reads one file. Errors are thrown as yaml-cpp throws its own, and caught in Parse.
class RulesReader {
 public:
  RulesReader(std::string path, AccessRules* rules) : rules_(rules) {
    rules_->path_ = std::move(path);
  }

  void Read(const YAML::Node& root) {
    if (root.IsNull()) return;
    Require(root, root.IsMap(), "expected the keys rules and tokens");
    for (const auto& entry : root) {
      const std::string key = Text(entry.first, "a key");
      Require(entry.first, key == "rules" || key == "tokens",
              absl::StrCat("unknown key ", key, "; allowed: rules, tokens"));
      Require(entry.second, entry.second.IsSequence(), absl::StrCat(key, " must be a list"));
      for (const YAML::Node& one : entry.second) key == "rules" ? ReadRule(one) : ReadToken(one);
    }
  }

 private:
  static void Require(const YAML::Node& node, bool holds, const std::string& otherwise) {
    if (!holds) throw YAML::Exception(node.Mark(), otherwise);
  }

  static std::string Text(const YAML::Node& node, const std::string& name) {
    Require(node, node.IsDefined() && node.IsScalar() && !node.Scalar().empty(),
            absl::StrCat(name, " must be one word"));
    return node.Scalar();
  }

  // The values of a map that must have exactly `keys`.
  static std::vector<YAML::Node> Fields(const YAML::Node& node,
                                        const std::vector<std::string>& keys) {
    Require(node, node.IsMap(), absl::StrCat("expected ", absl::StrJoin(keys, ", ")));
    std::vector<YAML::Node> values(keys.size());
    size_t given = 0;
    for (const auto& entry : node) {
      const std::string key = Text(entry.first, "a key");
      const auto found = std::find(keys.begin(), keys.end(), key);
      Require(entry.first, found != keys.end(),
              absl::StrCat("unknown key ", key, "; allowed: ", absl::StrJoin(keys, ", ")));
      values[static_cast<size_t>(found - keys.begin())].reset(entry.second);
      ++given;
    }
    Require(node, given == keys.size(),
            absl::StrCat("expected ", absl::StrJoin(keys, ", "), ", each once"));
    return values;
  }

  static AccessRole ReadRole(const YAML::Node& node) {
    const absl::StatusOr<AccessRole> role = AccessRoleOf(Text(node, "role"));
    Require(node, role.ok(), std::string(role.status().message()));
    return *role;
  }

  void ReadRule(const YAML::Node& node) {
    const std::vector<YAML::Node> fields = Fields(node, {"role", "methods"});
    const auto role = static_cast<size_t>(ReadRole(fields[0]));
    Require(node, rules_->lines_[role] == 0,
            absl::StrCat("a second rule of role ", AccessRoleName(kAccessRoles[role])));
    Require(fields[1], fields[1].IsSequence(), "methods must be a list");
    std::set<std::string, std::less<>> methods;
    for (const YAML::Node& one : fields[1]) {
      const std::string method = Text(one, "a method");
      Require(one, AccessRules::Knows(method),
              absl::StrCat("unknown method ", method, "; docs/security.md lists them"));
      methods.insert(method);
    }
    rules_->methods_[role] = std::move(methods);
    rules_->lines_[role] = node.Mark().line + 1;
  }

  void ReadToken(const YAML::Node& node) {
    const std::vector<YAML::Node> fields = Fields(node, {"name", "role", "sha256"});
    const Caller caller = {.name = Text(fields[0], "name"), .roles = {ReadRole(fields[1])}};
    const std::string hash = absl::AsciiStrToLower(Text(fields[2], "sha256"));
    Require(fields[2],
            hash.size() == 64 && std::all_of(hash.begin(), hash.end(), absl::ascii_isxdigit),
            "sha256 must be 64 hexadecimal digits (hotbed cert hash-token)");
    Require(node,
            std::none_of(rules_->tokens_.begin(), rules_->tokens_.end(),
                         [&](const auto& t) { return t.second.name == caller.name; }),
            absl::StrCat("a second token named ", caller.name));
    Require(node, rules_->tokens_.emplace(hash, caller).second, "a second token with this hash");
  }

  AccessRules* const rules_;
};

absl::StatusOr<AccessRules> AccessRules::Parse(const std::string& path, const std::string& yaml) {
  AccessRules rules;
  try {  // yaml-cpp reports by exceptions
    RulesReader(path, &rules).Read(YAML::Load(yaml));
    return rules;
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " line ", error.mark.line + 1, ": ", error.msg));
  }
}

absl::StatusOr<std::unique_ptr<WatchedRules>> WatchedRules::Open(const std::string& path) {
  auto watched = std::unique_ptr<WatchedRules>(new WatchedRules(path));
  absl::MutexLock lock(&watched->mu_);
  if (path.empty()) {
    watched->rules_ = std::make_shared<const AccessRules>();
    return watched;
  }
  watched->version_ = watched->Look();
  HOTBED_ASSIGN_OR_RETURN(const std::string yaml, FileSystem::Real()->ReadAll(path));
  HOTBED_ASSIGN_OR_RETURN(AccessRules rules, AccessRules::Parse(path, yaml));
  watched->rules_ = std::make_shared<const AccessRules>(std::move(rules));
  return watched;
}

WatchedRules::Version WatchedRules::Look() const {
  struct stat found = {};
  if (stat(path_.c_str(), &found) != 0) return {};
  return {.modified_ns = found.st_mtim.tv_sec * int64_t{1'000'000'000} + found.st_mtim.tv_nsec,
          .bytes = found.st_size,
          .inode = found.st_ino};
}

std::shared_ptr<const AccessRules> WatchedRules::Get(int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  if (path_.empty() || now_ns - looked_ns_ < kLookEveryNs) return rules_;
  looked_ns_ = now_ns;
  const Version version = Look();
  if (version == version_) return rules_;
  version_ = version;
  const auto parsed = [this]() -> absl::StatusOr<AccessRules> {
    HOTBED_ASSIGN_OR_RETURN(const std::string yaml, FileSystem::Real()->ReadAll(path_));
    return AccessRules::Parse(path_, yaml);
  }();
  if (parsed.ok()) {
    rules_ = std::make_shared<const AccessRules>(*parsed);
    ++number_;
    HOTBED_LOG(Info) << "access: " << path_ << " has changed, and its rules hold from now on";
  } else {
    HOTBED_LOG(Error) << "access: the changed rules are not taken, the earlier ones stay: "
                      << parsed.status().message();
  }
  return rules_;
}

}  // namespace hotbed
