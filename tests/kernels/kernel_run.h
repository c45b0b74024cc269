// One table's life under one set of kernels, checked at each step against the scalar formulas: row
// values, wire rows, index, CLOCK and dirty bits.
#ifndef HOTBED_TESTS_KERNELS_KERNEL_RUN_H_
#define HOTBED_TESTS_KERNELS_KERNEL_RUN_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/random.h"
#include "row_math/optimizer.h"
#include "row_math/position.h"
#include "server/kernels/cpu_kernels.h"
#include "tests/kernels/kernel_rows.h"

namespace hotbed {

inline constexpr uint32_t kColumnFirst = 3;  // of a slice that begins within a draw of four
inline constexpr uint32_t kResident = 40;

enum class Way { kDirect, kIndexed, kHashed };

// One table, worked on by one kernel set; the twin follows.
class KernelRun {
 public:
  KernelRun(const CpuKernelSet& set, const TableSpec& spec, Way way, uint64_t seed,
            float gradient_scale = 1.0f)
      : set_(set),
        spec_(spec),
        way_(way),
        rows_(spec, kColumnFirst, way == Way::kDirect),
        twin_(spec, {0, 0, kColumnFirst, kColumnFirst + spec.dim}),
        random_(seed),
        gradient_scale_(gradient_scale) {}

  // All that the run saw and left: equal for all sets.
  Bytes Trace() {
    Insert();
    for (RowType type : {RowType::kFp32, RowType::kFp16, RowType::kBf16}) Apply(type);
    CheckRows();
    Apply(RowType::kFp32, /*assign=*/true);
    Apply(RowType::kFp16);
    CheckRows();
    Probe();
    for (RowType type : {RowType::kFp32, RowType::kFp16, RowType::kBf16, RowType::kInt8}) {
      Gather(type, /*absent_is_initial=*/true);
      Gather(type, /*absent_is_initial=*/false);
    }
    for (bool weighted : {false, true}) Pool(weighted);
    Collect();
    Apply(RowType::kFp32);
    if (way_ != Way::kDirect) Reindex();
    Age();
    if (way_ != Way::kDirect) Move();
    Evict();
    Append(&trace_, rows_.Memory().data(), rows_.Memory().size());
    return std::move(trace_);
  }

 private:
  uint64_t IdAt(uint32_t slot) const {
    const uint64_t i = slot;
    return way_ == Way::kHashed ? Unmix64(KernelRows::kFirst + i * 0x123456789abcdull)
                                : KernelRows::kFirst + (way_ == Way::kDirect ? i : 7 * i);
  }
  uint64_t PositionOf(uint64_t id) const { return spec_.hashed ? Mix64(id) : id; }
  float Draw(float low, float high) {
    return low + (high - low) * static_cast<float>(random_.Double());
  }

  // Rows with a value of their own and rows with their first value.
  void Insert() {
    std::vector<uint64_t> positions;
    std::vector<uint32_t> slots;
    std::vector<Bytes> values;
    std::vector<const uint8_t*> sources;
    for (uint32_t slot = 0; slot < kResident; ++slot) {
      RowTwin::Row row = twin_.Read(IdAt(slot));
      if (slot % 3 != 0) {
        for (float& w : row.weights) w = twin_.Stored(Draw(-2, 2));
        for (auto& vector : row.vectors) {
          for (float& s : vector) s = twin_.StoredState(Draw(0, 1));
        }
        if (LayoutOfState(spec_.optimizer).has_statistic) row.statistic = Draw(0, 1);
        if (LayoutOfState(spec_.optimizer).has_count) row.count = Draw(0, 4);
      }
      values.push_back(StoredRow(row, spec_));
      slots.push_back(slot);
      positions.push_back(PositionOf(IdAt(slot)));
      slot_of_[IdAt(slot)] = slot;
      twin_.Set(IdAt(slot), std::move(row));
    }
    for (uint32_t slot = 0; slot < kResident; ++slot) {
      sources.push_back(slot % 3 != 0 ? values[slot].data() : nullptr);
    }
    InsertBatch batch;
    batch.table = &rows_.table;
    batch.positions = positions.data();
    batch.slots = slots.data();
    batch.sources = sources.data();
    batch.count = kResident;
    set_.insert(&batch);
    CheckRows();
  }

