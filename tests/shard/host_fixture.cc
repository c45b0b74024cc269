#include "tests/shard/host_fixture.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "common/check.h"
#include "common/files/file_system.h"
#include "common/files/marks.h"
#include "common/status_macros.h"
#include "common/tables/shard_lanes.h"
#include "row_math/position.h"
#include "server/shard/shard.h"
#include "tests/shard/attach_shard.h"

namespace hotbed {

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "hotbed-shard-XXXXXX").string();
  HOTBED_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void MarkRowsOpened(const std::string& data_dir) {
  auto marks = Marks::Open(data_dir + "/MARKS", FileSystem::Real(), /*make=*/false);
  HOTBED_CHECK(marks.ok()) << marks.status();
  (*marks)->Set(Marks::kSpillChanges, {1, 0, 0});
  HOTBED_CHECK((*marks)->Sync().ok());
}

TableSpec TestTable(TableId id, const std::string& name, uint64_t rows, uint32_t dim,
                    OptimizerKind optimizer) {
  TableSpec table;
  table.id = id;
  table.name = name;
  table.rows = rows;
  table.dim = dim;
  table.optimizer.kind = optimizer;
  table.optimizer.learning_rate = 0.05f;
  table.initializer = {InitializerKind::kUniform, -0.5f, 0.5f};
  table.seed = DefaultTableSeed(name);
  return table;
}

TestServer::TestServer(ShardHostOptions options, const std::vector<TableSpec>& tables,
                       uint32_t shards)
    : options_(std::move(options)), shards_(shards) {
  for (const TableSpec& table : tables) {
    tables_[table.id] = table;
    current_[table.id] = table;
    const uint64_t positions = table.hashed ? kBuckets : table.rows;
    for (uint32_t slice = 0; slice < table.column_slices; ++slice) {
      const ColumnRange columns = SliceColumns(table.dim, table.column_slices, slice);
      for (uint32_t i = 0; i < shards; ++i) {
        ShardRecord record;
        record.shard = {table.id, slice * shards + i};
        record.range = {positions * i / shards, positions * (i + 1) / shards, columns.first,
                        columns.limit};
        records_.push_back(record);
      }
    }
  }
}

void TestServer::Open() {
  const absl::Status opened = TryOpen();
  HOTBED_CHECK(opened.ok()) << opened;
}

absl::Status TestServer::TryOpen() {
  auto opened = ShardHost::Open(options_, clock_);
  HOTBED_RETURN_IF_ERROR(opened.status());
  host_ = *std::move(opened);
  HOTBED_CHECK(host_->SetIdentity({1, "test"}).ok());
  host_->SetIncarnation(++incarnation_);
  return absl::OkStatus();
}

void TestServer::ContinueFrom(const TestServer& other) {
  epoch_ = other.epoch_;
  revision_ = other.revision_;
  incarnation_ = other.incarnation_;
}

void TestServer::Assign() {
  epoch_ += 1;
  for (ShardRecord& record : records_) {
    record.epoch = epoch_;
    record.revision = ++revision_;
    record.primary = {1, incarnation_};
    record.members = {record.primary};
    record.active = false;
  }
  std::vector<TableSpec> tables;
  for (const auto& [id, table] : current_) tables.push_back(table);
  const absl::Status assigned = host_->ApplyAssignment(tables, records_, {});
  HOTBED_CHECK(assigned.ok()) << assigned;
  Activate();
}

void TestServer::Activate() {
  std::vector<ShardRecord> changed;
  for (const ShardHost::ShardEpoch& asks : host_->ShardsToActivate()) {
    ShardRecord& r = record(asks.shard);
    if (r.epoch != asks.epoch) continue;
    r.active = true;
    r.revision = ++revision_;
    changed.push_back(r);
  }
  const absl::Status assigned = host_->ApplyAssignment({}, changed, {});
  HOTBED_CHECK(assigned.ok()) << assigned;
}

ShardId TestServer::Cut(ShardId shard, uint64_t at, bool tell) {
  ShardRecord upper = record(shard);
  upper.epoch = ++epoch_;
  upper.revision = ++revision_;
  upper.active = false;
  upper.base = upper.members;
  upper.merge = {};
  ShardRecord lower = upper;
  lower.range.limit = at;
  upper.range.first = at;
  for (const ShardRecord& r : records_) {
    if (r.shard.table != shard.table) continue;
    upper.shard.index = std::max(upper.shard.index, NumbersBelow(r));
  }
  std::tie(lower.lanes, upper.lanes) = DivideLanes(record(shard), at, upper.shard.index);
  record(shard) = lower;
  records_.push_back(upper);
  if (tell) {
    const absl::Status told = host_->ApplyAssignment({}, {lower, upper}, {});
    HOTBED_CHECK(told.ok()) << told;
    Activate();
  }
  return upper.shard;
}

void TestServer::Merge(ShardId lower, const ShardHost::MergeReady& ready, ShardId upper) {
  const ShardRecord merged = MergedRecord(record(lower), record(upper), ready.end, ready.end_with);
  epoch_ = std::max(epoch_, merged.epoch);
  record(lower) = merged;
  record(lower).revision = ++revision_;
  std::erase_if(records_, [upper](const ShardRecord& r) { return r.shard == upper; });
}

