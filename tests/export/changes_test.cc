// Lists of rows and changes over a real host: a reader's map equals the table, whatever happens to
// the shards and the server meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/random.h"
#include "row_math/position.h"
#include "row_math/touches.h"
#include "server/export/change_reads.h"
#include "server/export/checkpoint_calls.h"
#include "server/export/row_lists.h"
#include "tests/common/test_seed.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace changes_test {

constexpr uint32_t kDim = 4;
constexpr uint64_t kRows = 3000;

TableSpec Table(bool hashed, Durability durability) {
  TableSpec table = TestTable(1, "followed", kRows, kDim, OptimizerKind::kAdagrad);
  table.hashed = hashed;
  table.durability = durability;
  return table;
}

template <typename Reply, typename Begin>
absl::StatusOr<Reply> Answer(Begin begin) {
  absl::Notification answered;
  absl::StatusOr<std::string> answer;
  begin([&](absl::StatusOr<std::string> said, std::shared_ptr<const void>) {
    answer = std::move(said);
    answered.Notify();
  });
  answered.WaitForNotification();
  if (!answer.ok()) return answer.status();
  Reply reply;
  EXPECT_TRUE(reply.ParseFromString(*answer));
  return reply;
}

// A server, and what its data port would call.
class Served {
 public:
  Served(const TableSpec& table, uint32_t shards, uint64_t change_bytes,
         const Clock* lists_clock = Clock::Real())
      : lists_clock_(lists_clock),
        memory_(std::make_shared<ChangeMemory>(change_bytes)),
        server_(Options(), {table}, shards),
        client_(&server_, 7) {
    Start();
  }
  ~Served() { Kill(); }
  void Start() {
    server_.Start();
    changes_ = std::make_unique<ChangeReads>(server_.host(), memory_, Clock::Real());
    lists_ = std::make_unique<RowLists>(server_.host(), changes_.get(), lists_clock_);
  }
  void Kill() {
    if (lists_ != nullptr) lists_->Stop();
    lists_.reset();
    changes_.reset();
    server_.Kill();
  }
  void Push(const std::vector<uint64_t>& ids, Random* random) {
    std::vector<float> gradients;
    for (size_t i = 0; i < ids.size() * kDim; ++i)
      gradients.push_back(static_cast<float>(random->Uniform(1000)) / 1000 - 0.5f);
    client_.Push(1, ++step_, ids, gradients);
  }
  void Delete(const std::vector<uint64_t>& ids) { client_.Delete(1, ++step_, ids); }
  void Restart() {
    Kill();
    Start();
    Continue();
  }
  void Continue() { client_.Restart(); }  // with a server that was started again
  const std::string& data_dir() const { return dir_.path(); }
  void Cut(ShardId shard) {
    const ShardRange range = server_.record(shard).range;
    if (range.limit - range.first < 2) return;
    client_.LearnCut(shard, server_.Cut(shard, range.first + (range.limit - range.first) / 2));
  }
  absl::StatusOr<v1::ListRowsReply> List(const v1::ListRowsRequest& request,
                                         const std::string& connection = "a") {
    return Answer<v1::ListRowsReply>(
        [&](ToolCalls::Done done) { lists_->List(request, connection, std::move(done)); });
  }
  absl::StatusOr<v1::ReadChangesReply> Changes(const v1::ReadChangesRequest& request) {
    return Answer<v1::ReadChangesReply>(
        [&](ToolCalls::Done done) { changes_->Read(request, "a", std::move(done)); });
  }
  TestServer& server() { return server_; }
  ChangeMemory& memory() { return *memory_; }
  ChangeReads& changes() { return *changes_; }
  // One of the calls, as the data port makes it for a caller that is asked `may_use`.
  template <typename Reply, typename Request>
  absl::StatusOr<Reply> Call(const std::string& method, const Request& request,
                             const ToolCalls::MayUse& may_use) {
    auto calls = RowCalls(server_.host(), lists_.get(), changes_.get(), /*top_k=*/nullptr);
    return Answer<Reply>([&](ToolCalls::Done done) {
      calls.at("/hotbed.v1.Changes/" + method)
          .begin(request.SerializeAsString(), {"a", may_use}, std::move(done));
    });
  }

 private:
  ShardHostOptions Options() {
    ShardHostOptions options;
    options.data_dir = dir_.path();
    options.host_bytes = 64ull << 20;
    options.checkpoint_interval_ms = 0;
    options.change_memory = memory_;
    return options;
  }

  TempDir dir_;
  const Clock* const lists_clock_;
  const std::shared_ptr<ChangeMemory> memory_;
  TestServer server_;
  TestClient client_;
  uint64_t step_ = 0;
  std::unique_ptr<ChangeReads> changes_;
  std::unique_ptr<RowLists> lists_;
};

