// Versions beside rows that change. Compiled a second time with a planted bug (CMakeLists.txt),
// which the test with threads must then find.
#include "serving/rows/versioned_rows.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "serving/rows/row_search.h"
#include "tests/common/sanitized.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace versioned_rows_test {

#ifdef HOTBED_PLANTED_LATE_SAVE
constexpr bool kPlanted = true;
#else
constexpr bool kPlanted = false;
#endif

constexpr uint64_t kPlenty = 1ull << 40;
constexpr uint32_t kDim = 3;

using Twin = std::map<uint64_t, float>;

void Put(VersionedRows* rows, uint64_t id, float value) {
  bool finite = false;
  const std::vector<float> row(rows->latest().coder().dim(), value);
  ASSERT_TRUE(rows->Put(id, row.data(), &finite).ok());
}

absl::Status TakeUp(VersionedRows* rows, uint64_t number, const Twin& part) {
  std::vector<uint64_t> ids;
  std::vector<float> weights;
  for (const auto& [id, value] : part) {
    ids.push_back(id);
    weights.insert(weights.end(), rows->latest().coder().dim(), value);
  }
  return rows->TakeUp(number, ids, weights);
}

void ExpectRows(const RowsView& view, const Twin& twin, uint64_t ids, const std::string& of) {
  const RowsView::Reader reader(view);
  std::vector<float> row(view.coder().dim());
  for (uint64_t id = 0; id < ids; ++id) {
    const uint8_t* const found = reader.Find(id);
    const auto expected = twin.find(id);
    ASSERT_EQ(found != nullptr, expected != twin.end()) << "row " << id << " of " << of;
    if (found == nullptr) continue;
    view.coder().Decode(found, row.data());
    ASSERT_EQ(row[0], expected->second) << "row " << id << " of " << of;
  }
  for (const bool whole : {false, true}) {
    Twin walked;
    RowsView::Walk walk;
    for (uint32_t part = 0; part < view.parts(whole); ++part) {
      reader.Begin(whole, part, &walk);
      for (ServedRows::Run run; reader.Next(&walk, 50, &run);) {
        for (uint32_t i = 0; i < run.count; ++i) {
          const uint8_t* const at = run.rows + uint64_t{view.latest->row_stride()} * i;
          reader.Identify(walk, reader.StripeOf(walk, run, at), at,
                          [&](uint64_t id, const uint8_t* now) {
                            ASSERT_EQ(now, at);
                            view.coder().Decode(now, row.data());
                            ASSERT_TRUE(walked.emplace(id, row[0]).second) << "met with twice";
                          });
        }
      }
    }
    ASSERT_EQ(walked, twin) << "rows of a walk over " << of;
  }
  ASSERT_TRUE(view.Holds());
}

#ifndef HOTBED_PLANTED_LATE_SAVE

// A table, its versions, and maps that are equal to them.
class World {
 public:
  World(uint64_t seed, uint64_t ids)
      : random_(seed), ids_(ids), rows_(RowCoder(RowFormatKind::kFp32, kDim), &memory_) {}

  void Step() {
    const uint64_t kind = random_.Uniform(100);
    if (kind < 60) {
      Change();
    } else if (kind < 63) {
      ReadAgain();
    } else if (kind < 66 && taking_ == 0) {
      BeginTakeUp();
    } else if (kind < 90 && taking_ != 0) {
      ContinueTakeUp();
    } else if (kind < 92 && !whole_.empty()) {
      Drop();
    } else if (kind < 94) {
      rows_.Reclaim();
    }
  }

  void Compare() {
    ExpectRows(rows_.Latest(), latest_, ids_, "latest");
    for (const auto& [number, twin] : whole_) {
      const std::optional<RowsView> view = rows_.Version(number);
      ASSERT_TRUE(view.has_value());
      ExpectRows(*view, twin, ids_, absl::StrCat("version ", number));
    }
    ASSERT_FALSE(rows_.Version(taking_).has_value());
  }

  uint64_t versions() const { return numbers_; }
  const ServedMemory& memory() const { return memory_; }

