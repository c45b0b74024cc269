// The chain against a model of the shard's rule, with everything that may go wrong between them.
#include "client/push/push_chain.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace push_chain_test {

// The shard's rule for the pushes of one session (docs/protocol.md).
struct ModelShard {
  bool known = false;
  uint64_t last_seq = 0;
  std::vector<uint64_t> applied;

  enum class Answer { kOk, kGap, kUnknownSession };
  Answer Push(uint64_t seq, uint64_t prev_seq, bool open) {
    if (!known && !open) return Answer::kUnknownSession;
    const bool opens = !known;
    known = true;
    if (seq <= last_seq) return Answer::kOk;
    if (prev_seq != last_seq && !(opens && prev_seq == 0)) return Answer::kGap;
    last_seq = seq;
    applied.push_back(seq);
    return Answer::kOk;
  }
};

TEST(PushChainTest, ChainsPrevSeqAndOpensUntilTheFirstAnswer) {
  PushChain chain;
  ChainedPart a, b, c;
  a.seq = SequenceOf(1, 1);
  b.seq = SequenceOf(1, 2);
  c.seq = SequenceOf(4, 1);
  for (ChainedPart* part : {&a, &b, &c}) chain.Append(part);
  PushChain::Stamp stamp = chain.Send();
  EXPECT_EQ(stamp.prev_seq, 0);
  EXPECT_TRUE(stamp.open);
  stamp = chain.Send();
  EXPECT_EQ(stamp.prev_seq, a.seq);
  EXPECT_TRUE(stamp.open);
  chain.OnApplied(&a, a.seq);
  stamp = chain.Send();
  EXPECT_EQ(stamp.prev_seq, b.seq);
  EXPECT_FALSE(stamp.open);
  EXPECT_EQ(chain.NextToSend(), nullptr);
}

TEST(PushChainTest, StallsUntilDrainedThenGoesBackToTheOldest) {
  PushChain chain;
  ChainedPart a, b;
  a.seq = 10;
  b.seq = 20;
  chain.Append(&a);
  chain.Append(&b);
  chain.Send();
  chain.Send();
  chain.OnRetry(&a);
  EXPECT_TRUE(chain.stalled());
  EXPECT_FALSE(chain.ReadyToRestart());
  EXPECT_EQ(chain.NextToSend(), nullptr);
  chain.OnGap(&b, 0);
  ASSERT_TRUE(chain.ReadyToRestart());
  chain.Restart();
  EXPECT_EQ(chain.attempts(), 1);
  EXPECT_EQ(chain.NextToSend(), &a);
  EXPECT_EQ(chain.Send().prev_seq, 0);
  EXPECT_EQ(chain.Send().prev_seq, 10);
  // Answers may come in any order.
  chain.OnApplied(&b, 20);
  chain.OnApplied(&a, 10);
  EXPECT_TRUE(chain.empty());
}

TEST(PushChainTest, APartOfAShardThatWasCutGoesOnWhereTheWholeWas) {
  PushChain whole;
  ChainedPart a, b, c;
  a.seq = SequenceOf(1, 1);
  b.seq = SequenceOf(2, 1);
  c.seq = SequenceOf(3, 1);
  for (ChainedPart* part : {&a, &b}) {
    whole.Append(part);
    whole.Send();
  }
  whole.OnApplied(&a, a.seq);
  whole.OnRetry(&b);
  ASSERT_EQ(whole.in_flight(), 0);
  PushChain part;
  part.Append(&c);  // pushed since, and held back
  EXPECT_EQ(whole.TakeParts(), (std::deque<ChainedPart*>{&b}));
  ChainedPart of_b;
  of_b.seq = b.seq;
  part.Inherit(whole, {&of_b});
  EXPECT_EQ(whole.NextToSend(), nullptr);
  EXPECT_FALSE(whole.stalled());
  ASSERT_EQ(part.NextToSend(), &of_b);
  const PushChain::Stamp stamp = part.Send();
  EXPECT_EQ(stamp.prev_seq, a.seq);
  EXPECT_FALSE(stamp.open);
  EXPECT_EQ(part.NextToSend(), &c);
  EXPECT_EQ(part.known_seq(), a.seq);
}

TEST(PushChainTest, ARefusalThatWasNotLoggedIsSteppedOver) {
  PushChain chain;
  ChainedPart a, b;
  a.seq = 10;
  b.seq = 20;
  chain.Append(&a);
  chain.Append(&b);
  chain.Send();
  chain.Send();
  chain.OnRefused(&a, 0);
  chain.OnGap(&b, 0);
  chain.Restart();
  EXPECT_EQ(chain.NextToSend(), &b);
  EXPECT_EQ(chain.Send().prev_seq, 0);
}

// Messages are lost before or after the shard saw them, streams break, the shard refuses or forgets
// the session: in the end every part was applied once and in order.
TEST(PushChainTest, EveryPartIsAppliedOnceAndInOrderWhateverHappens) {
  const TestSeed seed(8);
  Random random(seed.value());
  for (int round = 0; round < 300; ++round) {
    ModelShard shard;
    PushChain chain;
    std::vector<std::unique_ptr<ChainedPart>> parts;
    struct Message {
      ChainedPart* part;
      PushChain::Stamp stamp;
    };
    std::deque<Message> wire;
    const uint64_t total = 1 + random.Uniform(40);
    int idle = 0;
    while (parts.size() < total || !chain.empty()) {
      ASSERT_LT(++idle, 100000) << "round " << round;
      if (parts.size() < total && random.OneIn(3)) {
        parts.push_back(std::make_unique<ChainedPart>());
        parts.back()->seq = SequenceOf(parts.size(), 1);
        chain.Append(parts.back().get());
      }
      while (ChainedPart* part = chain.NextToSend()) wire.push_back({part, chain.Send()});
      if (chain.ReadyToRestart()) chain.Restart();
      if (wire.empty()) continue;
      const Message message = wire.front();
      wire.pop_front();
      const uint64_t fate = random.Uniform(20);
      if (fate == 0 ||
          fate ==
              1) {  // the stream broke: before or after the shard saw the head; the rest is lost
        if (fate == 1) shard.Push(message.part->seq, message.stamp.prev_seq, message.stamp.open);
        chain.OnRetry(message.part);
        for (const Message& lost : wire) chain.OnRetry(lost.part);
        wire.clear();
      } else if (fate == 2) {  // refused for now
        chain.OnRetry(message.part);
      } else {
        switch (shard.Push(message.part->seq, message.stamp.prev_seq, message.stamp.open)) {
          case ModelShard::Answer::kOk:
            chain.OnApplied(message.part, shard.last_seq);
            break;
          case ModelShard::Answer::kGap:
            chain.OnGap(message.part, shard.last_seq);
            break;
          case ModelShard::Answer::kUnknownSession:
            chain.OnUnknownSession(message.part);
            break;
        }
      }
    }
    ASSERT_EQ(shard.applied.size(), total) << "round " << round;
    for (uint64_t i = 0; i < total; ++i) ASSERT_EQ(shard.applied[i], SequenceOf(i + 1, 1));
  }
}

}  // namespace push_chain_test
}  // namespace hotbed