void TestServer::Alter(TableId table, const TableChange& change, bool tell) {
  TableSpec& spec = current_.at(table);
  const absl::Status changed = AddTableChange(change, &spec);
  HOTBED_CHECK(changed.ok()) << changed;
  if (!tell) return;
  const absl::Status told = host_->ApplyAssignment({spec}, {}, {});
  HOTBED_CHECK(told.ok()) << told;
}

void TestServer::Start() {
  Open();
  Assign();
}

absl::Status TestServer::Stop() {
  const absl::Status stopped = host_->Shutdown();
  host_.reset();
  return stopped;
}

ShardRecord& TestServer::record(ShardId shard) {
  for (ShardRecord& r : records_) {
    if (r.shard == shard) return r;
  }
  HOTBED_CHECK(false) << shard.ToString();
  __builtin_unreachable();
}

const TableSpec& TestServer::table(TableId id) const { return tables_.at(id); }

ShardId TestServer::ShardOf(TableId table, uint64_t id) const {
  const bool hashed = tables_.at(table).hashed;
  const uint64_t position = hashed ? BucketOf(Mix64(id)) : id;
  for (const ShardRecord& r : records_) {
    if (r.shard.table == table && position >= r.range.first && position < r.range.limit) {
      return r.shard;
    }
  }
  HOTBED_CHECK(false) << "id " << id;
  __builtin_unreachable();
}

ShardId TestServer::LaneOf(TableId table, uint64_t id) const {
  const uint64_t position = tables_.at(table).hashed ? BucketOf(Mix64(id)) : id;
  const ShardId shard = ShardOf(table, id);
  for (const ShardRecord& r : records_) {
    if (!(r.shard == shard)) continue;
    for (const ShardLane& lane : r.Lanes()) {
      if (position >= lane.first && position < lane.limit) return {table, lane.index};
    }
  }
  HOTBED_CHECK(false) << "id " << id;
  __builtin_unreachable();
}

std::unique_ptr<TestPush> TestServer::MakePush(SessionId session, Incarnation incarnation,
                                               TableId table, const std::vector<uint64_t>& ids,
                                               const std::vector<float>& gradients) {
  auto push = std::make_unique<TestPush>();
  push->session = session;
  push->incarnation = incarnation;
  const TableSpec& spec = tables_.at(table);
  std::map<ShardId, std::pair<size_t, ShardId>> slot;  // by lane: the segment, and the shard
  for (const uint64_t id : ids) {
    for (uint32_t slice = 0; slice < spec.column_slices; ++slice) {
      slot.try_emplace(OfSlice(LaneOf(table, id), slice), 0, OfSlice(ShardOf(table, id), slice));
    }
  }
  size_t count = 0;
  for (auto& [lane, segment] : slot) segment.first = count++;
  push->ids.resize(count);
  push->gradients.resize(count);
  push->rows.resize(count);
  for (size_t i = 0; i < ids.size(); ++i) {
    for (uint32_t slice = 0; slice < spec.column_slices; ++slice) {
      const size_t s = slot.at(OfSlice(LaneOf(table, ids[i]), slice)).first;
      const ColumnRange columns = SliceColumns(spec.dim, spec.column_slices, slice);
      push->ids[s].push_back(ids[i]);
      push->gradients[s].insert(push->gradients[s].end(),
                                gradients.begin() + i * spec.dim + columns.first,
                                gradients.begin() + i * spec.dim + columns.limit);
    }
  }
  for (const auto& [lane, segment_of] : slot) {
    const auto [s, shard] = segment_of;
    push->lanes.push_back(lane);
    const ShardRange& range = record(shard).range;
    const uint32_t columns = range.column_limit - range.column_first;
    for (size_t i = 0; i < push->ids[s].size(); ++i) {
      push->rows[s].push_back(
          reinterpret_cast<const uint8_t*>(push->gradients[s].data() + i * columns));
    }
    PushSegment& segment = push->segments.emplace_back();
    AttachShard(*host_, shard, push.get(), &segment);
    segment.shard_id = shard;
    segment.epoch = record(shard).epoch;
    segment.ids = push->ids[s].data();
    segment.count = static_cast<uint32_t>(push->ids[s].size());
    segment.gradients = push->rows[s].data();
  }
  return push;
}

void TestServer::Run(TestPush* push) {
  host_->Push(push);
  push->done.WaitForNotification();
}

