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
constexpr size_t kModelsMax = 16;     // of each, up to four versions are kept

// The records that differ from those of `state`.
void PutChanges(const ClusterState& state, const ServedVersions& versions,
                const VersionChoices& choices, Transaction* txn) {
  for (const auto& [number, version] : state.versions()) {
    if (!versions.contains(number)) txn->Delete(keys::Version(number));
  }
  for (const auto& [number, version] : versions) {
    const auto known = state.versions().find(number);
    const std::string record = version.SerializeAsString();
    if (known != state.versions().end() && known->second.SerializeAsString() == record) continue;
    txn->Put(keys::Version(number), record);
  }
  for (const auto& [model, choice] : state.version_choices()) {
    if (!choices.contains(model)) txn->Delete(keys::VersionChoice(model));
  }
  for (const auto& [model, choice] : choices) {
    const auto known = state.version_choices().find(model);
    const std::string record = choice.SerializeAsString();
    if (known != state.version_choices().end() && known->second.SerializeAsString() == record) {
      continue;
    }
    txn->Put(keys::VersionChoice(model), record);
  }
}

// As an event names it.
std::string OfModel(const std::string& model) {
  return model == keys::kDefaultModel ? "" : absl::StrCat(" of model ", model);
}

class PublishVersion {
 public:
  PublishVersion(v1::PublishVersionRequest request, const OperationContext& context)
      : request_(std::move(request)), context_(context) {}

