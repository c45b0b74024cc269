// Rows that a device copies straight into the answers of a server's pool: the same bits as by way
// of staging memory, which rows go which way, and what becomes of an answer whose shard goes.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/random.h"
#include "server/answer_pool.h"
#include "tests/tiers/device_tier_fixture.h"

namespace hotbed {
namespace {

constexpr uint64_t kRowBytes = 4 * kDim;
constexpr uint64_t kBlock = 2 << 20;  // of the pool
constexpr uint8_t kUntouched = 0xab;

std::vector<float> StoredRow(uint32_t table, uint64_t id) {
  std::vector<float> row(kDim);
  for (uint32_t c = 0; c < kDim; ++c) row[c] = static_cast<float>(1000 * table + 10 * id + c + 1);
  return row;
}

// One segment of an answer.
struct Part {
  std::shared_ptr<DeviceJob> job;
  std::vector<uint64_t> ids;
  std::vector<uint8_t> flags;
  std::vector<uint32_t> lengths;  // of bags, if it is pooled
  uint64_t at = 0;                // of the answer's bytes
  uint64_t bytes = 0;
};

// Some pulls answered side by side, as by a server.
struct Answer {
  AnswerBuffer* buffer = nullptr;  // null: in `plain`
  std::vector<uint8_t> plain;
  std::vector<Part> parts;

