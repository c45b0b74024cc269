#include "security/access.h"

#include <fnmatch.h>
#include <sys/stat.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
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
      new Methods{"ActivateShards",  "Attend",        "BeginSave",     "ChangeFiles", "Check",
                  "CommitCut",       "FollowCopy",    "GetClusterMap", "GetServing",  "ListCopy",
                  "ListRows",        "Lookup",        "ReadChanges",   "ReadFiles",   "ReadRows",
                  "RegisterServer",  "ReportServing", "TopK",          "Transfer",    "Watch",
                  "WatchClusterMap", "WatchSave"};
  return *methods;
}

const Methods& ReaderMethods() {
  static const Methods* const methods = new Methods{
      "Check",        "GetClusterMap", "GetServing", "ListEvents",     "ListMoves", "ListRows",
      "ListTrainers", "Lookup",        "Pull",       "ReadChanges",    "ReadRows",  "RowLife",
      "Softmax",      "TopK",          "Watch",      "WatchClusterMap"};
  return *methods;
}

const Methods& TrainerMethods() {
  static const Methods* const methods = [] {
    auto* made = new Methods(ReaderMethods());
    for (const char* method : {"CreateTable", "CreateTables", "Number", "OpenSession", "Push",
                               "SoftmaxGradient", "Train"}) {
      made->insert(method);
    }
    return made;
  }();
  return *methods;
}

// What an operator may call beyond the other roles, so that rules can name it.
const Methods& OperatorMethods() {
  static const Methods* const methods = new Methods{
      "AlterTable",      "BeginSave",           "WatchRestore",   "WatchSave",
      "BackupMetadata",  "ChooseReplica",       "ControlMoves",   "CutShard",
      "DrainServer",     "DropTable",           "HoldStep",       "MoveShards",
      "RebuildMetadata", "ScheduleCheckpoints", "ServeTables",    "ServerReflectionInfo",
      "ReadFiles",       "ChangeFiles",         "PublishVersion", "ChooseVersion"};
  return *methods;
}

bool AmongServers(absl::string_view method) {
  static const Methods* const only =
      new Methods{"ActivateShards", "Attend",         "CommitCut",     "FollowCopy",
                  "ListCopy",       "RegisterServer", "ReportServing", "Transfer"};
  return only->contains(method);
}

// Methods that concern more than the tables that a call names, such as whole servers, the sessions
// of other trainers, or a group of trainers with all its tables.
bool BeyondTables(absl::string_view method) {
  static const Methods* const limited = new Methods{"AlterTable", "DropTable", "ServeTables"};
  return method == kAll || method == "OpenSession" || method == "Train" || AmongServers(method) ||
         (OperatorMethods().contains(method) && !limited->contains(method));
}

}  // namespace

bool AccessRules::Knows(absl::string_view method) {
  return method == kAll || TrainerMethods().contains(method) ||
         OperatorMethods().contains(method) || ServerMethods().contains(method);
}

AccessRules::AccessRules() {
  rules_[static_cast<size_t>(AccessRole::kReader)] = {{ReaderMethods(), {}, 0}};
  rules_[static_cast<size_t>(AccessRole::kTrainer)] = {{TrainerMethods(), {}, 0}};
  rules_[static_cast<size_t>(AccessRole::kOperator)] = {{{kAll}, {}, 0}};
  rules_[static_cast<size_t>(AccessRole::kServer)] = {{ServerMethods(), {}, 0}};
}

bool AccessRules::Rule::Includes(absl::string_view method) const {
  return methods.contains(method) || (methods.contains(kAll) && !AmongServers(method));
}

bool AccessRules::Rule::Includes(absl::string_view method, absl::string_view table) const {
  const std::string name(table);
  return Includes(method) &&
         (tables.empty() || std::any_of(tables.begin(), tables.end(), [&](const std::string& t) {
            return fnmatch(t.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
          }));
}

template <typename Predicate>
bool AccessRules::AnyRule(const Caller& caller, Predicate is_such) const {
  return std::any_of(caller.roles.begin(), caller.roles.end(), [&](AccessRole role) {
    return std::any_of(RulesOf(role).begin(), RulesOf(role).end(), is_such);
  });
}

absl::Status AccessRules::Refusal(const Caller& caller, absl::string_view what) const {
  std::vector<std::string> refusing;
  for (const AccessRole role : caller.roles) {
    std::vector<std::string> lines;
    for (const Rule& rule : RulesOf(role)) {
      if (rule.line != 0) lines.push_back(absl::StrCat("line ", rule.line));
    }
    refusing.push_back(
        absl::StrCat("role ", AccessRoleName(role),
                     lines.empty() ? " by default"
                                   : absl::StrCat(" by ", path_, " ", absl::StrJoin(lines, ", "))));
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "\"", caller.name, "\" may not call ", what, ": ",
      refusing.empty() ? "it has no role"
                       : absl::StrCat(absl::StrJoin(refusing, " and "), " does not include it")));
}

