// Numbers of a vocabulary at a server: exactly once over resends, kills and small memory, from many
// threads at once, and refusals by name.
#include "server/vocabulary/number_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/random.h"
#include "common/tables/vocabulary_row.h"
#include "server/shard/shard.h"
#include "server/vocabulary/number_calls.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace number_answer_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr TableId kTable = 3;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class NumberAnswerTest : public testing::Test {
 protected:
  void Begin(uint64_t numbers, uint64_t hot_bytes = 0) {
    TableSpec table = TestTable(kTable, "words", 0, 0, OptimizerKind::kNone);
    table.initializer = {};
    MakeVocabulary(numbers, &table);
    ASSERT_TRUE(ValidateTableSpec(table).ok()) << ValidateTableSpec(table);
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.hot_bytes = hot_bytes;
    server_ = std::make_unique<TestServer>(options, std::vector<TableSpec>{table}, 1);
    server_->Start();
  }
  void KillAndStart() {
    server_->Kill();
    server_->Start();
  }
  struct Session {
    SessionId session = 7;
    uint64_t step = 0;
    uint64_t last_seq = 0;
  };
  v1::NumberRequest Request(const std::vector<uint64_t>& keys, const Session& session,
                            const std::vector<uint32_t>& counts = {}) const {
    v1::NumberRequest request;
    request.set_shard(ShardId{kTable, 0}.packed());
    request.set_epoch(server_->records()[0].epoch);
    request.set_keys(BytesOf(keys));
    request.set_counts(BytesOf(counts));
    request.set_session(session.session);
    request.set_incarnation(1);
    request.set_seq(session.step << 20 | 1);
    request.set_prev_seq(session.last_seq);
    request.set_open(session.last_seq == 0);
    request.set_timeout_ms(60'000);
    return request;
  }
  std::vector<uint32_t> Ask(const v1::NumberRequest& request) {
    const absl::Status checked = CheckNumberRequest(request, server_->table(kTable));
    EXPECT_TRUE(checked.ok()) << checked;
    v1::NumberReply reply;
    // Another thread's entry may come first more often than a call decides again.
    do {
      reply = AnswerNumber(server_->host(), request, *Clock::Real(),
                           Clock::Real()->NowNs() + request.timeout_ms() * kMillisecondNs);
    } while (reply.code() == v1::UNAVAILABLE);
    EXPECT_EQ(reply.code(), v1::OK) << reply.detail();
    last_ = reply;
    std::vector<uint32_t> numbers(reply.numbers().size() / 4);
    std::memcpy(numbers.data(), reply.numbers().data(), reply.numbers().size());
    return numbers;
  }
  std::vector<uint32_t> Look(const std::vector<uint64_t>& keys, Session* session,
                             const std::vector<uint32_t>& counts = {}) {
    ++session->step;
    const v1::NumberRequest request = Request(keys, *session, counts);
    const std::vector<uint32_t> numbers = Ask(request);
    session->last_seq = request.seq();
    return numbers;
  }
  VocabularyRow RowOf(uint64_t key) {
    const std::vector<float> row = server_->Pull(kTable, {key});
    return VocabularyRow::Load(row.data());
  }
  std::string Refusal(const std::vector<uint64_t>& keys, const std::vector<uint32_t>& counts = {}) {
    return std::string(
        CheckNumberRequest(Request(keys, {}, counts), server_->table(kTable)).message());
  }

  TempDir dir_;
  std::unique_ptr<TestServer> server_;
  v1::NumberReply last_;
};

// The case of NVIDIA's IntegerLookup: keys 7, 9, 7, 4, 5 into 3 numbers are 1, 2, 1, 3, 0.
TEST_F(NumberAnswerTest, NumbersAreContiguousAndZeroWhenFull) {
  Begin(3);
  Session session;
  EXPECT_THAT(Look({7, 9, 4, 5}, &session, {2, 1, 1, 1}), ElementsAre(1, 2, 3, 0));
  EXPECT_EQ(last_.given(), 3u);
  EXPECT_EQ(last_.full(), 1u);
  EXPECT_EQ(RowOf(7).count, 2u);
  EXPECT_EQ(RowOf(5).number, 0u);
  KillAndStart();
  EXPECT_THAT(Look({5, 4, 0, 7}, &session), ElementsAre(0, 3, 0, 1));
  EXPECT_EQ(last_.full(), 3u);
  EXPECT_EQ(RowOf(7).count, 3u);
  EXPECT_EQ(RowOf(9).count, 1u);
}

