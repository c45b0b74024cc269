// OutputLayer: checks arguments, then asks the shards (softmax_call.h).
#include "hotbed/output_layer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/client_impl.h"
#include "client/output/output_batch.h"
#include "client/output/softmax_call.h"
#include "client/output/softmax_loss.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

template <typename T>
void SetBytes(absl::Span<const T> values, std::string* bytes) {
  bytes->assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
std::vector<T> NumbersOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// From the shards of one answer to their places: for each token, all rows of the table.
void PlaceLogits(const v1::SoftmaxRequest& asked, const v1::SoftmaxReply& reply, uint64_t rows,
                 float* logits) {
  const std::vector<float> from = NumbersOf<float>(reply.logits());
  const size_t tokens = asked.targets().size() / sizeof(uint64_t);
  size_t at = 0;
  for (int s = 0; s < asked.shards_size(); ++s) {
    const v1::SoftmaxShard& shard = asked.shards(s);
    const uint64_t count = shard.range_limit() - shard.range_first();
    if (reply.shards(s).code() != v1::OK || at + tokens * count > from.size()) continue;
    for (size_t t = 0; t < tokens; ++t, at += count) {
      std::copy_n(from.data() + at, count, logits + t * rows + shard.range_first());
    }
  }
}

absl::Status CheckLayerOptions(const TableOptions& table, const OutputLayerOptions& options) {
  const auto refuse = [&table](const auto&... words) {
    return absl::InvalidArgumentError(absl::StrCat("table ", table.name, words...));
  };
  if (table.hashed) {
    return refuse(" is hashed, and has no last row; the output layer takes bounded tables");
  }
  if (table.column_slices > 1) {
    return refuse(" has ", table.column_slices,
                  " column slices, and no server has whole rows of it; the output layer takes "
                  "tables that were created with column_slices=1");
  }
  if (table.rows > kOutputRowsMax) {
    return refuse(" has ", table.rows, " rows, allowed: at most ", kOutputRowsMax,
                  " in an output layer");
  }
  if (options.bias && table.dim < 2) {
    return refuse(" has dim 1, which leaves no element beside the bias, allowed: dim 2 or more");
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("label_smoothing is ", options.label_smoothing, ", allowed: 0 to 1"));
  }
  if (!(options.z_loss >= 0 && std::isfinite(options.z_loss))) {
    return absl::InvalidArgumentError(
        absl::StrCat("z_loss is ", options.z_loss, ", allowed: finite numbers, 0 or more"));
  }
  return absl::OkStatus();
}

}  // namespace

class OutputLayerImpl final : public OutputLayer {
 public:
  OutputLayerImpl(ClientImpl* client, const TableHandle* table, const OutputLayerOptions& options)
      : client_(client), table_(table), options_(options), retry_(table->id()) {}

  absl::StatusOr<std::unique_ptr<OutputPass>> Forward(absl::Span<const float> hidden,
                                                      absl::Span<const int64_t> targets) override;
  absl::StatusOr<std::vector<float>> Logits(absl::Span<const float> hidden) override;
  uint32_t width() const override { return shape().width(); }
  OutputShape shape() const { return {&table_->options(), options_.bias, options_.ignored_target}; }

  const OutputLayerOptions& options() const { return options_; }
  const TableOptions& table() const { return table_->options(); }
  uint32_t trainers() const { return client_->options().trainers; }

  // Asks all shards. Adds the bytes of the messages.
  absl::Status Ask(bool gradient, const v1::SoftmaxRequest& request, uint64_t* wire_bytes,
                   SoftmaxCall::Take take) {
    return Ask(gradient, request, nullptr, wire_bytes, take);
  }
  // A number for each pass, from 1.
  uint64_t NextPass() { return passes_.fetch_add(1) + 1; }
  // Pushes as the pass of this number. The request gets the session.
  absl::Status Push(uint64_t pass, v1::SoftmaxRequest* request, uint64_t* wire_bytes)
      ABSL_LOCKS_EXCLUDED(pushing_);

 private:
  absl::Status Ask(bool gradient, const v1::SoftmaxRequest& request, SoftmaxChains* chains,
                   uint64_t* wire_bytes, SoftmaxCall::Take take);

