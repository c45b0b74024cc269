// The batch steps of a case: forward, and backward in the way that the step says.
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "tests/parity/case_run.h"

namespace hotbed::parity {
namespace {

absl::StatusOr<JaggedBatch> BatchOf(const CaseBatch& batch) {
  if (batch.has_offsets) {
    return JaggedBatch::FromOffsets(batch.keys, batch.offsets, batch.ids, batch.weights);
  }
  return JaggedBatch::FromLengths(batch.keys, batch.lengths, batch.ids, batch.weights);
}

void WriteOutput(const std::string& stem, const EmbeddingOutput& output, CaseResult* result,
                 PlanJson* json) {
  (*json)["batch_size"] = output.batch_size;
  (*json)["out_of_bounds"] = output.out_of_bounds;
  (*json)["values"] = result->Array<float>(absl::StrCat(stem, "values"),
                                           {output.batch_size, output.columns}, output.values);
  for (size_t f = 0; f < output.features.size(); ++f) {
    const EmbeddingOutput::Feature& feature = output.features[f];
    PlanJson one = {{"name", feature.name},
                    {"dim", feature.dim},
                    {"pooling", kPoolingWords[static_cast<size_t>(feature.pooling)]}};
    const std::string name = InFileName(feature.name);
    if (feature.pooling == Pooling::kNone) {
      const uint64_t count = feature.dim == 0 ? 0 : feature.sequence.size() / feature.dim;
      one["sequence"] = result->Array<float>(absl::StrCat(stem, "sequence.", name),
                                             {count, feature.dim}, feature.sequence);
      one["lengths"] = result->Array<uint32_t>(absl::StrCat(stem, "lengths.", name),
                                               {feature.lengths.size()}, feature.lengths);
    } else {
      one["column"] = feature.column;
    }
    if (feature.pooling == Pooling::kMax && f < output.arg_max.size()) {
      one["arg_max"] = result->Array<uint32_t>(absl::StrCat(stem, "arg_max.", name),
                                               {output.batch_size, feature.dim}, output.arg_max[f]);
    }
    (*json)["outputs"].push_back(std::move(one));
  }
}

void WriteGradients(const std::string& stem, const std::vector<SparseGradient>& gradients,
                    CaseResult* result, PlanJson* json) {
  PlanJson& all = (*json)["row_gradients"];
  for (const SparseGradient& gradient : gradients) {
    const std::string& name = gradient.table->name();
    const std::string file = InFileName(name);
    const uint64_t count = gradient.ids.size();
    all[name] = {
        {"ids",
         result->Array<uint64_t>(absl::StrCat(stem, "gradient_ids.", file), {count}, gradient.ids)},
        {"rows", result->Array<float>(absl::StrCat(stem, "gradients.", file),
                                      {count, gradient.table->dim()}, gradient.gradients)}};
  }
}

}  // namespace

absl::Status CaseRun::RunBatch(const std::string& stem, const CaseStep& step, PlanJson* json) {
  HOTBED_ASSIGN_OR_RETURN(Trainer * trainer, TrainerOf(step.trainer));
  HOTBED_ASSIGN_OR_RETURN(Embeddings * embeddings, EmbeddingsOf(trainer));
  HOTBED_ASSIGN_OR_RETURN(const JaggedBatch batch, BatchOf(step.batch));
  EmbeddingOutput output;
  HOTBED_RETURN_IF_ERROR(embeddings->Forward(batch, &output).Wait());
  WriteOutput(stem, output, &result_, json);
  return step.gradients ? Backward(stem, step, batch, output, json) : absl::OkStatus();
}

absl::Status CaseRun::Backward(const std::string& stem, const CaseStep& step,
                               const JaggedBatch& batch, const EmbeddingOutput& output,
                               PlanJson* json) {
  HOTBED_ASSIGN_OR_RETURN(Trainer * trainer, TrainerOf(step.trainer));
  HOTBED_ASSIGN_OR_RETURN(const StepGradients of_outputs, GradientsOf(*step.gradients, output));
  if (of_outputs.has_loss) (*json)["loss"] = of_outputs.loss;
  OutputGradients gradients;
  gradients.values = of_outputs.values;
  for (const std::vector<float>& sequence : of_outputs.sequences) {
    gradients.sequences.push_back(sequence);
  }
  PushOptions options = PushOptionsOf(step);
  options.clip_global_norm = step.clip_global_norm;
  options.gradient_scale = step.gradient_scale;
  const uint32_t accumulate = case_.options.accumulate;
  const bool fused = step.backward == BackwardWay::kFused && accumulate == 1;
  std::vector<SparseGradient> of_rows;
  if (step.row_gradients || !fused) {
    HOTBED_ASSIGN_OR_RETURN(of_rows, trainer->embeddings->Gradients(batch, output, gradients));
  }
  if (step.row_gradients) WriteGradients(stem, of_rows, &result_, json);
  if (step.backward == BackwardWay::kNone) return absl::OkStatus();
  if (fused) {
    const uint64_t number = NextStep(step, trainer);
    (*json)["step"] = number;
    return Pushed(trainer,
                  trainer->embeddings->Backward(number, batch, output, gradients, options).Wait(),
                  json);
  }
  if (accumulate > 1) {
    HOTBED_RETURN_IF_ERROR(trainer->sum->Add(of_rows, case_.options.accumulate_scale));
    if (trainer->sum->added() < accumulate) return absl::OkStatus();
    of_rows = trainer->sum->Take();
  }
  const uint64_t number = NextStep(step, trainer);
  (*json)["step"] = number;
  return Pushed(trainer, PushGradients(trainer->client.get(), number, of_rows, options).Wait(),
                json);
}

}  // namespace hotbed::parity
