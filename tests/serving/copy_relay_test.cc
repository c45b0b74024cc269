// A copy that passes changes on, and followers that come and go between it and the primary, against
// a log whose every state is known. Compiled a second time with a planted bug (CMakeLists.txt),
// which the random test must then find.
#include "serving/copy_relay.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace copy_relay_test {

#ifdef HOTBED_PLANTED_EARLY_JOIN
constexpr bool kPlanted = true;
#else
constexpr bool kPlanted = false;
#endif

constexpr uint64_t kIds = 12;
constexpr uint64_t kLimit = 100;

// A row's bytes are the LSN of its change; nothing: it does not exist.
using Version = std::optional<uint64_t>;

// One shard's log, with all of its states.
class Log {
 public:
  void Append(Random* random) {
    std::vector<std::pair<uint64_t, bool>> entry;
    for (uint64_t id = 0; id < kIds; ++id) {
      if (random->Uniform(4) == 0) entry.push_back({id, random->Uniform(3) == 0});
    }
    entries_.push_back(entry);
    std::map<uint64_t, uint64_t> rows = states_.back();
    for (const auto& [id, deleted] : entry) {
      if (deleted) {
        rows.erase(id);
      } else {
        rows[id] = last();
      }
    }
    states_.push_back(std::move(rows));
    epochs_.push_back(epoch_);
  }
  void FailOver() { ++epoch_; }
  uint64_t last() const { return entries_.size(); }
  uint64_t EpochOf(uint64_t lsn) const { return lsn == 0 ? 0 : epochs_[lsn - 1]; }
  Version At(uint64_t lsn, uint64_t id) const {
    const auto found = states_[lsn].find(id);
    return found == states_[lsn].end() ? Version() : Version(found->second);
  }
  v1::ReadPlace PlaceOf(uint64_t through, uint64_t seen) const {
    v1::ReadPlace place;
    place.mutable_through()->set_lsn(through);
    place.mutable_through()->set_epoch(EpochOf(through));
    place.mutable_seen()->set_lsn(seen);
    place.mutable_seen()->set_epoch(EpochOf(seen));
    return place;
  }
  // As a primary answers: at most `ids_max` ids, with the values of now.
  v1::ShardChanges Read(const v1::ReadPlace& above, uint64_t skip, size_t ids_max) const {
    v1::ShardChanges said;
    uint64_t through = above.through().lsn();
    std::vector<uint64_t> ids;
    while (through < last() && ids.size() < ids_max) {
      const auto& entry = entries_[through];
      size_t next = skip;
      for (; next < entry.size() && ids.size() < ids_max; ++next) ids.push_back(entry[next].first);
      skip = next < entry.size() ? next : 0;
      if (skip != 0) break;
      ++through;
    }
    *said.mutable_at() = PlaceOf(through, last());
    said.set_skip(skip);
    std::map<uint64_t, bool> told;
    for (const uint64_t id : ids) {
      if (!std::exchange(told[id], true)) Tell(id, &said);
    }
    return said;
  }

 private:
  void Tell(uint64_t id, v1::ShardChanges* said) const {
    const Version now = At(last(), id);
    std::string* const to = now.has_value() ? said->mutable_ids() : said->mutable_deleted();
    to->append(reinterpret_cast<const char*>(&id), sizeof(id));
    if (now.has_value()) {
      said->mutable_rows()->append(reinterpret_cast<const char*>(&*now), sizeof(*now));
    }
  }
  uint64_t epoch_ = 1;
  std::vector<std::vector<std::pair<uint64_t, bool>>> entries_;
  std::vector<uint64_t> epochs_;
  std::vector<std::map<uint64_t, uint64_t>> states_ = {{}};
};

std::vector<uint64_t> NumbersOf(const std::string& bytes) {
  std::vector<uint64_t> numbers(bytes.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(uint64_t));
  return numbers;
}

class Follower {
 public:
  explicit Follower(const Log* log) : log_(log) {}
  uint64_t through() const { return read_.through().lsn(); }
  int wrong() const { return wrong_; }
  v1::FollowedShard Asks() const {
    v1::FollowedShard asked;
    asked.set_shard(1);
    asked.set_range_limit(kLimit);
    *asked.mutable_above() = read_;
    asked.set_skip(skip_);
    *asked.mutable_cursor() = cursor_;
    return asked;
  }
  v1::ShardChanges ReadPrimary(size_t ids_max) {
    v1::ShardChanges said = log_->Read(read_, skip_, ids_max);
    Take(said);
    return said;
  }
  // Each change that the answer has makes the rows newer, and leaves out none.
  void Take(const v1::ShardChanges& said) {
    const std::vector<uint64_t> ids = NumbersOf(said.ids());
    const std::vector<uint64_t> rows = NumbersOf(said.rows());
    for (size_t i = 0; i < ids.size(); ++i) Set(ids[i], rows[i]);
    for (const uint64_t id : NumbersOf(said.deleted())) Set(id, Version());
    read_ = said.at();
    skip_ = said.skip();
    cursor_ = said.cursor();
    for (uint64_t id = 0; id < kIds; ++id) {
      if (!IsOf(id, through())) ++wrong_;
    }
  }

