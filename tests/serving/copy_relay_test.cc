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
  // As a copy that lists the rows of `from`: of the ids in [first, limit).
  void List(const Follower& from, uint64_t first, uint64_t limit) {
    for (uint64_t id = first; id < limit; ++id) {
      const auto row = from.rows_.find(id);
      listed_[id] = row == from.rows_.end() ? Version() : row->second;
      const auto least = from.least_.find(id);
      listed_least_[id] = least == from.least_.end() ? 0 : least->second;
    }
  }
  void EndList(const v1::LogPlace& through, const v1::LogPlace& seen) {
    rows_ = std::exchange(listed_, {});
    least_ = std::exchange(listed_least_, {});
    v1::ShardChanges said;
    *said.mutable_at()->mutable_through() = through;
    *said.mutable_at()->mutable_seen() = seen;
    Take(said);
    for (uint64_t id = 0; id < kIds; ++id) {
      if (least_[id] > seen.lsn()) ++wrong_;
    }
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
  std::map<uint64_t, Version> rows_, listed_;
  // The first LSN as of which the row may be.
  std::map<uint64_t, uint64_t> least_, listed_least_;
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

// Two copies, one of which feeds the other and the followers; they take turns.
class World {
 public:
  World(uint64_t seed, uint64_t relay_bytes)
      : random_(seed), memory_(relay_bytes, seed), followers_(3, Follower(&log_)) {
    copies_[1].relay.SetFeeder("copy 0");
  }

  void Step() {
    const uint64_t what = random_.Uniform(14);
    if (what < 3) {
      log_.Append(&random_);
    } else if (what == 3 && random_.Uniform(8) == 0) {
      log_.FailOver();
    } else if (what < 7) {
      Feed();
    } else if (what == 7 && random_.Uniform(12) == 0) {
      Turn();
    } else if (what < 9) {
      FeedOther();
    } else {
      Follower& follower = followers_[random_.Uniform(followers_.size())];
      if (random_.Uniform(20) == 0) {
        ListFeeder(&follower);
      } else if (random_.Uniform(5) == 0) {
        follower.ReadPrimary(1 + random_.Uniform(10));
      } else {
        ReadRelay(&follower, /*waits_no_more=*/random_.Uniform(4) == 0);
      }
    }
  }
  // All of them read what there is.
  void End() {
    while (feeder().rows.through() < log_.last()) Feed();
    for (Follower& follower : followers_) {
      for (int calls = 0; follower.through() < log_.last(); ++calls) {
        ASSERT_LT(calls, 1000) << "it does not get on";
        if (!ReadRelay(&follower, /*waits_no_more=*/true)) follower.ReadPrimary(10);
      }
    }
  }
  int wrong() const {
    int wrong = copies_[0].rows.wrong() + copies_[1].rows.wrong();
    for (const Follower& follower : followers_) wrong += follower.wrong();
    return wrong;
  }
  uint64_t joined() const { return joined_; }
  uint64_t went_on() const { return went_on_; }
  uint64_t behind() const { return behind_; }
  uint64_t listed() const { return listed_; }
  CopyRelay* relay() { return &feeder().relay; }

 private:
  struct Copy {
    Copy(const Log* log, RelayMemory* memory) : rows(log), relay(memory, Clock::Real()) {}
    Follower rows;
    CopyRelay relay;
    void Took(const v1::ShardChanges& said, bool coded) {
      CopyChanges changes = ChangesOf(said);
      changes.coded = coded;
      const std::string& bytes = said.rows();
      relay.Takes(changes);
      relay.Took(changes, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    }
  };
  Copy& feeder() { return copies_[turn_]; }
  void Feed() {
    Copy& copy = feeder();
    copy.Took(copy.rows.ReadPrimary(1 + random_.Uniform(6)), /*coded=*/false);
  }
  // The other one follows the feeder, and may become the feeder before it has the whole answer.
  void FeedOther() {
    Copy& copy = copies_[1 - turn_];
    v1::ReadChangesRequest request;
    *request.add_shards() = copy.rows.Asks();
    v1::ReadChangesReply reply;
    feeder().relay.Read(request, 1 + random_.Uniform(1000), /*waits_no_more=*/true, &reply);
    for (const v1::ShardChanges& said : reply.shards()) {
      if (random_.Uniform(10) == 0) Turn();
      if (said.elsewhere() || said.behind()) {
        copy.Took(copy.rows.ReadPrimary(1 + random_.Uniform(6)), /*coded=*/false);
        continue;
      }
      copy.rows.Take(said);
      copy.Took(said, /*coded=*/true);
      // Others ask it between the changes of one answer.
      if (&copy == &feeder()) ReadRelay(&followers_[0], random_.Uniform(2) == 0);
    }
  }
  void Turn() {
    feeder().relay.SetFeeder("the other");
    turn_ = 1 - turn_;
    feeder().relay.SetFeeder("");
  }
  // While the feeder takes changes.
  void ListFeeder(Follower* follower) {
    Copy& copy = feeder();
    const auto known = copy.relay.BeginList(0, kLimit);
    if (!known.has_value()) return;
    for (uint64_t id = 0; id < kIds; id += 3) {
      follower->List(copy.rows, id, id + 3);
      if (random_.Uniform(3) == 0) log_.Append(&random_);
      Feed();
    }
    const auto seen = copy.relay.SeenOf(0, kLimit, *known);
    if (!seen.has_value()) return;
    ++listed_;
    follower->EndList(known->through, *seen);
  }
  // False: it said nothing of rows.
  bool ReadRelay(Follower* follower, bool waits_no_more) {
    v1::ReadChangesRequest request;
    *request.add_shards() = follower->Asks();
    v1::ReadChangesReply reply;
    feeder().relay.Read(request, 1 + random_.Uniform(1000), waits_no_more, &reply);
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
  Copy copies_[2] = {{&log_, &memory_}, {&log_, &memory_}};
  int turn_ = 0;  // the copy that feeds
  std::vector<Follower> followers_;
  uint64_t joined_ = 0, went_on_ = 0, behind_ = 0, listed_ = 0;
};

TEST(CopyRelayTest, FollowersThatComeAndGoMissNothingAndNeverGoBack) {
  const TestSeed seed(21);
  int wrong = 0;
  uint64_t joined = 0, went_on = 0, behind = 0, listed = 0;
  for (int world = 0; world < 60; ++world) {
    // Some keep all changes, some few.
    World one(seed.value() + static_cast<uint64_t>(world), world % 2 == 0 ? 1 << 20 : 2500);
    for (int step = 0; step < 600; ++step) one.Step();
    one.End();
    wrong += one.wrong();
    joined += one.joined();
    went_on += one.went_on();
    behind += one.behind();
    listed += one.listed();
  }
  EXPECT_EQ(wrong > 0, kPlanted) << wrong;
  EXPECT_GT(joined, 200);
  EXPECT_GT(went_on, 100);
  EXPECT_GT(behind, 200);
  EXPECT_GT(listed, 100);
}

TEST(CopyRelayTest, ACopyThatFollowsAnotherFeedsNoneAndKeepsNothing) {
  World world(1, 1 << 20);
  for (int step = 0; step < 2000 && world.relay()->bytes() == 0; ++step) world.Step();
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

// The shard of a relay, at one LSN per change.
class OneShard {
 public:
  explicit OneShard(CopyRelay* relay) : relay_(*relay) {}
  CopyChanges Change(uint64_t lsn, uint64_t seen) const {
    CopyChanges one;
    one.range = {.first = 0, .limit = kLimit};
    one.ids = {lsn % kLimit};
    one.at = {.range = one.range, .epoch = 1, .lsn = lsn, .seen_epoch = 1, .seen_lsn = seen};
    return one;
  }
  void Took(uint64_t lsn, size_t row_bytes = 8) {
    relay_.Took(Change(lsn, lsn), std::vector<uint8_t>(row_bytes));
  }
  // A follower that has read so far at the primary.
  v1::ReadChangesReply Read(uint64_t through, uint64_t seen, bool waits_no_more) const {
    v1::ReadChangesRequest request;
    v1::FollowedShard& asked = *request.add_shards();
    asked.set_range_limit(kLimit);
    asked.mutable_above()->mutable_through()->set_lsn(through);
    asked.mutable_above()->mutable_through()->set_epoch(1);
    asked.mutable_above()->mutable_seen()->set_lsn(seen);
    asked.mutable_above()->mutable_seen()->set_epoch(1);
    v1::ReadChangesReply reply;
    relay_.Read(request, 1000, waits_no_more, &reply);
    return reply;
  }

 private:
  CopyRelay& relay_;
};

TEST(CopyRelayTest, AFollowerThatIsAheadWaitsAndThenAsksThePrimary) {
  RelayMemory memory(1 << 20, 1);
  CopyRelay relay(&memory, Clock::Real());
  OneShard shard(&relay);
  shard.Took(10);
  EXPECT_FALSE(shard.Read(10, 10, /*waits_no_more=*/true).more()) << "it has all";
  EXPECT_TRUE(shard.Read(10, 10, /*waits_no_more=*/true).shards().empty());
  for (const auto& [through, seen] : {std::pair{12, 12}, {10, 12}}) {
    const v1::ReadChangesReply waits = shard.Read(through, seen, /*waits_no_more=*/false);
    EXPECT_TRUE(waits.shards().empty() && waits.more()) << through << " " << seen;
    EXPECT_TRUE(shard.Read(through, seen, /*waits_no_more=*/true).shards(0).behind());
  }
}

TEST(CopyRelayTest, ChangesThatAreTooManyForOneAnswerAreThePrimarys) {
  if (kPlanted) GTEST_SKIP() << "followers join too early to need many";
  RelayMemory memory(64 << 20, 1);
  CopyRelay relay(&memory, Clock::Real());
  OneShard shard(&relay);
  shard.Took(1);
  (void)shard.Read(1, 1, /*waits_no_more=*/false);
  for (uint64_t lsn = 2; lsn <= 12; ++lsn) shard.Took(lsn, 1 << 20);
  EXPECT_TRUE(shard.Read(1, 12, /*waits_no_more=*/false).shards(0).behind());
  const v1::ReadChangesReply joins = shard.Read(9, 11, /*waits_no_more=*/false);
  ASSERT_GT(joins.shards_size(), 0);
  EXPECT_EQ(joins.shards(0).at().through().lsn(), 11);
}

TEST(CopyRelayTest, ChangesThatNobodyAsksForGo) {
  RelayMemory memory(1 << 20, 1);
  ManualClock clock;
  CopyRelay relay(&memory, &clock), other(&memory, &clock);
  OneShard shard(&relay);
  shard.Took(1);
  (void)shard.Read(1, 1, /*waits_no_more=*/false);
  for (uint64_t lsn = 2; lsn <= 8; ++lsn) shard.Took(lsn, 100 << 10);
  relay.Sweep();
  EXPECT_GT(relay.bytes(), 600 << 10);
  (void)OneShard(&other).Read(1, 1, /*waits_no_more=*/false);  // which has its share from now on
  relay.Sweep();
  EXPECT_LE(relay.bytes(), 512 << 10);
  EXPECT_GT(relay.bytes(), 0);
  clock.Advance(31 * kSecondNs);
  relay.Sweep();
  EXPECT_EQ(relay.bytes(), 0);
}

TEST(CopyRelayTest, AListIsAsNewAsTheNewestChangeThatOverlapsItsShard) {
  RelayMemory memory(1 << 20, 1);
  CopyRelay relay(&memory, Clock::Real());
  OneShard shard(&relay);
  EXPECT_FALSE(relay.BeginList(0, kLimit).has_value());
  shard.Took(5);
  const auto known = relay.BeginList(0, kLimit);
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->through.lsn(), 5);
  EXPECT_EQ(relay.SeenOf(0, kLimit, *known)->lsn(), 5);
  CopyChanges half = shard.Change(6, 9);
  half.range.limit = kLimit / 2;
  relay.Takes(half);  // readers may see rows of it
  EXPECT_EQ(relay.SeenOf(0, kLimit, *known)->lsn(), 9);
  relay.Takes(shard.Change(6, 7));
  EXPECT_EQ(relay.SeenOf(0, kLimit, *known)->lsn(), 9) << "it falls";
  relay.Took(half, std::vector<uint8_t>(8));
  EXPECT_FALSE(relay.SeenOf(0, kLimit, *known).has_value()) << "the shard was cut";
}

// A copy that begins at earlier positions, as from its disk, and changes that were told twice.
TEST(CopyRelayTest, ACursorFromBeforeABeginIsNoCursorAfterIt) {
  RelayMemory memory(1 << 20, 1);
  CopyRelay relay(&memory, Clock::Real());
  OneShard shard(&relay);
  shard.Took(1);
  (void)shard.Read(1, 1, /*waits_no_more=*/false);
  for (uint64_t lsn = 2; lsn <= 4; ++lsn) shard.Took(lsn);
  v1::ReadChangesRequest request;
  request.add_shards()->set_range_limit(kLimit);
  const v1::ReadChangesReply told = shard.Read(1, 1, /*waits_no_more=*/false);
  ASSERT_GT(told.shards_size(), 0);
  v1::FollowedShard& asked = *request.mutable_shards(0);
  *asked.mutable_cursor() = told.shards(told.shards_size() - 1).cursor();
  *asked.mutable_above() = told.shards(told.shards_size() - 1).at();
  relay.Begin({shard.Change(6, 6).at});
  shard.Took(7);
  v1::ReadChangesReply reply;
  relay.Read(request, 1000, /*waits_no_more=*/false, &reply);
  ASSERT_EQ(reply.shards_size(), 1);
  EXPECT_TRUE(reply.shards(0).behind()) << "it would miss the changes 5 and 6";
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
