#include "server/output/softmax_shard.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "proto/convert.h"
#include "server/shard/request/requests.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr size_t kPushesInFlight = 2;
constexpr int kPartBits = 20;

uint64_t SequenceOf(uint64_t step, uint64_t first_row) {
  return step << kPartBits | (first_row / kSoftmaxBlockRows + 1);
}

void FreeFloats(float* floats) { std::free(floats); }

float* AlignedFloats(uint64_t count) {
  constexpr size_t kAlign = 64;
  const size_t bytes = (count * sizeof(float) + kAlign - 1) / kAlign * kAlign;
  return static_cast<float*>(std::aligned_alloc(kAlign, bytes));
}

}  // namespace

SoftmaxSums::SoftmaxSums(const SoftmaxInput& input) {
  switch (input.what) {
    case SoftmaxInput::What::kStatistics:
      maxima.assign(input.tokens, -std::numeric_limits<float>::infinity());
      sums.resize(input.tokens);
      totals.resize(input.tokens);
      target_logits.resize(input.tokens);
      break;
    case SoftmaxInput::What::kHiddenGradient:
      hidden_gradient.resize(uint64_t{input.tokens} * input.width);
      break;
    case SoftmaxInput::What::kUpdate:
      break;
  }
}

void SoftmaxSums::Add(const SoftmaxSums& other) {
  for (size_t t = 0; t < maxima.size(); ++t) {
    const float most = std::max(maxima[t], other.maxima[t]);
    if (std::isinf(most) && most < 0) continue;  // nothing on either side
    // exp(-infinity) is 0: a side without rows adds nothing.
    sums[t] = sums[t] * std::exp(double{maxima[t]} - most) +
              other.sums[t] * std::exp(double{other.maxima[t]} - most);
    maxima[t] = most;
    totals[t] += other.totals[t];
    target_logits[t] += other.target_logits[t];
  }
  for (size_t i = 0; i < hidden_gradient.size(); ++i) {
    hidden_gradient[i] += other.hidden_gradient[i];
  }
}

struct SoftmaxShard::BlockPull : PullWork {
  void Done() override { done.Notify(); }
  absl::Notification done;
};

struct SoftmaxShard::BlockPush : PushWork {
  void Done() override { done.Notify(); }
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
  std::vector<const uint8_t*> rows;
  absl::Notification done;
};

SoftmaxShard::SoftmaxShard(ShardHost* host, const SoftmaxInput* input,
                           const v1::SoftmaxRequest* request, int64_t deadline_ns)
    : host_(host),
      input_(*input),
      request_(*request),
      deadline_ns_(deadline_ns),
      rows_(uint64_t{kSoftmaxBlockRows} * input->dim),
      logits_(uint64_t{kSoftmaxBlockRows} * input->tokens),
      scratch_(AlignedFloats(kMatrixScratchFloats), FreeFloats) {}

SoftmaxShard::~SoftmaxShard() = default;

void SoftmaxShard::Fill(const SegmentResult& result, ShardId shard,
                        v1::SoftmaxShardReply* reply) const {
  reply->set_code(static_cast<v1::Code>(result.code));
  reply->set_detail(result.detail);
  reply->set_retry_after_ms(result.retry_after_ms);
  reply->set_epoch(result.epoch);
  reply->set_lsn(result.lsn);
  reply->set_last_seq(result.last_seq);
  if (result.code != SegmentCode::kWrongEpoch) return;
  const std::optional<ShardRecord> record = host_->RecordOf(shard);
  if (record.has_value()) ToProto(*record, reply->mutable_record());
}

bool SoftmaxShard::ReadRows(const v1::SoftmaxShard& shard, uint64_t first, uint32_t rows,
                            v1::SoftmaxShardReply* reply) {
  ids_.resize(rows);
  std::iota(ids_.begin(), ids_.end(), first);
  const ShardId id = ShardId::FromPacked(shard.shard());
  const std::shared_ptr<Shard> held = host_->Find(id);
  BlockPull pull;
  pull.deadline_ns = deadline_ns_;
  PullSegment& segment = pull.segments.emplace_back();
  segment.shard = held.get();
  segment.shard_id = id;
  segment.epoch = shard.epoch();
  segment.lsn_min = shard.lsn_min();
  segment.ids = ids_.data();
  segment.count = rows;
  segment.rows = reinterpret_cast<uint8_t*>(rows_.data());
  host_->Pull(&pull);
  pull.done.WaitForNotification();
  Fill(segment.result, id, reply);
  return segment.result.code == SegmentCode::kOk;
}

