#include "hotbed/sampled_softmax.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/output/output_batch.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kSamplesMax = 65'536;
constexpr double kNever = -std::numeric_limits<double>::infinity();

class SampledLayer final : public OutputLayer {
 public:
  SampledLayer(Client* client, const Table* table, ClassSampler sampler,
               const SampledSoftmaxOptions& options)
      : client_(client), table_(table), sampler_(std::move(sampler)), options_(options) {}

  absl::StatusOr<std::unique_ptr<OutputPass>> Forward(absl::Span<const float> hidden,
                                                      absl::Span<const int64_t> targets) override;
  absl::StatusOr<std::vector<float>> Logits(absl::Span<const float> /*hidden*/) override {
    return absl::InvalidArgumentError(
        "a sampled softmax has the logits of its sample only; ask OutputLayer::Make for a layer "
        "that has all of them");
  }
  uint32_t width() const override { return shape().width(); }

  OutputShape shape() const { return {&table_->options(), options_.bias, options_.ignored_target}; }
  Client* client() const { return client_; }
  const Table* table() const { return table_; }
  const ClassSampler& sampler() const { return sampler_; }
  const SampledSoftmaxOptions& options() const { return options_; }

 private:
  Client* const client_;
  const Table* const table_;
  const ClassSampler sampler_;
  const SampledSoftmaxOptions options_;
  std::atomic<uint64_t> batches_{0};
};

// The columns of a token's logits are the classes of the sample, and its target behind them.
class SampledPass final : public OutputPass {
 public:
  SampledPass(const SampledLayer* layer, absl::Span<const float> hidden,
              absl::Span<const int64_t> targets, ClassSampler::Sample sample)
      : layer_(*layer),
        batch_(layer->shape(), hidden, targets),
        sample_(std::move(sample)),
        losses_(targets.size()),
        correct_(targets.size()) {}

  absl::Status Run();
  absl::Span<const float> losses() const override { return losses_; }
  absl::Span<const uint8_t> correct() const override { return correct_; }
  uint64_t tokens() const override { return batch_.places.size(); }
  double bits_per_token() const override {
    return tokens() == 0 ? 0 : bits_ / static_cast<double>(tokens());
  }
  absl::Status Backward(absl::Span<const float> scales, float* hidden_gradient) override;
  absl::Status Push(uint64_t step, const OutputPushOptions& options) override;
  uint64_t wire_bytes() const override { return wire_bytes_; }

 private:
  uint32_t dim() const { return layer_.table()->dim(); }
  const float* Row(size_t place) const { return rows_.data() + place * dim(); }
  // The product of a row with a hidden state, and its bias.
  double Logit(size_t place, size_t token) const;
  void ComputeLogits();
  void ComputeLosses();
  // Adds the share of one logit to the gradients of its row and of the hidden state.
  void AddGradient(float gradient, size_t place, size_t token, float* hidden_gradient);

  const SampledLayer& layer_;
  const OutputBatch batch_;
  const ClassSampler::Sample sample_;
  std::vector<uint64_t> ids_;          // of the rows, each once
  std::vector<size_t> sample_places_;  // in ids_, of the sample
  std::vector<size_t> target_places_;  // of the tokens' targets
  std::vector<float> rows_;
  std::vector<float> row_gradients_;
  std::vector<double> logits_;  // tokens x (sample + 1)
  std::vector<float> losses_;
  std::vector<uint8_t> correct_;
  std::vector<double> log_z_;  // of the tokens that count
  double bits_ = 0;
  uint64_t wire_bytes_ = 0;  // of ids and rows
  bool has_gradients_ = false;
};

absl::Status SampledPass::Run() {
  if (batch_.places.empty()) return absl::OkStatus();
  absl::flat_hash_map<uint64_t, size_t> place_of;
  const auto place = [&](uint64_t id) {
    const auto [found, first] = place_of.try_emplace(id, ids_.size());
    if (first) ids_.push_back(id);
    return found->second;
  };
  for (const uint64_t id : sample_.classes) sample_places_.push_back(place(id));
  for (const uint64_t id : batch_.targets) target_places_.push_back(place(id));
  rows_.resize(ids_.size() * dim());
  PullFeature in{layer_.table(), ids_, rows_.data()};
  in.distinct = true;
  HOTBED_RETURN_IF_ERROR(
      layer_.client()->Pull({&in, 1}, {.deadline = layer_.options().deadline}).Wait());
  wire_bytes_ += ids_.size() * (sizeof(uint64_t) + dim() * sizeof(float));
  ComputeLogits();
  ComputeLosses();
  return absl::OkStatus();
}

double SampledPass::Logit(size_t place, size_t token) const {
  const uint32_t width = layer_.width();
  const float* const row = Row(place);
  const float* const hidden = batch_.hidden.data() + token * width;
  double sum = layer_.options().bias ? double{row[width]} : 0;
  for (uint32_t i = 0; i < width; ++i) sum += double{row[i]} * double{hidden[i]};
  return sum;
}

void SampledPass::ComputeLogits() {
  const ClassSampler& sampler = layer_.sampler();
  std::vector<double> corrections;
  for (const uint64_t id : sample_.classes) {
    corrections.push_back(std::log(sampler.Expected(sample_, id)));
  }
  for (size_t t = 0; t < batch_.places.size(); ++t) {
    for (size_t s = 0; s < sample_.classes.size(); ++s) {
      const bool hit = sample_.classes[s] == batch_.targets[t];
      logits_.push_back(hit ? kNever : Logit(sample_places_[s], t) - corrections[s]);
    }
    logits_.push_back(Logit(target_places_[t], t) -
                      std::log(sampler.Expected(sample_, batch_.targets[t])));
  }
}

