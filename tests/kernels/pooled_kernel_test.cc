// GatherPooled and PoolRows of every instruction set against sums and maxima written out plainly,
// to the bit: rows that are there, that exist nowhere and that have to be fetched, bags of all
// lengths, NaN and both zeros under max.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "common/random.h"
#include "row_math/position.h"
#include "server/kernels/cpu_kernels.h"
#include "tests/common/sanitized.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/kernel_rows.h"
#include "tests/kernels/pool_twin.h"

namespace hotbed {
namespace pooled_kernel_test {

constexpr uint32_t kResident = 40;

enum class Presence { kAll, kRestIsInitial, kRestIsElsewhere };

class PooledRun {
 public:
  PooledRun(const CpuKernelSet& set, const TableSpec& spec, bool direct, Presence presence,
            RowPooling pooling, Random* random)
      : set_(set),
        spec_(spec),
        direct_(direct),
        presence_(presence),
        pooling_(pooling),
        rows_(spec, /*column_first=*/0, direct),
        twin_(spec, {0, 0, 0, spec.dim}),
        random_(*random) {
    Insert();
  }

  void Check(RowType type, bool weighted) {
    Draw(weighted);
    const uint32_t bytes = RowWireBytes(type, spec_.dim);
    const bool arg = pooling_ == RowPooling::kMax && random_.Uniform(4) != 0;
    Bytes out(size_t{bytes} * lengths_.size() + 1, 0xee);
    Bytes args(4ull * spec_.dim * lengths_.size() + 1, 0xee);
    Bytes flags(ids_.size(), 0xee);
    std::vector<uint32_t> missing(lengths_.size());
    GatherBatch batch;
    batch.table = &rows_.table;
    batch.ids = ids_.data();
    batch.bag_lengths = lengths_.data();
    batch.weights = weights_.empty() ? nullptr : weights_.data();
    batch.bags = static_cast<uint32_t>(lengths_.size());
    batch.pooling = pooling_;
    batch.type = type;
    batch.absent_is_initial = presence_ == Presence::kRestIsInitial;
    batch.rows = out.data() + 1;  // unaligned
    batch.flags = flags.data();
    batch.arg_max = arg ? args.data() + 1 : nullptr;
    batch.missing = missing.data();
    set_.gather_pooled(&batch);
    missing.resize(batch.missing_count);
    std::vector<uint32_t> want_missing;
    size_t next = 0;
    for (uint32_t b = 0; b < lengths_.size(); ++b, next += lengths_[b - 1]) {
      if (Misses(next, lengths_[b])) {
        want_missing.push_back(b);
        CheckPieces(next, lengths_[b], type);
        continue;
      }
      const PooledBag want = Pooled(next, lengths_[b]);
      const uint8_t* row = batch.rows + size_t{bytes} * b;
      ASSERT_EQ(Bytes(row, row + bytes), PlainRow(want.row, type)) << "bag " << b;
      if (arg) CheckArg(batch.arg_max + 4ull * spec_.dim * b, want.arg_max);
      for (uint32_t k = 0; k < lengths_[b]; ++k) {
        ASSERT_EQ(flags[next + k], slot_of_.count(ids_[next + k])) << "id " << next + k;
      }
    }
    EXPECT_EQ(missing, want_missing);
  }

 private:
  uint64_t IdAt(uint32_t slot) const {
    return spec_.hashed ? Unmix64(KernelRows::kFirst + slot * 0x123456789abcdull)
                        : KernelRows::kFirst + (direct_ ? slot : 7 * slot);
  }

  float Value() {
    switch (random_.Uniform(8)) {
      case 0:
        return 0.0f;
      case 1:
        return -0.0f;
      case 2:
        return 1.0f;
      case 3:
        if (others_ && pooling_ == RowPooling::kMax) return std::numeric_limits<float>::quiet_NaN();
        break;
      case 4:
        if (pooling_ == RowPooling::kMax) return -std::numeric_limits<float>::infinity();
        break;
    }
    return static_cast<float>(random_.Double() * 4 - 2);
  }

  void Insert() {
    const uint32_t count = presence_ == Presence::kAll ? KernelRows::kSlots : kResident;
    std::vector<uint64_t> positions;
    std::vector<uint32_t> slots;
    std::vector<Bytes> values;
    std::vector<const uint8_t*> sources;
    for (uint32_t slot = 0; slot < count; ++slot) {
      RowTwin::Row row = twin_.Read(IdAt(slot));
      // A maximum among numbers alone takes another way, so some bags have no other values.
      others_ = random_.Uniform(24) == 0;
      for (float& w : row.weights) w = twin_.Stored(Value());
      values.push_back(StoredRow(row, spec_));
      slots.push_back(slot);
      positions.push_back(spec_.hashed ? Mix64(IdAt(slot)) : IdAt(slot));
      slot_of_[IdAt(slot)] = slot;
      twin_.Set(IdAt(slot), std::move(row));
    }
    for (const Bytes& value : values) sources.push_back(value.data());
    InsertBatch batch;
    batch.table = &rows_.table;
    batch.positions = positions.data();
    batch.slots = slots.data();
    batch.sources = sources.data();
    batch.count = count;
    set_.insert(&batch);
  }