  uint8_t* data() { return buffer != nullptr ? buffer->data : plain.data(); }
};

class DirectAnswersTest : public DeviceTierTest {
 protected:
  void OpenWithRows(const device::HostDeviceOptions& options, uint32_t messages_of_task) {
    Open(options, messages_of_task);
    for (uint32_t table = 0; table < kTables; ++table) {
      std::vector<uint64_t> ids;
      std::vector<std::vector<float>> rows;
      std::vector<const uint8_t*> assigned;
      for (uint64_t id = 0; id < kRows; id += 2) {
        ids.push_back(id);
        rows.push_back(StoredRow(table, id));
        assigned.push_back(reinterpret_cast<const uint8_t*>(rows.back().data()));
      }
      const auto job = NewJob(DeviceJob::Kind::kUpdate);
      job->table = table;
      job->ids = ids.data();
      job->count = static_cast<uint32_t>(ids.size());
      job->gradients = assigned.data();
      job->assign = true;
      tier_->Submit(job);
      RunAll();
      ASSERT_TRUE(job->status.ok()) << job->status;
    }
  }
  // A pull of `count` ids, whose rows lie `at` of the answer.
  Part NewPart(Random& random, uint32_t count, uint64_t at) {
    Part part;
    part.job = NewJob(DeviceJob::Kind::kPull);
    part.job->table = static_cast<uint32_t>(random.Uniform(kTables));
    for (uint32_t k = 0; k < count; ++k) part.ids.push_back(random.Uniform(kRows));
    part.flags.assign(count, 77);
    part.at = at;
    part.bytes = count * kRowBytes;
    return part;
  }
  // A bag of a few rows that are there.
  Part NewBag(Random& random, uint64_t at) {
    Part part = NewPart(random, 1 + static_cast<uint32_t>(random.Uniform(4)), at);
    for (uint64_t& id : part.ids) id &= ~1ull;
    part.job->kind = DeviceJob::Kind::kPooled;
    part.job->pooling = RowPooling::kMax;
    part.lengths = {static_cast<uint32_t>(part.ids.size())};
    part.bytes = kRowBytes;
    return part;
  }
  std::unique_ptr<Answer> Draw(Random& random, AnswerPool* pool) {
    auto answer = std::make_unique<Answer>();
    uint64_t at = 192 + random.Uniform(64);  // behind the header
    for (uint64_t parts = 1 + random.Uniform(6); parts > 0; --parts) {
      // Rows of 48 bytes and more end where others may follow in the message too.
      const auto count = static_cast<uint32_t>(random.OneIn(2) ? 4 * (1 + random.Uniform(6))
                                                               : 1 + random.Uniform(40));
      answer->parts.push_back(random.OneIn(5) ? NewBag(random, at) : NewPart(random, count, at));
      at += answer->parts.back().bytes;
    }
    if (random.OneIn(4)) {
      answer->plain.assign(at + 64, kUntouched);
    } else {
      // Of three sizes: the pool has room for blocks of two.
      answer->buffer = pool->Take(at + 64 + 5000 * random.Uniform(3));
      std::memset(answer->buffer->data, kUntouched, answer->buffer->capacity);
    }
    return answer;
  }
  void Submit(Answer* answer) {
    for (Part& part : answer->parts) {
      DeviceJob& job = *part.job;
      job.ids = part.ids.data();
      job.count = static_cast<uint32_t>(part.ids.size());
      job.bag_lengths = part.lengths.data();
      job.bags = static_cast<uint32_t>(part.lengths.size());
      job.flags = part.flags.data();
      job.rows = answer->data() + part.at;
      job.answer = answer->buffer;
      tier_->Submit(part.job);
    }
  }
  static std::vector<float> WantedRow(const Part& part, size_t k) {
    if (part.lengths.empty()) return StoredRow(part.job->table, part.ids[k]);
    // The maximum: of rows of one table, that of the largest id.
    return StoredRow(part.job->table, *std::max_element(part.ids.begin(), part.ids.end()));
  }
  // Every row that is there, and not one byte beside the rows.
  static void Check(Answer* answer) {
    uint64_t end = 0;
    const auto untouched = [&](uint64_t limit) {
      return std::all_of(answer->data() + end, answer->data() + limit,
                         [](uint8_t byte) { return byte == kUntouched; });
    };
    for (const Part& part : answer->parts) {
      ASSERT_TRUE(part.job->status.ok()) << part.job->status;
      ASSERT_TRUE(untouched(part.at));
      end = part.at + part.bytes;
      const bool pooled = !part.lengths.empty();
      std::vector<uint32_t> missing;
      for (size_t k = 0; k < (pooled ? 1 : part.ids.size()); ++k) {
        if (part.ids[k] % 2 == 1) missing.push_back(static_cast<uint32_t>(k));
        ASSERT_TRUE(pooled || part.flags[k] == (part.ids[k] % 2 == 0));
        if (!missing.empty() && missing.back() == k) continue;
        const std::vector<float> want = WantedRow(part, k);
        ASSERT_EQ(std::memcmp(want.data(), answer->data() + part.at + k * kRowBytes, kRowBytes), 0)
            << "row " << k << " of " << part.ids.size();
      }
      ASSERT_EQ(part.job->missing, missing);
    }
    ASSERT_TRUE(untouched(end + 64));
  }
};

struct DirectCase {
  const char* name;
  uint64_t direct_bytes_min;
  uint32_t messages_of_task;
  uint64_t order_seed;
  uint64_t pinned_bytes_max;
};

class DirectAnswersOfTest : public DirectAnswersTest,
                            public ::testing::WithParamInterface<DirectCase> {};

// Of pulls cut into messages and joined; of answers in pinned memory, in memory that the pool has
// no room for, and in other memory.
TEST_P(DirectAnswersOfTest, TheSameBitsWhicheverWayTheyGo) {
  const DirectCase& c = GetParam();
  const uint64_t seed = TestSeed(11);
  SCOPED_TRACE(Replay(seed));
  Random random(seed);
  device::HostDeviceOptions options;
  options.order_seed = c.order_seed;
  options.pinned_bytes_max = c.pinned_bytes_max;
  OpenWithRows(options, c.messages_of_task);
  tier_->SetDirectBytesMin(c.direct_bytes_min);
  const auto pool = AnswerPool::Create(2 * kBlock, tier_->pinner());
  uint64_t pinned_rows = 0, other_rows = 0;  // bytes
  for (int round = 0; round < 60; ++round) {
    std::vector<std::unique_ptr<Answer>> answers;
    for (uint64_t n = 1 + random.Uniform(8); n > 0; --n) {
      answers.push_back(Draw(random, pool.get()));
      Answer* const answer = answers.back().get();
      const bool pinned = answer->buffer != nullptr && answer->buffer->pinned();
      for (const Part& part : answer->parts) (pinned ? pinned_rows : other_rows) += part.bytes;
      Submit(answer);
    }
    RunAll();
    for (const auto& answer : answers) {
      Check(answer.get());
      if (HasFatalFailure()) return;
      if (answer->buffer != nullptr) {
        EXPECT_EQ(answer->buffer->owners.load(), 1u) << "the device still has it";
        AnswerPool::Give(answer->buffer);
      }
    }
  }
  EXPECT_EQ(tier_->rows_direct_bytes() + tier_->rows_copied_bytes(), pinned_rows + other_rows);
  EXPECT_GT(other_rows, 0u);
  EXPECT_EQ(tier_->pinned_bytes(), std::min(c.pinned_bytes_max, 2 * kBlock));
  if (c.direct_bytes_min == 1) {
    EXPECT_EQ(tier_->rows_copied_bytes(), other_rows) << "rows of pinned memory were copied";
  } else if (c.direct_bytes_min < 1000) {
    EXPECT_GT(tier_->rows_direct_bytes(), pinned_rows / 10);
    EXPECT_LT(tier_->rows_direct_bytes(), pinned_rows);
  }
  EXPECT_EQ(tier_->rows_direct_bytes() == 0, c.direct_bytes_min > 1000 || c.pinned_bytes_max == 0);
}

constexpr uint64_t kAnyBytes = ~0ull;
INSTANTIATE_TEST_SUITE_P(Ways, DirectAnswersOfTest,
                         ::testing::Values(DirectCase{"AllDirect", 1, 64, 0, kAnyBytes},
                                           DirectCase{"AllDirectAnyOrder", 1, 64, 7, kAnyBytes},
                                           DirectCase{"AllDirectOneMessageATask", 1, 1, 8,
                                                      kAnyBytes},
                                           DirectCase{"ManyDirect", 150, 64, 9, kAnyBytes},
                                           DirectCase{"AllStaged", 1 << 20, 64, 10, kAnyBytes},
                                           DirectCase{"OneBlockMayBePinned", 1, 64, 11, kBlock},
                                           DirectCase{"NothingMayBePinned", 1, 64, 12, 0}),
                         [](const auto& info) { return info.param.name; });

// As a server has it: what a GPU is given a copy for, and what is copied with its neighbours.
TEST_F(DirectAnswersTest, RowsThatAreManyTogetherAreNotCopiedOnTheHost) {
  limits_ = SmallMessages(4096);
  OpenWithRows({}, 64);
  tier_->SetDirectBytesMin(16 << 10);
  Random random(1);
  const auto pool = AnswerPool::Create(8 * kBlock, tier_->pinner());
  const auto copied = [&](const std::vector<uint32_t>& counts, uint64_t gap) {
    const uint64_t before = tier_->rows_copied_bytes();
    Answer answer;
    uint64_t at = 200;
    for (const uint32_t count : counts) {
      answer.parts.push_back(NewPart(random, count, at));
      at += answer.parts.back().bytes + gap;
    }
    answer.buffer = pool->Take(at + 64);
    std::memset(answer.buffer->data, kUntouched, answer.buffer->capacity);
    Submit(&answer);
    RunAll();
    Check(&answer);
    AnswerPool::Give(answer.buffer);
    return tier_->rows_copied_bytes() - before;
  };
  EXPECT_EQ(copied({1366}, 0), 0u) << "16,392 bytes";
  EXPECT_EQ(copied({1365}, 0), 16380u);
  EXPECT_EQ(copied({700, 700}, 0), 0u) << "8,400 bytes each, side by side";
  EXPECT_EQ(copied({700, 700}, 4), 16800u) << "apart";
  EXPECT_EQ(copied({701, 700}, 0), 16812u) << "8,412 bytes: the next begins at a multiple of 16";
  EXPECT_EQ(copied({4000, 100, 4000}, 4), 1200u);
}

// A shard that goes while the device copies into its answer, because of what another is told. Its
// caller gives the answer's memory back, and another answer is made at once.
class DroppedAnswerTest : public DirectAnswersTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  // Whether the copy came after the gate was closed.
  bool CopiesLate(uint64_t order_seed) {
    device::HostDeviceOptions options;
    options.order_seed = order_seed;
    OpenWithRows(options, 64);
    Random random(3);
    const auto pool = AnswerPool::Create(kBlock, tier_->pinner());
    Answer answers[2];
    InlineExecutor at_once;
    const auto gate = std::make_shared<IoGate>();
    for (Answer& answer : answers) {
      answer.parts.push_back(NewPart(random, 16, 200));  // a message each
      answer.buffer = pool->Take(kBlock / 4);
      std::memset(answer.buffer->data, kUntouched, answer.buffer->capacity);
      answer.parts[0].job->executor = &at_once;
      answer.parts[0].ids[0] = 2;
    }
    Part& dropped = answers[1].parts[0];
    dropped.job->gate = gate;
    uint8_t* const memory = answers[1].buffer->data;
    uint8_t* const row = memory + dropped.at;
    std::vector<AnswerBuffer*> others;
    bool late = false;
    answers[0].parts[0].job->done = [&] {
      gate->Close();
      late = row[0] == kUntouched && row[1] == kUntouched;
      dropped.ids.assign(16, ~0ull);
      AnswerPool::Give(answers[1].buffer);
      for (int k = 0; k < 3; ++k) {
        others.push_back(pool->Take(kBlock / 4));
        EXPECT_NE(others[k]->data, memory) << "the device copies into it";
        std::memset(others[k]->data, 0x55, others[k]->capacity);
      }
    };
    for (Answer& answer : answers) Submit(&answer);
    RunAll();
    Check(&answers[0]);
    EXPECT_EQ(others.size(), 3u);
    for (AnswerBuffer* other : others) {
      EXPECT_TRUE(std::all_of(other->data, other->data + kBlock / 4,
                              [](uint8_t byte) { return byte == 0x55; }));
    }
    late = late && row[0] != kUntouched;
    // It went back when the device was through.
    AnswerBuffer* const again = pool->Take(kBlock / 4);
    EXPECT_EQ(again->data, memory);
    others.insert(others.end(), {again, answers[0].buffer});
    for (AnswerBuffer* buffer : others) AnswerPool::Give(buffer);
    return late;
  }
};

TEST_P(DroppedAnswerTest, ItsMemoryIsNobodyElsesBeforeTheCopyEnds) {
  const bool late = CopiesLate(GetParam());
  EXPECT_EQ(late, GetParam() != 0) << "copies wait until they are waited for, but for order 0";
}
INSTANTIATE_TEST_SUITE_P(Orders, DroppedAnswerTest, ::testing::Values(0, 1, 2, 3, 4));

TEST_F(DirectAnswersTest, AShardThatHasGoneBeforeItsMessageKeepsNoAnswer) {
  OpenWithRows({}, 64);
  Random random(5);
  const auto pool = AnswerPool::Create(kBlock, tier_->pinner());
  Answer answer;
  answer.parts.push_back(NewPart(random, 16, 200));
  answer.buffer = pool->Take(4000);
  std::memset(answer.buffer->data, kUntouched, 4000);
  Submit(&answer);
  gate_->Close();
  RunAll();
  EXPECT_EQ(answer.buffer->owners.load(), 1u);
  EXPECT_TRUE(std::all_of(answer.buffer->data, answer.buffer->data + 4000,
                          [](uint8_t byte) { return byte == kUntouched; }));
  AnswerPool::Give(answer.buffer);
}

TEST_F(DirectAnswersTest, ADeviceThatFailsLetsGoOfEveryAnswer) {
  for (uint64_t works = 0; works < 4; ++works) {
    device::HostDeviceOptions faults;
    faults.order_seed = 1 + works;
    faults.works_before_fault = 100 + works;
    OpenWithRows(faults, 64);
    Random random(6);
    const auto pool = AnswerPool::Create(kBlock, tier_->pinner());
    bool lost = false;
    for (int round = 0; round < 200 && !lost; ++round) {
      Answer answer;
      for (uint64_t at = 200; at < 2000; at += 16 * kRowBytes) {
        answer.parts.push_back(NewPart(random, 16, at));
      }
      answer.buffer = pool->Take(4000);
      Submit(&answer);
      RunAll();
      EXPECT_EQ(answer.buffer->owners.load(), 1u);
      for (const Part& part : answer.parts) lost = lost || IsDeviceLost(part.job->status);
      AnswerPool::Give(answer.buffer);
    }
    EXPECT_TRUE(lost);
  }
}

// The pool may outlive the tier: slices of the transport hold it.
TEST_F(DirectAnswersTest, ThePoolKeepsTheDevice) {
  Open();
  auto pool = AnswerPool::Create(kBlock, tier_->pinner());
  AnswerBuffer* const buffer = pool->Take(4000);
  EXPECT_TRUE(buffer->pinned());
  const std::shared_ptr<MemoryPinner> pinner = tier_->pinner();
  EXPECT_EQ(tier_->pinned_bytes(), kBlock);
  tier_ = nullptr;
  pool = nullptr;
  AnswerPool::Give(buffer);
  EXPECT_EQ(static_cast<DevicePinner*>(pinner.get())->bytes(), 0u);
}

}  // namespace
}  // namespace hotbed
