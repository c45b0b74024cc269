#include "proto/segments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"
#include "tests/proto/segment_twin.h"

namespace hotbed {
namespace segments_test {

// Mostly a column whose values are all alike, as in practice.
template <typename Value>
void AddValues(Random* random, int count, google::protobuf::RepeatedField<Value>* values) {
  const bool alike = random->OneIn(2);
  const Value first = static_cast<Value>(random->Uniform(3));
  for (int i = 0; i < count; ++i) {
    values->Add(alike ? first : static_cast<Value>(random->Next()));
  }
}

TEST(SegmentsTest, PackedColumnsMeanTheSame) {
  const TestSeed seed(1);
  Random random(seed.value());
  for (int round = 0; round < 500; ++round) {
    v1::PushHeader header;
    for (uint64_t g = random.Uniform(4); g > 0; --g) {
      v1::PushGroup* const group = header.add_groups();
      const int count = static_cast<int>(1 + random.Uniform(6));
      for (int i = 0; i < count; ++i) group->add_shards(static_cast<uint32_t>(random.Next()));
      AddValues(&random, count, group->mutable_epochs());
      AddValues(&random, count, group->mutable_id_counts());
      AddValues(&random, count, group->mutable_numbers());
      AddValues(&random, count, group->mutable_distances());
      AddValues(&random, count, group->mutable_opens());
      AddValues(&random, count, group->mutable_last_parts());
      AddValues(&random, count, group->mutable_dims());
    }
    const std::vector<PushAsk> before = AskedOf(header);
    for (v1::PushGroup& group : *header.mutable_groups()) PackColumns(&group);
    EXPECT_EQ(ColumnError(header), "");
    const std::vector<PushAsk> after = AskedOf(header);
    ASSERT_EQ(CountSegments(header.groups()), before.size());
    ASSERT_EQ(after.size(), before.size());
    size_t at = 0;
    for (const v1::PushGroup& group : header.groups()) {
      const Column epochs(group.epochs());
      const Column opens(group.opens());
      for (int i = 0; i < group.shards_size(); ++i, ++at) {
        EXPECT_EQ(epochs[i], before[at].epoch);
        EXPECT_EQ(opens[i], before[at].open);
        EXPECT_EQ(after[at].seq, before[at].seq);
        EXPECT_EQ(after[at].prev_seq, before[at].prev_seq);
        EXPECT_EQ(after[at].id_count, before[at].id_count);
        EXPECT_EQ(after[at].last_part, before[at].last_part);
        EXPECT_EQ(after[at].dim, before[at].dim);
      }
    }
  }
}

TEST(SegmentsTest, AColumnOfAnotherLengthIsNamed) {
  v1::PullHeader header;
  v1::PullGroup* const group = header.add_groups();
  group->set_table(7);
  for (uint32_t i = 0; i < 3; ++i) group->add_shards(i);
  group->add_epochs(1);
  EXPECT_EQ(ColumnError(header), "");
  group->add_epochs(1);
  const std::string error = ColumnError(header);
  EXPECT_NE(error.find("table 7 has 3 shards and 2 values in the column epochs"), std::string::npos)
      << error;
}

TEST(SegmentsTest, AnswersAreReadAsTheyWereWritten) {
  const TestSeed seed(2);
  Random random(seed.value());
  for (int round = 0; round < 300; ++round) {
    v1::ReplyHeader reply;
    std::vector<Lsn> lsns;
    const uint32_t segments = static_cast<uint32_t>(1 + random.Uniform(8));
    for (uint32_t i = 0; i < segments; ++i) {
      v1::SegmentReply answer;
      answer.set_epoch(3);
      if (random.OneIn(4)) answer.set_code(v1::GAP);
      lsns.push_back(random.Uniform(2));
      AddAnswer(answer, lsns.back(), 3, 0, &reply);
    }
    PackColumn(reply.mutable_lsns());
    ASSERT_TRUE(IsWhole(reply));
    const uint32_t first = static_cast<uint32_t>(random.Uniform(segments));
    ReplySegments read(reply, first);
    for (uint32_t i = first; i < segments; ++i) {
      const v1::SegmentReply* const exception = read.Next();
      EXPECT_EQ(exception == nullptr ? v1::OK : exception->code(), AnswerOf(reply, i).code());
      EXPECT_EQ(read.lsn(), lsns[i]);
    }
  }
}

TEST(SegmentsTest, RepliesThatDoNotSuitTheirSegments) {
  v1::ReplyHeader reply;
  reply.set_segments(3);
  EXPECT_TRUE(IsWhole(reply)) << "all are OK at LSN 0";
  reply.add_lsns(1);
  reply.add_lsns(1);
  EXPECT_FALSE(IsWhole(reply));
  reply.add_lsns(1);
  reply.add_exceptions()->set_segment(2);
  EXPECT_TRUE(IsWhole(reply));
  reply.add_exceptions()->set_segment(2);
  EXPECT_FALSE(IsWhole(reply)) << "twice";
  reply.mutable_exceptions(1)->set_segment(3);
  EXPECT_FALSE(IsWhole(reply)) << "of no segment";
  reply.mutable_exceptions()->RemoveLast();
  reply.add_row_bytes(8);
  EXPECT_FALSE(IsWhole(reply)) << "one value does not hold for all rows";
}

// A client that has trained for a long time: large LSNs and steps, every shard at another one.
TEST(SegmentsTest, AShardTakesAtMostTwelveBytesEachWay) {
  Random random(3);
  constexpr uint32_t kShards = 1000;
  v1::PullHeader pull;
  v1::PushHeader push;
  v1::ReplyHeader reply;
  v1::PullGroup* const pulled = pull.add_groups();
  v1::PushGroup* const pushed = push.add_groups();
  pushed->set_step(10'000'000);
  for (uint32_t i = 0; i < kShards; ++i) {
    const uint32_t shard = i * 65;  // of 65,536
    const Epoch epoch = 1 + random.Uniform(100);
    const uint32_t ids = static_cast<uint32_t>(1 + random.Uniform(100));
    const Lsn lsn = 10'000'000 + random.Uniform(1'000'000);
    pulled->add_shards(shard);
    pulled->add_epochs(epoch);
    pulled->add_id_counts(ids);
    pulled->add_lsns_min(lsn);
    pushed->add_shards(shard);
    pushed->add_epochs(epoch);
    pushed->add_id_counts(ids);
    pushed->add_numbers((ids + 7) / 8);
    pushed->add_distances((1 + random.Uniform(100)) << 20);
    pushed->add_opens(false);
    pushed->add_last_parts(true);
    pushed->add_dims(64);
    reply.add_lsns(lsn);
  }
  PackColumns(pulled);
  PackColumns(pushed);
  PackColumn(reply.mutable_lsns());
  EXPECT_LE(pull.ByteSizeLong(), 12 * kShards);
  EXPECT_LE(push.ByteSizeLong(), 12 * kShards);
  EXPECT_LE(reply.ByteSizeLong(), 12 * kShards);
}

}  // namespace segments_test
}  // namespace hotbed
