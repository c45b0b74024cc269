// Versions of served tables: published, chosen, ended.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "planner/coordinator/operations/operations.h"
#include "planner/coordinator/serving/served_versions.h"
#include "planner/coordinator/state/event_log.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr int kVersionTablesMax = 64;
constexpr size_t kFolderBytesMax = 2000;
constexpr size_t kVersionsMax = 100;  // older ones are forgotten; their files stay

class PublishVersion {
 public:
  PublishVersion(v1::PublishVersionRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (done_) return reply_;
    HOTBED_RETURN_IF_ERROR(Check());
    v1::VersionChoice choice = state.version_choice();
    if (const v1::ServedVersion* const there = FindVersion(state.versions(), request_.name())) {
      // The caller did not hear that it was published.
      if (request_.dry_run() || there->folder() != request_.folder()) {
        return absl::AlreadyExistsError(absl::StrCat(
            "there is a version ", there->name(), " already, of ", there->folder(),
            ": choose another --name, or end it ('hotbed serve unpublish ", there->name(), "')"));
      }
      return Done(*there, choice);
    }
    Transaction txn(&state);
    v1::ServedVersion version;
    HOTBED_RETURN_IF_ERROR(AddTables(state, &version, &txn));
    HOTBED_RETURN_IF_ERROR(CheckLeftOut(state, version));
    version.set_number(choice.newest() + 1);
    version.set_name(request_.name());
    version.set_folder(request_.folder());
    version.set_at_step(request_.at_step());
    version.set_published_unix_ms(static_cast<int64_t>(context_.unix_ms));
    choice.set_newest(version.number());
    if (!choice.pinned()) choice.set_target(version.number());
    Next done = Done(version, choice);
    if (request_.dry_run()) return done;
    txn.Put(keys::Version(version.number()), version.SerializeAsString());
    txn.Put(keys::kVersionChoiceKey, choice.SerializeAsString());
    ForgetOld(state, choice, &txn);
    EventWriter(&state, context_.unix_ms)
        .Add(
            "serving",
            absl::StrCat("version ", version.name(), " of ", absl::StrJoin(request_.tables(), ", "),
                         " is published, of ", version.folder()),
            0, 0, &txn);
    return txn;
  }

 private:
  Next Done(const v1::ServedVersion& version, const v1::VersionChoice& choice) {
    *reply_.mutable_version() = version;
    *reply_.mutable_choice() = choice;
    done_ = true;
    return reply_;
  }

  absl::Status Check() const {
    HOTBED_RETURN_IF_ERROR(CheckVersionName(request_.name()));
    const std::string& folder = request_.folder();
    const bool absolute = absl::StartsWith(folder, "/") || absl::StartsWith(folder, "s3://");
    if (!request_.dry_run() && (!absolute || folder.size() > kFolderBytesMax)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "folder \"", absl::CEscape(folder.substr(0, 80)), "\" has ", folder.size(),
          " bytes, allowed: 1..", kFolderBytesMax, " of an absolute path or s3://BUCKET/PREFIX"));
    }
    if (request_.tables_size() < 1 || request_.tables_size() > kVersionTablesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          request_.tables_size(), " tables in one version, allowed: 1..", kVersionTablesMax));
    }
    const std::set<std::string> names(request_.tables().begin(), request_.tables().end());
    if (static_cast<int>(names.size()) != request_.tables_size()) {
      return absl::InvalidArgumentError("a table is named twice");
    }
    return absl::OkStatus();
  }

  absl::Status AddTables(const ClusterState& state, v1::ServedVersion* version,
                         Transaction* txn) const {
    for (const std::string& name : request_.tables()) {
      const v1::TableSpec* const spec = state.FindTable(name);
      if (spec == nullptr) {
        return absl::NotFoundError(
            absl::StrCat("table \"", absl::CEscape(name.substr(0, 80)), "\" does not exist"));
      }
      if (!state.served().contains(spec->id())) {
        return absl::FailedPreconditionError(absl::StrCat(
            "table ", name, " is not served: 'hotbed serve add ", name, "' begins that"));
      }
      txn->Require(keys::Served(spec->id()));
      version->add_tables(spec->id());
    }
    return absl::OkStatus();
  }

  // Readers of the current version would miss a table from one moment to the next.
  static absl::Status CheckLeftOut(const ClusterState& state, const v1::ServedVersion& version) {
    const auto current = state.versions().find(state.version_choice().current());
    if (current == state.versions().end()) return absl::OkStatus();
    for (const uint32_t table : current->second.tables()) {
      const auto spec = state.tables().find(table);
      if (spec == state.tables().end() || !state.served().contains(table) ||
          std::find(version.tables().begin(), version.tables().end(), table) !=
              version.tables().end()) {
        continue;
      }
      const std::string& name = spec->second.name();
      return absl::FailedPreconditionError(absl::StrCat(
          "version ", current->second.name(), ", which is current, has table ", name,
          ", and the new one would not: name it too, or end its serving ('hotbed serve remove ",
          name, "')"));
    }
    return absl::OkStatus();
  }

  static void ForgetOld(const ClusterState& state, const v1::VersionChoice& choice,
                        Transaction* txn) {
    const std::vector<uint64_t> kept = VersionsToKeep(state.versions(), choice);
    size_t count = state.versions().size() + 1;
    for (const auto& [number, version] : state.versions()) {
      if (count <= kVersionsMax) return;
      if (std::find(kept.begin(), kept.end(), number) != kept.end()) continue;
      txn->Delete(keys::Version(number));
      --count;
    }
  }

  const v1::PublishVersionRequest request_;
  const OperationContext context_;
  bool done_ = false;
  v1::PublishVersionReply reply_;
};

