#include "client/composed/composed_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "client/composed/join_loops.h"
#include "client/rows/row_sums.h"

namespace hotbed {
namespace {

thread_local Deduper part_deduper;

}  // namespace

ComposedRows::ComposedRows(const ComposedHandle* table)
    : table_(*table), dim_(table->options().dim) {
  const absl::Span<const Table* const> parts = table_.parts();
  if (quotient_remainder()) {
    streams_.resize(2);
    for (uint32_t s = 0; s < 2; ++s) streams_[s].rows.table = parts[s];
  } else {
    size_t part = composition().form == ComposeForm::kFrequency ? 1 : 0;
    for (uint32_t b = 0; b < composition().block_dims.size(); ++b) {
      Stream& stream = streams_.emplace_back();
      stream.rows.table = parts[part++];
      if (!HasMap(table_.options(), b)) continue;
      stream.map.table = parts[part++];
      stream.map.dim = stream.map.table->dim();
    }
  }
  for (Stream& stream : streams_) stream.rows.dim = stream.rows.table->dim();
}

// --- which rows

absl::Status ComposedRows::Bind(size_t feature, absl::Span<const uint64_t> ids) {
  const TableOptions& options = table_.options();
  const size_t bad = ResolveIds(options, ids, &resolved_);
  if (bad != ids.size()) {
    return absl::OutOfRangeError(
        absl::StrCat("feature ", feature, " of table ", options.name, ": id ", ids[bad],
                     " at position ", bad, " is outside the table's 0..", options.rows - 1,
                     "; bring ids into range, or use a table of bounds_mode zero or modulo"));
  }
  if (quotient_remainder()) {
    BindQuotientRemainder(resolved_.ids);
  } else {
    BindBlocks(resolved_.ids);
  }
  return absl::OkStatus();
}

void ComposedRows::BindQuotientRemainder(absl::Span<const uint64_t> ids) {
  const uint64_t buckets = composition().buckets;
  thread_local std::vector<uint64_t> of_part[2];
  of_part[0].resize(ids.size());
  of_part[1].resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    of_part[0][i] = ids[i] / buckets;
    of_part[1][i] = ids[i] % buckets;
  }
  for (uint32_t s = 0; s < 2; ++s) {
    index_[s].resize(ids.size());
    part_deduper.RunIndexed({{of_part[s], resolved_.skip}}, &streams_[s].rows.ids,
                            index_[s].data());
  }
}

void ComposedRows::BindBlocks(absl::Span<const uint64_t> ids) {
  const uint32_t blocks = streams();
  const uint64_t each = table_.options().rows / blocks;
  std::vector<std::vector<uint64_t>> positions(blocks);
  std::vector<std::vector<uint32_t>> inputs(blocks);
  block_.assign(ids.size(), 0xff);
  index_[0].assign(ids.size(), kNoIndex);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (skips(i)) continue;
    const uint64_t rank = table_.RankOf(ids[i]);
    const uint64_t block = std::min<uint64_t>(rank / each, blocks - 1);
    block_[i] = static_cast<uint8_t>(block);
    positions[block].push_back(rank - block * each);
    inputs[block].push_back(static_cast<uint32_t>(i));
  }
  std::vector<uint32_t> index;
  for (uint32_t b = 0; b < blocks; ++b) {
    index.resize(positions[b].size());
    part_deduper.RunIndexed({{positions[b], nullptr}}, &streams_[b].rows.ids, index.data());
    for (size_t k = 0; k < index.size(); ++k) index_[0][inputs[b][k]] = index[k];
    PartRows& map = streams_[b].map;
    if (map.table == nullptr || positions[b].empty()) continue;
    map.ids.resize(dim_);
    std::iota(map.ids.begin(), map.ids.end(), uint64_t{0});
  }
}

void ComposedRows::AddPull(bool exists, PartRows* part, std::vector<PullFeature>* pulls) {
  if (part->ids.empty()) return;
  part->memory = BufferRef::Allocate(4 * part->ids.size() * part->dim);
  part->rows = reinterpret_cast<float*>(part->memory.data());
  PullFeature& pull = pulls->emplace_back();
  pull.table = part->table;
  pull.ids = part->ids;
  pull.rows = part->rows;
  pull.distinct = true;
  if (!exists) return;
  part->exists.resize(part->ids.size());
  pull.exists = part->exists.data();
}

void ComposedRows::AddPulls(bool exists, std::vector<PullFeature>* pulls) {
  for (Stream& stream : streams_) {
    AddPull(exists, &stream.rows, pulls);
    if (stream.map.table != nullptr) AddPull(exists, &stream.map, pulls);
  }
}

