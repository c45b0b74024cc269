// The row of one bag as its rows come (row_math/pooling.h; docs/tables.md, "Pooling"), in fp32 and
// in their order: the bits of the same rows looked up and pooled elsewhere. Confined to a thread.
#ifndef HOTBED_SERVING_ROWS_BAG_ROW_H_
#define HOTBED_SERVING_ROWS_BAG_ROW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "serving/rows/row_coder.h"

namespace hotbed {

class BagRow {
 public:
  // `pooling`: kSum or kMax. `coder` outlives it.
  BagRow(const RowCoder& coder, RowPooling pooling)
      : coder_(coder), pooling_(pooling), row_(coder.dim()), bag_(coder.dim()) {}

  void Begin() {
    std::fill(bag_.begin(), bag_.end(), 0.0f);
    empty_ = true;
  }
  // `stored`: as RowCoder::Encode wrote it; null: a row of zeros. Sums take it `weight` times.
  void Take(const uint8_t* stored, float weight) {
    const bool first = empty_;
    empty_ = false;
    if (stored == nullptr && (first || pooling_ == RowPooling::kSum)) return;
    if (stored == nullptr) {
      std::fill(row_.begin(), row_.end(), 0.0f);
    } else {
      coder_.Decode(stored, row_.data());
    }
    if (pooling_ == RowPooling::kSum) {
      coder_.loops().add(row_.data(), weight, coder_.dim(), bag_.data());
    } else if (first) {
      bag_.swap(row_);
    } else {
      coder_.loops().larger(row_.data(), coder_.dim(), bag_.data());
    }
  }
  // By 0: the row is zeros.
  void Divide(float divisor) {
    if (divisor == 0) return Begin();
    for (float& value : bag_) value /= divisor;
  }
  // RowWireBytes(type, dim) bytes.
  void Answer(RowType type, uint8_t* out) const {
    coder_.loops().answer(type, bag_.data(), coder_.dim(), out);
  }

 private:
  const RowCoder& coder_;
  const RowPooling pooling_;
  std::vector<float> row_, bag_;
  bool empty_ = true;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_BAG_ROW_H_