std::unique_ptr<TestPull> TestServer::MakePull(TableId table, const std::vector<uint64_t>& ids) {
  auto pull = std::make_unique<TestPull>();
  std::map<ShardId, std::vector<uint64_t>> cut;
  for (const uint64_t id : ids) {
    for (uint32_t slice = 0; slice < tables_.at(table).column_slices; ++slice) {
      cut[OfSlice(ShardOf(table, id), slice)].push_back(id);
    }
  }
  pull->ids.reserve(cut.size());
  pull->rows.reserve(cut.size());
  pull->flags.reserve(cut.size());
  for (auto& [shard, part] : cut) {
    PullSegment& segment = pull->segments.emplace_back();
    AttachShard(*host_, shard, pull.get(), &segment);
    segment.shard_id = shard;
    segment.epoch = record(shard).epoch;
    segment.count = static_cast<uint32_t>(part.size());
    const ShardRange& range = record(shard).range;
    const uint32_t columns = range.column_limit - range.column_first;
    pull->rows.emplace_back(part.size() * columns * sizeof(float), 0xff);
    pull->flags.emplace_back(part.size(), 0xff);
    pull->ids.push_back(std::move(part));
    segment.ids = pull->ids.back().data();
    segment.flags = pull->flags.back().data();
  }
  uint64_t bytes = 0;
  for (const auto& rows : pull->rows) bytes += rows.size();
  pull->memory = std::make_unique<PinnedRows>(host_->answer_pinner(), bytes);
  pull->answer = pull->memory.get();
  uint8_t* at = pull->memory->data();
  for (size_t s = 0; s < pull->rows.size(); at += pull->rows[s++].size()) {
    pull->segments[s].rows = at;
  }
  return pull;
}

void TestServer::Run(TestPull* pull) {
  host_->Pull(pull);
  pull->done.WaitForNotification();
}

std::vector<float> TestServer::Pull(TableId table, const std::vector<uint64_t>& ids) {
  auto pull = MakePull(table, ids);
  Run(pull.get());
  const uint32_t dim = tables_.at(table).dim;
  std::map<uint64_t, std::vector<size_t>> where;
  for (size_t i = 0; i < ids.size(); ++i) where[ids[i]].push_back(i);
  std::vector<float> rows(ids.size() * dim);
  std::vector<uint32_t> filled(ids.size());
  for (size_t s = 0; s < pull->segments.size(); ++s) {
    const PullSegment& segment = pull->segments[s];
    EXPECT_EQ(segment.result.code, SegmentCode::kOk) << segment.result.detail;
    const ShardRange& range = record(segment.shard_id).range;
    const uint32_t columns = range.column_limit - range.column_first;
    for (size_t i = 0; i < pull->ids[s].size(); ++i) {
      for (const size_t at : where.at(pull->ids[s][i])) {
        std::memcpy(rows.data() + at * dim + range.column_first,
                    pull->rows[s].data() + i * columns * sizeof(float), columns * sizeof(float));
        const uint32_t slices = tables_.at(table).column_slices;
        filled[at] |= 1u << (slices == 1 ? 0 : segment.shard_id.index / shards_);
      }
    }
  }
  for (const uint32_t slices : filled) {
    EXPECT_EQ(slices, (uint64_t{1} << tables_.at(table).column_slices) - 1);
  }
  return rows;
}

void TestClient::Push(TableId table, uint64_t step, const std::vector<uint64_t>& ids,
                      const std::vector<float>& gradients, uint64_t part) {
  last_ = {table, ids, gradients, step << 20 | part, {}};
  for (const uint64_t id : ids) {
    for (uint32_t slice = 0; slice < server_->table(table).column_slices; ++slice) {
      const uint64_t lane = server_->OfSlice(server_->LaneOf(table, id), slice).packed();
      if (last_.chain.contains(lane)) continue;
      const auto [it, opens] = chains_.try_emplace(lane, 0);
      last_.chain[lane] = {it->second, opens};
      it->second = last_.seq;
    }
  }
  Send(last_);
}

void TestClient::LearnCut(ShardId shard, ShardId part) {
  const auto known = chains_.find(shard.packed());
  if (known != chains_.end()) chains_[part.packed()] = known->second;
  const auto sent = last_.chain.find(shard.packed());
  if (sent != last_.chain.end()) last_.chain[part.packed()] = sent->second;
}

void TestClient::ResendLast() { Send(last_); }

void TestClient::Send(const Sent& sent) {
  for (int attempt = 0;; ++attempt) {
    const bool deletes = sent.gradients.empty();
    const std::vector<float> none(deletes ? sent.ids.size() * server_->table(sent.table).dim : 0);
    auto push = server_->MakePush(session_, incarnation_, sent.table, sent.ids,
                                  deletes ? none : sent.gradients);
    bool busy = false;
    for (size_t i = 0; i < push->segments.size(); ++i) {
      PushSegment& segment = push->segments[i];
      std::tie(segment.prev_seq, segment.open) = sent.chain.at(push->lanes[i].packed());
      segment.seq = sent.seq;
      segment.deletes = deletes;
      if (deletes) segment.gradients = nullptr;
    }
    server_->Run(push.get());
    for (const PushSegment& segment : push->segments) {
      const SegmentCode code = segment.result.code;
      if ((code == SegmentCode::kResourceExhausted || code == SegmentCode::kUnavailable) &&
          attempt < 1000) {
        busy = true;
        continue;
      }
      ASSERT_EQ(segment.result.code, SegmentCode::kOk) << segment.result.detail;
      ASSERT_GE(segment.result.last_seq, sent.seq);
    }
    if (!busy) return;
    Clock::Real()->SleepNs(5'000'000);
  }
}

}  // namespace hotbed
