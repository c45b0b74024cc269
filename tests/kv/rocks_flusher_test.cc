#include "kv/rocks_flusher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"

namespace hotbed {
namespace rocks_flusher_test {

constexpr int64_t kMs = 1'000'000;

// Data written before the call is flushed when it returns, also if others share the flush.
TEST(RocksFlusherTest, EachCallerGetsAFlushThatBeganAfterItCame) {
  RocksRoom room;
  std::atomic<int64_t> written{0};
  std::atomic<int64_t> flushed{0};
  std::atomic<int> flushes{0};
  RocksFlusher flusher(
      [&] {
        const int64_t now = written;
        Clock::Real()->SleepNs(kMs);
        flushed = now;
        ++flushes;
        return rocksdb::Status::OK();
      },
      &room);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const int64_t mine = ++written;
        EXPECT_TRUE(flusher.Flush().ok());
        EXPECT_GE(flushed, mine);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_LT(flushes, 400) << "they share";
}

TEST(RocksFlusherTest, GivesBackWhatTheFlushSays) {
  RocksRoom room;
  RocksFlusher flusher([] { return rocksdb::Status::IOError("bad"); }, &room);
  EXPECT_TRUE(flusher.Flush().IsIOError());
}

TEST(RocksFlusherTest, AFullDiskIsToldWhileTheFlushGoesOn) {
  RocksRoom room;
  room.StartWaiting();
  std::atomic<bool> has_room{false};
  std::atomic<int> flushes{0};
  const std::string path = "file";
  RocksFlusher flusher(
      [&] {
        RocksRoom::Try tried(&room, path);
        while (!has_room && tried.Again(ENOSPC)) {
        }
        ++flushes;
        return rocksdb::Status::OK();
      },
      &room);
  EXPECT_TRUE(flusher.Flush().IsNoSpace());
  EXPECT_EQ(flushes, 0);
  has_room = true;
  while (!room.error().ok()) Clock::Real()->SleepNs(kMs);
  EXPECT_EQ(flushes, 1);
  EXPECT_TRUE(flusher.Flush().ok());
  EXPECT_EQ(flushes, 2);
}

}  // namespace rocks_flusher_test
}  // namespace hotbed
