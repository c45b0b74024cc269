// Which version's rows the readers of a current version get (docs/serving.md, "Versions"): each
// model has one, and a table may belong to several models. Pure functions.
#ifndef HOTBED_PROTO_SERVED_MODELS_H_
#define HOTBED_PROTO_SERVED_MODELS_H_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/serving.pb.h"

namespace hotbed {

// The model whose current version a lookup names, by "current/MODEL". Empty: "current", of
// whichever model its tables belong to. Nothing: it names another version. Names have no '/'.
inline std::optional<std::string> ModelOfCurrent(absl::string_view version) {
  if (version == "current") return std::string();
  if (!absl::ConsumePrefix(&version, "current/")) return std::nullopt;
  return std::string(version);
}

inline bool HasServedTable(const v1::ServedVersion& version, uint32_t table) {
  return std::find(version.tables().begin(), version.tables().end(), table) !=
         version.tables().end();
}

// Narrows `current`, the current versions of the models, to the one that a lookup of `tables` gets
// the rows of `table` from: of `model`, if it is named; of the one model that the table belongs to;
// or of the one among its models that has all tables of the lookup. None is left: no current
// version has the table. InvalidArgument: several models remain, and the lookup is to name one.
// `Version` points to a v1::ServedVersion.
template <typename Version>
absl::Status NarrowCurrent(const std::string& model, uint32_t table, const std::string& name,
                           const std::vector<uint32_t>& tables, std::vector<Version>* current) {
  std::erase_if(*current, [&](const Version& version) {
    return !HasServedTable(*version, table) || (!model.empty() && version->model() != model);
  });
  if (current->size() <= 1) return absl::OkStatus();
  std::vector<std::string> models;
  for (const Version& version : *current) models.push_back(version->model());
  std::erase_if(*current, [&](const Version& version) {
    return std::any_of(tables.begin(), tables.end(),
                       [&](uint32_t other) { return !HasServedTable(*version, other); });
  });
  if (current->size() == 1) return absl::OkStatus();
  std::sort(models.begin(), models.end());
  return absl::InvalidArgumentError(
      absl::StrCat("version is \"current\", and table \"", name, "\" belongs to the models ",
                   absl::StrJoin(models, ", "), ": name one, as \"current/", models[0], "\""));
}

}  // namespace hotbed

#endif  // HOTBED_PROTO_SERVED_MODELS_H_
