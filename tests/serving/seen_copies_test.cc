#include "client/serving/seen_copies.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace seen_copies_test {

constexpr uint32_t kTable = 3;
constexpr ServedPart kWhole = {0, 1};

using Verdict = SeenCopies::Verdict;

Verdict TakeOf(SeenCopies* seen, const SeenCopies::Answer& answer, int64_t begin_ns,
               bool may_be_older = false) {
  return seen->Take(kTable, kWhole, answer, seen->BeginAt(begin_ns), may_be_older);
}

TEST(SeenCopiesTest, AnotherCopyHasToHaveWhatWasShown) {
  SeenCopies seen;
  int a = 0, b = 0;  // servers
  EXPECT_EQ(seen.NeededOf(kTable, kWhole, &b, 100).as_of_ns, 0);
  EXPECT_EQ(TakeOf(&seen, {&a, 1, /*as_of_ns=*/90, /*changed_ns=*/95}, 100), Verdict::kNew);
  EXPECT_TRUE(seen.NeededOf(kTable, kWhole, &a, 200).known);
  EXPECT_EQ(seen.NeededOf(kTable, kWhole, &b, 200).as_of_ns, 95);
  EXPECT_EQ(TakeOf(&seen, {&b, 2, 94, 210}, 200), Verdict::kRefused);
  EXPECT_EQ(TakeOf(&seen, {&a, 1, 50, 220}, 210), Verdict::kNew) << "the same copy, which is late";
  EXPECT_EQ(seen.NeededOf(kTable, kWhole, &b, 215).as_of_ns, 215) << "no more than was there then";
  EXPECT_EQ(TakeOf(&seen, {&b, 2, 215, 230}, 215), Verdict::kNew);
  EXPECT_EQ(TakeOf(&seen, {&a, 3, 229, 240}, 235), Verdict::kRefused)
      << "a server that has begun again";
  EXPECT_EQ(seen.Take(kTable + 1, kWhole, {&a, 4, 1, 240}, seen.BeginAt(235), false), Verdict::kNew)
      << "another table";
  EXPECT_EQ(TakeOf(&seen, {&a, 0, 1, 1}, 300), Verdict::kNew) << "an earlier release";
}

TEST(SeenCopiesTest, AnAnswerThatMayBeOlderIsMarkedAndIsTheNewMeasure) {
  SeenCopies seen;
  int a = 0, b = 0;
  EXPECT_EQ(TakeOf(&seen, {&a, 1, /*as_of_ns=*/90, /*changed_ns=*/95}, 100), Verdict::kNew);
  EXPECT_EQ(TakeOf(&seen, {&b, 2, 94, 96}, 200), Verdict::kRefused);
  EXPECT_EQ(TakeOf(&seen, {&b, 2, 94, 96}, 200, /*may_be_older=*/true), Verdict::kOlder);
  EXPECT_EQ(TakeOf(&seen, {&b, 2, 94, 96}, 300), Verdict::kNew) << "it does not wait again";
  EXPECT_EQ(TakeOf(&seen, {&a, 1, 95, 95}, 300), Verdict::kRefused) << "b may be ahead of it";
}

TEST(SeenCopiesTest, TwoCopiesThatAreEachAheadOfTheOtherDoNotRefuseBoth) {
  SeenCopies seen;
  int a = 0, b = 0;
  EXPECT_EQ(TakeOf(&seen, {&a, 1, /*as_of_ns=*/90, /*changed_ns=*/95}, 80), Verdict::kNew);
  EXPECT_EQ(TakeOf(&seen, {&b, 2, 85, 99}, 80), Verdict::kNew) << "as of the call's begin";
  EXPECT_TRUE(seen.NeededOf(kTable, kWhole, &a, 200).known);
  EXPECT_EQ(seen.NeededOf(kTable, kWhole, &a, 200).as_of_ns, 99);
  EXPECT_EQ(TakeOf(&seen, {&a, 1, 90, 95}, 200), Verdict::kOlder) << "sources are away since 90";
  EXPECT_EQ(TakeOf(&seen, {&a, 1, 90, 95}, 210), Verdict::kNew);
}

TEST(SeenCopiesTest, ACopyThatDoesNotChangeBindsNobody) {
  SeenCopies seen;
  int a = 0, b = 0;
  EXPECT_EQ(TakeOf(&seen, {&a, 1, /*as_of_ns=*/900, /*changed_ns=*/100}, 1000), Verdict::kNew);
  EXPECT_EQ(TakeOf(&seen, {&b, 2, 150, 100}, 2000), Verdict::kNew)
      << "its sources are away since 150";
  EXPECT_EQ(TakeOf(&seen, {&b, 3, 99, 100}, 3000), Verdict::kRefused);
}