 private:
  // Whether the row is as at some LSN from `from` on.
  bool IsOf(uint64_t id, uint64_t from) {
    for (uint64_t lsn = from; lsn <= log_->last(); ++lsn) {
      if (log_->At(lsn, id) == rows_[id]) return true;
    }
    return false;
  }
  void Set(uint64_t id, Version version) {
    rows_[id] = version;
    if (!IsOf(id, least_[id])) ++wrong_;  // it went back
    while (least_[id] < log_->last() && log_->At(least_[id], id) != version) ++least_[id];
  }

  const Log* const log_;
  v1::ReadPlace read_;
  uint64_t skip_ = 0;
  v1::RelayCursor cursor_;
  std::map<uint64_t, Version> rows_;
  std::map<uint64_t, uint64_t> least_;  // the first LSN as of which the row may be
  int wrong_ = 0;
};

CopyChanges ChangesOf(const v1::ShardChanges& said) {
  CopyChanges changes;
  changes.range = {.first = 0, .limit = kLimit};
  changes.ids = NumbersOf(said.ids());
  changes.deleted = NumbersOf(said.deleted());
  changes.partial = said.skip() != 0;
  changes.at.range = changes.range;
  changes.at.epoch = said.at().through().epoch();
  changes.at.lsn = said.at().through().lsn();
  changes.at.seen_epoch = said.at().seen().epoch();
  changes.at.seen_lsn = said.at().seen().lsn();
  return changes;
}

class World {
 public:
  World(uint64_t seed, uint64_t relay_bytes)
      : random_(seed), memory_(relay_bytes, seed), followers_(3, Follower(&log_)) {}

  void Step() {
    const uint64_t what = random_.Uniform(12);
    if (what < 4) {
      log_.Append(&random_);
    } else if (what == 4 && random_.Uniform(8) == 0) {
      log_.FailOver();
    } else if (what < 7) {
      Feed();
    } else {
      Follower& follower = followers_[random_.Uniform(followers_.size())];
      if (random_.Uniform(5) == 0) {
        follower.ReadPrimary(1 + random_.Uniform(10));
      } else {
        ReadRelay(&follower, /*waits_no_more=*/random_.Uniform(4) == 0);
      }
    }
  }
  // All of them read what there is.
  void End() {
    while (feeder_.through() < log_.last()) Feed();
    for (Follower& follower : followers_) {
      for (int calls = 0; follower.through() < log_.last(); ++calls) {
        ASSERT_LT(calls, 1000) << "it does not get on";
        if (!ReadRelay(&follower, /*waits_no_more=*/true)) follower.ReadPrimary(10);
      }
    }
  }
  int wrong() const {
    int wrong = feeder_.wrong();
    for (const Follower& follower : followers_) wrong += follower.wrong();
    return wrong;
  }
  uint64_t joined() const { return joined_; }
  uint64_t went_on() const { return went_on_; }
  uint64_t behind() const { return behind_; }
  CopyRelay* relay() { return &relay_; }

 private:
  void Feed() {
    const v1::ShardChanges said = feeder_.ReadPrimary(1 + random_.Uniform(6));
    const std::string& rows = said.rows();
    relay_.Took(ChangesOf(said), {reinterpret_cast<const uint8_t*>(rows.data()), rows.size()});
  }
  // False: it said nothing of rows.
  bool ReadRelay(Follower* follower, bool waits_no_more) {
    v1::ReadChangesRequest request;
    *request.add_shards() = follower->Asks();
    v1::ReadChangesReply reply;
    relay_.Read(request, 1 + random_.Uniform(1000), waits_no_more, &reply);
    bool any = false;
    for (const v1::ShardChanges& said : reply.shards()) {
      behind_ += said.behind() ? 1 : 0;
      if (said.behind() || said.elsewhere()) continue;
      if (!any) ++(request.shards(0).cursor().run() == 0 ? joined_ : went_on_);
      follower->Take(said);
      any = true;
    }
    return any;
  }

  Random random_;
  Log log_;
  RelayMemory memory_;
  CopyRelay relay_{&memory_, Clock::Real()};
  Follower feeder_{&log_};
  std::vector<Follower> followers_;
  uint64_t joined_ = 0, went_on_ = 0, behind_ = 0;
};

