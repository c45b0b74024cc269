// Top-k over a real host: equals a brute force over the rows that pulls give, whichever tier the
// rows are in, and while they are pushed and move between tiers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/random.h"
#include "row_math/metric.h"
#include "row_math/position.h"
#include "server/export/top_k_calls.h"
#include "server/shard/shard.h"
#include "tests/common/test_seed.h"
#include "tests/kernels/nearness_twin.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace top_k_test {

using ::testing::HasSubstr;

constexpr uint64_t kNoChange = ~uint64_t{0};

struct Place {
  uint64_t host_bytes = 64ull << 20;
  uint32_t shards = 3;
};

// A server with one table, and what was pushed to it.
class Searched {
 public:
  Searched(const TableSpec& table, const Place& place, uint64_t seed)
      : table_(table),
        random_(seed),
        server_(Options(place), {table}, place.shards),
        client_(&server_, 7) {
    server_.Start();
  }

  std::vector<float> AnyVector() {
    std::vector<float> vector;
    for (uint32_t i = 0; i < table_.dim; ++i) {
      vector.push_back(static_cast<float>(random_.Uniform(2001)) / 1000 - 1);
    }
    return vector;
  }
  void Push(const std::vector<uint64_t>& ids) {
    std::vector<float> gradients;
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::vector<float> row = AnyVector();
      gradients.insert(gradients.end(), row.begin(), row.end());
    }
    client_.Push(table_.id, ++step_, ids, gradients);
    pushed_.insert(ids.begin(), ids.end());
  }
  std::vector<uint64_t> AnyIds(size_t count) {
    std::set<uint64_t> ids;
    while (ids.size() < count) {
      ids.insert(table_.hashed ? Mix64(random_.Uniform(table_.rows))
                               : random_.Uniform(table_.rows));
    }
    return {ids.begin(), ids.end()};
  }

  v1::TopKRequest RequestOf(const std::vector<float>& vectors, uint32_t k, RowMetric metric) {
    v1::TopKRequest request;
    request.set_metric(static_cast<v1::TopKMetric>(metric));
    request.set_k(k);
    request.set_vectors(vectors.data(), vectors.size() * sizeof(float));
    request.set_last_id(kNoChange);
    request.set_timeout_ms(60'000);
    return request;
  }
  // With one vector: joins the answers of all shards.
  std::vector<ScoredRow> Ask(v1::TopKRequest request) {
    TopRows top(request.k(), SmallerIsNearer(static_cast<RowMetric>(request.metric())));
    for (const ShardRecord& record : server_.records()) {
      request.set_shard(record.shard.packed());
      request.set_range_first(record.range.first);
      request.set_range_limit(record.range.limit);
      const auto reply = AnswerTopK(*server_.host(), request, [] { return absl::OkStatus(); });
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (!reply.ok()) return {};
      EXPECT_FALSE(reply->elsewhere());
      for (size_t i = 0; i < reply->counts(0); ++i) {
        ScoredRow row;
        std::memcpy(&row.id, reply->ids().data() + 8 * i, 8);
        std::memcpy(&row.score, reply->scores().data() + 8 * i, 8);
        top.Offer(row);
      }
    }
    return top.Take();
  }
  // By the rows that pulls give, one after another.
  std::vector<ScoredRow> Twin(const std::vector<float>& vector, uint32_t k, RowMetric metric,
                              const std::vector<uint64_t>& ids) {
    const std::vector<float> rows = server_.Pull(table_.id, ids);
    std::vector<ScoredRow> all;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto from = rows.begin() + static_cast<ptrdiff_t>(i * table_.dim);
      const std::vector<float> row(from, from + table_.dim);
      all.push_back({ids[i], NearnessTwin(row, vector, metric)});
    }
    std::sort(all.begin(), all.end(), [&](const ScoredRow& a, const ScoredRow& b) {
      if (a.score == b.score) return a.id < b.id;
      return metric == RowMetric::kL2 ? a.score < b.score : a.score > b.score;
    });
    all.resize(std::min<size_t>(all.size(), k));
    return all;
  }
  std::vector<uint64_t> pushed() const { return {pushed_.begin(), pushed_.end()}; }
  TestServer& server() { return server_; }
  Random& random() { return random_; }
  void Restart() {
    ASSERT_TRUE(server_.Stop().ok());
    server_.Kill();
    server_.Start();
    client_.Restart();
  }

 private:
  ShardHostOptions Options(const Place& place) {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = place.host_bytes;
    options.checkpoint_interval_ms = 0;
    return options;
  }

  const TableSpec table_;
  TempDir dir_;
  Random random_;
  TestServer server_;
  TestClient client_;
  uint64_t step_ = 0;
  std::set<uint64_t> pushed_;
};