  ClientImpl* const client_;
  const TableHandle* const table_;
  const OutputLayerOptions options_;
  RetryPolicy retry_;
  absl::Mutex pushing_;  // held over a push, so that the pushes to a shard follow one another
  SessionIdentity session_ ABSL_GUARDED_BY(pushing_);
  SoftmaxChains chains_ ABSL_GUARDED_BY(pushing_);
  bool pushed_ ABSL_GUARDED_BY(pushing_) = false;
  uint64_t last_step_ ABSL_GUARDED_BY(pushing_) = 0;
  uint64_t last_pass_ ABSL_GUARDED_BY(pushing_) = 0;
  std::atomic<uint64_t> passes_{0};
};

namespace {

class OutputPassImpl final : public OutputPass {
 public:
  OutputPassImpl(OutputLayerImpl* layer, absl::Span<const float> hidden,
                 absl::Span<const int64_t> targets)
      : layer_(*layer),
        number_(layer->NextPass()),
        losses_(targets.size()),
        correct_(targets.size()),
        statistics_(0) {
    OutputBatch batch(layer_.shape(), hidden, targets);
    places_ = std::move(batch.places);
    SetBytes<float>(batch.hidden, request_.mutable_hidden());
    SetBytes<uint64_t>(batch.targets, request_.mutable_targets());
    request_.set_table(layer_.table().id);
    request_.set_bias(layer_.options().bias);
    statistics_ = SoftmaxStatistics(places_.size());
  }

  absl::Status Run() {
    if (places_.empty()) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(layer_.Ask(
        /*gradient=*/false, request_, &wire_bytes_,
        [this](const v1::SoftmaxRequest&, const v1::SoftmaxReply& reply) {
          statistics_.Add(NumbersOf<float>(reply.maxima()), NumbersOf<double>(reply.sums()),
                          NumbersOf<double>(reply.totals()),
                          NumbersOf<float>(reply.target_logits()));
        }));
    const SoftmaxLosses losses = LossesOf(statistics_, layer_.table().rows, layer_.options());
    for (size_t i = 0; i < places_.size(); ++i) {
      losses_[places_[i]] = static_cast<float>(losses.losses[i]);
      correct_[places_[i]] = losses.correct[i];
    }
    bits_ = losses.bits;
    return absl::OkStatus();
  }

  absl::Span<const float> losses() const override { return losses_; }
  absl::Span<const uint8_t> correct() const override { return correct_; }
  uint64_t tokens() const override { return places_.size(); }
  double bits_per_token() const override {
    return places_.empty() ? 0 : bits_ / static_cast<double>(places_.size());
  }
  uint64_t wire_bytes() const override { return wire_bytes_; }

  absl::Status Backward(absl::Span<const float> scales, float* hidden_gradient) override;
  absl::Status Push(uint64_t step, const OutputPushOptions& options) override;

 private:
  void SetScales(absl::Span<const float> scales);
  // A token without a gradient, since a call has one at least.
  void AddSilentToken(v1::SoftmaxRequest* request) const;
  absl::Status AddAdded(const OutputPushOptions& options, v1::SoftmaxUpdate* update) const;