// Follows a table by the rules of proto/changes.proto, in the plainest way: one shard and one call
// at a time.
class Reader {
 public:
  Reader(Served* served, bool hashed) : served_(*served), hashed_(hashed) {}

  // One call for each shard; false: none had anything to say.
  bool Step() {
    Learn();
    bool any = false;
    for (auto& [id, shard] : shards_) any = StepOf(id, &shard) || any;
    return any;
  }
  void ReadAll() {
    while (Step()) {
    }
  }
  const std::map<uint64_t, std::vector<float>>& rows() const { return rows_; }
  int again() const { return again_; }
  uint64_t lists() const { return lists_; }
  uint64_t told() const { return told_; }
  void ForgetTold() { told_ = 0; }

 private:
  struct Part {
    ShardRange range;
    v1::ReadPlace read;
    uint64_t skip = 0;
    uint64_t list = 0;  // 0: none is read
    bool follows = false;
  };

  void Learn() {
    std::map<ShardId, Part> parts;
    for (const ShardRecord& record : served_.server().records()) {
      Part& part = parts[record.shard];
      for (const auto& [id, known] : shards_) {
        if (record.range.first < known.range.first || record.range.limit > known.range.limit)
          continue;
        part.read = known.read;
        if (record.range.first != known.range.first || record.range.limit != known.range.limit)
          break;
        part = known;
        break;
      }
      part.range = record.range;
    }
    shards_ = std::move(parts);
  }

  bool StepOf(ShardId id, Part* part) {
    if (part->follows) return Read(id, part);
    v1::ListRowsRequest request;
    request.set_goes_on(part->list != 0);
    if (part->list == 0) {
      part->list = ++lists_;
      const bool begun = part->read.through().lsn() == 0 && part->read.seen().lsn() != 0;
      if (begun && hashed_) {  // rows that were told may be deleted since
        part->read.Clear();
        Forget(part->range);
      }
    }
    request.set_list(part->list);
    request.set_shard(id.packed());
    request.set_range_first(part->range.first);
    request.set_range_limit(part->range.limit);
    *request.mutable_above() = part->read;
    request.set_with_rows(true);
    const absl::StatusOr<v1::ListRowsReply> reply = served_.List(request);
    if (!reply.ok() || reply->elsewhere()) {
      part->list = 0;
      return true;
    }
    if (reply->lost()) {
      part->list = 0;
      part->read.Clear();
      Forget(part->range);
      ++again_;
      return true;
    }
    Take(reply->ids(), reply->rows(), reply->deleted());
    *part->read.mutable_seen() = reply->at().seen();
    if (!reply->ended()) return true;
    part->read = reply->at();
    part->list = 0;
    part->skip = 0;
    part->follows = true;
    return true;
  }

  bool Read(ShardId id, Part* part) {
    v1::ReadChangesRequest request;
    v1::FollowedShard& asked = *request.add_shards();
    asked.set_shard(id.packed());
    asked.set_range_first(part->range.first);
    asked.set_range_limit(part->range.limit);
    *asked.mutable_above() = part->read;
    asked.set_skip(part->skip);
    request.set_bytes_max(500);
    request.set_with_rows(true);
    const absl::StatusOr<v1::ReadChangesReply> reply = served_.Changes(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok() || reply->shards().empty()) return false;
    const v1::ShardChanges& said = reply->shards(0);
    EXPECT_LE(said.ids().size() + said.rows().size(), 500u);
    if (said.elsewhere()) return true;
    if (said.behind()) {
      part->follows = false;
      return true;
    }
    EXPECT_GE(said.at().through().lsn(), part->read.through().lsn());
    part->read = said.at();
    part->skip = said.skip();
    Take(said.ids(), said.rows(), said.deleted());
    return true;
  }

  void Take(const std::string& ids, const std::string& rows, const std::string& deleted) {
    for (size_t i = 0; i * 8 < deleted.size(); ++i) {
      uint64_t id = 0;
      std::memcpy(&id, deleted.data() + i * 8, 8);
      rows_.erase(id);
    }
    for (size_t i = 0; i * 8 < ids.size(); ++i) {
      ++told_;
      uint64_t id = 0;
      std::memcpy(&id, ids.data() + i * 8, 8);
      std::vector<float>& row = rows_[id];
      row.resize(kDim);
      std::memcpy(row.data(), rows.data() + i * kDim * 4, kDim * 4);
    }
  }
  void Forget(const ShardRange& range) {
    std::erase_if(rows_, [&](const auto& row) {
      const uint64_t position = hashed_ ? Mix64(row.first) : row.first;
      return position >= range.first_position(hashed_) && position <= range.last_position(hashed_);
    });
  }

  Served& served_;
  const bool hashed_;
  std::map<ShardId, Part> shards_;
  std::map<uint64_t, std::vector<float>> rows_;
  int again_ = 0;
  uint64_t lists_ = 0;
  uint64_t told_ = 0;  // rows
};

