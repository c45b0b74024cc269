// Answers of a server, some of them in the memory of its pool, over a device tier run by hand.
#ifndef HOTBED_TESTS_TIERS_DIRECT_ANSWERS_FIXTURE_H_
#define HOTBED_TESTS_TIERS_DIRECT_ANSWERS_FIXTURE_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "server/net/answer_pool.h"
#include "tests/tiers/device_tier_fixture.h"

namespace hotbed {

constexpr uint64_t kRowBytes = 4 * kDim;
constexpr uint64_t kBlock = 2 << 20;  // of the pool
constexpr uint8_t kUntouched = 0xab;

inline std::vector<float> StoredRow(uint32_t table, uint64_t id) {
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
      // Answers of three sizes: the pool has room for blocks of two.
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
  // Every row that is there, and no byte outside the rows.
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

}  // namespace hotbed

#endif  // HOTBED_TESTS_TIERS_DIRECT_ANSWERS_FIXTURE_H_