  void Apply(RowType type, bool assign = false) {
    std::vector<uint32_t> slots;
    std::vector<uint32_t> picks;
    std::vector<Bytes> gradients(kResident);
    std::vector<const uint8_t*> pointers;
    step_ += 1 + random_.Uniform(3);
    UpdateScalars scalars = ResolveScalars(spec_.optimizer, 0.05f, step_);
    scalars.gradient_scale = gradient_scale_;
    uint32_t dirtied = 0;
    for (uint32_t k = 0; k < kResident; ++k) {
      const uint32_t slot = (k * 7 + 3) % kResident;
      picks.push_back(kResident - 1 - k);
      slots.push_back(k % 5 == 4 ? kNoSlot : slot);
      std::vector<float> gradient(spec_.dim);
      for (float& g : gradient) {
        g = Draw(-1, 1);
        if (type == RowType::kFp16) g = Fp16ToFloat(FloatToFp16(g));
        if (type == RowType::kBf16) g = Bf16ToFloat(FloatToBf16(g));
      }
      gradients[picks[k]] = PlainRow(gradient, type);
      if (slots[k] == kNoSlot) continue;
      dirtied += (rows_.bits[slot] & kRowDirty) == 0;
      if (assign) {
        twin_.Assign(IdAt(slot), gradient);
      } else {
        twin_.Update(IdAt(slot), gradient, scalars);
      }
    }
    for (const Bytes& gradient : gradients) pointers.push_back(gradient.data());
    ApplyBatch batch;
    batch.table = &rows_.table;
    batch.slots = slots.data();
    batch.picks = picks.data();
    batch.count = kResident;
    batch.gradient_type = type;
    batch.gradients = pointers.data();
    batch.scalars = scalars;
    batch.assign = assign;
    set_.apply(&batch);
    EXPECT_EQ(batch.dirtied, dirtied);
    for (uint32_t slot : slots) {
      EXPECT_TRUE(slot == kNoSlot || (rows_.bits[slot] & kRowDirty));
    }
  }

  void CheckRows() {
    for (const auto& [id, slot] : slot_of_) {
      ASSERT_EQ(rows_.RowAt(slot), StoredRow(twin_.Read(id), spec_)) << "slot " << slot;
    }
  }

  // Resident and other rows, some of them twice.
  std::vector<uint64_t> SomeIds(size_t count) {
    std::vector<uint64_t> ids;
    while (ids.size() < count) {
      ids.push_back(IdAt(static_cast<uint32_t>(random_.Uniform(KernelRows::kSlots))));
    }
    return ids;
  }

  void Probe() {
    const std::vector<uint64_t> ids = SomeIds(77);
    std::vector<uint32_t> slots(ids.size()), missing(ids.size()), want, want_missing;
    for (uint32_t i = 0; i < ids.size(); ++i) {
      const auto it = slot_of_.find(ids[i]);
      want.push_back(it != slot_of_.end() ? it->second : kNoSlot);
      if (it == slot_of_.end()) want_missing.push_back(i);
    }
    ProbeBatch batch;
    batch.table = &rows_.table;
    batch.ids = ids.data();
    batch.count = static_cast<uint32_t>(ids.size());
    batch.slots = slots.data();
    batch.missing = missing.data();
    set_.probe(&batch);
    missing.resize(batch.missing_count);
    EXPECT_EQ(slots, want);
    EXPECT_EQ(missing, want_missing);
  }

  void Gather(RowType type, bool absent_is_initial) {
    const std::vector<uint64_t> ids = SomeIds(50);
    const uint32_t bytes = RowWireBytes(type, spec_.dim);
    Bytes out(ids.size() * bytes + 1, 0xee), flags(ids.size(), 0xee);
    std::vector<uint32_t> missing(ids.size()), want_missing;
    GatherBatch batch;
    batch.table = &rows_.table;
    batch.ids = ids.data();
    batch.count = static_cast<uint32_t>(ids.size());
    batch.type = type;
    batch.absent_is_initial = absent_is_initial;
    batch.rows = out.data() + 1;  // unaligned
    batch.flags = flags.data();
    batch.missing = missing.data();
    set_.gather(&batch);
    missing.resize(batch.missing_count);
    for (uint32_t i = 0; i < ids.size(); ++i) {
      const bool resident = slot_of_.count(ids[i]) > 0;
      Bytes want(bytes, 0xee);
      if (resident || absent_is_initial) want = WireRow(twin_.Read(ids[i]).weights, type);
      if (!resident && !absent_is_initial) want_missing.push_back(i);
      const auto* row = batch.rows + size_t{bytes} * i;
      ASSERT_EQ(Bytes(row, row + bytes), want) << "row " << i << " as type " << int(type);
      ASSERT_EQ(flags[i], resident ? 1 : absent_is_initial ? 0 : 0xee);
    }
    EXPECT_EQ(missing, want_missing);
  }