// The first row of `rows` that is not the table's, or one of the table that they lack; empty: none.
std::string Wrong(Served* served, const std::map<uint64_t, std::vector<float>>& rows,
                  const std::set<uint64_t>& pushed) {
  const std::vector<uint64_t> ids(pushed.begin(), pushed.end());
  auto pull = served->server().MakePull(1, ids);
  served->server().Run(pull.get());
  for (size_t s = 0; s < pull->segments.size(); ++s) {
    if (pull->segments[s].result.code != SegmentCode::kOk) return "a pull is refused";
    for (size_t i = 0; i < pull->ids[s].size(); ++i) {
      const uint64_t id = pull->ids[s][i];
      const auto known = rows.find(id);
      const bool exists = (pull->flags[s][i] & 1) != 0;
      const bool same =
          known != rows.end() &&
          std::memcmp(known->second.data(), pull->rows[s].data() + i * kDim * 4, kDim * 4) == 0;
      if (exists != same) return absl::StrCat("id ", id, exists ? " differs" : " is deleted");
      if (!exists && known != rows.end()) return absl::StrCat("id ", id, " is deleted");
    }
  }
  return "";
}

void ExpectSame(Served* served, const Reader& reader, const std::set<uint64_t>& pushed) {
  ASSERT_EQ(Wrong(served, reader.rows(), pushed), "");
}

std::vector<uint64_t> SomeIds(uint64_t count, Random* random) {
  std::set<uint64_t> ids;
  while (ids.size() < count) ids.insert(random->Uniform(kRows));
  return {ids.begin(), ids.end()};
}

// Random pushes, deletes of hashed rows, cuts and kills, and a reader of random pace. With class
// checkpoint kills lose what was pushed; the reader hears of it and has the table as it is all the
// same.
TEST(ChangesTest, AReadersMapIsTheTable) {
  const TestSeed seed(1);
  int again[2] = {};
  for (int round = 0; round < 8; ++round) {
    Random random(seed.value() + round);
    const bool hashed = round % 2 == 1;
    const bool loses = round / 2 % 2 == 1;
    Served served(Table(hashed, loses ? Durability::kCheckpoint : Durability::kLog), 2, 2u << 20);
    Reader reader(&served, hashed);
    std::set<uint64_t> pushed;
    for (int i = 0; i < 120; ++i) {
      const uint64_t chance = random.Uniform(40);
      if (chance == 0) {
        served.Restart();
      } else if (chance == 1 && served.server().records().size() < 6) {
        served.Cut(
            served.server().records()[random.Uniform(served.server().records().size())].shard);
      } else if (chance == 2) {
        ASSERT_TRUE(
            served.server().host()->Find(served.server().records()[0].shard)->WriteBack().ok());
      } else if (chance < 7 && hashed) {
        served.Delete(SomeIds(1 + random.Uniform(200), &random));
      } else if (chance < 20) {
        const std::vector<uint64_t> ids =
            SomeIds(1 + random.Uniform(random.OneIn(9) ? 400 : 9), &random);
        pushed.insert(ids.begin(), ids.end());
        served.Push(ids, &random);
      } else {
        reader.Step();
      }
    }
    reader.ReadAll();
    ASSERT_NO_FATAL_FAILURE(ExpectSame(&served, reader, pushed)) << "round " << round;
    again[loses] += reader.again();
  }
  EXPECT_EQ(again[0], 0) << "a log loses nothing";
  EXPECT_GT(again[1], 0) << "no kill was noticed";
}

// The rows and deleted ids that a save is given.
struct SaveSink : RowSink {
  absl::Status BeginPass(uint64_t) override { return absl::OkStatus(); }
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) override {
    const size_t bytes = payloads.size() / ids.size();
    for (size_t i = 0; i < ids.size(); ++i) {
      std::vector<float>& row = rows[ids[i]];
      row.resize(kDim);
      std::memcpy(row.data(), payloads.data() + i * bytes, kDim * sizeof(float));
      deleted.erase(ids[i]);
    }
    return absl::OkStatus();
  }
  absl::Status TakeDeleted(absl::Span<const uint64_t> ids) override {
    for (const uint64_t id : ids) {
      rows.erase(id);
      deleted.insert(id);
    }
    return absl::OkStatus();
  }
  std::map<uint64_t, std::vector<float>> rows;
  std::set<uint64_t> deleted;
};

// The rows of a shard as a series of incremental saves has them.
class SavedRows {
 public:
  void Save(Served* served, ShardId shard) {
    SaveSink sink;
    ShardHost::CopyOptions options;
    options.above = at_;
    const auto copied = served->server().host()->Copy(shard, options, &sink);
    ASSERT_TRUE(copied.ok()) << copied.status();
    if (copied->above == 0) {
      rows_.clear();
      whole_ += at_.lsn != 0 ? 1 : 0;
    }
    for (const uint64_t id : sink.deleted) rows_.erase(id);
    for (auto& [id, row] : sink.rows) rows_[id] = std::move(row);
    at_ = {copied->lsn_epoch, copied->lsn};
  }
  const std::map<uint64_t, std::vector<float>>& rows() const { return rows_; }
  int whole() const { return whole_; }  // saves that could not be incremental

