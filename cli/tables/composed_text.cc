#include "cli/tables/composed_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/tables/table_text.h"
#include "common/tables/composition.h"
#include "terminal/table_printer.h"

namespace hotbed {

std::string CompositionText(const TableSpec& composed) {
  const Composition& c = composed.composition;
  const std::string& form = kComposeFormWords[static_cast<size_t>(c.form)];
  if (c.form != ComposeForm::kQuotientRemainder) {
    return absl::StrCat(form, ", ", c.block_dims.size(),
                        c.block_dims.size() == 1 ? " block" : " blocks", " of dim ",
                        absl::StrJoin(c.block_dims, ","));
  }
  return absl::StrCat(form, ", ", kCombineWords[static_cast<size_t>(c.combine)], ", ",
                      c.pool_first ? "bags pooled in each part first" : "rows joined per id");
}

std::string RowFormula(const TableSpec& composed) {
  const Composition& c = composed.composition;
  const std::string& name = composed.name;
  if (c.form == ComposeForm::kQuotientRemainder) {
    const char* const sign = c.combine == Combine::kMultiply ? " * "
                             : c.combine == Combine::kAdd    ? " + "
                                                             : " | ";
    return absl::StrCat(name, "/quotient[id / ", c.buckets, "]", sign, name, "/remainder[id mod ",
                        c.buckets, "]");
  }
  const char* const rank = c.form == ComposeForm::kFrequency ? "rank" : "id";
  return absl::StrCat(
      c.form == ComposeForm::kFrequency ? absl::StrCat("rank = ", name, "/index[id]; ") : "",
      "block b = ", rank, " / ", composed.rows / c.block_dims.size(), ": ", name, "/block<b>[",
      rank, " - its first] x ", name, "/map<b> transposed, where there is one");
}

std::string SavedText(const TableSpec& composed, absl::Span<const TableSpec> parts) {
  const Parameters parameters = ParametersOf(composed, parts);
  const double saved =
      static_cast<double>(parameters.saved()) / static_cast<double>(parameters.plain);
  return absl::StrCat(
      WithCommas(parameters.composed), " instead of ", WithCommas(parameters.plain),
      parameters.saved() >= 0
          ? absl::StrCat(", ", WithCommas(static_cast<uint64_t>(parameters.saved())),
                         absl::StrFormat(" (%.2f %%) saved", 100 * saved))
          : ": more than a plain table has");
}

nlohmann::ordered_json ComposedJson(absl::Span<const TableSpec> parts) {
  const TableSpec composed = ComposedOf(parts);
  const Parameters parameters = ParametersOf(composed, parts);
  nlohmann::ordered_json json = TableJson(composed);
  json["parameters"] = {{"composed", parameters.composed},
                        {"plain", parameters.plain},
                        {"saved", parameters.saved()}};
  json["row"] = RowFormula(composed);
  json["parts"] = nlohmann::ordered_json::array();
  for (const TableSpec& part : parts) json["parts"].push_back(part.name);
  return json;
}

}  // namespace hotbed