void ComposedRows::TakeRows() {
  for (Stream& stream : streams_) {
    if (stream.map.rows == nullptr) continue;
    stream.transposed = BufferRef::Allocate(4ull * dim_ * stream.map.dim);
    auto* const transposed = reinterpret_cast<float*>(stream.transposed.data());
    Transpose(stream.map.rows, dim_, stream.map.dim, transposed);
    for (uint32_t j = 0; j < stream.map.dim; ++j) {
      stream.transposed_rows.push_back(transposed + uint64_t{j} * dim_);
    }
    for (uint32_t d = 0; d < dim_; ++d) {
      stream.map_rows.push_back(stream.map.rows + uint64_t{d} * stream.map.dim);
    }
  }
}

// --- rows of the composed table

void ComposedRows::Join(const float* quotient, const float* remainder, float* out) const {
  switch (composition().combine) {
    case Combine::kMultiply:
      return MultiplyInto(quotient, remainder, dim_, out);
    case Combine::kAdd:
      return AddInto(quotient, remainder, dim_, out);
    case Combine::kConcatenate:
      std::copy_n(quotient, dim_ / 2, out);
      std::copy_n(remainder, dim_ / 2, out + dim_ / 2);
  }
}

void ComposedRows::Mapped(uint32_t stream, const float* row, float* out) const {
  const Stream& from = streams_[stream];
  if (from.map.rows == nullptr) {
    std::copy_n(row, dim_, out);
  } else {
    BestRowSums().sum(from.transposed_rows.data(), row, stream_dim(stream), dim_, out);
  }
}

void ComposedRows::WriteRows(float* out) const {
  // A row of a block is mapped where it first occurs, and copied from there.
  std::vector<std::vector<const float*>> mapped(quotient_remainder() ? 0 : streams());
  for (uint32_t s = 0; s < mapped.size(); ++s) mapped[s].resize(streams_[s].rows.ids.size());
  for (size_t i = 0; i < resolved_.ids.size(); ++i, out += dim_) {
    if (skips(i)) {
      std::fill_n(out, dim_, 0.0f);
    } else if (quotient_remainder()) {
      Join(Row(0, index_[0][i]), Row(1, index_[1][i]), out);
    } else if (const float*& first = mapped[block_[i]][index_[0][i]]; first != nullptr) {
      std::copy_n(first, dim_, out);
    } else {
      Mapped(block_[i], Row(block_[i], index_[0][i]), out);
      first = out;
    }
  }
}

void ComposedRows::WriteExists(uint8_t* exists) const {
  for (size_t i = 0; i < resolved_.ids.size(); ++i) {
    exists[i] = skips(i) ? 0 : 1;
    for (uint32_t s = 0; s < streams() && exists[i] != 0; ++s) {
      const uint32_t index = IndexOf(s, i);
      if (index != kNoIndex) exists[i] &= streams_[s].rows.exists[index];
    }
  }
}

float ComposedRows::Divisor(const PullFeature& feature, uint64_t begin, uint64_t end) const {
  double divisor = 0;
  for (uint64_t i = begin; i < end; ++i) {
    if (!is_padding(i)) divisor += feature.id_weights != nullptr ? feature.id_weights[i] : 1.0;
  }
  return static_cast<float>(divisor);
}

// Joins the rows of each id, then pools them.
void ComposedRows::WriteJoinedBag(const PullFeature& feature, uint64_t begin, uint64_t end,
                                  float* out, uint32_t* arg_max) const {
  thread_local std::vector<float> joined;
  thread_local std::vector<const float*> rows;
  thread_local std::vector<float> weights;
  thread_local std::vector<uint32_t> positions;
  joined.resize((end - begin) * dim_);
  rows.clear();
  weights.clear();
  positions.clear();
  for (uint64_t i = begin; i < end; ++i) {
    if (skips(i)) continue;
    float* const row = joined.data() + rows.size() * dim_;
    Join(Row(0, index_[0][i]), Row(1, index_[1][i]), row);
    rows.push_back(row);
    weights.push_back(feature.id_weights != nullptr ? feature.id_weights[i] : 1.0f);
    positions.push_back(static_cast<uint32_t>(i - begin));
  }
  const RowSums& sums = BestRowSums();
  const uint32_t n = static_cast<uint32_t>(rows.size());
  if (feature.pooling == BagPooling::kMax && n > 0) {
    thread_local std::vector<uint32_t> unasked;
    unasked.resize(dim_);
    uint32_t* const arg = arg_max != nullptr ? arg_max : unasked.data();
    sums.max(rows.data(), n, dim_, out, arg);
    for (uint32_t d = 0; d < dim_; ++d) arg[d] = positions[arg[d]];
    return;
  }
  if (arg_max != nullptr) std::fill_n(arg_max, dim_, kArgMaxOfNothing);
  sums.sum(rows.data(), feature.id_weights != nullptr ? weights.data() : nullptr, n, dim_, out);
}