 private:
  std::map<uint64_t, std::vector<float>> rows_;
  ChangePosition at_;
  int whole_ = 0;
};

// A server of a test that forgets which marks are gone: as if it were kept in memory alone.
void ForgetGoneMarks(const std::string& data_dir, const TableSpec& table,
                     const std::vector<ShardRecord>& records) {
  TierOptions options;
  options.spill_dir = absl::StrCat(data_dir, "/spill");
  options.hot_bytes = 1 << 20;
  const auto tiers = TierHost::Open(options);
  ASSERT_TRUE(tiers.ok()) << tiers.status();
  for (const ShardRecord& record : records) {
    const SpillShard shard(table, record.range, record.shard);
    const auto bytes = (*tiers)->ReadMeta(shard);
    ASSERT_TRUE(bytes.ok());
    if (bytes->empty()) continue;
    auto meta = ShardMeta::Parse(*bytes);
    ASSERT_TRUE(meta.ok());
    meta->marks_gone = 0;
    ASSERT_TRUE((*tiers)->ReplaceMeta(shard, meta->Serialize(), meta->applied_lsn).ok());
  }
  ASSERT_TRUE((*tiers)->Flush().ok());
  MarkRowsOpened(data_dir);
}

// Pushes, deletes, kills and cuts, while marks go; a stream and a series of incremental saves that
// are behind by random amounts. Returns a row that one of them has wrongly.
std::string ReadersAcrossDropsOfMarks(uint64_t seed, bool forgets, int* again) {
  Random random(seed);
  Served served(Table(true, Durability::kLog), 2, 2u << 20);
  Reader reader(&served, true);
  SavedRows saved[2];
  std::set<uint64_t> pushed;
  const auto shard = [&](int s) { return served.server().records()[s].shard; };
  for (int i = 0; i < 150; ++i) {
    const uint64_t chance = random.Uniform(30);
    if (chance == 0) {
      served.Kill();
      if (forgets)
        ForgetGoneMarks(served.data_dir(), Table(true, Durability::kLog),
                        served.server().records());
      served.Start();
      served.Continue();
    } else if (chance < 4) {
      for (int s = 0; s < 2; ++s) {
        const auto gone = served.server().host()->Find(shard(s))->DropMarks(
            /*keep_ns=*/0, [] { return absl::OkStatus(); });
        EXPECT_TRUE(gone.ok()) << gone.status();
      }
    } else if (chance < 10) {
      served.Delete(SomeIds(1 + random.Uniform(100), &random));
    } else if (chance < 20) {
      const std::vector<uint64_t> ids = SomeIds(1 + random.Uniform(60), &random);
      pushed.insert(ids.begin(), ids.end());
      served.Push(ids, &random);
    } else if (chance < 22) {
      const int s = static_cast<int>(random.Uniform(2));
      saved[s].Save(&served, shard(s));
    } else if (chance < 26) {
      reader.Step();
    }
  }
  reader.ReadAll();
  for (int s = 0; s < 2; ++s) {
    saved[s].Save(&served, shard(s));
    *again += saved[s].whole();
  }
  *again += reader.again();
  std::map<uint64_t, std::vector<float>> all = saved[0].rows();
  all.insert(saved[1].rows().begin(), saved[1].rows().end());
  return absl::StrCat(Wrong(&served, reader.rows(), pushed), Wrong(&served, all, pushed));
}

TEST(ChangesTest, NoDeletedRowComesBackWhereMarksAreGone) {
  const TestSeed seed(77);
  int again = 0;
  for (int round = 0; round < 4; ++round) {
    EXPECT_EQ(ReadersAcrossDropsOfMarks(seed.value() + round, /*forgets=*/false, &again), "")
        << "round " << round;
  }
  EXPECT_GT(again, 0) << "no reader was below what was gone";
}

// The check above can fail: readers below the marks that are gone are not told.
TEST(ChangesTest, AServerThatForgetsWhichMarksAreGoneIsFound) {
  std::string wrong;
  int again = 0;
  for (uint64_t seed = 1; seed < 20 && wrong.empty(); ++seed) {
    wrong = ReadersAcrossDropsOfMarks(seed, /*forgets=*/true, &again);
  }
  EXPECT_NE(wrong, "");
}

// --- candidates for admission

TableSpec Admitting() {
  TableSpec table = Table(true, Durability::kLog);
  table.optimizer.touches = true;
  table.life.admission.after = 3;
  return table;
}