void SoftmaxShard::ComputeLogits(uint32_t rows) {
  MatrixProduct product;
  product.a = rows_.data();
  product.a_row = input_.dim;
  product.b = input_.by_element.data();
  product.b_row = input_.tokens;
  product.c = logits_.data();
  product.c_row = input_.tokens;
  product.m = rows;
  product.n = input_.tokens;
  product.k = input_.dim;
  product.scratch = scratch_.get();
  kernels_.multiply(product);
}

void SoftmaxShard::AddStatistics(uint64_t first, uint32_t rows, SoftmaxSums* sums) {
  const LogitBlock block = {logits_.data(), rows, input_.tokens};
  SoftmaxSums of_block(input_);
  kernels_.raise_maxima(block, of_block.maxima.data());
  kernels_.add_exponentials(block, of_block.maxima.data(), of_block.sums.data(),
                            of_block.totals.data());
  for (uint32_t t = 0; t < input_.tokens; ++t) {
    const uint64_t row = input_.targets[t] - first;  // large where the target is before
    if (row < rows) of_block.target_logits[t] = logits_[row * input_.tokens + t];
  }
  sums->Add(of_block);
}

void SoftmaxShard::CopyLogits(uint64_t at, uint64_t all, uint32_t rows, SoftmaxSums* sums) const {
  sums->logits.resize(all * input_.tokens);
  for (uint32_t t = 0; t < input_.tokens; ++t) {
    float* const to = sums->logits.data() + all * t + at;
    for (uint32_t r = 0; r < rows; ++r) to[r] = logits_[uint64_t{r} * input_.tokens + t];
  }
}

void SoftmaxShard::ComputeLogitGradients(uint64_t first, uint32_t rows) {
  kernels_.to_gradients({logits_.data(), rows, input_.tokens}, input_.maxima.data(),
                        input_.factors.data(), input_.floors.data());
  for (uint32_t t = 0; t < input_.tokens; ++t) {
    const uint64_t row = input_.targets[t] - first;
    if (row < rows) logits_[row * input_.tokens + t] -= input_.target_factors[t];
  }
}

void SoftmaxShard::AddHiddenGradient(uint32_t rows, SoftmaxSums* sums) {
  of_hidden_.resize(uint64_t{input_.tokens} * input_.width);
  MatrixProduct product;
  product.a = logits_.data();
  product.a_row = 1;
  product.a_column = input_.tokens;
  product.b = rows_.data();
  product.b_row = input_.dim;
  product.c = of_hidden_.data();
  product.c_row = input_.width;
  product.m = input_.tokens;
  product.n = input_.width;
  product.k = rows;
  product.scratch = scratch_.get();
  kernels_.multiply(product);
  for (size_t i = 0; i < of_hidden_.size(); ++i) {
    sums->hidden_gradient[i] += double{of_hidden_[i]};
  }
}

void SoftmaxShard::AddGradients(uint64_t first, uint32_t rows, std::vector<float>* gradients,
                                std::vector<uint8_t>* wanted) const {
  const std::vector<uint64_t>& added = input_.added_rows;
  auto row = std::lower_bound(added.begin(), added.end(), first);
  for (; row != added.end() && *row < first + rows; ++row) {
    float* const to = gradients->data() + (*row - first) * input_.dim;
    const float* const from =
        input_.added_gradients.data() + static_cast<uint64_t>(row - added.begin()) * input_.dim;
    for (uint32_t i = 0; i < input_.dim; ++i) to[i] += from[i];
    (*wanted)[*row - first] = 1;
  }
}

std::unique_ptr<SoftmaxShard::BlockPush> SoftmaxShard::GradientsOf(const TableSpec& table,
                                                                   uint64_t first, uint32_t rows) {
  auto push = std::make_unique<BlockPush>();
  push->gradients.resize(uint64_t{rows} * input_.dim);
  MatrixProduct product;
  product.a = logits_.data();
  product.a_row = input_.tokens;
  product.b = input_.by_token.data();
  product.b_row = input_.dim;
  product.c = push->gradients.data();
  product.c_row = input_.dim;
  product.m = rows;
  product.n = input_.dim;
  product.k = input_.tokens;
  product.scratch = scratch_.get();
  kernels_.multiply(product);
  const float scale = request_.update().gradient_scale();
  if (scale != 1.0f) {
    for (float& gradient : push->gradients) gradient *= scale;
  }
  std::vector<uint8_t> wanted(rows);
  for (uint32_t r = 0; r < rows; ++r) {
    const float* const of_row = logits_.data() + uint64_t{r} * input_.tokens;
    wanted[r] = std::any_of(of_row, of_row + input_.tokens, [](float g) { return g != 0.0f; });
  }
  AddGradients(first, rows, &push->gradients, &wanted);
  for (uint32_t r = 0; r < rows; ++r) {
    const uint64_t id = first + r;
    if (wanted[r] == 0 || (table.has_padding_id && table.padding_id == id)) continue;
    push->ids.push_back(id);
    push->rows.push_back(
        reinterpret_cast<const uint8_t*>(push->gradients.data() + uint64_t{r} * input_.dim));
  }
  return push->ids.empty() ? nullptr : std::move(push);
}