TableSpec Table(bool hashed, WeightType type, uint64_t rows, uint32_t dim) {
  TableSpec table = TestTable(1, "searched", rows, dim, OptimizerKind::kSgd);
  table.hashed = hashed;
  table.weight_type = type;
  table.initializer = {InitializerKind::kConstant, 0, 0};
  table.optimizer.learning_rate = 1;
  return table;
}

std::vector<uint64_t> Within(const std::vector<uint64_t>& ids, uint64_t first, uint64_t last) {
  std::vector<uint64_t> kept;
  for (const uint64_t id : ids) {
    if (id >= first && id <= last) kept.push_back(id);
  }
  return kept;
}

void Compare(Searched* searched, const std::vector<float>& vector, RowMetric metric) {
  Random& random = searched->random();
  const std::vector<uint64_t> ids = searched->pushed();
  const auto k = static_cast<uint32_t>(1 + random.Uniform(60));
  v1::TopKRequest request = searched->RequestOf(vector, k, metric);
  EXPECT_EQ(searched->Ask(request), searched->Twin(vector, k, metric, ids));
  // A range of ids.
  const uint64_t a = ids[random.Uniform(ids.size())], b = ids[random.Uniform(ids.size())];
  request.set_first_id(std::min(a, b));
  request.set_last_id(std::max(a, b));
  const std::vector<uint64_t> within = Within(ids, std::min(a, b), std::max(a, b));
  EXPECT_EQ(searched->Ask(request), searched->Twin(vector, k, metric, within));
}

// Rows in memory, in both tiers, and after a restart.
TEST(TopKTest, EqualsABruteForceWhereverTheRowsAre) {
  const TestSeed seed(3);
  Random random(seed.value());
  for (const bool hashed : {false, true}) {
    for (const WeightType type : {WeightType::kFp32, WeightType::kFp16, WeightType::kBf16}) {
      const auto dim = static_cast<uint32_t>(1 + random.Uniform(40));
      Searched searched(Table(hashed, type, 6000, dim), {}, random.Next());
      for (int push = 0; push < 4; ++push) searched.Push(searched.AnyIds(800));
      for (const RowMetric metric : {RowMetric::kDot, RowMetric::kCosine, RowMetric::kL2}) {
        Compare(&searched, searched.AnyVector(), metric);
      }
      searched.Restart();
      searched.Push(searched.AnyIds(300));
      Compare(&searched, searched.AnyVector(), RowMetric::kDot);
      Compare(&searched, std::vector<float>(dim, 0.0f), RowMetric::kCosine);  // all tie
    }
  }
}

