#include "server/output/softmax_input.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/kernels/matrix_kernels.h"

namespace hotbed {
namespace {

constexpr uint64_t kStepMax = kTrainingStepMax;

template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

absl::Status CheckFinite(const char* name, const std::vector<float>& values) {
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": element ", bad - values.begin(), " is ",
                                                 *bad, ", allowed: finite numbers"));
}

uint64_t LogitBytes(const v1::SoftmaxRequest& request) {
  uint64_t rows = 0;
  if (!request.want_logits()) return 0;
  for (const v1::SoftmaxShard& shard : request.shards()) {
    rows += std::min(kSoftmaxRowsMax, shard.range_limit() - shard.range_first());
  }
  return rows * (request.targets().size() / sizeof(uint64_t)) * sizeof(float);
}

absl::Status CheckTable(const TableSpec& table) {
  const char* const why =
      table.rows > kSoftmaxRowsMax
          ? "has more rows than pushes of the output layer have numbers; allowed: 536870400"
      : table.hashed ? "is hashed, and has no last row; the output layer takes bounded tables"
      : table.column_slices > 1
          ? "has column slices, and no server has whole rows of it; the output layer takes tables "
            "that were created with column_slices=1"
          : nullptr;
  if (why == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table ", table.name, " ", why));
}

absl::Status CheckSizes(const v1::SoftmaxRequest& request, const TableSpec& table) {
  const size_t tokens = request.targets().size() / sizeof(uint64_t);
  if (tokens < 1 || tokens > kSoftmaxTokensMax ||
      request.targets().size() % sizeof(uint64_t) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("targets has ", request.targets().size(),
                                                   " bytes, allowed: 8 to ", 8 * kSoftmaxTokensMax,
                                                   ", a multiple of 8"));
  }
  const uint32_t width = table.dim - (request.bias() ? 1 : 0);
  if (width < 1 || request.hidden().size() != tokens * width * sizeof(float)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hidden has ", request.hidden().size(), " bytes, allowed: ", tokens * width * sizeof(float),
        ", since table ", table.name, " has dim ", table.dim,
        request.bias() ? ", the last of which is the bias," : "", " and there are ", tokens,
        " targets"));
  }
  if (request.hidden().size() > kSoftmaxHiddenBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("hidden has ", request.hidden().size(),
                                                   " bytes, allowed: at most ",
                                                   kSoftmaxHiddenBytesMax, "; send fewer tokens"));
  }
  if (const uint64_t bytes = LogitBytes(request); bytes > kSoftmaxLogitBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("want_logits asks for ", bytes, " bytes, allowed: at most ",
                     kSoftmaxLogitBytesMax, "; send fewer tokens or shards"));
  }
  if (request.timeout_ms() < 1 || request.timeout_ms() > kSoftmaxTimeoutMsMax) {
    return absl::InvalidArgumentError(absl::StrCat("timeout_ms is ", request.timeout_ms(),
                                                   ", allowed: 1..", kSoftmaxTimeoutMsMax));
  }
  return absl::OkStatus();
}

absl::Status ReadScales(const v1::SoftmaxScales& scales, SoftmaxInput* input) {
  const std::pair<const char*, std::pair<const std::string*, std::vector<float>*>> fields[] = {
      {"scales.maxima", {&scales.maxima(), &input->maxima}},
      {"scales.factors", {&scales.factors(), &input->factors}},
      {"scales.floors", {&scales.floors(), &input->floors}},
      {"scales.target_factors", {&scales.target_factors(), &input->target_factors}}};
  for (const auto& [name, field] : fields) {
    if (field.first->size() != input->tokens * sizeof(float)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " has ", field.first->size(), " bytes, allowed: ", input->tokens * sizeof(float)));
    }
    *field.second = ValuesOf<float>(*field.first);
    HOTBED_RETURN_IF_ERROR(CheckFinite(name, *field.second));
  }
  return absl::OkStatus();
}