  Next operator()(const ClusterState& state) {
    if (done_) return reply_;
    HOTBED_RETURN_IF_ERROR(Check());
    VersionChoices choices = state.version_choices();
    if (const v1::ServedVersion* const there = FindVersion(state.versions(), request_.name())) {
      // The caller did not hear that it was published.
      if (request_.dry_run() || there->folder() != request_.folder()) {
        return absl::AlreadyExistsError(absl::StrCat(
            "there is a version ", there->name(), " already, of ", there->folder(),
            ": choose another --name, or end it ('hotbed serve unpublish ", there->name(), "')"));
      }
      return Done(*there, choices[there->model()]);
    }
    Transaction txn(&state);
    v1::ServedVersion version;
    HOTBED_RETURN_IF_ERROR(AddTables(state, &version, &txn));
    HOTBED_ASSIGN_OR_RETURN(*version.mutable_model(), ModelFor(state, version));
    HOTBED_RETURN_IF_ERROR(CheckTaken(state, version));
    HOTBED_RETURN_IF_ERROR(CheckLeftOut(state, version));
    v1::VersionChoice& numbers = choices[keys::kDefaultModel];
    numbers.set_model(keys::kDefaultModel);
    numbers.set_newest(numbers.newest() + 1);
    version.set_number(numbers.newest());
    version.set_name(request_.name());
    version.set_folder(request_.folder());
    version.set_at_step(request_.at_step());
    version.set_shares(!request_.take_over());
    version.set_published_unix_ms(static_cast<int64_t>(context_.unix_ms));
    v1::VersionChoice& choice = choices[version.model()];
    choice.set_model(version.model());
    if (!choice.pinned()) choice.set_target(version.number());
    Next done = Done(version, choice);
    if (request_.dry_run()) return done;
    ServedVersions versions = state.versions();
    if (request_.share()) ShareAll(version, &versions);
    versions[version.number()] = version;
    ForgetOld(choices, &versions);
    PutChanges(state, versions, choices, &txn);
    EventWriter(&state, context_.unix_ms)
        .Add("serving",
             absl::StrCat("version ", version.name(), OfModel(version.model()), " with tables ",
                          absl::StrJoin(request_.tables(), ", "), " is published, of ",
                          version.folder()),
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
    if (request_.share() && request_.take_over()) {
      return absl::InvalidArgumentError(
          "share and take_over are both set: other models keep the tables, or lose them");
    }
    return absl::OkStatus();
  }

  absl::Status AddTables(const ClusterState& state, v1::ServedVersion* version,
                         Transaction* txn) const {
    for (const std::string& name : request_.tables()) {
      const v1::TableSpec* const spec = state.FindTable(name);
      if (spec == nullptr) return NoTableToServe(state, name);
      if (!state.served().contains(spec->id())) {
        return absl::FailedPreconditionError(absl::StrCat(
            "table ", name, " is not served: 'hotbed serve add ", name, "' begins that"));
      }
      txn->Require(keys::Served(spec->id()));
      version->add_tables(spec->id());
    }
    return absl::OkStatus();
  }

  // As the request names it, or the model that the tables belong to.
  absl::StatusOr<std::string> ModelFor(const ClusterState& state,
                                       const v1::ServedVersion& version) const {
    const std::vector<std::string> known = ModelsOf(state.versions());
    std::string model = request_.model();
    if (model.empty()) {
      std::set<std::string> models;
      for (const auto& [number, other] : state.versions()) {
        const auto has = [&other = other](uint32_t table) { return HasServedTable(other, table); };
        if (std::any_of(version.tables().begin(), version.tables().end(), has)) {
          models.insert(other.model());
        }
      }
      if (models.size() > 1) {
        return absl::InvalidArgumentError(absl::StrCat("the tables belong to the models ",
                                                       absl::StrJoin(models, ", "),
                                                       ": name one by --model"));
      }
      model = models.empty() ? keys::kDefaultModel : *models.begin();
    }
    HOTBED_RETURN_IF_ERROR(CheckModelName(model));
    if (!std::binary_search(known.begin(), known.end(), model) && known.size() >= kModelsMax) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "model \"", model, "\": there are ", known.size(), ", the limit is ", kModelsMax,
          ": end one ('hotbed serve remove' its tables, then 'hotbed "
          "serve unpublish' its versions)"));
    }
    return model;
  }

  // Readers who do not name a model would have to, once a table belongs to two.
  absl::Status CheckTaken(const ClusterState& state, const v1::ServedVersion& version) const {
    if (request_.take_over() || request_.share()) return absl::OkStatus();
    const v1::ServedVersion* const current =
        CurrentOf(state.versions(), state.version_choices(), version.model());
    // One that is still to take its tables over does not have them yet.
    const auto has = [&](uint32_t table) {
      return std::any_of(state.versions().begin(), state.versions().end(), [&](const auto& one) {
        return one.second.model() == version.model() && HasServedTable(one.second, table) &&
               (one.second.shares() || &one.second == current);
      });
    };
    for (int i = 0; i < version.tables_size(); ++i) {
      const uint32_t table = version.tables(i);
      if (has(table)) continue;
      for (const auto& [number, other] : state.versions()) {
        if (other.model() == version.model() || !HasServedTable(other, table)) continue;
        return absl::FailedPreconditionError(absl::StrCat(
            "table ", request_.tables(i), " belongs to model ", other.model(), " (version ",
            other.name(), "), not to ", version.model(), ": --model=", other.model(),
            ", or let it belong to both by --share, or take it from there by "
            "--take-over"));
      }
    }
    return absl::OkStatus();
  }

  // Readers of the current version would miss a table from one moment to the next.
  static absl::Status CheckLeftOut(const ClusterState& state, const v1::ServedVersion& version) {
    const v1::ServedVersion* const current =
        CurrentOf(state.versions(), state.version_choices(), version.model());
    if (current == nullptr) return absl::OkStatus();
    for (const uint32_t table : current->tables()) {
      const auto spec = state.tables().find(table);
      if (spec == state.tables().end() || !state.served().contains(table) ||
          HasServedTable(version, table)) {
        continue;
      }
      const std::string& name = spec->second.name();
      return absl::FailedPreconditionError(
          absl::StrCat("version ", current->name(), ", which is current", OfModel(current->model()),
                       ", has table ", name,
                       ", and the new one would not: name it too, end its serving ('hotbed "
                       "serve remove ",
                       name, "'), or publish as another --model"));
    }
    return absl::OkStatus();
  }

  // Versions that have its tables do not take them when they are rolled back to.
  static void ShareAll(const v1::ServedVersion& version, ServedVersions* versions) {
    for (auto& [number, other] : *versions) {
      const bool common =
          std::any_of(version.tables().begin(), version.tables().end(),
                      [&other = other](uint32_t table) { return HasServedTable(other, table); });
      if (common) other.set_shares(true);
    }
  }

  static void ForgetOld(const VersionChoices& choices, ServedVersions* versions) {
    const std::vector<uint64_t> kept = VersionsToKeep(*versions, choices);
    for (auto at = versions->begin(); at != versions->end() && versions->size() > kVersionsMax;) {
      at = std::binary_search(kept.begin(), kept.end(), at->first) ? std::next(at)
                                                                   : versions->erase(at);
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
    versions_ = state.versions();
    VersionChoices choices = state.version_choices();
    HOTBED_ASSIGN_OR_RETURN(const std::string model, ModelOf());
    v1::VersionChoice choice = choices[model];
    HOTBED_RETURN_IF_ERROR(Choose(state.served(), &choice));
    *reply_.mutable_choice() = choice;
    if (request_.dry_run()) return reply_;
    choices[model] = choice;
    DropChoices(versions_, &choices);
    Transaction txn(&state);
    PutChanges(state, versions_, choices, &txn);
    EventWriter(&state, context_.unix_ms).Add("serving", text_, 0, 0, &txn);
    done_ = true;
    return txn;
  }

 private:
  // That whose choice changes.
  absl::StatusOr<std::string> ModelOf() const {
    if (request_.action() == v1::ChooseVersionRequest::PIN ||
        request_.action() == v1::ChooseVersionRequest::UNPUBLISH) {
      const v1::ServedVersion* const version = FindVersion(versions_, request_.name());
      if (version == nullptr) return NoSuchVersion(versions_, request_.name());
      return version->model();
    }
    const std::vector<std::string> models = ModelsOf(versions_);
    const std::string all = absl::StrJoin(models, ", ");
    if (models.empty()) {
      return absl::FailedPreconditionError(
          "no version is current: none is published yet ('hotbed publish')");
    }
    if (request_.model().empty() && models.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("there are versions of the models ", all, ": name one by --model"));
    }
    const std::string model = request_.model().empty() ? models[0] : request_.model();
    if (!std::binary_search(models.begin(), models.end(), model)) {
      return absl::NotFoundError(absl::StrCat("there is no version of a model \"",
                                              absl::CEscape(model.substr(0, 80)),
                                              "\"; there are models: ", all));
    }
    return model;
  }

  absl::Status Choose(const ServedTables& served, v1::VersionChoice* choice) {
    switch (request_.action()) {
      case v1::ChooseVersionRequest::PIN:
        choice->set_pinned(true);
        Target(*FindVersion(versions_, request_.name()), "it is pinned", choice);
        return absl::OkStatus();
      case v1::ChooseVersionRequest::UNPIN:
        choice->set_pinned(false);
        Target(*Before(choice->model(), ~uint64_t{0}),
               "none is pinned any more, and it is the newest", choice);
        return absl::OkStatus();
      case v1::ChooseVersionRequest::ROLL_BACK:
        return RollBack(choice);
      case v1::ChooseVersionRequest::UNPUBLISH:
        return Unpublish(served, choice);
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("action ", request_.action(), " is not known to this coordinator"));
    }
  }

  void Target(const v1::ServedVersion& version, absl::string_view why, v1::VersionChoice* choice) {
    choice->set_target(version.number());
    *reply_.mutable_version() = version;
    text_ = absl::StrCat("version ", version.name(), OfModel(version.model()),
                         " is to be current: ", why);
  }

  // The newest version of the model with a number below `limit`. Null: there is none.
  const v1::ServedVersion* Before(const std::string& model, uint64_t limit) const {
    const v1::ServedVersion* before = nullptr;
    for (const auto& [number, version] : versions_) {
      if (number < limit && version.model() == model) before = &version;
    }
    return before;
  }

  absl::Status RollBack(v1::VersionChoice* choice) {
    const auto current = versions_.find(choice->current());
    if (current == versions_.end()) {
      return absl::FailedPreconditionError(
          "no version is current: there is nothing to be rolled back");
    }
    const std::string& name = current->second.name();
    if (choice->target() != choice->current()) {
      return absl::FailedPreconditionError(
          absl::StrCat("version ", NameOf(choice->target()), " is being taken up, and ", name,
                       " is current still: 'hotbed serve pin ", name, "' keeps it so"));
    }
    const v1::ServedVersion* const before = Before(choice->model(), choice->current());
    if (before == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "version ", name, " is current, and there is none before it", OfModel(choice->model())));
    }
    Target(*before, absl::StrCat(name, " is rolled back"), choice);
    return absl::OkStatus();
  }

  // The current one too, if nobody can read it any more.
  absl::Status Unpublish(const ServedTables& served, v1::VersionChoice* choice) {
    const v1::ServedVersion version = *FindVersion(versions_, request_.name());
    const bool read = std::any_of(version.tables().begin(), version.tables().end(),
                                  [&](uint32_t table) { return served.contains(table); });
    if (choice->current() == version.number() && read) {
      return absl::FailedPreconditionError(absl::StrCat(
          "version ", version.name(),
          " is current: make another one current first ('hotbed serve rollback', 'hotbed serve "
          "pin', 'hotbed publish'), or end the serving of its tables ('hotbed serve remove')"));
    }
    *reply_.mutable_version() = version;
    text_ = absl::StrCat("version ", version.name(), " is not published any more");
    versions_.erase(version.number());
    VersionChoices ended = {{choice->model(), *choice}};
    DropChoices(versions_, &ended);
    if (!ended.empty()) *choice = ended.begin()->second;
    return absl::OkStatus();
  }

  std::string NameOf(uint64_t number) const {
    const auto version = versions_.find(number);
    return version == versions_.end() ? absl::StrCat("number ", number) : version->second.name();
  }

  const v1::ChooseVersionRequest request_;
  const OperationContext context_;
  bool done_ = false;
  ServedVersions versions_;  // as they are to be
  std::string text_;         // of the event
  v1::ChooseVersionReply reply_;
};