TEST_F(NumberAnswerTest, AResentCallCountsNothingAlsoAfterAKill) {
  Begin(100);
  Session session;
  session.step = 1;
  const v1::NumberRequest request = Request({1, 2, ~uint64_t{1}}, session, {5, 1, 1});
  EXPECT_THAT(Ask(request), ElementsAre(1, 2, 3));
  EXPECT_THAT(Ask(request), ElementsAre(1, 2, 3));
  KillAndStart();
  v1::NumberRequest again = request;
  again.set_epoch(server_->records()[0].epoch);
  EXPECT_THAT(Ask(again), ElementsAre(1, 2, 3));
  EXPECT_EQ(RowOf(1).count, 5u);
  EXPECT_EQ(RowOf(2).count, 1u);
  EXPECT_EQ(last_.given(), 3u);
}

TEST_F(NumberAnswerTest, TheTotalsNeedNoSession) {
  Begin(100);
  EXPECT_THAT(Ask(Request({}, {})), ElementsAre());
  EXPECT_EQ(last_.given(), 0u);
  Session session;
  Look({4, 5}, &session);
  EXPECT_THAT(Ask(Request({}, {})), ElementsAre());
  EXPECT_EQ(last_.given(), 2u);
}

TEST_F(NumberAnswerTest, CountsBeyondFloatsAreExact) {
  Begin(100);
  Session session;
  Look({4}, &session, {~0u});
  Look({4}, &session, {3});
  EXPECT_EQ(RowOf(4).count, uint64_t{~0u} + 3);
}

// The calls and answers of one thread.
struct Asker {
  SessionId session = 0;
  NumberCalls* calls = nullptr;  // null: it goes to the shard by itself
  ShardHost* host = nullptr;
  std::map<uint64_t, uint64_t> asked;  // key -> occurrences
  std::map<uint64_t, uint32_t> seen;   // key -> number

  v1::NumberReply Ask(const v1::NumberRequest& request) const {
    if (calls == nullptr)
      return AnswerNumber(host, request, *Clock::Real(),
                          Clock::Real()->NowNs() + request.timeout_ms() * kMillisecondNs);
    v1::NumberReply reply;
    absl::Notification answered;
    calls->Call(request, nullptr, [&](absl::StatusOr<std::string> answer, const auto&) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      EXPECT_TRUE(answer.ok() && reply.ParseFromString(*answer));
      answered.Notify();
    });
    answered.WaitForNotification();
    return reply;
  }

  void Look(v1::NumberRequest request, const std::map<uint64_t, uint32_t>& batch) {
    std::vector<uint64_t> keys;
    std::vector<uint32_t> counts;
    for (const auto& [key, count] : batch) {
      keys.push_back(key);
      counts.push_back(count);
      asked[key] += count;
    }
    request.set_keys(BytesOf(keys));
    request.set_counts(BytesOf(counts));
    v1::NumberReply reply;
    // An entry of another thread may come first more often than a call decides again.
    do reply = Ask(request);
    while (reply.code() == v1::UNAVAILABLE);
    ASSERT_EQ(reply.code(), v1::OK) << reply.detail();
    ASSERT_EQ(reply.numbers().size(), 4 * keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      uint32_t number = 0;
      std::memcpy(&number, reply.numbers().data() + 4 * i, 4);
      // A key that had none, because all were given, has none now.
      ASSERT_EQ(seen.emplace(keys[i], number).first->second, number) << keys[i];
    }
  }
};