// Pools the rows of a bag in one stream. False: it has none there.
bool ComposedRows::PoolStream(const PullFeature& feature, uint32_t stream, uint64_t begin,
                              uint64_t end, float* out) const {
  thread_local std::vector<const float*> rows;
  thread_local std::vector<float> weights;
  rows.clear();
  weights.clear();
  for (uint64_t i = begin; i < end; ++i) {
    const uint32_t index = skips(i) ? kNoIndex : IndexOf(stream, i);
    if (index == kNoIndex) continue;
    rows.push_back(Row(stream, index));
    weights.push_back(feature.id_weights != nullptr ? feature.id_weights[i] : 1.0f);
  }
  const uint32_t n = static_cast<uint32_t>(rows.size());
  const uint32_t dim = stream_dim(stream);
  if (feature.pooling == BagPooling::kMax && n > 0) {
    thread_local std::vector<uint32_t> unasked;
    unasked.resize(dim);
    BestRowSums().max(rows.data(), n, dim, out, unasked.data());
  } else {
    BestRowSums().sum(rows.data(), feature.id_weights != nullptr ? weights.data() : nullptr, n, dim,
                      out);
  }
  return n > 0;
}

void ComposedRows::WritePooledBag(const PullFeature& feature, uint64_t begin, uint64_t end,
                                  float* out) const {
  const bool mean = feature.pooling == BagPooling::kMean;
  const float divisor = mean ? Divisor(feature, begin, end) : 1.0f;
  std::fill_n(out, dim_, 0.0f);
  if (divisor == 0) return;
  const RowSums& sums = BestRowSums();
  thread_local std::vector<float> pooled;
  pooled.resize(2ull * dim_);
  if (quotient_remainder()) {
    for (uint32_t s = 0; s < 2; ++s) {
      if (!PoolStream(feature, s, begin, end, pooled.data() + s * uint64_t{dim_})) return;
      if (divisor != 1.0f) sums.divide(divisor, stream_dim(s), pooled.data() + s * uint64_t{dim_});
    }
    return Join(pooled.data(), pooled.data() + dim_, out);
  }
  bool first = true;
  for (uint32_t s = 0; s < streams(); ++s) {
    if (!PoolStream(feature, s, begin, end, pooled.data())) continue;
    if (divisor != 1.0f) sums.divide(divisor, stream_dim(s), pooled.data());
    float* const mapped = first ? out : pooled.data() + dim_;
    Mapped(s, pooled.data(), mapped);
    if (!first && feature.pooling != BagPooling::kMax) AddInto(out, mapped, dim_, out);
    if (!first && feature.pooling == BagPooling::kMax) {
      for (uint32_t d = 0; d < dim_; ++d) out[d] = mapped[d] > out[d] ? mapped[d] : out[d];
    }
    first = false;
  }
}

void ComposedRows::WriteBags(const PullFeature& feature) const {
  float* out = static_cast<float*>(feature.rows);
  const uint64_t stride = feature.row_stride != 0 ? feature.row_stride : dim_;
  uint32_t* arg_max = feature.arg_max;
  uint64_t begin = 0;
  for (const uint32_t length : feature.bag_lengths) {
    const uint64_t end = begin + length;
    if (pools_first()) {
      WritePooledBag(feature, begin, end, out);
      if (arg_max != nullptr) std::fill_n(arg_max, dim_, kArgMaxOfNothing);
    } else {
      WriteJoinedBag(feature, begin, end, out, arg_max);
      const bool mean = feature.pooling == BagPooling::kMean;
      const float divisor = mean ? Divisor(feature, begin, end) : 1.0f;
      if (divisor == 0) std::fill_n(out, dim_, 0.0f);
      if (divisor != 0 && divisor != 1.0f) BestRowSums().divide(divisor, dim_, out);
    }
    if (arg_max != nullptr) arg_max += dim_;
    out += stride;
    begin = end;
  }
}

// --- pushes

void ComposedRows::ClearGradients() {
  for (Stream& stream : streams_) {
    stream.rows.gradients.assign(stream.rows.ids.size() * uint64_t{stream.rows.dim}, 0.0f);
    stream.map.gradients.assign(stream.map.ids.size() * uint64_t{stream.map.dim}, 0.0f);
  }
}

void ComposedRows::Unmapped(uint32_t stream, const float* gradient, const float* row,
                            float* narrow) {
  Stream& from = streams_[stream];
  if (from.map.table == nullptr) {
    std::copy_n(gradient, dim_, narrow);
    return;
  }
  BestRowSums().sum(from.map_rows.data(), gradient, dim_, from.map.dim, narrow);
  AddOuter(gradient, dim_, row, from.map.dim, from.map.gradients.data());
}

void ComposedRows::AddPushes(std::vector<PushFeature>* pushes) const {
  for (const Stream& stream : streams_) {
    for (const PartRows* const part : {&stream.rows, &stream.map}) {
      if (part->table == nullptr) continue;
      PushFeature& push = pushes->emplace_back();
      push.table = part->table;
      push.ids = part->ids;
      push.gradients = part->gradients.data();
    }
  }
}

}  // namespace hotbed