  // Bags of 0 to 30 ids and one that is longer than a block of ids, of rows that are all there.
  void Draw(bool weighted) {
    ids_.clear();
    lengths_.clear();
    weights_.clear();
    for (uint32_t b = 0; b < 24; ++b) {
      const bool longest = b == 11;
      const bool resident = longest || random_.Uniform(3) != 0;
      lengths_.push_back(longest ? 1100 : static_cast<uint32_t>(random_.Uniform(31)));
      for (uint32_t k = 0; k < lengths_[b]; ++k) {
        const uint32_t slots = resident ? kResident : KernelRows::kSlots;
        ids_.push_back(IdAt(static_cast<uint32_t>(random_.Uniform(slots))));
        if (weighted) weights_.push_back(Value());
      }
    }
  }

  std::vector<std::vector<float>> RowsOf(size_t first, uint32_t count) const {
    std::vector<std::vector<float>> rows;
    for (uint32_t k = 0; k < count; ++k) rows.push_back(twin_.Read(ids_[first + k]).weights);
    return rows;
  }
  std::vector<float> WeightsOf(size_t first, uint32_t count) const {
    if (weights_.empty()) return {};
    return {weights_.begin() + first, weights_.begin() + first + count};
  }
  PooledBag Pooled(size_t first, uint32_t count) const {
    return PoolByHand(pooling_, spec_.dim, RowsOf(first, count), WeightsOf(first, count));
  }
  bool Misses(size_t first, uint32_t count) const {
    bool misses = false;
    for (uint32_t k = 0; k < count; ++k) misses |= slot_of_.count(ids_[first + k]) == 0;
    return misses && presence_ == Presence::kRestIsElsewhere;
  }
  void CheckArg(const uint8_t* found, const std::vector<uint32_t>& want) {
    std::vector<uint32_t> args(want.size());
    std::memcpy(args.data(), found, 4 * args.size());
    ASSERT_EQ(args, want);
  }

  // The same bag from rows that were fetched, in pieces.
  void CheckPieces(size_t first, uint32_t count, RowType type) {
    Bytes stored;
    for (const auto& row : RowsOf(first, count)) {
      const Bytes bytes = PlainRow(row, static_cast<RowType>(spec_.weight_type));
      Append(&stored, bytes.data(), bytes.size());
    }
    std::vector<float> sum(spec_.dim, -7.0f);
    Bytes args(4ull * spec_.dim + 1);
    for (uint32_t place = 0; place < count;) {
      PoolRowsBatch batch;
      batch.table = &rows_.table;
      batch.rows = stored.data() + size_t{rows_.table.weight_bytes} * place;
      batch.count = 1 + static_cast<uint32_t>(random_.Uniform(count - place));
      batch.place = place;
      batch.weights = weights_.empty() ? nullptr : weights_.data() + first + place;
      batch.pooling = pooling_;
      batch.sum = sum.data();
      batch.arg_max = args.data() + 1;
      set_.pool_rows(&batch);
      place += batch.count;
    }
    const PooledBag want = Pooled(first, count);
    Bytes row(RowWireBytes(type, spec_.dim));
    set_.encode_pooled(sum.data(), spec_.dim, type, row.data());
    ASSERT_EQ(row, PlainRow(want.row, type));
    if (pooling_ == RowPooling::kMax) CheckArg(args.data() + 1, want.arg_max);
  }

  const CpuKernelSet& set_;
  const TableSpec spec_;
  const bool direct_;
  const Presence presence_;
  const RowPooling pooling_;
  KernelRows rows_;
  RowTwin twin_;
  Random& random_;
  bool others_ = false;  // the next values may be no numbers
  std::map<uint64_t, uint32_t> slot_of_;
  std::vector<uint64_t> ids_;
  std::vector<uint32_t> lengths_;
  std::vector<float> weights_;
};

class PooledKernelTest : public ::testing::TestWithParam<std::tuple<WeightType, RowPooling>> {};

TEST_P(PooledKernelTest, EverySetComputesTheBitsWrittenOut) {
  const TestSeed seed(20260307);
  Random random(seed.value());
  const auto [weight_type, pooling] = GetParam();
  const CpuKernelSets sets = AvailableCpuKernelSets();
  TableSpec spec;
  spec.weight_type = weight_type;
  spec.initializer = {InitializerKind::kUniform, -1.0f, 1.0f};
  spec.seed = 99;
  for (uint32_t dim : {1,  2,  3,  4,  7,  8,   15,  16,  17,  31,  32,  33,
                       48, 63, 64, 65, 96, 100, 127, 128, 129, 200, 256, 1000}) {
    if (kSanitized && dim > 64 && dim % 2 == 0) continue;
    spec.dim = dim;
    for (int way = 0; way < 3; ++way) {
      spec.hashed = way == 2;
      for (Presence presence :
           {Presence::kAll, Presence::kRestIsInitial, Presence::kRestIsElsewhere}) {
        for (int s = 0; s < sets.count; ++s) {
          SCOPED_TRACE(::testing::Message() << sets.sets[s]->name << ", dim " << dim << ", way "
                                            << way << ", presence " << int(presence));
          PooledRun run(*sets.sets[s], spec, way == 0, presence, pooling, &random);
          const auto type = static_cast<RowType>(random.Uniform(3));
          run.Check(type, /*weighted=*/false);
          run.Check(RowType::kFp32, /*weighted=*/pooling == RowPooling::kSum);
          if (HasFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PooledKernelTest,
                         ::testing::Combine(::testing::Values(WeightType::kFp32, WeightType::kFp16,
                                                              WeightType::kBf16),
                                            ::testing::Values(RowPooling::kSum, RowPooling::kMax)));

}  // namespace pooled_kernel_test
}  // namespace hotbed