class ChooseVersion {
 public:
  ChooseVersion(v1::ChooseVersionRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (done_) return reply_;
    reply_.Clear();
    *reply_.mutable_choice() = state.version_choice();
    Transaction txn(&state);
    HOTBED_RETURN_IF_ERROR(Choose(state, &txn));
    if (request_.dry_run()) return reply_;
    txn.Put(keys::kVersionChoiceKey, reply_.choice().SerializeAsString());
    EventWriter(&state, context_.unix_ms).Add("serving", text_, 0, 0, &txn);
    done_ = true;
    return txn;
  }

 private:
  absl::Status Choose(const ClusterState& state, Transaction* txn) {
    switch (request_.action()) {
      case v1::ChooseVersionRequest::PIN:
        return Pin(state);
      case v1::ChooseVersionRequest::UNPIN:
        return Unpin(state);
      case v1::ChooseVersionRequest::ROLL_BACK:
        return RollBack(state);
      case v1::ChooseVersionRequest::UNPUBLISH:
        return Unpublish(state, txn);
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("action ", request_.action(), " is not known to this coordinator"));
    }
  }

  void Target(const v1::ServedVersion& version, absl::string_view why) {
    reply_.mutable_choice()->set_target(version.number());
    *reply_.mutable_version() = version;
    text_ = absl::StrCat("version ", version.name(), " is to be current: ", why);
  }

  absl::Status Pin(const ClusterState& state) {
    const v1::ServedVersion* const version = FindVersion(state.versions(), request_.name());
    if (version == nullptr) return NoSuchVersion(state.versions(), request_.name());
    reply_.mutable_choice()->set_pinned(true);
    Target(*version, "it is pinned");
    return absl::OkStatus();
  }

  absl::Status Unpin(const ClusterState& state) {
    if (state.versions().empty()) return NoSuchVersion(state.versions(), "newest");
    reply_.mutable_choice()->set_pinned(false);
    Target(state.versions().rbegin()->second, "none is pinned any more, and it is the newest");
    return absl::OkStatus();
  }

  absl::Status RollBack(const ClusterState& state) {
    const v1::VersionChoice& choice = state.version_choice();
    const auto current = state.versions().find(choice.current());
    if (current == state.versions().end()) {
      return absl::FailedPreconditionError(
          "no version is current: there is nothing to be rolled back");
    }
    const std::string& name = current->second.name();
    if (choice.target() != choice.current()) {
      return absl::FailedPreconditionError(
          absl::StrCat("version ", NameOf(state, choice.target()), " is being taken up, and ", name,
                       " is current still: 'hotbed serve pin ", name, "' keeps it so"));
    }
    if (current == state.versions().begin()) {
      return absl::FailedPreconditionError(
          absl::StrCat("version ", name, " is current, and there is none before it"));
    }
    Target(std::prev(current)->second, absl::StrCat(name, " is rolled back"));
    return absl::OkStatus();
  }

  absl::Status Unpublish(const ClusterState& state, Transaction* txn) {
    const v1::ServedVersion* const version = FindVersion(state.versions(), request_.name());
    if (version == nullptr) return NoSuchVersion(state.versions(), request_.name());
    v1::VersionChoice& choice = *reply_.mutable_choice();
    if (choice.current() == version->number()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "version ", version->name(),
          " is current: make another one current first ('hotbed serve rollback', 'hotbed serve "
          "pin', 'hotbed publish')"));
    }
    if (choice.target() == version->number()) {
      choice.set_target(choice.current());
      choice.set_pinned(false);
    }
    if (choice.before() == version->number()) choice.set_before(0);
    *reply_.mutable_version() = *version;
    text_ = absl::StrCat("version ", version->name(), " is not published any more");
    txn->Delete(keys::Version(version->number()));
    return absl::OkStatus();
  }

  static std::string NameOf(const ClusterState& state, uint64_t number) {
    const auto version = state.versions().find(number);
    return version == state.versions().end() ? absl::StrCat("number ", number)
                                             : version->second.name();
  }

  const v1::ChooseVersionRequest request_;
  const OperationContext context_;
  bool done_ = false;
  std::string text_;  // of the event
  v1::ChooseVersionReply reply_;
};

}  // namespace

Operation MakeOperation(v1::PublishVersionRequest request, const OperationContext& context) {
  return PublishVersion(std::move(request), context);
}

Operation MakeOperation(v1::ChooseVersionRequest request, const OperationContext& context) {
  return ChooseVersion(std::move(request), context);
}

bool FlipsVersion(const ClusterState& state, const ServingServers& servers, int64_t now_ns) {
  const v1::VersionChoice& choice = state.version_choice();
  const auto target = state.versions().find(choice.target());
  return choice.target() != choice.current() && target != state.versions().end() &&
         servers.AllHold(now_ns, target->second, state.served());
}

Operation MakeFlipVersion(const OperationContext& context) {
  return [context, done = false](const ClusterState& state) mutable -> Next {
    if (std::exchange(done, true) || !FlipsVersion(state, *context.serving, context.now_ns)) {
      return Reply();
    }
    v1::VersionChoice choice = state.version_choice();
    choice.set_before(choice.current());
    choice.set_current(choice.target());
    Transaction txn(&state);
    txn.Require(keys::Version(choice.current()));
    txn.Put(keys::kVersionChoiceKey, choice.SerializeAsString());
    EventWriter(&state, context.unix_ms)
        .Add("serving",
             absl::StrCat("version ", state.versions().at(choice.current()).name(),
                          " is current: all serving servers have it"),
             0, 0, &txn);
    return txn;
  };
}

}  // namespace hotbed