 private:
  void Change() {
    const uint64_t id = random_.Uniform(ids_);
    const auto value = static_cast<float>(random_.Uniform(50));
    Put(&rows_, id, value);
    latest_[id] = value;
  }

  // All rows come again; some are no more.
  void ReadAgain() {
    rows_.Unmark([](uint64_t) { return true; });
    Twin again;
    for (const auto& [id, value] : latest_) {
      if (!random_.OneIn(5)) again[id] = random_.OneIn(4) ? value + 1 : value;
    }
    latest_ = again;
    for (const auto& [id, value] : again) Put(&rows_, id, value);
    rows_.DeleteUnmarked();
  }

  // The version is of some moment: not of now.
  void BeginTakeUp() {
    taking_ = ++numbers_;
    version_ = latest_;
    const uint64_t others = random_.Uniform(ids_);
    for (uint64_t i = 0; i < others; ++i) {
      const uint64_t id = random_.Uniform(ids_);
      if (random_.OneIn(3)) {
        version_.erase(id);
      } else {
        version_[id] = static_cast<float>(random_.Uniform(50));
      }
    }
    left_ = version_;
    rows_.Begin(taking_);
  }

  void ContinueTakeUp() {
    Twin part;
    while (!left_.empty() && part.size() < ids_ / 8 + 1) {
      const auto next = left_.begin();
      // A file of several passes has some rows twice, earlier values first.
      if (random_.OneIn(10)) {
        ASSERT_TRUE(TakeUp(&rows_, taking_, {{next->first, next->second + 7}}).ok());
      }
      part.insert(*next);
      left_.erase(next);
    }
    ASSERT_TRUE(TakeUp(&rows_, taking_, part).ok());
    if (!left_.empty()) return;
    ASSERT_TRUE(rows_.End(taking_).ok());
    whole_[taking_] = version_;
    taking_ = 0;
    while (whole_.size() > 3) Drop();
  }

  void Drop() {
    const uint64_t gone = whole_.begin()->first;
    const std::optional<RowsView> view = rows_.Version(gone);
    ASSERT_TRUE(view.has_value());
    rows_.Keep([gone](uint64_t number) { return number != gone; }, {});
    ASSERT_FALSE(view->Holds());
    ASSERT_FALSE(rows_.Version(gone).has_value());
    whole_.erase(gone);
  }

  Random random_;
  const uint64_t ids_;
  ServedMemory memory_{kPlenty};
  VersionedRows rows_;
  Twin latest_;
  std::map<uint64_t, Twin> whole_;
  uint64_t numbers_ = 0;
  uint64_t taking_ = 0;  // 0: none
  Twin version_;         // that is taken up, and what is left of it
  Twin left_;
};