  OutputLayerImpl& layer_;
  const uint64_t number_;
  v1::SoftmaxRequest request_;  // of the tokens that count; with the scales, once they are known
  std::vector<size_t> places_;  // of these tokens in the batch
  std::vector<float> losses_;
  std::vector<uint8_t> correct_;
  SoftmaxStatistics statistics_;
  double bits_ = 0;
  bool has_scales_ = false;
  uint64_t wire_bytes_ = 0;
};

void OutputPassImpl::SetScales(absl::Span<const float> scales) {
  const SoftmaxFactors factors =
      FactorsOf(statistics_, scales, layer_.table().rows, layer_.options());
  v1::SoftmaxScales& to = *request_.mutable_scales();
  SetBytes<float>(statistics_.maxima, to.mutable_maxima());
  SetBytes<float>(factors.factors, to.mutable_factors());
  SetBytes<float>(factors.floors, to.mutable_floors());
  SetBytes<float>(factors.target_factors, to.mutable_target_factors());
  has_scales_ = true;
}

void OutputPassImpl::AddSilentToken(v1::SoftmaxRequest* request) const {
  const std::vector<float> zero(1);
  SetBytes<float>(std::vector<float>(layer_.width()), request->mutable_hidden());
  SetBytes<uint64_t>(std::vector<uint64_t>(1), request->mutable_targets());
  v1::SoftmaxScales& scales = *request->mutable_scales();
  for (std::string* const numbers : {scales.mutable_maxima(), scales.mutable_factors(),
                                     scales.mutable_floors(), scales.mutable_target_factors()}) {
    SetBytes<float>(zero, numbers);
  }
}

absl::Status OutputPassImpl::Backward(absl::Span<const float> scales, float* hidden_gradient) {
  HOTBED_RETURN_IF_ERROR(CheckScales(scales, losses_.size()));
  const uint32_t width = layer_.width();
  std::fill_n(hidden_gradient, losses_.size() * width, 0.0f);
  std::vector<float> counted;
  for (const size_t place : places_) counted.push_back(scales[place]);
  SetScales(counted);
  if (places_.empty()) return absl::OkStatus();
  std::vector<double> sums(places_.size() * width);
  HOTBED_RETURN_IF_ERROR(
      layer_.Ask(/*gradient=*/true, request_, &wire_bytes_,
                 [&sums](const v1::SoftmaxRequest&, const v1::SoftmaxReply& reply) {
                   const std::vector<float> part = NumbersOf<float>(reply.hidden_gradient());
                   for (size_t i = 0; i < std::min(part.size(), sums.size()); ++i)
                     sums[i] += double{part[i]};
                 }));
  for (size_t i = 0; i < places_.size(); ++i) {
    std::copy_n(sums.data() + i * width, width, hidden_gradient + places_[i] * width);
  }
  return absl::OkStatus();
}

absl::Status OutputPassImpl::AddAdded(const OutputPushOptions& options,
                                      v1::SoftmaxUpdate* update) const {
  const TableOptions& table = layer_.table();
  std::map<uint64_t, std::vector<float>> rows;
  for (size_t i = 0; i < options.added_ids.size(); ++i) {
    const uint64_t id = options.added_ids[i];
    if (id >= table.rows) {
      return absl::InvalidArgumentError(absl::StrCat("added_ids: ", id, " is outside table ",
                                                     table.name, ", allowed: 0..", table.rows - 1));
    }
    const float* const from = options.added_gradients + i * table.dim;
    std::vector<float>& sum = rows[id];
    sum.resize(table.dim);
    for (uint32_t d = 0; d < table.dim; ++d) sum[d] += from[d];
  }
  for (const auto& [id, gradient] : rows) {
    if (FirstNotFinite(gradient) >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("added_gradients: the gradient of id ", id,
                                                     " is NaN or infinite, allowed: finite "
                                                     "numbers; nothing of this step was sent"));
    }
    update->mutable_added_rows()->append(reinterpret_cast<const char*>(&id), sizeof(id));
    update->mutable_added_gradients()->append(reinterpret_cast<const char*>(gradient.data()),
                                              gradient.size() * sizeof(float));
  }
  if (update->added_gradients().size() > kOutputHiddenBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "added_gradients are of ", rows.size(), " rows with ", update->added_gradients().size(),
        " bytes, allowed: at most ", kOutputHiddenBytesMax, "; take smaller batches"));
  }
  return absl::OkStatus();
}

absl::Status OutputPassImpl::Push(uint64_t step, const OutputPushOptions& options) {
  if (!has_scales_) {
    return absl::FailedPreconditionError(
        "a pass is pushed after its Backward, which has the scales");
  }
  const TableOptions& table = layer_.table();
  if (IsSynchronous(table)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table.name,
        " is synchronous: its pushes wait for all trainers; the output layer trains tables of "
        "consistency async or bounded"));
  }
  if (step > kTrainingStepMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, " is above the limit ", kTrainingStepMax));
  }
  if (!std::isfinite(options.gradient_scale) || !std::isfinite(options.learning_rate)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "OutputPushOptions: gradient_scale is ", options.gradient_scale, " and learning_rate ",
        options.learning_rate, " at step ", step, "; allowed: finite numbers"));
  }
  if (places_.empty() && options.added_ids.empty()) return absl::OkStatus();
  v1::SoftmaxRequest request = request_;
  if (places_.empty()) AddSilentToken(&request);
  v1::SoftmaxUpdate& update = *request.mutable_update();
  update.set_step(step);
  const bool mean = table.gradient_reduction == GradientReduction::kMean;
  const float part = mean ? 1.0f / static_cast<float>(layer_.trainers()) : 1.0f;
  update.set_gradient_scale(options.gradient_scale * part);
  if (options.has_learning_rate) update.set_learning_rate(options.learning_rate);
  HOTBED_RETURN_IF_ERROR(AddAdded(options, &update));
  return layer_.Push(number_, &request, &wire_bytes_);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OutputPass>> OutputLayerImpl::Forward(
    absl::Span<const float> hidden, absl::Span<const int64_t> targets) {
  HOTBED_RETURN_IF_ERROR(CheckBatch(shape(), hidden, targets));
  auto pass = std::make_unique<OutputPassImpl>(this, hidden, targets);
  HOTBED_RETURN_IF_ERROR(pass->Run());
  return pass;
}

