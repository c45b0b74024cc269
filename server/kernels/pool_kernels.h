// GatherPooled and PoolRows (see kernel_body.h for how these files are compiled).
#ifndef HOTBED_SERVER_KERNELS_POOL_KERNELS_H_
#define HOTBED_SERVER_KERNELS_POOL_KERNELS_H_

#include <cstdint>

#include "server/kernels/pool_piece.h"

namespace hotbed {
inline namespace HOTBED_ISA {

constexpr uint32_t kPoolBlock = 512;  // ids whose rows are found before they are read
constexpr uint32_t kFirstLines = 8;   // of each row at the start of a block

inline void EncodePooled(const float* sum, uint32_t dim, RowType type, uint8_t* out) {
  const uint8_t* const from = reinterpret_cast<const uint8_t*>(sum);
  if (type == RowType::kFp16) return ConvertRow<Fp32Codec, Fp16Codec>(from, dim, out);
  if (type == RowType::kBf16) return ConvertRow<Fp32Codec, Bf16Codec>(from, dim, out);
  __builtin_memcpy(out, sum, 4ull * dim);
}

// Walks the bags of a batch as their rows are found, piece by piece.
template <typename Weight>
class BagWalk {
 public:
  explicit BagWalk(GatherBatch* batch) : batch_(batch), dim_(batch->table->dim) { BeginBag(); }

  // The next rows of `source`, all there, from its row `k` on, which is id `k` + base of the batch.
  template <typename Rows>
  void Take(const Rows& source, uint64_t k, uint64_t limit, uint64_t base) {
    const float* const weights = batch_->weights == nullptr ? nullptr : batch_->weights + base;
    while (k < limit) {
      uint64_t end = k;
      const uint32_t whole = WholeBags(limit, &end);
      const uint64_t left = batch_->bag_lengths[bag_] - place_;
      const uint32_t part = static_cast<uint32_t>(left < limit - k ? left : limit - k);
      const uint32_t* const lengths = whole > 0 ? batch_->bag_lengths + bag_ : &part;
      const PoolRunOf run{k, place_, lengths, whole > 0 ? whole : 1, weights, sum_, arg_};
      PoolRun<Weight>(batch_->pooling, source, run, dim_);
      if (whole > 0) {
        bag_ += whole;
        BeginBag();
      } else {
        Advance(part);
        end = k + part;
      }
      k = end;
    }
  }
  // One row that has to be fetched: its bag gets no result.
  void Miss() {
    incomplete_ = true;
    Advance(1);
  }
  void End() { batch_->missing_count = missing_; }

 private:
  // How many of the next bags are one run, because all their rows are before `limit` and their sums
  // go to the answer as they are. `end`: the first row, then that after the last one.
  uint32_t WholeBags(uint64_t limit, uint64_t* end) const {
    if (place_ > 0 || batch_->type != RowType::kFp32) return 0;
    uint32_t bags = 0;
    for (uint32_t b = bag_; b < batch_->bags; ++b, ++bags) {
      const uint32_t length = batch_->bag_lengths[b];
      if (length == 0 || length > limit - *end) break;
      *end += length;
    }
    return bags;
  }
  void Advance(uint32_t rows) {
    place_ += rows;
    if (place_ < batch_->bag_lengths[bag_]) return;
    if (incomplete_) {
      batch_->missing[missing_++] = bag_;
    } else if (batch_->type != RowType::kFp32) {
      EncodePooled(wide_, dim_, batch_->type, Out());
    }
    ++bag_;
    BeginBag();
  }
  void BeginBag() {
    place_ = 0;
    incomplete_ = false;
    for (; bag_ < batch_->bags && batch_->bag_lengths[bag_] == 0; ++bag_) {
      __builtin_memset(Out(), 0, RowWireBytes(batch_->type, dim_));
      if (batch_->arg_max != nullptr) __builtin_memset(Arg(), 0xff, 4ull * dim_);
    }
    sum_ = batch_->type == RowType::kFp32 ? Out() : reinterpret_cast<uint8_t*>(wide_);
    arg_ = batch_->arg_max == nullptr ? nullptr : Arg();
  }
  uint8_t* Out() { return batch_->rows + uint64_t{RowWireBytes(batch_->type, dim_)} * bag_; }
  uint8_t* Arg() { return batch_->arg_max + 4ull * dim_ * bag_; }

  GatherBatch* const batch_;
  const uint32_t dim_;
  uint32_t bag_ = 0;
  uint32_t place_ = 0;  // in the bag
  bool incomplete_ = false;
  uint32_t missing_ = 0;
  uint8_t* sum_ = nullptr;
  uint8_t* arg_ = nullptr;
  float wide_[kDimLimit];  // the current bag, if the wire type is narrower
};

// A row of `found` that is not resident: null if it exists nowhere, else to be fetched.
inline const uint8_t kFetchedLater = 0;

// Looks up `count` ids from number `base` on. False: some are not resident.
inline bool FindRows(const GatherBatch& batch, const RowTable& table, uint64_t base, uint32_t count,
                     const uint8_t** found) {
  const uint64_t* const ids = batch.ids + base;
  uint8_t* const flags = batch.flags == nullptr ? nullptr : batch.flags + base;
  bool complete = true;
  ForEachRow(
      table, count, [ids](uint32_t i) { return ids[i]; },
      [&](uint32_t i, uint32_t slot) {
        found[i] = WeightsOf(table, slot);
        if (flags != nullptr) flags[i] = IsCandidate(table, slot) ? 0 : 1;
      },
      [&](uint32_t i) {
        complete = false;
        const bool nowhere = batch.absent_is_initial || KnownAbsent(table, ids[i]);
        found[i] = nowhere ? nullptr : &kFetchedLater;
        if (flags != nullptr) flags[i] = 0;
      },
      /*prefetch_bytes=*/0);
  return complete;
}

template <typename Weight>
void TakeWithGaps(const RowTable& table, const uint64_t* ids, const FoundRows& source,
                  uint64_t base, BagWalk<Weight>* walk) {
  uint8_t first_value[4 * kDimLimit];
  uint64_t done = 0;
  for (uint64_t i = 0; i < source.limit; ++i) {
    const uint8_t* const row = source.rows[i];
    if (row != nullptr && row != &kFetchedLater) continue;
    walk->Take(FoundRows{source.rows, i}, done, i, base);
    if (row == nullptr) {
      FirstValue(table, PositionOf(table, ids[i]), first_value, nullptr);
      walk->Take(StagedRows{first_value, 0, 0}, 0, 1, base + i);
    } else {
      walk->Miss();
    }
    done = i + 1;
  }
  walk->Take(source, done, source.limit, base);
}

template <typename Weight>
void GatherPooledAs(GatherBatch* batch) {
  const RowTable table = *batch->table;
  uint64_t count = 0;
  for (uint32_t b = 0; b < batch->bags; ++b) count += batch->bag_lengths[b];
  BagWalk<Weight> walk(batch);
  const uint32_t ahead = RowsAheadOfReads(table.weight_bytes);
  if (table.direct && table.rows == table.slots) {
    const uint64_t stride = table.weight_stride;
    const DirectRows rows{
        batch->ids, reinterpret_cast<uintptr_t>(table.weights) - stride * table.first_position,
        stride, count};
    for (uint64_t k = 0; k < ahead && k < count; ++k) {
      PrefetchBytes(rows.At(k), 64 * kFirstLines);
    }
    walk.Take(rows, 0, count, 0);
    if (batch->flags != nullptr) __builtin_memset(batch->flags, 1, count);
    return walk.End();
  }
  const uint8_t* found[kPoolBlock];
  for (uint64_t base = 0; base < count; base += kPoolBlock) {
    const uint32_t rows =
        static_cast<uint32_t>(count - base < kPoolBlock ? count - base : kPoolBlock);
    const bool complete = FindRows(*batch, table, base, rows, found);
    const FoundRows source{found, rows};
    for (uint32_t k = 0; complete && k < ahead && k < rows; ++k) {
      PrefetchBytes(found[k], table.weight_bytes);
    }
    if (complete) {
      walk.Take(source, 0, rows, base);
    } else {
      TakeWithGaps(table, batch->ids + base, source, base, &walk);
    }
  }
  walk.End();
}

inline void RunGatherPooled(GatherBatch* batch) {
  switch (batch->table->weight_type) {
    case WeightType::kFp32:
      return GatherPooledAs<Fp32Codec>(batch);
    case WeightType::kFp16:
      return GatherPooledAs<Fp16Codec>(batch);
    case WeightType::kBf16:
      return GatherPooledAs<Bf16Codec>(batch);
  }
}

template <typename Weight>
void PoolRowsAs(PoolRowsBatch* batch) {
  const StagedRows rows{batch->rows, batch->table->weight_bytes, batch->count};
  const PoolRunOf run{0,
                      batch->place,
                      &batch->count,
                      1,
                      batch->weights,
                      reinterpret_cast<uint8_t*>(batch->sum),
                      batch->arg_max};
  PoolRun<Weight>(batch->pooling, rows, run, batch->table->dim);
}

inline void RunPoolRows(PoolRowsBatch* batch) {
  switch (batch->table->weight_type) {
    case WeightType::kFp32:
      return PoolRowsAs<Fp32Codec>(batch);
    case WeightType::kFp16:
      return PoolRowsAs<Fp16Codec>(batch);
    case WeightType::kBf16:
      return PoolRowsAs<Bf16Codec>(batch);
  }
}

}  // namespace HOTBED_ISA
}  // namespace hotbed

#endif  // HOTBED_SERVER_KERNELS_POOL_KERNELS_H_
