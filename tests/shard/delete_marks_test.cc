// Which marks of deleted rows a shard keeps, by time and by number.
#include "server/shard/delete_marks.h"

#include <gtest/gtest.h>

#include "common/clock.h"

namespace hotbed {
namespace delete_marks_test {

constexpr int64_t kHour = 3600 * kSecondNs;

// A shard that has deleted a row with each entry; `per_hour` of them.
DeleteMarks::Moment After(int64_t hours, uint64_t per_hour) {
  const uint64_t entries = static_cast<uint64_t>(hours) * per_hour;
  return {hours * kHour, entries, entries};
}

TEST(DeleteMarksTest, MarksGoBetweenOnceAndTwiceTheirTime) {
  DeleteMarks marks;
  const DeleteMarks::Rule rule = {16 * kHour, 1'000'000};
  uint64_t gone = 0;
  for (int64_t hour = 1; hour <= 200; ++hour) {
    const DeleteMarks::Moment now = After(hour, 100);
    const Lsn through = marks.Due(rule, now);
    const uint64_t kept_from = hour > 32 ? static_cast<uint64_t>(hour - 32) * 100 : 0;
    if (through == 0) {
      EXPECT_GE(gone, kept_from) << "hour " << hour;
      continue;
    }
    EXPECT_LE(through, static_cast<uint64_t>(hour - 16) * 100) << "hour " << hour;
    gone = through;
    marks.SetGone(through);
    marks.SetLeft(now.deleted - through, now.deleted);
    EXPECT_EQ(marks.Count(now.deleted), now.deleted - through);
  }
  EXPECT_GT(gone, 0u);
}

TEST(DeleteMarksTest, BeyondTheirNumberTheOlderHalfGoes) {
  DeleteMarks marks;
  const DeleteMarks::Rule rule = {1000 * kHour, 3200};
  for (int64_t hour = 1; hour <= 300; ++hour) {
    const DeleteMarks::Moment now = After(hour, 100);
    const Lsn through = marks.Due(rule, now);
    EXPECT_EQ(through != 0, marks.Count(now.deleted) > 3200) << "hour " << hour;
    if (through == 0) continue;
    const uint64_t left = now.deleted - through;
    EXPECT_LE(left, 1600u);
    EXPECT_GE(left, 1200u);
    marks.SetGone(through);
    marks.SetLeft(left, now.deleted);
  }
  // More at once than may be kept.
  DeleteMarks::Moment now = After(301, 100);
  now.applied += 1;
  now.deleted += 10'000;
  EXPECT_EQ(marks.Due(rule, now), now.applied);
}

TEST(DeleteMarksTest, WhatIsGoneIsStoredAndASweepThatBrokeOffIsMadeUpFor) {
  DeleteMarks marks;
  const DeleteMarks::Rule rule = {kHour, 1'000'000};
  EXPECT_EQ(marks.Due(rule, {kHour, 10, 10}), 0u);
  EXPECT_EQ(marks.Due(rule, {3 * kHour, 20, 10}), 10u);
  marks.SetGone(10);
  EXPECT_EQ(marks.Due(rule, {3 * kHour, 20, 10}), 10u);  // SetLeft was not called
  ShardMeta meta;
  marks.Save(10, &meta);
  const auto parsed = ShardMeta::Parse(meta.Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  DeleteMarks again;
  again.Restore(*parsed);
  EXPECT_EQ(again.gone_through(), 10u);
  EXPECT_EQ(again.Count(0), 10u);
  EXPECT_EQ(again.Due(rule, {4 * kHour, 20, 0}), 0u);
  EXPECT_EQ(again.Due(rule, {6 * kHour, 20, 0}), 20u);
}

TEST(DeleteMarksTest, AShardWithoutMarksIsNeverDue) {
  DeleteMarks marks;
  for (int64_t hour = 1; hour < 10; ++hour) {
    EXPECT_EQ(marks.Due({1, 0}, {hour * kHour, static_cast<Lsn>(hour), 0}), 0u);
  }
}

TEST(DeleteMarksTest, TheyAreHeldWhileAnyHolderLives) {
  DeleteMarks marks;
  EXPECT_FALSE(marks.held());
  auto one = marks.Hold();
  auto other = marks.Hold();
  one.reset();
  EXPECT_TRUE(marks.held());
  other.reset();
  EXPECT_FALSE(marks.held());
}

}  // namespace delete_marks_test
}  // namespace hotbed