TEST(VersionedRowsTest, VersionsStayAsTheyAreWhateverChanges) {
  const TestSeed seed(831);
  for (uint64_t world_number = 0; world_number < 12; ++world_number) {
    World world(seed.value() + world_number, world_number % 3 == 0 ? 20 : 300);
    for (int step = 0; step < FewerIfSanitized(4000); ++step) {
      world.Step();
      if (HasFatalFailure()) return;
      if (step % 7 == 0) world.Compare();
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(world.versions(), 10u);
  }
}

TEST(VersionedRowsTest, OnlyRowsThatDifferAreHeldTwice) {
  ServedMemory memory(kPlenty);
  VersionedRows rows(RowCoder(RowFormatKind::kFp32, kDim), &memory);
  Twin twin;
  for (uint64_t id = 0; id < 10'000; ++id) twin[id] = 1;
  for (const auto& [id, value] : twin) Put(&rows, id, value);
  for (uint64_t id = 0; id < 100; ++id) twin[id] = 2;  // they differ
  twin.erase(5000);                                    // it is in latest alone
  rows.Begin(7);
  ASSERT_TRUE(TakeUp(&rows, 7, twin).ok());
  ASSERT_TRUE(rows.End(7).ok());
  EXPECT_EQ(rows.Find(7)->rows(), 101u);
  // The same bits again are no change.
  for (uint64_t id = 1000; id < 2000; ++id) Put(&rows, id, 1);
  EXPECT_EQ(rows.Find(7)->rows(), 101u);
  for (uint64_t id = 1000; id < 1010; ++id) Put(&rows, id, 3);
  for (uint64_t id = 20'000; id < 20'010; ++id) Put(&rows, id, 3);
  EXPECT_EQ(rows.Find(7)->rows(), 121u);
  ExpectRows(*rows.Version(7), twin, 20'010, "version 7");
  EXPECT_EQ(memory.used(), rows.latest().bytes() + rows.Find(7)->bytes());
}

TEST(VersionedRowsTest, MemoryThatIsUsedUpCostsVersionsBeforeRows) {
  ServedMemory memory(4 << 20);
  VersionedRows rows(RowCoder(RowFormatKind::kFp32, 64), &memory);
  Twin twin;
  for (uint64_t id = 0; id < 5000; ++id) twin[id] = 1;
  for (const auto& [id, value] : twin) Put(&rows, id, value);
  for (const uint64_t number : {1u, 2u}) {
    rows.Begin(number);
    ASSERT_TRUE(TakeUp(&rows, number, twin).ok());
    ASSERT_TRUE(rows.End(number).ok());
  }
  rows.Keep([](uint64_t) { return true; }, /*most_wanted=*/{1});
  // One that does not fit ends, and harms nothing.
  rows.Begin(3);
  Twin other;
  for (uint64_t id = 0; id < 20'000; ++id) other[id] = 5;
  const absl::Status full = TakeUp(&rows, 3, other);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(rows.Find(3), nullptr);
  ExpectRows(*rows.Version(1), twin, 20'000, "version 1");
  ExpectRows(*rows.Version(2), twin, 20'000, "version 2");
  // Every changed row is saved twice: the version that is wanted less goes, then the other one.
  const RowsView first = *rows.Version(1);
  bool finite = false;
  const std::vector<float> changed(64, 3);
  uint64_t id = 0;
  for (; rows.Version(2).has_value() && id < 5000; ++id) {
    ASSERT_TRUE(rows.Put(id, changed.data(), &finite).ok());
  }
  ASSERT_FALSE(rows.Version(2).has_value());
  ExpectRows(*rows.Version(1), twin, 20'000, "version 1");
  absl::Status put;
  for (id = 0; put.ok() && id < 100'000; ++id) put = rows.Put(id, changed.data(), &finite);
  EXPECT_EQ(put.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(rows.Version(1).has_value());
  EXPECT_FALSE(first.Holds());
  EXPECT_EQ(rows.TakeUp(1, {}, {}).code(), absl::StatusCode::kOk);  // no row, no step
  EXPECT_EQ(rows.End(1).code(), absl::StatusCode::kAborted);
}

#endif  // HOTBED_PLANTED_LATE_SAVE

// All rows of version v are v at every element, and rows that change later are no whole numbers. So
// a reader that finds another number has seen a mix.
class ManyReaders {
 public:
  explicit ManyReaders(uint64_t seed)
      : seed_(seed), rows_(RowCoder(RowFormatKind::kFp32, kColumns), &memory_) {}

  // Returns how many rows were of another version.
  uint64_t Run() {
    std::vector<std::thread> threads;
    for (uint64_t reader = 1; reader <= 3; ++reader) {
      threads.emplace_back([this, reader] { Read(reader); });
    }
    threads.emplace_back([this] { Follow(); });
    for (uint64_t number = 1; !Enough(number); ++number) {
      asked_.store(number);
      while (settled_.load() != number) std::this_thread::yield();
      Publish(number);
      const uint64_t reads = reads_.load(), changes = changes_.load();
      while (!Enough(number) && (reads_.load() < reads + 3 || changes_.load() < changes + kIds)) {
        std::this_thread::yield();
      }
    }
    ends_.store(true);
    for (std::thread& thread : threads) thread.join();
    return mixed_.load();
  }

 private:
  static constexpr uint64_t kIds = 1000;
  static constexpr uint32_t kColumns = 40;

  static bool Has(uint64_t id) { return id % 4 != 2; }  // the version, of a row
  bool Enough(uint64_t number) const {
    return kPlanted ? mixed_.load() > 0 : number > (kSanitized ? 10 : 30) && reads_.load() > 1000;
  }

  void Read(uint64_t reader_number) {
    Random random(seed_ + reader_number);
    while (!ends_.load()) {
      const uint64_t number = current_.load();
      const std::optional<RowsView> view = rows_.Version(number);
      if (!view.has_value()) continue;
      const auto value = static_cast<float>(number);
      // One reader searches, the others look rows up.
      const uint64_t others =
          reader_number == 1 ? SearchAll(*view, value) : ReadSome(*view, value, &random);
      if (!view->Holds()) continue;
      mixed_.fetch_add(others);
      reads_.fetch_add(1);
    }
  }

  static uint64_t ReadSome(const RowsView& view, float number, Random* random) {
    std::vector<float> row(kColumns);
    uint64_t others = 0;
    const RowsView::Reader reader(view);
    for (int i = 0; i < 30; ++i) {
      const uint64_t id = random->Uniform(kIds);
      const uint8_t* const found = reader.Find(id);
      if (found != nullptr) view.coder().Decode(found, row.data());
      const bool right = (found != nullptr) == Has(id) &&
                         (found == nullptr || (row[0] == number && row[kColumns - 1] == number));
      others += right ? 0 : 1;
    }
    return others;
  }

  // A search that is to find all rows of the version, and no others.
  static uint64_t SearchAll(const RowsView& view, float number) {
    std::vector<float> first_column(kColumns);
    first_column[0] = 1;
    RowSearch search(view, {.k = 2 * kIds, .vectors = first_column});
    EXPECT_TRUE(search.Run([] { return absl::OkStatus(); }).ok());
    const std::vector<ScoredRow> found = search.Take()[0];
    uint64_t others = found.size() == kIds - kIds / 4 ? 0 : 1;
    for (const ScoredRow& row : found) others += Has(row.id) && row.score == number ? 0 : 1;
    return others;
  }

  // Sets all rows to the number that is asked for, then changes them, until another one is.
  void Follow() {
    Random random(seed_);
    while (!ends_.load()) {
      const uint64_t number = asked_.load();
      if (settled_.load() != number) {
        rows_.Unmark([](uint64_t) { return true; });
        for (uint64_t id = 0; id < kIds; ++id) {
          if (Has(id)) Put(&rows_, id, static_cast<float>(number));
        }
        rows_.DeleteUnmarked();
        settled_.store(number);
      }
      Put(&rows_, random.Uniform(kIds), static_cast<float>(number) + 0.5f);
      changes_.fetch_add(1);
      if (random.OneIn(200)) {
        rows_.Unmark([&](uint64_t) { return random.OneIn(40); });
        rows_.DeleteUnmarked();
      }
      if (random.OneIn(16)) rows_.Reclaim();
    }
  }

  void Publish(uint64_t number) {
    Twin twin;
    for (uint64_t id = 0; id < kIds; ++id) {
      if (Has(id)) twin[id] = static_cast<float>(number);
    }
    rows_.Begin(number);
    EXPECT_TRUE(TakeUp(&rows_, number, twin).ok());
    EXPECT_TRUE(rows_.End(number).ok());
    current_.store(number);
    rows_.Keep([number](uint64_t other) { return other + 1 >= number; }, {number});
  }

  const uint64_t seed_;
  ServedMemory memory_{kPlenty};
  VersionedRows rows_;
  std::atomic<bool> ends_{false};
  std::atomic<uint64_t> asked_{0}, settled_{0}, current_{0}, changes_{0}, reads_{0}, mixed_{0};
};

TEST(VersionedRowsTest, ReadersOfAVersionFindItsRowsWhileTheyChange) {
  const TestSeed seed(832);
  const uint64_t mixed = ManyReaders(seed.value()).Run();
  EXPECT_EQ(mixed > 0, kPlanted) << mixed << " rows of another version";
}

}  // namespace versioned_rows_test
}  // namespace hotbed
