// Searches against a brute force in float64 over the decoded rows.
#include "serving/rows/row_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/nearness_twin.h"

namespace hotbed {
namespace row_search_test {

constexpr RowFormatKind kKinds[] = {RowFormatKind::kFp32,    RowFormatKind::kFp16,
                                    RowFormatKind::kBf16,    RowFormatKind::kTbeInt8,
                                    RowFormatKind::kTbeInt4, RowFormatKind::kTbeInt2};

absl::Status GoOn() { return absl::OkStatus(); }

std::vector<float> RandomElements(uint64_t count, Random* random) {
  std::vector<float> elements(count);
  // Few values, so that scores are equal now and then.
  for (float& value : elements) value = static_cast<float>(random->Uniform(9)) / 4 - 1;
  return elements;
}

class Searches {
 public:
  Searches(RowFormatKind kind, const RowLoops& loops, uint32_t dim, Random* random)
      : dim_(dim), random_(*random), rows_(RowCoder(kind, dim, loops), &memory_) {
    const uint64_t count = random_.Uniform(700);
    for (uint64_t i = 0; i < count; ++i) {
      std::vector<float> row = RandomElements(dim, &random_);
      if (random_.OneIn(100)) row[random_.Uniform(dim)] = NAN;
      if (random_.OneIn(50)) std::fill(row.begin(), row.end(), 0.0f);
      bool finite = false;
      EXPECT_TRUE(rows_.Put(random_.Uniform(1000), row.data(), &finite).ok());
    }
  }

  void Search() {
    const uint64_t vectors = 1 + random_.Uniform(4);
    std::vector<float> queries = RandomElements(vectors * dim_, &random_);
    if (random_.OneIn(8)) std::fill(queries.begin(), queries.end(), 0.0f);
    std::vector<uint64_t> ids;
    RowQuery query = {.metric = static_cast<RowMetric>(random_.Uniform(3)),
                      .k = static_cast<uint32_t>(1 + random_.Uniform(900)),
                      .vectors = queries};
    if (random_.OneIn(3)) {
      for (uint64_t i = random_.Uniform(300); i > 0; --i) ids.push_back(random_.Uniform(1200));
      query.only_ids = ids;
    }
    if (random_.OneIn(3)) query.first_id = random_.Uniform(600);
    if (random_.OneIn(3)) query.last_id = random_.Uniform(1100);
    const RowsView view(rows_);
    RowSearch search(view, query);
    ASSERT_TRUE(search.Run(GoOn).ok());
    const std::vector<std::vector<ScoredRow>> found = search.Take();
    ASSERT_EQ(found.size(), vectors);
    for (uint64_t v = 0; v < vectors; ++v) {
      const std::vector<float> vector(queries.begin() + static_cast<int64_t>(v * dim_),
                                      queries.begin() + static_cast<int64_t>((v + 1) * dim_));
      ExpectRows(found[v], BruteForce(query, vector));
    }
  }

 private:
  std::vector<ScoredRow> BruteForce(const RowQuery& query, const std::vector<float>& vector) {
    const std::set<uint64_t> only = query.only_ids.has_value()
                                        ? std::set(query.only_ids->begin(), query.only_ids->end())
                                        : std::set<uint64_t>();
    std::vector<ScoredRow> all;
    std::vector<float> row(dim_);
    for (uint64_t id = query.first_id; id < 1000 && id <= query.last_id; ++id) {
      const uint8_t* const stored = rows_.Get(id);
      if (stored == nullptr || (query.only_ids.has_value() && !only.contains(id))) continue;
      rows_.coder().Decode(stored, row.data());
      all.push_back({id, NearnessTwin(row, vector, query.metric)});
    }
    const auto before = [&query](const ScoredRow& a, const ScoredRow& b) {
      if (std::isnan(a.score) != std::isnan(b.score)) return std::isnan(b.score);
      if (!std::isnan(a.score) && a.score != b.score) {
        return SmallerIsNearer(query.metric) ? a.score < b.score : a.score > b.score;
      }
      return a.id < b.id;
    };
    std::sort(all.begin(), all.end(), before);
    all.resize(std::min<size_t>(all.size(), query.k));
    return all;
  }

  static void ExpectRows(const std::vector<ScoredRow>& found, const std::vector<ScoredRow>& twin) {
    ASSERT_EQ(found.size(), twin.size());
    for (size_t i = 0; i < twin.size(); ++i) {
      ASSERT_EQ(found[i].id, twin[i].id) << "rank " << i;
      if (std::isnan(twin[i].score)) {
        ASSERT_TRUE(std::isnan(found[i].score)) << "rank " << i;
      } else {
        ASSERT_EQ(found[i].score, twin[i].score) << "rank " << i;
      }
    }
  }

