#include "server/tiers/api/fetch_hint.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <set>
#include <vector>

#include "common/random.h"
#include "tests/tiers/store_fixture.h"

namespace hotbed {
namespace fetch_hint_test {

constexpr uint64_t kLine = FetchHint::kLineBytes;

// Memory that must not be accessed.
class Forbidden {
 public:
  explicit Forbidden(uint64_t bytes) : bytes_(bytes) {
    void* const at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    data_ = static_cast<uint8_t*>(at);
  }
  ~Forbidden() { munmap(data_, bytes_); }
  uint8_t* data() const { return data_; }

 private:
  const uint64_t bytes_;
  uint8_t* data_ = nullptr;
};

std::set<uintptr_t> LinesOf(const FetchHint& hint, const std::vector<uint64_t>& ids, bool state) {
  std::set<uintptr_t> lines;
  hint.ForEachLine(ids.data(), static_cast<uint32_t>(ids.size()), state,
                   [&](uintptr_t at) { lines.insert(at / kLine); });
  return lines;
}

void AddLines(const uint8_t* from, uint64_t bytes, std::set<uintptr_t>* lines) {
  for (uint64_t b = 0; b < bytes; ++b) {
    lines->insert((reinterpret_cast<uintptr_t>(from) + b) / kLine);
  }
}

// Byte by byte: what each row has, of ids in and around the range.
TEST(FetchHintTest, NamesTheLinesOfRowsAndNoOthersAndTouchesNone) {
  const uint64_t seed = SeedFromEnvironment(1);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  for (int round = 0; round < 200; ++round) {
    const Forbidden weights(1 << 20);
    const Forbidden state(1 << 20);
    const Forbidden bits(1 << 20);
    RowTable table;
    table.direct = true;
    table.first_position = random.OneIn(2) ? 0 : random.Uniform(1 << 20);
    table.slots = static_cast<uint32_t>(1 + random.Uniform(300));
    table.weight_stride = static_cast<uint32_t>(4 * (1 + random.Uniform(200)));
    table.state_bytes = static_cast<uint32_t>(4 * random.Uniform(200));
    table.weights = weights.data() + 16 * random.Uniform(4);
    table.state = state.data() + 16 * random.Uniform(4);
    table.bits = bits.data() + 16 * random.Uniform(4);
    FetchHint hint;
    hint.Set(table);
    std::vector<uint64_t> ids;
    for (int i = 0; i < 30; ++i) {
      ids.push_back(table.first_position - 10 + random.Uniform(table.slots + 20));
    }
    const bool with_state = random.OneIn(2);
    std::set<uintptr_t> twin;
    for (const uint64_t id : ids) {
      const uint64_t row = id - table.first_position;
      if (row >= table.slots) continue;
      AddLines(table.weights + row * table.weight_stride, table.weight_stride, &twin);
      if (!with_state) continue;
      AddLines(table.state + row * table.state_bytes, table.state_bytes, &twin);
      AddLines(table.bits + row, 1, &twin);
    }
    EXPECT_EQ(LinesOf(hint, ids, with_state), twin) << "round " << round;
    hint.Fetch(ids.data(), static_cast<uint32_t>(ids.size()), with_state);
    hint.Clear();
    EXPECT_TRUE(LinesOf(hint, ids, with_state).empty());
  }
}

TEST(FetchHintTest, EndsAtItsLimitAndKnowsNoRowsThatAreFoundByAnIndex) {
  const Forbidden weights(64 << 20);
  RowTable table;
  table.direct = true;
  table.slots = 1000;
  table.weight_stride = 4096;
  table.weights = weights.data();
  FetchHint hint;
  hint.Set(table);
  std::vector<uint64_t> ids(1000);
  for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = i;
  EXPECT_EQ(LinesOf(hint, ids, false).size(), FetchHint::kBytesMax / kLine);
  EXPECT_EQ(LinesOf(hint, ids, true).size(), FetchHint::kBytesMax / kLine + 1) << "their bits";
  table.direct = false;
  hint.Set(table);
  EXPECT_TRUE(LinesOf(hint, ids, true).empty());
}

// The place that a store tells is where the row is, and is taken back when the store goes.
class FetchHintOfStoreTest : public StoreFixture {};

TEST_F(FetchHintOfStoreTest, IsWhereTheRowsAre) {
  FetchHint hint;
  hint_ = &hint;
  spec_.rows = 100;
  spec_.dim = 16;
  options_.hot_bytes = 4 << 20;  // all are resident
  OpenStore();
  EXPECT_FALSE(hint.MayRead()) << "nothing was asked for yet";
  std::vector<uint64_t> ids = {7};
  const std::vector<float> gradient(spec_.dim, 1.0f);
  const uint8_t* const gradients[] = {reinterpret_cast<const uint8_t*>(gradient.data())};
  RowUpdates updates;
  updates.ids = ids.data();
  updates.count = 1;
  updates.gradients = gradients;
  updates.assign = true;
  updates.lsn = 1;
  ASSERT_TRUE(store_->Apply(updates, nullptr));
  EXPECT_NE(hint.store(), nullptr);
  std::vector<uintptr_t> places;
  hint.ForEachLine(ids.data(), 1, false, [&](uintptr_t at) { places.push_back(at); });
  ASSERT_FALSE(places.empty());
  EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(places[0]), gradient.data(), 4 * spec_.dim),
            0);
  // The rows are read without the store, and absent ones are left to it unless it knows them all.
  std::vector<float> row(spec_.dim);
  uint32_t missing = 0;
  RowReads reads;
  reads.ids = ids.data();
  reads.count = 1;
  reads.rows = reinterpret_cast<uint8_t*>(row.data());
  ASSERT_TRUE(hint.MayRead());
  EXPECT_FALSE(hint.hashed());
  ASSERT_TRUE(hint.Read(reads, &missing));
  EXPECT_EQ(row, gradient);
  EXPECT_EQ(hint.rows_read(), 1u);
  EXPECT_EQ(store_->Stats().hits, 1u);
  ids[0] = 8;
  hint.SetAbsentIsInitial(false);
  EXPECT_FALSE(hint.Read(reads, &missing));
  EXPECT_EQ(hint.rows_read(), 1u);
  hint.SetAbsentIsInitial(true);
  EXPECT_TRUE(hint.Read(reads, &missing));
  CloseStore();
  EXPECT_FALSE(hint.MayRead());
  EXPECT_TRUE(LinesOf(hint, ids, true).empty());
  EXPECT_EQ(hint.store(), nullptr);
}

}  // namespace fetch_hint_test
}  // namespace hotbed