  // More of it in pooled_kernel_test.cc.
  void Pool(bool weighted) {
    const std::vector<uint32_t> lengths = {3, 0, 1, 17, 9};
    const std::vector<uint64_t> ids = SomeIds(30);
    std::vector<float> scales;
    for (size_t i = 0; i < ids.size(); ++i) scales.push_back(weighted ? Draw(-1, 1) : 1.0f);
    std::vector<float> out(lengths.size() * spec_.dim, -1.0f), want(out.size(), 0.0f);
    std::vector<uint32_t> missing(lengths.size());
    GatherBatch batch;
    batch.table = &rows_.table;
    batch.ids = ids.data();
    batch.bag_lengths = lengths.data();
    batch.pooling = RowPooling::kSum;
    batch.weights = weighted ? scales.data() : nullptr;
    batch.bags = static_cast<uint32_t>(lengths.size());
    batch.absent_is_initial = true;
    batch.rows = reinterpret_cast<uint8_t*>(out.data());
    batch.missing = missing.data();
    set_.gather_pooled(&batch);
    size_t next = 0;
    for (size_t b = 0; b < lengths.size(); ++b) {
      float* sum = want.data() + b * spec_.dim;
      for (uint32_t k = 0; k < lengths[b]; ++k, ++next) {
        const RowTwin::Row row = twin_.Read(ids[next]);
        for (uint32_t i = 0; i < spec_.dim; ++i) sum[i] += scales[next] * row.weights[i];
      }
    }
    EXPECT_EQ(batch.missing_count, 0u);
    EXPECT_EQ(BytesOf(out), BytesOf(want));
  }

  void Collect() {
    const uint32_t stride = rows_.table.weight_bytes + rows_.table.state_bytes + 13;
    std::vector<uint64_t> positions(kResident), want;
    Bytes out(size_t{stride} * kResident);
    std::vector<uint32_t> dirty;
    for (uint32_t slot = 0; slot < kResident; ++slot) {
      if (rows_.bits[slot] & kRowDirty) dirty.push_back(slot);
    }
    CollectBatch batch;
    batch.table = &rows_.table;
    batch.positions = positions.data();
    batch.out = out.data();
    batch.out_stride = stride;
    size_t seen = 0;
    for (batch.wanted = 11; batch.slot_first < rows_.table.slots;) {
      set_.collect(&batch);
      for (uint32_t k = 0; k < batch.count; ++k, ++seen) {
        ASSERT_LT(seen, dirty.size());
        EXPECT_EQ(positions[k], PositionOf(IdAt(dirty[seen])));
        const uint8_t* row = out.data() + size_t{stride} * k;
        EXPECT_EQ(Bytes(row, row + stride - 13), rows_.RowAt(dirty[seen]));
        EXPECT_FALSE(rows_.bits[dirty[seen]] & kRowDirty);
      }
    }
    EXPECT_EQ(seen, dirty.size());
  }

  void Reindex() {
    std::fill(rows_.buckets.begin(), rows_.buckets.end(), IndexBucket{});
    ReindexBatch batch;
    batch.table = &rows_.table;
    set_.reindex(&batch);
    Probe();
  }

  // One visit less for each row; slots without a row are not written.
  void Age() {
    Bytes want = rows_.bits;
    for (const uint32_t first : {0u, 7u}) {
      uint32_t unvisited = 0;
      for (uint32_t slot = first; slot < rows_.table.slots; ++slot) {
        if ((want[slot] & kRowExists) == 0) continue;
        if (want[slot] & kRowVisits) {
          --want[slot];
        } else {
          ++unvisited;
        }
      }
      AgeBatch batch;
      batch.table = &rows_.table;
      batch.slot_first = first;
      batch.slot_limit = rows_.table.slots;
      set_.age(&batch);
      EXPECT_EQ(batch.unvisited, unvisited);
      EXPECT_EQ(rows_.bits, want);
    }
  }