bool SoftmaxShard::AwaitPushes(size_t left, v1::SoftmaxShardReply* reply) {
  bool applied = true;
  while (pushes_.size() > left) {
    pushes_.front()->done.WaitForNotification();
    const PushSegment& segment = pushes_.front()->segments[0];
    // Those behind a refused one are refused for the gap that it left.
    if (applied) Fill(segment.result, segment.shard_id, reply);
    if (segment.result.code != SegmentCode::kOk && applied) {
      applied = false;
      left = 0;
    }
    pushes_.pop_front();
  }
  return applied;
}

bool SoftmaxShard::PushBlock(const v1::SoftmaxShard& shard, const std::shared_ptr<Shard>& held,
                             uint64_t first, uint32_t rows, uint64_t* prev_seq) {
  std::unique_ptr<BlockPush> push = GradientsOf(held->table(), first, rows);
  if (push == nullptr) return false;
  const v1::SoftmaxUpdate& update = request_.update();
  push->session = update.session();
  push->incarnation = update.incarnation();
  push->deadline_ns = deadline_ns_;
  push->shards = held;
  PushSegment& segment = push->segments.emplace_back();
  segment.shard = held.get();
  segment.shard_id = held->id();
  segment.epoch = shard.epoch();
  segment.ids = push->ids.data();
  segment.count = static_cast<uint32_t>(push->ids.size());
  segment.gradients = push->rows.data();
  segment.seq = SequenceOf(update.step(), first);
  segment.prev_seq = std::exchange(*prev_seq, segment.seq);
  segment.open = shard.open();
  segment.last_part = first + rows == shard.range_limit();
  segment.has_learning_rate = update.has_learning_rate();
  segment.learning_rate = update.learning_rate();
  host_->Push(push.get());
  pushes_.push_back(std::move(push));
  return true;
}

void SoftmaxShard::Run(const v1::SoftmaxShard& shard, SoftmaxSums* sums,
                       v1::SoftmaxShardReply* reply) {
  const ShardId id = ShardId::FromPacked(shard.shard());
  const std::shared_ptr<Shard> held = host_->Find(id);
  if (held == nullptr || held->range().first != shard.range_first() ||
      held->range().limit != shard.range_limit()) {
    reply->set_code(v1::UNKNOWN_SHARD);
    reply->set_detail(absl::StrCat(id.ToString(), " is not served here with this range"));
    return;
  }
  const bool updates = input_.what == SoftmaxInput::What::kUpdate;
  uint64_t prev_seq = shard.prev_seq();
  for (uint64_t first = shard.range_first(); first < shard.range_limit();) {
    const uint64_t limit =
        std::min(shard.range_limit(), (first / kSoftmaxBlockRows + 1) * kSoftmaxBlockRows);
    const uint32_t rows = static_cast<uint32_t>(limit - first);
    const uint64_t block = std::exchange(first, limit);
    if (updates && SequenceOf(request_.update().step(), block) <= shard.prev_seq()) continue;
    v1::SoftmaxShardReply read;
    if (!ReadRows(shard, block, rows, &read)) {
      if (AwaitPushes(0, reply)) *reply = std::move(read);
      return;
    }
    ComputeLogits(rows);
    if (input_.what == SoftmaxInput::What::kStatistics) {
      AddStatistics(block, rows, sums);
      if (!input_.wants_logits) continue;
      CopyLogits(block - shard.range_first(), shard.range_limit() - shard.range_first(), rows,
                 sums);
      continue;
    }
    ComputeLogitGradients(block, rows);
    if (!updates) {
      AddHiddenGradient(rows, sums);
      continue;
    }
    if (!PushBlock(shard, held, block, rows, &prev_seq)) continue;
    if (!AwaitPushes(kPushesInFlight, reply)) return;
  }
  AwaitPushes(0, reply);
}

}  // namespace hotbed
