#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/parity/case_run.h"

namespace hotbed::parity {
namespace {

absl::Status CheckSize(absl::string_view name, size_t given, size_t wanted) {
  if (given == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("gradients.", name, " has ", given, " elements, the output has ", wanted));
}

absl::StatusOr<StepGradients> Given(const CaseGradients& asked, const EmbeddingOutput& output) {
  StepGradients out;
  out.values = asked.values.values;
  HOTBED_RETURN_IF_ERROR(CheckSize("values", out.values.size(), output.values.size()));
  for (float& value : out.values) value *= asked.scale;
  size_t used = 0;
  for (const EmbeddingOutput::Feature& feature : output.features) {
    std::vector<float>& sequence = out.sequences.emplace_back();
    const auto given = asked.sequences.find(feature.name);
    if (given != asked.sequences.end()) {
      ++used;
      sequence = given->second.values;
    }
    HOTBED_RETURN_IF_ERROR(CheckSize(absl::StrCat("sequences.", feature.name), sequence.size(),
                                     feature.sequence.size()));
    for (float& value : sequence) value *= asked.scale;
  }
  if (used == asked.sequences.size()) return out;
  return absl::InvalidArgumentError("gradients.sequences names an output that is not there");
}

}  // namespace

absl::StatusOr<StepGradients> GradientsOf(const CaseGradients& asked,
                                          const EmbeddingOutput& output) {
  if (asked.loss == LossKind::kGiven) return Given(asked, output);
  StepGradients out;
  out.has_loss = true;
  size_t count = output.values.size();
  for (const EmbeddingOutput::Feature& feature : output.features) count += feature.sequence.size();
  const float share = asked.loss == LossKind::kMean && count > 0
                          ? asked.scale / static_cast<float>(count)
                          : asked.scale;
  const auto add = [&](const std::vector<float>& values) {
    std::vector<float> gradients;
    gradients.reserve(values.size());
    for (const float value : values) {
      const bool square = asked.loss == LossKind::kSquare;
      const double term = square ? 0.5 * value * value : double{value};
      out.loss += double{share} * term;
      gradients.push_back(square ? share * value : share);
    }
    return gradients;
  };
  out.values = add(output.values);
  for (const EmbeddingOutput::Feature& feature : output.features) {
    out.sequences.push_back(add(feature.sequence));
  }
  return out;
}

}  // namespace hotbed::parity