// The version that is to be current of some model, and which every server that must have it has.
// Null: there is none.
const v1::ServedVersion* Due(const ClusterState& state, const ServingServers& servers,
                             int64_t now_ns) {
  for (const auto& [model, choice] : state.version_choices()) {
    const auto target = state.versions().find(choice.target());
    if (choice.target() != choice.current() && target != state.versions().end() &&
        servers.AllHold(now_ns, target->second, state.served())) {
      return &target->second;
    }
  }
  return nullptr;
}

}  // namespace

Operation MakeOperation(v1::PublishVersionRequest request, const OperationContext& context) {
  return PublishVersion(std::move(request), context);
}

Operation MakeOperation(v1::ChooseVersionRequest request, const OperationContext& context) {
  return ChooseVersion(std::move(request), context);
}

bool FlipsVersion(const ClusterState& state, const ServingServers& servers, int64_t now_ns) {
  return Due(state, servers, now_ns) != nullptr;
}

Operation MakeFlipVersion(const OperationContext& context) {
  return [context, done = false](const ClusterState& state) mutable -> Next {
    const v1::ServedVersion* const due = Due(state, *context.serving, context.now_ns);
    if (std::exchange(done, true) || due == nullptr) return Reply();
    const v1::ServedVersion version = *due;
    ServedVersions versions = state.versions();
    VersionChoices choices = state.version_choices();
    // Once: it may be rolled back to when others share its tables.
    if (!version.shares()) {
      TakeTablesFromOthers(version, &versions);
      versions.at(version.number()).set_shares(true);
    }
    v1::VersionChoice& choice = choices.at(version.model());
    choice.set_before(choice.current());
    choice.set_current(version.number());
    DropChoices(versions, &choices);
    Transaction txn(&state);
    txn.Require(keys::Version(version.number()));
    PutChanges(state, versions, choices, &txn);
    EventWriter(&state, context.unix_ms)
        .Add("serving",
             absl::StrCat("version ", version.name(), OfModel(version.model()),
                          " is current: all serving servers have it"),
             0, 0, &txn);
    return txn;
  };
}

}  // namespace hotbed