  const uint32_t dim_;
  Random& random_;
  ServedMemory memory_{1ull << 40};
  ServedRows rows_;
};

TEST(RowSearchTest, FindsTheRowsOfABruteForceToTheBit) {
  const TestSeed seed(841);
  Random random(seed.value());
  for (int round = 0; round < 60; ++round) {
    const RowFormatKind kind = kKinds[round % std::size(kKinds)];
    const auto dim = static_cast<uint32_t>(1 + random.Uniform(70));
    SCOPED_TRACE(absl::StrCat("kind ", static_cast<int>(kind), ", dim ", dim));
    const RowLoops& loops = random.OneIn(3) ? PlainRowLoops() : BestRowLoops();
    Searches searches(kind, loops, dim, &random);
    for (int search = 0; search < 10; ++search) {
      searches.Search();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Rows of any size, rows without numbers among them; several have the same elements.
std::vector<float> WildElements(uint32_t dim, Random* random) {
  std::vector<float> row(dim);
  const float size = std::exp2(static_cast<float>(random->Uniform(40)) - 30);
  const float shift = random->OneIn(3) ? 100 * size : 0;
  for (float& element : row) {
    element = shift + size * (static_cast<float>(random->Uniform(2001)) / 1000 - 1);
  }
  if (random->OneIn(500)) row[random->Uniform(dim)] = random->OneIn(2) ? NAN : 3e38f;
  return row;
}

// First looks leave nothing out: the plain loops have none.
TEST(RowSearchTest, FindsAmongManyRowsWhatThePlainLoopsFind) {
  const TestSeed seed(85);
  Random random(seed.value());
  constexpr RowFormatKind kKinds[] = {RowFormatKind::kTbeInt8, RowFormatKind::kTbeInt4,
                                      RowFormatKind::kTbeInt2, RowFormatKind::kFp32,
                                      RowFormatKind::kFp16,    RowFormatKind::kBf16};
  for (int round = 0; round < 18; ++round) {
    const RowFormatKind kind = kKinds[round % std::size(kKinds)];
    const uint32_t dims[] = {static_cast<uint32_t>(1 + random.Uniform(40)), 64,
                             static_cast<uint32_t>(1 + random.Uniform(300))};
    const uint32_t dim = dims[round / std::size(kKinds)];
    ServedMemory memory(1ull << 40);
    ServedRows best(RowCoder(kind, dim), &memory);
    ServedRows plain(RowCoder(kind, dim, PlainRowLoops()), &memory);
    for (uint64_t id = 0; id < 10'000; ++id) {
      const std::vector<float> row = WildElements(dim, &random);
      bool finite = false;
      ASSERT_TRUE(best.Put(id, row.data(), &finite).ok());
      ASSERT_TRUE(plain.PutRow(id, best.Get(id)).ok());
    }
    const std::vector<float> vector =
        round % 3 == 0 ? RandomElements(dim, &random) : WildElements(dim, &random);
    if (!std::all_of(vector.begin(), vector.end(), [](float e) { return std::isfinite(e); })) {
      continue;
    }
    const RowQuery query = {.k = static_cast<uint32_t>(1 + random.Uniform(60)), .vectors = vector};
    const RowsView views[] = {best, plain};
    RowSearch searches[] = {{views[0], query}, {views[1], query}};
    for (RowSearch& search : searches) ASSERT_TRUE(search.Run(GoOn).ok());
    const std::vector<ScoredRow> found = searches[0].Take()[0], twin = searches[1].Take()[0];
    ASSERT_EQ(found.size(), twin.size());
    for (size_t i = 0; i < twin.size(); ++i) {
      ASSERT_EQ(found[i].id, twin[i].id) << "rank " << i << ", dim " << dim;
      ASSERT_EQ(absl::bit_cast<uint64_t>(found[i].score), absl::bit_cast<uint64_t>(twin[i].score));
    }
  }
}

// Rows change, come and go while a search is under way: between its first step, which meets with
// rows that are deleted before their ids are asked for, and its second one.
class ChangingRows {
 public:
  static constexpr uint32_t kDim = 64;
  static constexpr uint64_t kRows = 6000;

  explicit ChangingRows(Random* random) : random_(*random) {
    for (uint64_t id = 0; id < kRows; ++id) Put(id);
  }

  void Search(uint32_t k, uint32_t vectors) {
    const std::vector<float> queries = RandomElements(uint64_t{vectors} * kDim, &random_);
    queries_ = queries;
    scores_.clear();
    gone_.clear();
    for (const auto& [id, row] : now_) Note(id, row);
    const RowsView view(rows_);
    RowSearch search(view, {.k = k, .vectors = queries});
    ASSERT_TRUE(search.Run([this] { return Change(), absl::OkStatus(); }).ok());
    repeated_ += search.rows_read() > kRows ? 1 : 0;
    const std::vector<std::vector<ScoredRow>> found = search.Take();
    for (uint32_t v = 0; v < vectors; ++v) Check(found[v], v, k);
    rows_.Reclaim();
  }
  int repeated() const { return repeated_; }

 private:
  void Put(uint64_t id) {
    std::vector<float> row(kDim);
    for (float& value : row) value = static_cast<float>(random_.Uniform(2001)) / 1000 - 1;
    bool finite = false;
    ASSERT_TRUE(rows_.Put(id, row.data(), &finite).ok());
    if (!queries_.empty()) Note(id, row);
    now_[id] = std::move(row);
  }
  void Note(uint64_t id, const std::vector<float>& row) {
    for (size_t v = 0; v < queries_.size() / kDim; ++v) {
      const auto at = queries_.begin() + static_cast<int64_t>(v * kDim);
      const std::vector<float> query(at, at + kDim);
      scores_[{v, id}].push_back(NearnessTwin(row, query, RowMetric::kDot));
    }
  }
  // Deletes the 60 nearest of the first vector, and sets others.
  void Change() {
    std::vector<std::pair<double, uint64_t>> nearest;
    for (const auto& [id, row] : now_) nearest.emplace_back(-scores_[{0, id}].back(), id);
    std::sort(nearest.begin(), nearest.end());
    for (int i = 0; i < 60; ++i) {
      const uint64_t id = nearest[i].second;
      ASSERT_TRUE(rows_.Delete(id));
      now_.erase(id);
      gone_.insert(id);
    }
    for (int i = 0; i < 200; ++i) Put(random_.Uniform(kRows));
  }
  void Check(const std::vector<ScoredRow>& found, size_t v, uint32_t k) {
    std::set<uint64_t> ids;
    for (const ScoredRow& row : found) {
      const std::vector<double>& scores = scores_[{v, row.id}];
      ASSERT_NE(std::find(scores.begin(), scores.end(), row.score), scores.end())
          << "row " << row.id << " had no such score";
      ASSERT_TRUE(ids.insert(row.id).second) << "row " << row.id << " is there twice";
    }
    ASSERT_EQ(found.size(), k);
    for (const auto& [id, row] : now_) {
      const std::vector<double>& scores = scores_[{v, id}];
      // A row that was there all the time, and was nearer than the last one with each value.
      if (gone_.contains(id) || ids.contains(id)) continue;
      ASSERT_LE(*std::min_element(scores.begin(), scores.end()), found.back().score)
          << "row " << id << " was left out";
    }
  }

  Random& random_;
  ServedMemory memory_{1ull << 40};
  ServedRows rows_{RowCoder(RowFormatKind::kFp32, kDim), &memory_};
  std::vector<float> queries_;
  std::map<uint64_t, std::vector<float>> now_;
  std::map<std::pair<size_t, uint64_t>, std::vector<double>> scores_;  // of each vector and row
  std::set<uint64_t> gone_;                                            // at some time of the search
  int repeated_ = 0;
};

TEST(RowSearchTest, LeavesNoRowOutWhileRowsChangeComeAndGo) {
  const TestSeed seed(846);
  Random random(seed.value());
  ChangingRows rows(&random);
  for (int round = 0; round < 12; ++round) {
    rows.Search(static_cast<uint32_t>(1 + random.Uniform(150)), round % 3 == 0 ? 9 : 1);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(rows.repeated(), 0) << "no row was lost between a step and the end";
}

TEST(RowSearchTest, EndsWhenItIsTold) {
  ServedMemory memory(1ull << 40);
  ServedRows rows(RowCoder(RowFormatKind::kFp32, 64), &memory);
  const std::vector<float> row(64, 1);
  bool finite = false;
  for (uint64_t id = 0; id < 20'000; ++id) ASSERT_TRUE(rows.Put(id, row.data(), &finite).ok());
  const std::vector<float> vectors(64 * 100, 1);
  const RowsView view(rows);
  RowSearch search(view, {.k = 3, .vectors = vectors});
  int asked = 0;
  const absl::Status ended = search.Run(
      [&asked] { return ++asked == 3 ? absl::CancelledError("enough") : absl::OkStatus(); });
  EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled);
  EXPECT_LT(search.rows_read(), 20'000u);
}

}  // namespace row_search_test
}  // namespace hotbed