// The ids that a scan of shard 0 lists, with the touches of each.
std::map<uint64_t, std::pair<bool, RowTouches>> Scan(Served* served, uint64_t list) {
  v1::ListRowsRequest request;
  request.set_list(list);
  request.set_shard(ShardId{1, 0}.packed());
  request.set_range_limit(kBuckets);
  request.set_of_one_moment(true);
  request.set_with_statistics(true);
  std::map<uint64_t, std::pair<bool, RowTouches>> found;
  for (bool ended = false; !ended;) {
    const auto reply = served->List(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return found;
    EXPECT_EQ(reply->touches().size(), reply->found().size() * kTouchBytes);
    for (size_t i = 0; i < reply->found().size(); ++i) {
      uint64_t id = 0;
      std::memcpy(&id, reply->ids().data() + i * sizeof(id), sizeof(id));
      const auto* const touches = reinterpret_cast<const uint8_t*>(reply->touches().data());
      found[id] = {reply->found()[i] == KnownTouches::kCandidate,
                   LoadTouches(touches + i * kTouchBytes)};
    }
    request.set_goes_on(true);
    ended = reply->ended();
  }
  return found;
}

TEST(ChangesTest, CandidatesForAdmissionAreNoRowsToStreamsAndScans) {
  Random random(3);
  Served served(Admitting(), 1, 2u << 20);
  Reader reader(&served, true);
  served.Push({1, 2, 3}, &random);
  served.Push({1, 2}, &random);
  served.Push({1}, &random);
  reader.ReadAll();  // a list
  EXPECT_EQ(reader.rows().size(), 1u);
  EXPECT_TRUE(reader.rows().contains(1));
  served.Push({2}, &random);
  served.Push({3}, &random);
  reader.ReadAll();  // the feed
  EXPECT_EQ(reader.rows().size(), 2u);
  EXPECT_TRUE(reader.rows().contains(2)) << "a row comes when it is admitted";
  // A candidate in place of a row that the reader has, behind the feed.
  served.Delete({1});
  served.Push({1, 4}, &random);
  served.Restart();
  reader.ReadAll();
  EXPECT_EQ(reader.rows().size(), 1u);
  EXPECT_TRUE(reader.rows().contains(2));
  ExpectSame(&served, reader, {1, 2, 3, 4});

  const auto scanned = Scan(&served, 900);
  EXPECT_EQ(scanned.size(), 4u);
  EXPECT_FALSE(scanned.at(2).first);
  EXPECT_EQ(scanned.at(2).second.count, 3u);
  EXPECT_EQ(scanned.at(2).second.step, 4u);
  EXPECT_TRUE(scanned.at(3).first);
  EXPECT_EQ(scanned.at(3).second.count, 2u);
  EXPECT_TRUE(scanned.at(1).first);
  EXPECT_EQ(scanned.at(1).second.count, 1u);
}

TEST(ChangesTest, StatisticsAreRefusedWhereThereAreNone) {
  Served served(Table(true, Durability::kLog), 1, 2u << 20);
  v1::ListRowsRequest request;
  request.set_list(1);
  request.set_shard(ShardId{1, 0}.packed());
  request.set_range_limit(kBuckets);
  request.set_of_one_moment(true);
  request.set_with_statistics(true);
  const auto refused = served.List(request);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_NE(refused.status().message().find("keeps no touches"), std::string::npos);
}

// Checkpoints carry candidates with their counters; a save without the state leaves them out.
TEST(ChangesTest, SavesCarryCandidates) {
  Random random(3);
  Served served(Admitting(), 1, 2u << 20);
  SavedRows saved;
  served.Push({1, 2, 3}, &random);
  saved.Save(&served, {1, 0});
  served.Push({1}, &random);
  saved.Save(&served, {1, 0});
  EXPECT_EQ(saved.rows().size(), 3u);
  EXPECT_EQ(saved.whole(), 0);
}

// A caller whose rules name tables: a shard that is not here is told to be elsewhere and keeps no
// other from being answered, and a table that it may not read refuses the call.
TEST(ChangesTest, RulesOfTablesHoldForListsAndChanges) {
  Random random(3);
  Served served(Table(false, Durability::kLog), 2, 2u << 20);
  const auto only = [](const std::string& allowed) {
    return [allowed](absl::string_view table) {
      if (table == allowed) return absl::OkStatus();
      return absl::PermissionDeniedError(absl::StrCat("not table ", table));
    };
  };
  const ShardRecord here = served.server().records()[0];
  v1::ListRowsRequest list;
  list.set_list(1);
  list.set_shard(here.shard.packed());
  list.set_range_first(here.range.first);
  list.set_range_limit(here.range.limit);
  v1::ReadChangesRequest read;
  read.set_bytes_max(4096);
  for (const uint64_t shard : {ShardId{9, 9}.packed(), here.shard.packed()}) {
    v1::FollowedShard& followed = *read.add_shards();
    followed.set_shard(shard);
    followed.set_range_first(here.range.first);
    followed.set_range_limit(here.range.limit);
  }
  const auto lists = [&](const ToolCalls::MayUse& may_use) {
    return served.Call<v1::ListRowsReply>("ListRows", list, may_use);
  };
  const auto changes = [&](const ToolCalls::MayUse& may_use) {
    return served.Call<v1::ReadChangesReply>("ReadChanges", read, may_use);
  };

  EXPECT_EQ(lists(only("other")).status().message(), "not table followed");
  EXPECT_EQ(changes(only("other")).status().message(), "not table followed");
  EXPECT_TRUE(absl::IsPermissionDenied(changes(only("other")).status()));
  for (const ToolCalls::MayUse& may_use :
       std::vector<ToolCalls::MayUse>{only("followed"), nullptr}) {
    list.set_list(list.list() + 1);
    const auto listed = lists(may_use);
    ASSERT_TRUE(listed.ok()) << listed.status();
    EXPECT_FALSE(listed->elsewhere());
    *read.mutable_shards(1)->mutable_above() = listed->at();
    served.Push({1, 2}, &random);
    const auto told = changes(may_use);
    ASSERT_TRUE(told.ok()) << told.status();
    ASSERT_EQ(told->shards_size(), 2);
    EXPECT_EQ(told->shards(0).shard(), (ShardId{9, 9}.packed()));
    EXPECT_TRUE(told->shards(0).elsewhere());
    EXPECT_FALSE(told->shards(1).elsewhere());
    EXPECT_EQ(told->shards(1).ids().size(), 16u);
  }
  list.set_shard(ShardId{9, 9}.packed());
  const auto absent = lists(only("followed"));
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_TRUE(absent->elsewhere());
}

TEST(ChangesTest, ReadsRowsByIdAsOfOnePlace) {
  Random random(3);
  Served served(Table(false, Durability::kLog), 1, 2u << 20);
  served.Push({1, 3}, &random);
  const ShardRecord here = served.server().records()[0];
  v1::ReadRowsRequest read;
  for (const uint64_t shard : {here.shard.packed(), ShardId{9, 9}.packed()}) {
    v1::WantedRows& wanted = *read.add_shards();
    wanted.set_shard(shard);
    wanted.set_range_first(here.range.first);
    wanted.set_range_limit(here.range.limit);
    const std::vector<uint64_t> ids = {3, 2, 1};
    wanted.set_ids(ids.data(), ids.size() * sizeof(uint64_t));
  }
  const auto rows = [&] { return served.Call<v1::ReadRowsReply>("ReadRows", read, nullptr); };
  auto found = rows();
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->shards_size(), 2);
  EXPECT_TRUE(found->shards(1).elsewhere());
  const v1::FoundRows& first = found->shards(0);
  EXPECT_EQ(first.found(), std::string({1, 0, 1}));
  EXPECT_EQ(first.at().lsn(), 1u);
  const size_t row_bytes = first.rows().size() / 3;
  EXPECT_NE(first.rows().substr(0, row_bytes), std::string(row_bytes, 0));
  EXPECT_EQ(first.rows().substr(row_bytes, row_bytes), std::string(row_bytes, 0));
  const std::string before = first.rows();
  served.Push({3}, &random);
  found = rows();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->shards(0).at().lsn(), 2u);
  EXPECT_NE(found->shards(0).rows().substr(0, row_bytes), before.substr(0, row_bytes));
  EXPECT_EQ(found->shards(0).rows().substr(row_bytes), before.substr(row_bytes));

  const uint64_t other = kRows;  // bounded: there is no such row
  read.mutable_shards(0)->set_ids(&other, sizeof(other));
  EXPECT_TRUE(absl::IsInvalidArgument(rows().status()));
  read.mutable_shards(0)->set_ids(std::string(8 * (1u << 16), 0));
  EXPECT_TRUE(absl::IsInvalidArgument(rows().status()));
}