absl::Status ReadUpdate(const v1::SoftmaxUpdate& update, const TableSpec& table,
                        SoftmaxInput* input) {
  if (IsSynchronous(table)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name,
        " is synchronous: its pushes wait for all trainers; the output layer trains tables of "
        "consistency async or bounded"));
  }
  if (update.step() > kStepMax || update.session() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("update.step is ", update.step(), " of session ",
                                                   update.session(), ", allowed: steps up to ",
                                                   kStepMax, " of a session that was opened"));
  }
  if (!std::isfinite(update.gradient_scale()) || !std::isfinite(update.learning_rate())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "update.gradient_scale is ", update.gradient_scale(), " and update.learning_rate ",
        update.learning_rate(), ", allowed: finite numbers"));
  }
  input->added_rows = ValuesOf<uint64_t>(update.added_rows());
  input->added_gradients = ValuesOf<float>(update.added_gradients());
  const std::vector<uint64_t>& rows = input->added_rows;
  if (update.added_gradients().size() != rows.size() * input->dim * sizeof(float) ||
      update.added_gradients().size() > kSoftmaxHiddenBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("update.added_gradients has ", update.added_gradients().size(),
                     " bytes, allowed: ", rows.size() * input->dim * sizeof(float), " for ",
                     rows.size(), " rows, and at most ", kSoftmaxHiddenBytesMax));
  }
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i - 1] < rows[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat("update.added_rows: ", rows[i], " comes after ",
                                                   rows[i - 1],
                                                   ", allowed: each row once, in ascending order"));
  }
  return CheckFinite("update.added_gradients", input->added_gradients);
}

void LayOut(const std::vector<float>& hidden, SoftmaxInput* input) {
  const uint64_t tokens = input->tokens;
  const uint64_t dim = input->dim;
  input->by_token.assign(tokens * dim, 1.0f);
  input->by_element.assign(tokens * dim, 1.0f);
  for (uint64_t t = 0; t < tokens; ++t) {
    const float* const from = hidden.data() + t * input->width;
    std::copy_n(from, input->width, input->by_token.data() + t * dim);
    for (uint64_t i = 0; i < input->width; ++i) input->by_element[i * tokens + t] = from[i];
  }
}

}  // namespace

absl::StatusOr<SoftmaxInput> SoftmaxInput::Read(const v1::SoftmaxRequest& request,
                                                const TableSpec& table, What what) {
  HOTBED_RETURN_IF_ERROR(CheckTable(table));
  HOTBED_RETURN_IF_ERROR(CheckSizes(request, table));
  SoftmaxInput input;
  input.what = what;
  input.wants_logits = request.want_logits() && what == What::kStatistics;
  input.targets = ValuesOf<uint64_t>(request.targets());
  input.tokens = static_cast<uint32_t>(input.targets.size());
  input.dim = table.dim;
  input.width = table.dim - (request.bias() ? 1 : 0);
  for (const uint64_t target : input.targets) {
    if (target < table.rows) continue;
    return absl::InvalidArgumentError(absl::StrCat("targets: ", target, " is outside table ",
                                                   table.name, ", allowed: 0..", table.rows - 1));
  }
  const std::vector<float> hidden = ValuesOf<float>(request.hidden());
  HOTBED_RETURN_IF_ERROR(CheckFinite("hidden", hidden));
  LayOut(hidden, &input);
  if (what != What::kStatistics) HOTBED_RETURN_IF_ERROR(ReadScales(request.scales(), &input));
  if (what == What::kUpdate) HOTBED_RETURN_IF_ERROR(ReadUpdate(request.update(), table, &input));
  return input;
}

uint64_t SoftmaxInput::BytesOf(const v1::SoftmaxRequest& request, uint32_t dim, int threads) {
  const uint64_t tokens = request.targets().size() / sizeof(uint64_t);
  const uint64_t of_input = 2 * tokens * dim * sizeof(float) + request.ByteSizeLong();
  const uint64_t of_thread = kSoftmaxBlockRows * (tokens + 4ull * dim) * sizeof(float) +
                             tokens * dim * (sizeof(float) + 2 * sizeof(double)) +
                             kMatrixScratchFloats * sizeof(float);
  return of_input + 3 * LogitBytes(request) + static_cast<uint64_t>(threads) * of_thread;
}

}  // namespace hotbed