absl::Status AccessRules::Check(const Caller& caller, absl::string_view method) const {
  const bool may = AnyRule(caller, [&](const Rule& rule) { return rule.Includes(method); });
  return may ? absl::OkStatus() : Refusal(caller, absl::CEscape(method.substr(0, 80)));
}

absl::Status AccessRules::CheckTable(const Caller& caller, absl::string_view method,
                                     absl::string_view table) const {
  const bool may = AnyRule(caller, [&](const Rule& rule) { return rule.Includes(method, table); });
  if (may) return absl::OkStatus();
  // The name is the caller's: neither long nor more than one line.
  return Refusal(caller, absl::StrCat(method, " with table ", absl::CEscape(table.substr(0, 80))));
}

absl::Status AccessRules::RefuseBeyondTables(const Caller& caller, absl::string_view method,
                                             absl::string_view what) const {
  return Refusal(caller, absl::StrCat(method, " ", what, ", which needs a rule without tables"));
}

bool AccessRules::AllTables(const Caller& caller, absl::string_view method) const {
  return AnyRule(caller,
                 [&](const Rule& rule) { return rule.tables.empty() && rule.Includes(method); });
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

  // The values of a map that must have `keys`, and may have `more` behind them: null without.
  static std::vector<YAML::Node> Fields(const YAML::Node& node, std::vector<std::string> keys,
                                        const std::vector<std::string>& more = {}) {
    const std::string required = absl::StrJoin(keys, ", ");
    const size_t needed = keys.size();
    Require(node, node.IsMap(), absl::StrCat("expected ", required));
    keys.insert(keys.end(), more.begin(), more.end());
    std::vector<YAML::Node> values(keys.size());
    std::set<size_t> given;
    for (const auto& entry : node) {
      const std::string key = Text(entry.first, "a key");
      const auto found = std::find(keys.begin(), keys.end(), key);
      Require(entry.first, found != keys.end(),
              absl::StrCat("unknown key ", key, "; allowed: ", absl::StrJoin(keys, ", ")));
      const auto at = static_cast<size_t>(found - keys.begin());
      Require(entry.first, given.insert(at).second,
              absl::StrCat("the key ", key, " a second time"));
      values[at].reset(entry.second);
    }
    for (size_t i = 0; i < needed; ++i) {
      Require(node, given.contains(i), absl::StrCat("expected ", required, ", each once"));
    }
    return values;
  }

  static AccessRole ReadRole(const YAML::Node& node) {
    const absl::StatusOr<AccessRole> role = AccessRoleOf(Text(node, "role"));
    Require(node, role.ok(), std::string(role.status().message()));
    return *role;
  }

  void ReadRule(const YAML::Node& node) {
    const std::vector<YAML::Node> fields = Fields(node, {"role", "methods"}, {"tables"});
    std::vector<AccessRules::Rule>& rules =
        rules_->rules_[static_cast<size_t>(ReadRole(fields[0]))];
    if (rules.front().line == 0) rules.clear();  // the first of the file takes the default's place
    AccessRules::Rule& rule = rules.emplace_back();
    rule.line = node.Mark().line + 1;
    const bool limited = node["tables"].IsDefined();
    Require(fields[1], fields[1].IsSequence(), "methods must be a list");
    for (const YAML::Node& one : fields[1]) {
      const std::string method = Text(one, "a method");
      Require(one, AccessRules::Knows(method),
              absl::StrCat("unknown method ", method, "; docs/security.md lists them"));
      Require(one, !limited || !BeyondTables(method),
              absl::StrCat("method ", method,
                           " cannot be limited to tables; give it in a rule without tables"));
      rule.methods.insert(method);
    }
    if (!limited) return;
    rules_->names_tables_ = true;
    Require(fields[2], fields[2].IsSequence() && fields[2].size() > 0,
            "tables must be a list of names or patterns, at least one");
    for (const YAML::Node& one : fields[2]) rule.tables.push_back(Text(one, "a table"));
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
