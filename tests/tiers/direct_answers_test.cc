// Rows that a device copies straight into the answers of a server's pool: they have the same bits
// as rows that go through staging memory; which rows take which path; and the answers of closed
// shards.
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/common/number_of.h"
#include "tests/tiers/direct_answers_fixture.h"

namespace hotbed {
namespace direct_answers_test {

struct DirectCase {
  const char* name;
  uint64_t direct_bytes_min;
  uint32_t messages_of_task;
  uint64_t order_seed;
  uint64_t pinned_bytes_max;
};

class DirectAnswersOfTest : public DirectAnswersTest,
                            public ::testing::WithParamInterface<DirectCase> {};

// Pulls that are cut into messages and joined; answers in pinned memory, in memory that the pool
// has no room for, and in other memory.
TEST_P(DirectAnswersOfTest, TheSameBitsWhicheverWayTheyGo) {
  const DirectCase& c = GetParam();
  const uint64_t seed = SeedFromEnvironment(11);
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
  EXPECT_EQ(
      NumberOf(*tier_, "device_rows_direct_bytes") + NumberOf(*tier_, "device_rows_copied_bytes"),
      pinned_rows + other_rows);
  EXPECT_GT(other_rows, 0u);
  EXPECT_EQ(NumberOf(*tier_, "device_pinned_bytes"), std::min(c.pinned_bytes_max, 2 * kBlock));
  if (c.direct_bytes_min == 1) {
    EXPECT_EQ(NumberOf(*tier_, "device_rows_copied_bytes"), other_rows)
        << "rows of pinned memory were copied";
  } else if (c.direct_bytes_min < 1000) {
    EXPECT_GT(NumberOf(*tier_, "device_rows_direct_bytes"), pinned_rows / 10);
    EXPECT_LT(NumberOf(*tier_, "device_rows_direct_bytes"), pinned_rows);
  }
  EXPECT_EQ(NumberOf(*tier_, "device_rows_direct_bytes") == 0,
            c.direct_bytes_min > 1000 || c.pinned_bytes_max == 0);
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

// With a server's limits: which rows the GPU copies itself, and which the host copies in groups.
TEST_F(DirectAnswersTest, RowsThatAreManyTogetherAreNotCopiedOnTheHost) {
  limits_ = SmallMessages(4096);
  OpenWithRows({}, 64);
  tier_->SetDirectBytesMin(DeviceTier::kDirectBytesMin);
  Random random(1);
  const auto pool = AnswerPool::Create(8 * kBlock, tier_->pinner());
  const auto copied = [&](const std::vector<uint32_t>& counts, uint64_t gap) {
    const uint64_t before = NumberOf(*tier_, "device_rows_copied_bytes");
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
    return NumberOf(*tier_, "device_rows_copied_bytes") - before;
  };
  EXPECT_EQ(copied({1366}, 0), 0u) << "16,392 bytes";
  EXPECT_EQ(copied({1365}, 0), 16380u);
  EXPECT_EQ(copied({700, 700}, 0), 0u) << "8,400 bytes each, side by side";
  EXPECT_EQ(copied({700, 700}, 4), 16800u) << "apart";
  EXPECT_EQ(copied({701, 700}, 0), 16812u) << "8,412 bytes: the next begins at a multiple of 16";
  EXPECT_EQ(copied({4000, 100, 4000}, 4), 1200u);
  tier_->SetDirectBytesMin(16380);
  EXPECT_EQ(copied({1365}, 0), 0u) << "just as many";
}

// A `done` of another shard closes a shard while the device copies into its answer. The caller
// gives the answer's memory back, and another answer is made at once.
class DroppedAnswerTest : public DirectAnswersTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  // Whether the device copied after the gate was closed.
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

// Knows whether its rows were there when it was let go.
class WatchedAnswer final : public AnswerMemory {
 public:
  explicit WatchedAnswer(AnswerBuffer* buffer) : buffer_(buffer) {}
  bool pinned() const override { return buffer_->pinned(); }
  void Hold() override { ++holds; }
  void Release() override {
    ++releases;
    complete = complete && buffer_->data[0] != kUntouched;
  }

  int holds = 0, releases = 0;
  bool complete = true;

 private:
  AnswerBuffer* const buffer_;
};

TEST_F(DirectAnswersTest, AnAnswerIsHeldUntilItsRowsAreThere) {
  for (uint64_t order = 1; order <= 5; ++order) {
    device::HostDeviceOptions options;
    options.order_seed = order;
    OpenWithRows(options, 64);
    Random random(4);
    const auto pool = AnswerPool::Create(kBlock, tier_->pinner());
    AnswerBuffer* const buffer = pool->Take(4000);
    std::memset(buffer->data, kUntouched, 4000);
    WatchedAnswer watched(buffer);
    for (const bool pooled : {false, true}) {
      Part part = pooled ? NewBag(random, 0) : NewPart(random, 16, 0);
      part.ids[0] = 2;
      DeviceJob& job = *part.job;
      job.ids = part.ids.data();
      job.count = static_cast<uint32_t>(part.ids.size());
      job.bag_lengths = part.lengths.data();
      job.bags = static_cast<uint32_t>(part.lengths.size());
      job.rows = buffer->data;
      job.answer = &watched;
      tier_->Submit(part.job);
      RunAll();
      EXPECT_EQ(watched.holds, pooled ? 2 : 1);
      EXPECT_EQ(watched.releases, watched.holds);
      EXPECT_TRUE(watched.complete) << "order " << order;
      std::memset(buffer->data, kUntouched, 4000);
    }
    EXPECT_EQ(NumberOf(*tier_, "device_rows_copied_bytes"), 0u);
    AnswerPool::Give(buffer);
  }
}

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

// Pulls of one thread, some of whose shards go while they wait; what it gives back others use.
class PullingThread {
 public:
  static constexpr uint64_t kIdsMax = 60;
  static constexpr uint64_t kSpareBytes = 5000;
  static constexpr uint64_t kBytesMax = kIdsMax * kRowBytes + kSpareBytes;

  PullingThread(DeviceTier* tier, AnswerPool* pool, uint64_t seed)
      : tier_(tier), pool_(pool), random_(seed) {}

  void Run() {
    for (int round = 0; round < 300 && wrong_ == 0; ++round) Pull();
  }
  uint64_t dropped() const { return dropped_; }
  uint64_t wrong() const { return wrong_; }

 private:
  void Pull() {
    const auto job = std::make_shared<DeviceJob>();
    std::vector<uint64_t> ids(1 + random_.Uniform(kIdsMax));
    std::vector<uint8_t> flags(ids.size());
    for (uint64_t& id : ids) id = random_.Uniform(kRows / 2) * 2;
    const uint64_t bytes = ids.size() * kRowBytes;
    AnswerBuffer* const buffer = pool_->Take(bytes + random_.Uniform(2) * kSpareBytes);
    std::memset(buffer->data, kUntouched, bytes);
    absl::Notification told;
    const auto gate = std::make_shared<IoGate>();
    job->kind = DeviceJob::Kind::kPull;
    job->table = static_cast<uint32_t>(random_.Uniform(kTables));
    job->dim = kDim;
    job->ids = ids.data();
    job->count = static_cast<uint32_t>(ids.size());
    job->flags = flags.data();
    job->rows = buffer->data;
    job->answer = buffer;
    job->gate = gate;
    job->executor = &at_once_;
    job->done = [&told] { told.Notify(); };
    tier_->Submit(job);
    if (!random_.OneIn(3)) told.WaitForNotification();
    gate->Close();
    dropped_ += !told.HasBeenNotified();
    for (size_t k = 0; told.HasBeenNotified() && k < ids.size(); ++k) {
      const std::vector<float> want = StoredRow(job->table, ids[k]);
      wrong_ += std::memcmp(want.data(), buffer->data + k * kRowBytes, kRowBytes) != 0;
    }
    AnswerPool::Give(buffer);
  }

  DeviceTier* const tier_;
  AnswerPool* const pool_;
  InlineExecutor at_once_;
  Random random_;
  uint64_t dropped_ = 0, wrong_ = 0;
};

TEST_F(DirectAnswersTest, ManyThreadsAndShardsThatGo) {
  device::HostDeviceOptions options;
  options.order_seed = 21;
  OpenWithRows(options, 64);
  ThreadedIoQueue own("device", 1);
  tier_->RunOn(&own, 64);  // nothing is queued now
  const auto pool = AnswerPool::Create(2 * kBlock, tier_->pinner());
  // A block for each of the two sizes that are asked for: who takes from one that another thread is
  // pinning has its rows copied.
  for (uint64_t bytes : {uint64_t{1}, PullingThread::kBytesMax}) {
    AnswerPool::Give(pool->Take(bytes));
  }
  ASSERT_EQ(NumberOf(*tier_, "device_pinned_bytes"), 2 * kBlock);
  std::vector<std::unique_ptr<PullingThread>> pulling;
  std::vector<std::thread> threads;
  for (uint64_t n = 0; n < 4; ++n) {
    pulling.push_back(std::make_unique<PullingThread>(tier_.get(), pool.get(), n));
    threads.emplace_back([pulling = pulling.back().get()] { pulling->Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t dropped = 0;
  for (const auto& of : pulling) {
    EXPECT_EQ(of->wrong(), 0u) << "rows of an answer are not its own";
    dropped += of->dropped();
  }
  EXPECT_GT(dropped, 0u);
  const auto job = std::make_shared<DeviceJob>();  // behind all that was dropped
  absl::Notification through;
  job->call = [&through](device::DeviceRows*) {
    through.Notify();
    return device::Status();
  };
  tier_->Submit(job);
  through.WaitForNotification();
  EXPECT_TRUE(tier_->error().ok()) << tier_->error();
  EXPECT_GT(NumberOf(*tier_, "device_rows_direct_bytes"), 0u);
  EXPECT_EQ(NumberOf(*tier_, "device_rows_copied_bytes"), 0u);
}

// The pool may outlive the tier: slices of the transport hold it.
TEST_F(DirectAnswersTest, ThePoolKeepsTheDevice) {
  Open();
  auto pool = AnswerPool::Create(kBlock, tier_->pinner());
  AnswerBuffer* const buffer = pool->Take(4000);
  EXPECT_TRUE(buffer->pinned());
  const std::shared_ptr<MemoryPinner> pinner = tier_->pinner();
  EXPECT_EQ(NumberOf(*tier_, "device_pinned_bytes"), kBlock);
  tier_ = nullptr;
  pool = nullptr;
  AnswerPool::Give(buffer);
  EXPECT_EQ(static_cast<DevicePinner*>(pinner.get())->bytes(), 0u);
}

}  // namespace direct_answers_test
}  // namespace hotbed