TEST(SeenCopiesTest, PartsOfAnotherCutBindAllParts) {
  SeenCopies seen;
  int a = 0, b = 0;
  const auto take = [&seen](const ServedPart& part, const SeenCopies::Answer& answer) {
    return seen.Take(kTable, part, answer, seen.BeginAt(110), /*may_be_older=*/false);
  };
  EXPECT_EQ(take({0, 2}, {&a, 1, 90, 95}), Verdict::kNew);
  EXPECT_EQ(take({1, 2}, {&b, 2, 40, 45}), Verdict::kNew) << "parts have no rows in common";
  for (uint32_t part = 0; part < 3; ++part) {
    EXPECT_EQ(take({part, 3}, {&a, 10 + part, 94, 120}), Verdict::kRefused) << part;
    EXPECT_EQ(take({part, 3}, {&a, 10 + part, 95, 120}), Verdict::kNew) << part;
  }
}

// Copies that take the changes of a log of their own accord, begin again now and then, and are
// asked by calls that overlap.
struct Copy {
  uint32_t life = 0;
  uint64_t has = 0;                      // changes of the log
  int64_t changed_ns = 0, as_of_ns = 0;  // as_of_ns 0: it does not answer yet
};
struct Call {
  size_t copy;
  SeenCopies::Begin begin;
  uint64_t shown_before;  // by answers that were given before it began
  uint32_t life = 0;      // of the answer, which is under way
  uint64_t has = 0;
  int64_t as_of_ns = 0, changed_ns = 0;
  bool answered = false;
};

// Some of the calls read what their copies have now.
void AnswerSome(const std::array<Copy, 3>& copies, Random* random, std::deque<Call>* calls) {
  for (Call& call : *calls) {
    if (call.answered || random->Next() % 2 == 0) continue;
    const Copy& asked = copies[call.copy];
    call.life = asked.life;
    call.has = asked.has;
    call.as_of_ns = asked.as_of_ns;
    call.changed_ns = asked.changed_ns;
    call.answered = true;
  }
}

TEST(SeenCopiesTest, NoAnswerThatIsTakenIsOlderThanOneBefore) {
  const TestSeed seed(7);
  Random random(seed.value());
  uint64_t taken = 0, refused = 0, older = 0, would_go_back = 0;
  for (int world = 0; world < 200; ++world) {
    SeenCopies seen;
    std::array<Copy, 3> copies;
    uint32_t lives = 0;
    uint64_t log = 0, shown = 0;
    for (Copy& copy : copies) copy.life = ++lives;
    std::deque<Call> calls;
    for (int64_t now_ns = 1; now_ns < 2000; ++now_ns) {
      Copy& copy = copies[random.Next() % copies.size()];
      switch (random.Next() % 8) {
        case 0:
        case 1:
          ++log;
          break;
        case 2:  // takes what a source told up to some change
          if (copy.has < log) copy.changed_ns = now_ns;
          copy.has = std::min(log, copy.has + 1 + random.Next() % 16);
          if (copy.has != log) break;
          if (copy.as_of_ns == 0) copy.changed_ns = now_ns;  // as TableReplica::Follow says it
          copy.as_of_ns = now_ns;
          break;
        case 3:
          // From its disk, which has all that it had, or half of it.
          if (random.Next() % 16 == 0) copy = {++lives, copy.has >> random.Next() % 2};
          break;
        case 4:
          calls.push_back({random.Next() % copies.size(), seen.BeginAt(now_ns), shown});
          break;
        case 5:
          AnswerSome(copies, &random, &calls);
          break;
        default:
          if (calls.empty() || !calls.front().answered) break;
          const Call& call = calls.front();
          if (call.as_of_ns == 0) {  // refused: it was loading
            calls.pop_front();
            break;
          }
          const Verdict verdict = seen.Take(
              kTable, kWhole, {&copies[call.copy], call.life, call.as_of_ns, call.changed_ns},
              call.begin, /*may_be_older=*/random.Next() % 32 == 0);
          would_go_back += call.has < call.shown_before ? 1 : 0;
          refused += verdict == Verdict::kRefused ? 1 : 0;
          if (verdict == Verdict::kOlder) {
            ++older;
            shown = call.has;  // the new measure
          }
          if (verdict == Verdict::kNew) {
            ++taken;
            ASSERT_GE(call.has, call.shown_before) << "world " << world << " at " << now_ns;
            shown = std::max(shown, call.has);
          }
          calls.pop_front();
      }
    }
  }
  EXPECT_GT(taken, 1000u);
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(older, 1000u);
  EXPECT_GT(would_go_back, 1000u) << "the story shows nothing";
}

}  // namespace seen_copies_test
}  // namespace hotbed