// Threads ask at once: two with nothing between them and the shard, and two through the queue.
TEST_F(NumberAnswerTest, ThreadsGetOneNumberPerKeyAndLoseNoCount) {
  constexpr uint64_t kKeys = 3'000;
  Begin(kKeys / 2, /*hot_bytes=*/1 << 20);
  const TestSeed seed(20);
  NumberCalls calls(server_->host(), Clock::Real());
  std::vector<Asker> askers(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < askers.size(); ++t) {
    askers[t].session = 100 + t;
    askers[t].calls = t % 2 == 0 ? nullptr : &calls;
    askers[t].host = server_->host();
    threads.emplace_back([&, t] {
      Random random(seed.value() + t);
      Session session{askers[t].session};
      for (int call = 0; call < 25; ++call) {
        std::map<uint64_t, uint32_t> batch;
        for (int i = 0; i < 200; ++i) ++batch[random.Uniform(kKeys) * 0x9e3779b97f4a7c15ull];
        ++session.step;
        const v1::NumberRequest request = Request({}, session);
        askers[t].Look(request, batch);
        session.last_seq = request.seq();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  calls.Stop();
  KillAndStart();
  std::map<uint64_t, uint64_t> total;
  for (const Asker& asker : askers) {
    for (const auto& [key, count] : asker.asked) total[key] += count;
  }
  std::map<uint64_t, uint64_t> key_of_number;
  uint64_t full = 0;
  for (const auto& [key, count] : total) {
    const VocabularyRow row = RowOf(key);
    for (const Asker& asker : askers) {
      if (asker.seen.contains(key)) ASSERT_EQ(asker.seen.at(key), row.number) << key;
    }
    if (row.number == 0) full += count;
    if (row.number == 0) continue;
    ASSERT_TRUE(key_of_number.emplace(row.number, key).second) << row.number << " was given twice";
    ASSERT_EQ(row.count, count) << key;
  }
  ASSERT_EQ(key_of_number.size(), kKeys / 2);
  EXPECT_EQ(key_of_number.rbegin()->first, kKeys / 2);
  Ask(Request({}, {}));
  EXPECT_EQ(last_.given(), kKeys / 2);
  EXPECT_EQ(last_.full(), full);
}

// A decision from a state that another entry has changed is not taken.
TEST_F(NumberAnswerTest, ADecisionOfAnOlderStateIsRefused) {
  Begin(100);
  Session session;
  Look({1}, &session);
  const std::vector<uint64_t> ids = {2};
  auto push = server_->MakePush(9, 1, kTable, ids, {2, 0, 1, 0});
  push->segments[0].assign = true;
  push->segments[0].vocabulary = true;
  push->segments[0].decided_at = last_.lsn() - 1;
  push->segments[0].seq = 1 << 20 | 1;
  push->segments[0].open = true;
  server_->Run(push.get());
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kUnavailable);
  EXPECT_THAT(push->segments[0].result.detail, HasSubstr("the log went on behind LSN"));
  EXPECT_EQ(RowOf(2).number, 0u);
}

TEST_F(NumberAnswerTest, PushesAndDeletesAreRefused) {
  Begin(100);
  Session session;
  Look({1}, &session);
  auto push = server_->MakePush(9, 1, kTable, {1}, {2, 0, 1, 0});
  push->segments[0].assign = true;
  push->segments[0].seq = 1 << 20 | 1;
  push->segments[0].open = true;
  server_->Run(push.get());
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kInvalidArgument);
  EXPECT_THAT(push->segments[0].result.detail, HasSubstr("is a vocabulary, whose rows change by"));
  push = server_->MakePush(9, 1, kTable, {1}, {2, 0, 1, 0});
  push->segments[0].deletes = true;
  push->segments[0].gradients = nullptr;
  push->segments[0].seq = 2 << 20 | 1;
  push->segments[0].prev_seq = 1 << 20 | 1;
  server_->Run(push.get());
  EXPECT_EQ(push->segments[0].result.code, SegmentCode::kInvalidArgument);
  EXPECT_THAT(push->segments[0].result.detail, HasSubstr("no key is deleted"));
  EXPECT_EQ(RowOf(1).number, 1u);
}

TEST_F(NumberAnswerTest, SaysWhatIsAllowed) {
  Begin(100);
  EXPECT_THAT(Refusal({1, 2, 1}), HasSubstr("key 1 occurs twice"));
  EXPECT_THAT(Refusal({1, ~uint64_t{0}}), HasSubstr("stands for no key"));
  EXPECT_THAT(Refusal({1, 2}, {1}), HasSubstr("counts has 4 bytes for 2 keys"));
  EXPECT_THAT(Refusal(std::vector<uint64_t>(kNumberKeysMax + 1)), HasSubstr("at most 65536 keys"));
  TableSpec plain = TestTable(4, "plain", 10, 4, OptimizerKind::kSgd);
  EXPECT_THAT(std::string(CheckNumberRequest(Request({1}, {}), plain).message()),
              HasSubstr("plain is no vocabulary"));
}

}  // namespace number_answer_test
}  // namespace hotbed