TEST(CopyRelayTest, FollowersThatComeAndGoMissNothingAndNeverGoBack) {
  const TestSeed seed(21);
  int wrong = 0;
  uint64_t joined = 0, went_on = 0, behind = 0;
  for (int world = 0; world < 60; ++world) {
    // Some keep all changes, some few.
    World one(seed.value() + static_cast<uint64_t>(world), world % 2 == 0 ? 1 << 20 : 2500);
    for (int step = 0; step < 600; ++step) one.Step();
    one.End();
    wrong += one.wrong();
    joined += one.joined();
    went_on += one.went_on();
    behind += one.behind();
  }
  EXPECT_EQ(wrong > 0, kPlanted) << wrong;
  EXPECT_GT(joined, 200);
  EXPECT_GT(went_on, 1000);
  EXPECT_GT(behind, 200);
}

TEST(CopyRelayTest, ACopyThatFollowsAnotherFeedsNoneAndKeepsNothing) {
  World world(1, 1 << 20);
  for (int step = 0; step < 200; ++step) world.Step();
  EXPECT_GT(world.relay()->bytes(), 0);
  world.relay()->SetFeeder("127.0.0.1:1");
  EXPECT_EQ(world.relay()->bytes(), 0);
  v1::ReadChangesRequest request;
  request.add_shards()->set_range_limit(kLimit);
  v1::ReadChangesReply reply;
  world.relay()->Read(request, 1000, /*waits_no_more=*/false, &reply);
  ASSERT_EQ(reply.shards_size(), 1);
  EXPECT_TRUE(reply.shards(0).elsewhere());
}

TEST(CopyRelayTest, KeptChangesHaveBoundedMemoryThatRelaysShare) {
  RelayMemory memory(10'000, 1);
  CopyRelay first(&memory, Clock::Real()), second(&memory, Clock::Real());
  v1::ReadChangesRequest request;
  request.add_shards()->set_range_limit(kLimit);
  v1::ReadChangesReply reply;
  const std::vector<uint8_t> row(100);
  const auto take = [&](CopyRelay* relay, uint64_t changes) {
    relay->Read(request, 1000, /*waits_no_more=*/false, &reply);
    for (uint64_t lsn = 1; lsn <= changes; ++lsn) {
      CopyChanges one;
      one.range = {.first = 0, .limit = kLimit};
      one.ids = {lsn % kLimit};
      one.at = {.range = one.range, .epoch = 1, .lsn = lsn, .seen_epoch = 1, .seen_lsn = lsn};
      relay->Took(one, row);
    }
  };
  take(&first, 500);
  EXPECT_LE(first.bytes(), 10'000);
  EXPECT_GT(first.bytes(), 9'000);
  take(&second, 500);
  take(&first, 500);
  EXPECT_LE(first.bytes() + second.bytes(), 10'000);
}

// Positions of parts that a shard was cut into are of other ranges.
TEST(CopyRelayTest, AShardThatIsCutOrComesAgainIsKnownFromItsNextChangeOn) {
  RelayMemory memory(1 << 20, 1);
  CopyRelay relay(&memory, Clock::Real());
  const auto answers = [&](uint64_t first, uint64_t limit) {
    v1::ReadChangesRequest request;
    request.add_shards()->set_range_first(first);
    request.mutable_shards(0)->set_range_limit(limit);
    request.mutable_shards(0)->mutable_above()->mutable_through()->set_lsn(9);
    request.mutable_shards(0)->mutable_above()->mutable_through()->set_epoch(1);
    v1::ReadChangesReply reply;
    relay.Read(request, 1000, /*waits_no_more=*/false, &reply);
    return reply.shards().empty() || !reply.shards(0).elsewhere();
  };
  CopyChanges changes;
  changes.range = {.first = 0, .limit = kLimit};
  changes.at = {.range = changes.range, .epoch = 1, .lsn = 9, .seen_epoch = 1, .seen_lsn = 9};
  EXPECT_FALSE(answers(0, kLimit));
  relay.Took(changes, {});
  EXPECT_TRUE(answers(0, kLimit));
  EXPECT_FALSE(answers(0, kLimit / 2));
  changes.range.limit = kLimit / 2;
  relay.Took(changes, {});
  EXPECT_TRUE(answers(0, kLimit / 2));
  EXPECT_FALSE(answers(0, kLimit));
  changes.again = true;
  relay.Took(changes, {});
  EXPECT_FALSE(answers(0, kLimit / 2));
}

}  // namespace copy_relay_test
}  // namespace hotbed