// The memory holds a part of the rows: the others are in the spill tier, some of them as older
// values of rows in memory.
TEST(TopKTest, EqualsABruteForceWithMoreRowsThanMemory) {
  const TestSeed seed(4);
  Random random(seed.value());
  for (const bool hashed : {false, true}) {
    Searched searched(Table(hashed, WeightType::kFp32, 60'000, 256), {32ull << 20, 2},
                      random.Next());
    for (int push = 0; push < 30; ++push) searched.Push(searched.AnyIds(1000));
    for (int round = 0; round < 3; ++round) {
      Compare(&searched, searched.AnyVector(), static_cast<RowMetric>(round));
      searched.Push(searched.AnyIds(500));
    }
    uint64_t evictions = 0;
    for (const ShardRecord& record : searched.server().records()) {
      evictions += searched.server().host()->Find(record.shard)->Status().store.evictions;
    }
    EXPECT_GT(evictions, 0u) << "all rows fitted into memory";
  }
}

// In memory, and where most rows are in the spill tier alone.
TEST(TopKTest, CandidatesForAdmissionAreNotFound) {
  for (const uint64_t rows : {1000, 30'000}) {
    TableSpec table = Table(/*hashed=*/true, WeightType::kFp32, 60'000, 256);
    table.optimizer.touches = true;
    table.life.admission.after = 2;
    Searched searched(table, {32ull << 20, 2}, 5);
    const std::vector<uint64_t> ids = searched.AnyIds(rows);
    for (size_t first = 0; first < ids.size(); first += 1000) {
      searched.Push({ids.begin() + first, ids.begin() + first + 1000});
    }
    const std::set<uint64_t> admitted(ids.begin() + 500, ids.begin() + 540);
    searched.Push({admitted.begin(), admitted.end()});
    std::set<uint64_t> found;
    for (const ScoredRow& row :
         searched.Ask(searched.RequestOf(searched.AnyVector(), 100, RowMetric::kDot))) {
      found.insert(row.id);
    }
    EXPECT_EQ(found, admitted) << rows << " rows";
  }
}

TEST(TopKTest, OnlyTheRowsOfAList) {
  const TestSeed seed(6);
  Random random(seed.value());
  for (const bool hashed : {false, true}) {
    Searched searched(Table(hashed, WeightType::kFp16, 5000, 12), {64ull << 20, 1}, random.Next());
    searched.Push(searched.AnyIds(2000));
    const std::vector<uint64_t> pushed = searched.pushed();
    std::vector<uint64_t> list, there;
    for (const uint64_t id : searched.AnyIds(700)) {
      list.push_back(id);
      if (std::binary_search(pushed.begin(), pushed.end(), id)) there.push_back(id);
    }
    ASSERT_LT(there.size(), list.size());
    const std::vector<float> vector = searched.AnyVector();
    v1::TopKRequest request = searched.RequestOf(vector, 50, RowMetric::kDot);
    request.set_only_ids(true);
    EXPECT_EQ(searched.Ask(request), std::vector<ScoredRow>());
    list.push_back(list.front());  // counts once
    request.set_ids(list.data(), list.size() * sizeof(uint64_t));
    EXPECT_EQ(searched.Ask(request), searched.Twin(vector, 50, RowMetric::kDot, there));
  }
}

// A row that is always far nearer than all others is always the first, with a value that it had,
// while other rows push it out of memory and it is updated.
TEST(TopKTest, NoRowIsMissedWhileRowsMoveBetweenTiers) {
  const TestSeed seed(8);
  Searched searched(Table(/*hashed=*/true, WeightType::kFp32, 40'000, 256), {32ull << 20, 1},
                    seed.value());
  std::vector<uint64_t> near;  // none of AnyIds
  for (uint64_t id = 1; id <= 20; ++id) near.push_back(id);
  std::atomic<bool> stop{false};
  const std::vector<float> vector(256, 1.0f);
  for (int push = 0; push < 10; ++push) searched.Push(searched.AnyIds(1500));
  TestClient client(&searched.server(), 9);
  // Gradients of -100 move a row by 100 towards the vector.
  const std::vector<float> nearer(near.size() * 256, -100.0f);
  client.Push(1, 1, near, nearer);
  std::thread pusher([&] {
    for (uint64_t step = 2; !stop.load(); ++step) client.Push(1, step, near, nearer);
  });
  std::thread others([&] {
    while (!stop.load()) searched.Push(searched.AnyIds(1500));
  });
  v1::TopKRequest request =
      searched.RequestOf(vector, static_cast<uint32_t>(near.size()), RowMetric::kDot);
  double lowest = 0;
  for (int round = 0; round < 15; ++round) {
    const std::vector<ScoredRow> rows = searched.Ask(request);
    std::set<uint64_t> ids;
    double least = rows.empty() ? 0 : rows.back().score;
    for (const ScoredRow& row : rows) ids.insert(row.id);
    EXPECT_EQ(ids, std::set<uint64_t>(near.begin(), near.end())) << "round " << round;
    EXPECT_GE(least, lowest) << "an older value than one that was seen before";
    lowest = least;
  }
  stop.store(true);
  pusher.join();
  others.join();
}

absl::Status Refusal(Searched* searched, const v1::TopKRequest& asked) {
  v1::TopKRequest request = asked;
  const ShardRecord& record = searched->server().records().front();
  request.set_shard(record.shard.packed());
  request.set_range_first(record.range.first);
  request.set_range_limit(record.range.limit);
  return AnswerTopK(*searched->server().host(), request, [] { return absl::OkStatus(); }).status();
}

TEST(TopKTest, BadRequestsAreRefusedByFieldAndLimit) {
  Searched searched(Table(false, WeightType::kFp32, 100, 4), {64ull << 20, 1}, 1);
  const v1::TopKRequest good = searched.RequestOf({1, 2, 3, 4}, 5, RowMetric::kDot);
  EXPECT_TRUE(Refusal(&searched, good).ok());
  const auto expect = [&](const char* text, auto change) {
    v1::TopKRequest request = good;
    change(&request);
    const absl::Status refused = Refusal(&searched, request);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(text));
  };
  expect("k is 0, allowed: 1..16384", [](auto* r) { r->set_k(0); });
  expect("k is 16385, allowed: 1..16384", [](auto* r) { r->set_k(16385); });
  expect("metric is 7, allowed: 0 (dot), 1 (cosine), 2 (l2)",
         [](auto* r) { r->set_metric(static_cast<v1::TopKMetric>(7)); });
  expect("timeout_ms is 0, allowed: 1..600000", [](auto* r) { r->set_timeout_ms(0); });
  expect("vectors has 15 bytes, allowed: multiples of 16, since table searched has dim 4",
         [](auto* r) { r->mutable_vectors()->pop_back(); });
  expect("vectors has 0 bytes", [](auto* r) { r->clear_vectors(); });
  expect("element 2 of vector 0 is nan, allowed: finite numbers", [](auto* r) {
    const float nan = std::nanf("");
    std::memcpy(r->mutable_vectors()->data() + 8, &nan, 4);
  });
  expect("k times the vectors is 20000, allowed: at most 16384", [](auto* r) {
    r->set_k(10'000);
    r->mutable_vectors()->append(*r->mutable_vectors());
  });
  expect("ids has 3 bytes, allowed: multiples of 8", [](auto* r) { r->set_ids("abc"); });
  expect("ids: id 100 is not of", [](auto* r) {
    const uint64_t id = 100;
    r->set_only_ids(true);
    r->set_ids(&id, sizeof(id));
  });
}

TEST(TopKTest, ColumnSlicesAreRefused) {
  TableSpec table = Table(false, WeightType::kFp32, 100, 4);
  table.column_slices = 2;
  Searched searched(table, {64ull << 20, 1}, 1);
  const absl::Status refused =
      Refusal(&searched, searched.RequestOf({1, 2, 3, 4}, 5, RowMetric::kDot));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("table searched has column slices, and no server has whole rows of it"));
}

TEST(TopKTest, ACallEndsAtItsTimeAndAtTheStop) {
  Searched searched(Table(false, WeightType::kFp32, 100, 4), {64ull << 20, 1}, 1);
  ManualClock clock;
  const auto memory = std::make_shared<ChangeMemory>(8 << 20);
  TopKCalls calls(searched.server().host(), memory, &clock, /*threads=*/0);
  v1::TopKRequest request = searched.RequestOf({1, 2, 3, 4}, 5, RowMetric::kDot);
  absl::Status said;
  calls.TopK(request, [&](const absl::StatusOr<std::string>& answer, std::shared_ptr<const void>) {
    said = answer.status();
  });
  for (size_t i = 1; i < kTopKCallsMax; ++i) {
    calls.TopK(request, [](const absl::StatusOr<std::string>&, std::shared_ptr<const void>) {});
  }
  absl::Status refused;
  calls.TopK(request, [&](const absl::StatusOr<std::string>& answer, std::shared_ptr<const void>) {
    refused = answer.status();
  });
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(said.ok());
  calls.Stop();
  EXPECT_EQ(said.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(memory->answer_bytes(), 0u);
  // Between two steps the search asks whether it may go on.
  request.set_shard(searched.server().records().front().shard.packed());
  request.set_range_limit(100);
  const auto late = AnswerTopK(*searched.server().host(), request,
                               [] { return absl::DeadlineExceededError("late"); });
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace top_k_test
}  // namespace hotbed