void SampledPass::ComputeLosses() {
  const size_t columns = sample_.classes.size() + 1;
  for (size_t t = 0; t < batch_.places.size(); ++t) {
    const double* const logits = logits_.data() + t * columns;
    const double most = *std::max_element(logits, logits + columns);
    const double sum = std::accumulate(
        logits, logits + columns, 0.0,
        [most](double total, double logit) { return total + std::exp(logit - most); });
    log_z_.push_back(std::log(sum) + most);
    const double loss = log_z_.back() - logits[columns - 1];
    losses_[batch_.places[t]] = static_cast<float>(loss);
    correct_[batch_.places[t]] = logits[columns - 1] >= most ? 1 : 0;
    bits_ += loss / std::log(2.0);
  }
}

void SampledPass::AddGradient(float gradient, size_t place, size_t token, float* hidden_gradient) {
  const uint32_t width = layer_.width();
  const float* const row = Row(place);
  const float* const hidden = batch_.hidden.data() + token * width;
  float* const to = row_gradients_.data() + place * dim();
  for (uint32_t i = 0; i < width; ++i) {
    hidden_gradient[i] += gradient * row[i];
    to[i] += gradient * hidden[i];
  }
  if (layer_.options().bias) to[width] += gradient;
}

absl::Status SampledPass::Backward(absl::Span<const float> scales, float* hidden_gradient) {
  HOTBED_RETURN_IF_ERROR(CheckScales(scales, losses_.size()));
  const uint32_t width = layer_.width();
  std::fill_n(hidden_gradient, losses_.size() * width, 0.0f);
  row_gradients_.assign(rows_.size(), 0.0f);
  has_gradients_ = true;
  const size_t columns = sample_.classes.size() + 1;
  for (size_t t = 0; t < batch_.places.size(); ++t) {
    const size_t token = batch_.places[t];
    const double* const logits = logits_.data() + t * columns;
    float* const to = hidden_gradient + token * width;
    for (size_t s = 0; s + 1 < columns; ++s) {
      if (logits[s] == kNever) continue;
      AddGradient(static_cast<float>(scales[token] * std::exp(logits[s] - log_z_[t])),
                  sample_places_[s], t, to);
    }
    AddGradient(static_cast<float>(scales[token] * std::expm1(logits[columns - 1] - log_z_[t])),
                target_places_[t], t, to);
  }
  return absl::OkStatus();
}

absl::Status SampledPass::Push(uint64_t step, const OutputPushOptions& options) {
  if (!has_gradients_) {
    return absl::FailedPreconditionError(
        "a pass is pushed after its Backward, which has the scales");
  }
  if (!options.added_ids.empty()) {
    return absl::InvalidArgumentError(
        "added_ids: a sampled softmax takes no added gradients; use the full output layer for tied "
        "tables");
  }
  if (ids_.empty()) return absl::OkStatus();
  const PushFeature out{layer_.table(), ids_, row_gradients_.data()};
  PushOptions push;
  push.deadline = layer_.options().deadline;
  push.has_learning_rate = options.has_learning_rate;
  push.learning_rate = options.learning_rate;
  push.gradient_scale = options.gradient_scale;
  wire_bytes_ += ids_.size() * (sizeof(uint64_t) + dim() * sizeof(float));
  return layer_.client()->Push(step, {&out, 1}, push).Wait().status;
}

absl::StatusOr<std::unique_ptr<OutputPass>> SampledLayer::Forward(
    absl::Span<const float> hidden, absl::Span<const int64_t> targets) {
  HOTBED_RETURN_IF_ERROR(CheckBatch(shape(), hidden, targets));
  for (size_t t = 0; t < targets.size(); ++t) {
    if (targets[t] == options_.ignored_target) continue;
    if (sampler_.Probability(static_cast<uint64_t>(targets[t])) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("targets: element ", t, " is ", targets[t],
                                                   ", which the sampler never draws, allowed: "
                                                   "classes below ",
                                                   sampler_.classes(), " with a count above 0"));
  }
  HOTBED_ASSIGN_OR_RETURN(
      ClassSampler::Sample sample,
      sampler_.Draw(options_.samples, options_.distinct,
                    options_.seed + 0x9e3779b97f4a7c15ull * batches_.fetch_add(1)));
  auto pass = std::make_unique<SampledPass>(this, hidden, targets, std::move(sample));
  HOTBED_RETURN_IF_ERROR(pass->Run());
  return pass;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputLayer>> MakeSampledOutputLayer(
    Client* client, const Table* table, const ClassSampler& sampler,
    const SampledSoftmaxOptions& options) {
  const uint64_t most = std::min(kSamplesMax, options.distinct ? sampler.classes() : kSamplesMax);
  if (options.samples < 1 || options.samples > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples is ", options.samples, ", allowed: 1..", most,
                     options.distinct ? ", as they are distinct" : ""));
  }
  if (!table->options().hashed && sampler.classes() > table->options().rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("the sampler has ", sampler.classes(), " classes, allowed: up to ",
                     table->options().rows, ", the rows of table ", table->options().name));
  }
  if (options.bias && table->options().dim < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table->options().name,
        " has dim 1, which leaves no element beside the bias, allowed: dim 2 or more"));
  }
  return std::make_unique<SampledLayer>(client, table, sampler, options);
}

}  // namespace hotbed