absl::StatusOr<std::vector<float>> OutputLayerImpl::Logits(absl::Span<const float> hidden) {
  const uint64_t rows = table().rows;
  if (rows * sizeof(float) > kOutputLogitBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", table().name, " has ", rows, " rows, allowed: at most ",
        kOutputLogitBytesMax / sizeof(float), " for logits; top-k finds the largest of more"));
  }
  const size_t tokens = hidden.size() / width();
  const std::vector<int64_t> targets(tokens, options_.ignored_target == 0 ? 1 % rows : 0);
  HOTBED_RETURN_IF_ERROR(CheckBatch(shape(), hidden, targets));
  std::vector<float> logits(tokens * rows);
  const size_t step = std::min<uint64_t>(kOutputTokensMax, kOutputLogitBytesMax / 4 / rows);
  for (size_t first = 0; first < tokens; first += step) {
    const size_t some = std::min(step, tokens - first);
    v1::SoftmaxRequest request;
    request.set_table(table().id);
    request.set_bias(options_.bias);
    request.set_want_logits(true);
    SetBytes(hidden.subspan(first * width(), some * width()), request.mutable_hidden());
    SetBytes<uint64_t>(std::vector<uint64_t>(some), request.mutable_targets());
    uint64_t wire_bytes = 0;
    HOTBED_RETURN_IF_ERROR(Ask(/*gradient=*/false, request, &wire_bytes,
                               [&](const v1::SoftmaxRequest& asked, const v1::SoftmaxReply& reply) {
                                 PlaceLogits(asked, reply, rows, logits.data() + first * rows);
                               }));
  }
  return logits;
}

absl::Status OutputLayerImpl::Ask(bool gradient, const v1::SoftmaxRequest& request,
                                  SoftmaxChains* chains, uint64_t* wire_bytes,
                                  SoftmaxCall::Take take) {
  const SoftmaxCall::Parts parts = {client_->map(), client_->follower(), client_->KeptWholeTables(),
                                    client_->clock(), &retry_};
  SoftmaxCall call(parts, table_, gradient, &request, chains,
                   client_->DeadlineNs(options_.deadline));
  const absl::Status asked = call.Run(take);
  *wire_bytes += call.wire_bytes();
  return asked;
}

absl::Status OutputLayerImpl::Push(uint64_t pass, v1::SoftmaxRequest* request,
                                   uint64_t* wire_bytes) {
  absl::MutexLock lock(&pushing_);
  v1::SoftmaxUpdate& update = *request->mutable_update();
  // Sequences are numbered by the step: those of an earlier one would count as applied.
  const bool again = pass == last_pass_ && update.step() == last_step_;
  if (pushed_ && update.step() <= last_step_ && !again) {
    return absl::InvalidArgumentError(absl::StrCat("step ", update.step(), " comes after step ",
                                                   last_step_,
                                                   ", allowed: steps that grow from "
                                                   "push to push of a layer"));
  }
  if (session_.session == 0) {
    HOTBED_ASSIGN_OR_RETURN(session_, client_->OpenSession(absl::StrCat("output/", table().name)));
  }
  update.set_session(session_.session);
  update.set_incarnation(session_.incarnation);
  pushed_ = true;
  last_step_ = update.step();
  last_pass_ = pass;
  return Ask(/*gradient=*/true, *request, &chains_, wire_bytes,
             [](const v1::SoftmaxRequest&, const v1::SoftmaxReply&) {});
}

absl::StatusOr<std::unique_ptr<OutputLayer>> OutputLayer::Make(Client* client, const Table* table,
                                                               const OutputLayerOptions& options) {
  HOTBED_RETURN_IF_ERROR(CheckLayerOptions(table->options(), options));
  return std::make_unique<OutputLayerImpl>(static_cast<ClientImpl*>(client),
                                           static_cast<const TableHandle*>(table), options);
}

}  // namespace hotbed