  // Rows move to the free slots at the end, and back.
  void Move() {
    constexpr uint32_t kMoved = KernelRows::kSlots - kResident;
    const Bytes bits = rows_.bits;
    std::vector<uint32_t> low(kMoved), high(kMoved);
    for (uint32_t k = 0; k < kMoved; ++k) {
      low[k] = 5 + k;
      high[k] = kResident + k;
    }
    for (const bool back : {false, true}) {
      MoveBatch batch;
      batch.table = &rows_.table;
      batch.count = kMoved;
      batch.from = back ? high.data() : low.data();
      batch.to = back ? low.data() : high.data();
      set_.move(&batch);
      for (uint32_t k = 0; k < kMoved; ++k) {
        const uint64_t id = IdAt(low[k]);
        EXPECT_EQ(rows_.bits[batch.from[k]], 0);
        EXPECT_EQ(rows_.RowAt(batch.to[k]), StoredRow(twin_.Read(id), spec_));
        slot_of_[id] = batch.to[k];
      }
      const Bytes moved = rows_.bits;
      Probe();
      rows_.bits = moved;  // without the visits
    }
    EXPECT_EQ(rows_.bits, bits);
  }

  // CLOCK with a saturating count, then all that is left.
  void Evict() {
    uint32_t hand = 29;
    std::vector<uint32_t> want;
    Bytes bits = rows_.bits;
    while (want.size() < 15) {
      if ((bits[hand] & kRowExists) && (bits[hand] & kRowVisits) == 0) {
        want.push_back(hand);
        bits[hand] = 0;
      } else if (bits[hand] & kRowExists) {
        --bits[hand];
      }
      hand = (hand + 1) % rows_.table.slots;
    }
    EvictBatch batch;
    batch.hand = 29;
    batch.wanted = 15;
    EvictAndCheck(&batch, want, bits);
    EXPECT_EQ(batch.hand, hand);
    want.clear();
    for (uint32_t slot = 0; slot < kResident; ++slot) {
      if (bits[slot] & kRowExists) want.push_back(slot);
    }
    batch = EvictBatch();
    batch.chosen = false;
    batch.slot_limit = rows_.table.slots;
    EvictAndCheck(&batch, want, Bytes(rows_.bits.size(), 0));
    for (const IndexBucket& bucket : rows_.buckets) {
      for (uint8_t digest : bucket.digests) EXPECT_EQ(digest, 0);
      EXPECT_EQ(bucket.passed, 0);
    }
  }

  void EvictAndCheck(EvictBatch* batch, const std::vector<uint32_t>& want, const Bytes& bits) {
    const uint32_t stride = rows_.table.weight_bytes + rows_.table.state_bytes;
    std::vector<uint32_t> slots(kResident), dirty;
    std::vector<uint64_t> positions(kResident);
    Bytes out(size_t{stride} * kResident);
    for (uint32_t slot : want) {
      if (rows_.bits[slot] & kRowDirty) dirty.push_back(slot);
    }
    batch->table = &rows_.table;
    batch->slots = slots.data();
    batch->dirty_positions = positions.data();
    batch->out = out.data();
    batch->out_stride = stride;
    set_.evict(batch);
    slots.resize(batch->count);
    ASSERT_EQ(slots, want);
    ASSERT_EQ(rows_.bits, bits);
    ASSERT_EQ(batch->dirty_count, dirty.size());
    for (uint32_t k = 0; k < dirty.size(); ++k) {
      const uint64_t id = IdAt(dirty[k]);
      EXPECT_EQ(positions[k], PositionOf(id));
      const uint8_t* row = out.data() + size_t{stride} * k;
      EXPECT_EQ(Bytes(row, row + stride), StoredRow(twin_.Read(id), spec_));
    }
    Append(&trace_, out.data(), out.size());
    for (uint32_t slot : want) slot_of_.erase(IdAt(slot));
    Probe();
  }

  const CpuKernelSet& set_;
  const TableSpec spec_;
  const Way way_;
  KernelRows rows_;
  RowTwin twin_;
  Random random_;
  std::map<uint64_t, uint32_t> slot_of_;
  uint64_t step_ = 0;
  const float gradient_scale_;
  Bytes trace_;
};

}  // namespace hotbed

#endif  // HOTBED_TESTS_KERNELS_KERNEL_RUN_H_