// A crash gave the LSNs of lost changes to others: by LSN alone nothing seems to have happened.
TEST(ChangesTest, NoticesLsnsThatAreUsedAgain) {
  Random random(3);
  Served served(Table(false, Durability::kCheckpoint), 1, 2u << 20);
  Reader reader(&served, false);
  served.Push({1, 2, 3}, &random);
  served.Push({4}, &random);
  reader.ReadAll();
  EXPECT_EQ(reader.rows().size(), 4u);
  served.Restart();
  served.Push({5}, &random);
  served.Push({6}, &random);
  reader.ReadAll();
  EXPECT_EQ(reader.again(), 1);
  ExpectSame(&served, reader, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(reader.rows().size(), 2u);
}

// Nobody would free it: a position that is lost gives no list.
TEST(ChangesTest, ALostPositionOpensNoFeed) {
  Random random(3);
  Served served(Table(false, Durability::kLog), 1, 2u << 20);
  served.Push({1}, &random);
  v1::ListRowsRequest list;
  list.set_list(9);
  list.set_shard(ShardId{1, 0}.packed());
  list.set_range_limit(kRows);
  list.mutable_above()->mutable_through()->set_epoch(99);
  list.mutable_above()->mutable_through()->set_lsn(1);
  EXPECT_TRUE(served.List(list)->lost());
  EXPECT_EQ(served.memory().feed_bytes(), 0u);
  list.clear_above();
  EXPECT_FALSE(served.List(list)->lost());
  EXPECT_GT(served.memory().feed_bytes(), 0u);
}

// A list that began again in silence would leave rows that were deleted since the first one.
TEST(ChangesTest, AListThatIsNotKnownDoesNotGoOn) {
  Random random(3);
  Served served(Table(true, Durability::kLog), 1, 2u << 20);
  Reader reader(&served, true);
  served.Push({1, 2, 3}, &random);
  reader.Step();  // one page, which is not the last
  EXPECT_EQ(reader.rows().size(), 3u);
  served.Restart();
  served.Delete({2});
  reader.ReadAll();
  EXPECT_EQ(reader.lists(), 2u);
  ExpectSame(&served, reader, {1, 2, 3});
}

// Rows of a list that broke off count too: they may be lost with the server.
TEST(ChangesTest, NoticesTheLossOfRowsOfABrokenList) {
  Random random(3);
  Served served(Table(false, Durability::kCheckpoint), 1, 2u << 20);
  Reader reader(&served, false);
  served.Push({1, 2, 3}, &random);
  reader.Step();  // one page, which is not the last
  EXPECT_EQ(reader.rows().size(), 3u);
  served.Restart();
  reader.ReadAll();
  EXPECT_EQ(reader.again(), 1);
  EXPECT_EQ(reader.rows().size(), 0u);
}

TEST(ChangesTest, AnswersWithinItsLimits) {
  Random random(3);
  Served served(Table(false, Durability::kLog), 2, 2u << 20);
  v1::ReadChangesRequest request;
  EXPECT_EQ(served.Changes(request).status().code(), absl::StatusCode::kInvalidArgument);
  v1::FollowedShard& one = *request.add_shards();
  one.set_shard(ShardId{1, 0}.packed());
  *request.add_shards() = one;
  EXPECT_EQ(served.Changes(request).status().message(),
            "a call names shard 1/0 twice, allowed: once");
  request.clear_shards();
  for (uint32_t i = 0; i <= kFollowedShardsMax; ++i) {
    request.add_shards()->set_shard(ShardId{1, i}.packed());
  }
  EXPECT_EQ(served.Changes(request).status().code(), absl::StatusCode::kInvalidArgument);
  // A list is read by one call at a time, and its number belongs to one shard.
  v1::ListRowsRequest list;
  list.set_list(9);
  list.set_shard(ShardId{1, 0}.packed());
  list.set_range_limit(kRows / 2);
  served.Push({1}, &random);
  ASSERT_TRUE(served.List(list).ok());
  list.set_shard(ShardId{1, 1}.packed());
  EXPECT_EQ(served.List(list).status().code(), absl::StatusCode::kInvalidArgument);
  // Lists that nobody reads are bounded in number and hold no answers.
  absl::Status refused;
  for (uint64_t n = 10; n < 10 + kListsMax && refused.ok(); ++n) {
    list.set_list(n);
    list.set_shard(ShardId{1, 0}.packed());
    refused = served.List(list).status();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "this connection has 32 lists of rows on this server, and 32 of 64 are free; allowed: "
            "fewer than are free. Ask again later");
  // They leave room for others.
  EXPECT_TRUE(served.List(list, "b").ok());
  list.set_list(9);
  list.set_end(true);
  EXPECT_TRUE(served.List(list).ok());
  list.clear_end();
  list.set_list(1000);
  EXPECT_TRUE(served.List(list).ok());
  for (int i = 0; i < 5000 && served.memory().answer_bytes() > 0; ++i) {
    Clock::Real()->SleepNs(kMillisecondNs);  // the last answer's memory is given back after it
  }
  EXPECT_EQ(served.memory().answer_bytes(), 0u);
}

TEST(FairShareTest, ACallerHasFewerPlacesThanAreFree) {
  FairShare share(8, "places");
  const auto take = [&share](const std::string& caller) {
    int taken = 0;
    while (share.Take(caller).ok()) ++taken;
    return taken;
  };
  EXPECT_EQ(take("a"), 4);
  EXPECT_EQ(take("b"), 2);
  EXPECT_EQ(take("c"), 1);
  EXPECT_EQ(take("d"), 1);
  EXPECT_EQ(take("e"), 0);
  for (int i = 0; i < 4; ++i) share.Give("a");
  EXPECT_EQ(take("e"), 2);
  EXPECT_EQ(take("a"), 1);
  EXPECT_EQ(share.Take("b").message(),
            "this connection has 2 places on this server, and 1 of 8 are free; allowed: fewer than "
            "are free. Ask again later");
}

// A reader that falls behind what memory holds reads the rows that changed since, and no others.
TEST(ChangesTest, ASlowReaderListsWhatHasChanged) {
  Random random(3);
  Served served(Table(false, Durability::kLog), 1, 2u << 20);
  Reader reader(&served, false);
  std::vector<uint64_t> low, high;
  for (uint64_t id = 0; id < 500; ++id) low.push_back(id);
  for (uint64_t id = 1000; id < kRows; ++id) high.push_back(id);
  served.Push(low, &random);
  // Rows that only memory has count as changed when they are written.
  ASSERT_TRUE(served.server().host()->Find({1, 0})->WriteBack().ok());
  reader.ReadAll();
  EXPECT_EQ(reader.lists(), 1u);
  for (int i = 0; i < 80; ++i) served.Push(high, &random);  // more ids than half of 2 MiB
  EXPECT_LE(served.memory().feed_bytes(), 1u << 20);
  reader.ForgetTold();
  reader.ReadAll();
  EXPECT_EQ(reader.lists(), 2u);
  EXPECT_EQ(reader.again(), 0);
  EXPECT_EQ(reader.told(), high.size());
  ExpectSame(&served, reader, std::set<uint64_t>(high.begin(), high.end()));
}

// A change wakes the call that waits for it.
TEST(ChangesTest, AChangeEndsTheWait) {
  Random random(3);
  Served served(Table(false, Durability::kLog), 1, 2u << 20);
  Reader reader(&served, false);
  served.Push({1}, &random);
  reader.ReadAll();
  v1::ReadChangesRequest request;
  v1::FollowedShard& asked = *request.add_shards();
  asked.set_shard(ShardId{1, 0}.packed());
  asked.set_range_limit(kRows);
  request.set_wait_ms(10'000);
  int64_t least_ns = kSecondNs;
  for (uint64_t lsn = 1; lsn <= 4; ++lsn) {
    v1::LogPlace& through = *asked.mutable_above()->mutable_through();
    through.set_epoch(served.server().records()[0].epoch);
    through.set_lsn(lsn);
    *asked.mutable_above()->mutable_seen() = through;
    absl::Notification answered;
    std::string answer;
    served.changes().Read(request, "a",
                          [&](absl::StatusOr<std::string> said, std::shared_ptr<const void>) {
                            answer = *std::move(said);
                            answered.Notify();
                          });
    Clock::Real()->SleepNs(50 * kMillisecondNs);  // the call is seen, and nothing has changed
    EXPECT_FALSE(answered.HasBeenNotified());
    const int64_t pushed_ns = Clock::Real()->NowNs();
    served.Push({1 + lsn}, &random);
    answered.WaitForNotification();
    least_ns = std::min(least_ns, Clock::Real()->NowNs() - pushed_ns);
    v1::ReadChangesReply reply;
    ASSERT_TRUE(reply.ParseFromString(answer));
    ASSERT_EQ(reply.shards_size(), 1);
    EXPECT_EQ(reply.shards(0).ids(),
              std::string(1, static_cast<char>(1 + lsn)) + std::string(7, 0));
  }
  // Without being woken, the thread looks once a second.
  EXPECT_LT(least_ns, kSecondNs / 2);
}

// Rows of one moment, and ids alone.
TEST(ChangesTest, ScansAShardAsOfOneLsn) {
  Random random(3);
  ManualClock clock;
  Served served(Table(false, Durability::kLog), 1, 2u << 20, &clock);
  served.Push(SomeIds(300, &random), &random);
  v1::ListRowsRequest list;
  list.set_list(9);
  list.set_shard(ShardId{1, 0}.packed());
  list.set_range_limit(kRows);
  list.set_of_one_moment(true);
  std::string ids;
  for (bool ended = false; !ended;) {
    const absl::StatusOr<v1::ListRowsReply> reply = served.List(list);
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_FALSE(reply->elsewhere());
    ids += reply->ids();
    EXPECT_EQ(reply->rows(), "");
    ended = reply->ended();
    EXPECT_EQ(reply->at().through().lsn(), 1u);
    served.Push({2999}, &random);  // after that moment
  }
  EXPECT_EQ(ids.size(), 300u * 8);
  list.set_list(10);  // lists do not pause the shard again and again
  EXPECT_EQ(served.List(list).status().code(), absl::StatusCode::kResourceExhausted);
  clock.Advance(kPauseEveryNs);
  EXPECT_TRUE(served.List(list).ok());
  list.set_list(11);
  list.set_range_limit(kRows / 2);  // before a cut that this client has not heard of
  EXPECT_TRUE(served.List(list)->elsewhere());
}

}  // namespace changes_test
}  // namespace hotbed
