// The disks of the simulated cluster: one log for all shards of a server, the rows of each shard in
// memory and in the spill tier. The shards use them as ShardLog, TieredStore and TierHost.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "row_math/position.h"
#include "row_math/touches.h"
#include "server/shard_log/segment_format.h"
#include "tests/sim/cluster_simulation.h"
#include "tests/sim/sim_mutant.h"

namespace hotbed::sim {
namespace {

constexpr size_t kRowBytes = kColumns * sizeof(float);

// A row in a block of a snapshot transfer.
struct RowInBlock {
  uint64_t row = 0;
  Row value;
};

void AddToBlock(std::string* block, uint64_t row, const Row& value) {
  const RowInBlock record = {row, value};
  block->append(reinterpret_cast<const char*>(&record), sizeof(record));
}

// Rows as the spill tier holds them at one moment.
class SpilledRows final : public ShardRowReader {
 public:
  SpilledRows(const Rows& rows, Lsn above) {
    for (uint64_t row = 0; row < kRows; ++row) {
      if (rows[row].lsn > above) AddToBlock(&rows_, row, rows[row]);
    }
  }
  absl::StatusOr<std::string> Next(uint64_t bytes_max) override {
    const size_t count = std::max<size_t>(bytes_max / sizeof(RowInBlock), 1);
    std::string block = rows_.substr(at_, count * sizeof(RowInBlock));
    at_ += block.size();
    return block;
  }
  uint64_t bytes_total() const override { return rows_.size(); }

 private:
  std::string rows_;
  size_t at_ = 0;
};

// Rows as memory holds them when their block is read.
class RowsInMemory final : public ShardRowReader {
 public:
  explicit RowsInMemory(LivePass pass) : pass_(std::move(pass)) {}
  absl::StatusOr<std::string> Next(uint64_t bytes_max) override {
    const size_t count =
        std::min(std::max<size_t>(bytes_max / sizeof(RowInBlock), 1), pass_.positions.size() - at_);
    if (count == 0) return std::string();
    LiveRows rows;
    const absl::Status read =
        pass_.read(absl::MakeConstSpan(pass_.positions).subspan(at_, count), &rows);
    if (!read.ok()) return read;
    at_ += count;
    return std::string(rows.records.begin(), rows.records.end());
  }
  uint64_t bytes_total() const override { return pass_.positions.size() * sizeof(RowInBlock); }

 private:
  LivePass pass_;
  size_t at_ = 0;
};

}  // namespace

// Each server's own: they run at different rates.
class ClusterSimulation::ServerClock final : public Clock {
 public:
  ServerClock(const ClusterSimulation* world, int server) : world_(*world), server_(server) {}
  int64_t NowNs() const override {
    return world_.LocalTime(world_.servers_[server_]) * (kMillisecondNs / kMs);
  }
  int64_t WallUs() const override { return NowNs() / 1000; }
  void SleepNs(int64_t) const override {}

 private:
  const ClusterSimulation& world_;
  const int server_;
};

// --- the log

// Appends wait in the process until FinishAppend.
class ClusterSimulation::Log final : public ShardLog {
 public:
  Log(ClusterSimulation* world, int server) : world_(*world), server_(server) {}
  absl::Status Replay(const Visitor&) override { return absl::OkStatus(); }  // see LoadShard
  const std::vector<Damage>& damage() const override { return damage_; }
  absl::StatusOr<LogPosition> End() override { return LogPosition(); }
  void Append(LogAppend* append) override {
    const RecordHeader& header = append->header;
    const int shard = static_cast<int>(header.shard.index);
    Process& p = *world_.servers_[server_].process;
    p.appending.push_back({shard, append});
    std::vector<EntryName>& entries = p.replicas[shard]->entries;
    entries.resize(header.lsn + 1);
    const uint64_t words[] = {static_cast<uint64_t>(header.kind), header.session,
                              header.incarnation, header.seq, header.id_count};
    uint64_t hash = 0;
    for (const uint64_t word : words) hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    entries[header.lsn] = {header.epoch, hash};
    world_.ScheduleAppend(server_);
  }
  void Commit() override {}
  absl::Status Sync() override {
    if (!Planted(SimMutant::kSpillBeforeSync)) world_.SyncLog(&world_.servers_[server_]);
    return absl::OkStatus();
  }
  void SetLeastNeeded(ShardId, Lsn) override {}
  void SetAside(ShardId, bool) override {}
  void ForgetShard(ShardId) override {}
  void Inherit(ShardId, ShardId) override {}
  Usage GetUsage() const override {
    Usage usage;
    usage.read_only = world_.servers_[server_].process->log_read_only;
    return usage;
  }
  absl::Status TryResume() override { return absl::OkStatus(); }  // see TickServer

 private:
  ClusterSimulation& world_;
  const int server_;
  const std::vector<Damage> damage_;
};

void ClusterSimulation::SyncLog(Server* server) const {
  server->disk.synced = server->disk.log.size();
}

void ClusterSimulation::ScheduleAppend(int server) {
  Process& p = *servers_[server].process;
  if (p.append_scheduled || p.appending.empty() || p.dead) return;
  p.append_scheduled = true;
  At(Delay(stormy() ? weather_.log_time : 3 * kMs), ForLife(server, [this, server] {
       servers_[server].process->append_scheduled = false;
       FinishAppend(server);
     }));
}

void ClusterSimulation::WriteRecord(Server* server, const QueuedAppend& queued) const {
  const LogAppend& append = *queued.append;
  LogRecord record = {queued.shard, append.header, {}};
  const uint32_t count = append.header.id_count;
  const size_t rows_bytes = append.header.dim == 0 ? 0 : count * kRowBytes;
  record.payload.resize(count + (rows_bytes + 7) / 8);
  if (!append.encoded.empty()) {
    std::memcpy(record.payload.data(), append.encoded.data() + kRecordHeaderBytes,
                8 * count + rows_bytes);
  } else if (count > 0) {
    std::memcpy(record.payload.data(), append.ids, 8 * count);
    auto* const rows = reinterpret_cast<char*>(record.payload.data() + count);
    for (uint32_t i = 0; rows_bytes > 0 && i < count; ++i) {
      std::memcpy(rows + i * kRowBytes, append.gradients[i], kRowBytes);
    }
  }
  server->disk.log.push_back(std::move(record));
  std::vector<Epoch>& logged = server->process->replicas[queued.shard]->logged;
  logged.resize(append.header.lsn + 1);  // it replaces the entries above
  logged.back() = append.header.epoch;
}

void ClusterSimulation::FinishAppend(int server) {
  Server& s = servers_[server];
  Process& p = *s.process;
  if (p.appending.empty()) return;
  if (time_ < s.disk_full_until || p.log_read_only || (stormy() && Chance(weather_.log_fails))) {
    FailAppends(&s);
  } else {
    // A group commit takes some of the waiting entries.
    const size_t count = 1 + random_.Uniform(p.appending.size());
    for (size_t i = 0; i < count; ++i) {
      const QueuedAppend queued = p.appending.front();
      p.appending.pop_front();
      WriteRecord(&s, queued);
      if (fsync_) SyncLog(&s);
      auto done = std::move(queued.append->done);
      done(absl::OkStatus());
      AfterEvent(server, queued.shard);
    }
  }
  ScheduleAppend(server);
}

void ClusterSimulation::FailAppends(Server* server) {
  ++stats_.append_failures;
  Process& p = *server->process;
  p.log_read_only = true;
  for (const QueuedAppend& queued : std::exchange(p.appending, {})) {
    auto done = std::move(queued.append->done);
    done(absl::ResourceExhaustedError("the disk is full"));
    AfterEvent(server->index, queued.shard);
  }
}

// From here on the log's entries of an earlier replica do not count; this mark must last as long as
// the log.
void ClusterSimulation::BeginLog(Server* server, int shard) {
  if (!Planted(SimMutant::kSpillBeforeSync)) SyncLog(server);
  server->disk.shards[shard].log_from = server->disk.log.size();
}

// An LSN that is handed over again was cut before. Not only entries of a higher epoch replace
// others. A tail that the primary of one epoch did not know may survive on a member that is the
// next primary, and then replaces entries of the epoch between.
std::vector<const LogRecord*> ClusterSimulation::LastWord(const Disk& disk, int shard) {
  std::vector<const LogRecord*> records;
  const SpilledShard& spilled = disk.shards[shard];
  const auto is_own = [&](size_t i) {
    if (i >= spilled.log_from && disk.log[i].shard == shard) return true;
    const bool before = i < spilled.log_from || Planted(SimMutant::kCutReplaysOn);
    for (const SpilledShard* child = &spilled; before && child->cut.has_value();) {
      if (disk.log[i].shard == child->cut->parent) {
        return i >= child->cut->from && (i < child->log_from || Planted(SimMutant::kCutReplaysOn));
      }
      child = &disk.shards[child->cut->parent];
    }
    return false;
  };
  for (size_t i = 0; i < disk.log.size(); ++i) {
    const LogRecord& record = disk.log[i];
    if (!is_own(i)) continue;
    const RecordHeader& header = record.header;
    const bool above = Planted(SimMutant::kReplacedByHigherOnly) && !records.empty() &&
                       header.lsn <= records.back()->header.lsn &&
                       header.epoch <= records.back()->header.epoch;
    if (above) continue;
    while (!records.empty() && records.back()->header.lsn >= header.lsn) records.pop_back();
    records.push_back(&record);
  }
  return records;
}

// --- rows

void ClusterSimulation::AddToRow(Row* row, PushId push) {
  nodes_.push_back({push, row->node});
  row->node = static_cast<uint32_t>(nodes_.size() - 1);
  row->sum += pushes_[push].weight;
  row->chain = (row->chain ^ (push + 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;
  row->chain ^= row->chain >> 29;
}

// The rows of one replica: all in memory, and each as it was last written back on the disk. Calls
// take time, now and then.
class ClusterSimulation::Store final : public TieredStore {
 public:
  Store(ClusterSimulation* world, Server* server, const TierHost::ShardParams& params)
      : world_(*world),
        server_(*server),
        shard_(static_cast<int>(params.shard.index)),
        first_(static_cast<uint64_t>(world->shards_[shard_].family) * kRows),
        replica_(*server->process->replicas[shard_]),
        executor_(params.executor),
        hint_(params.hint),
        range_(params.range),
        touches_(params.table->optimizer.touches) {
    table_.store = this;
    if (hint_ != nullptr) hint_->OpenRows(&table_, &Store::Gather, /*absent_is_initial=*/false);
    replica_.before_write_back = params.before_write_back;
    const SpilledShard& spilled = server->disk.shards[shard_];
    replica_.rows = spilled.rows;
    replica_.meta = spilled.meta;
    for (const Row& row : spilled.rows) replica_.guard = std::max(replica_.guard, row.lsn);
  }

  ~Store() override {
    if (hint_ != nullptr) hint_->CloseRows();
  }

  bool Pull(const RowReads& reads, Done done) override {
    Read(reads);
    const bool at_once = !std::exchange(takes_time_, false) && world_.Chance(0.7);
    if (at_once) return true;
    Later(world_.Delay(2 * kMs), [done = std::move(done)]() mutable { done(absl::OkStatus()); });
    return false;
  }

  bool Apply(const RowUpdates& updates, Done done) override {
    const Weather& weather = world_.weather_;
    if (replica_.opening || world_.Chance(weather.rows_at_once)) {
      Update(updates);
      return true;
    }
    const bool slow = world_.stormy() && world_.Chance(weather.rows_slow);
    Later(world_.Delay(slow ? weather.rows_slow_time : 10 * kMs),  // rows to be read
          [this, updates, done = std::move(done)]() mutable {
            if (world_.time_ < server_.disk_full_until && !server_.process->dead) {
              return done(absl::ResourceExhaustedError("the spill tier is full"));
            }
            Update(updates);
            done(absl::OkStatus());
          });
    return false;
  }

  void BeginReplay() override { replica_.replaying = true; }
  void EndReplay() override { replica_.replaying = false; }
  const std::string& meta() const override { return replica_.meta; }
  Lsn highest_lsn() const override { return replica_.guard; }

  void WriteBackAll(Lsn applied, std::string meta, Done done) override {
    for (int row = 0; row < kRows; ++row) world_.WriteBackRow(&server_, shard_, row, applied);
    if (replica_.before_write_back != nullptr) replica_.before_write_back(applied).IgnoreError();
    world_.Flushed(&server_.disk);
    server_.disk.shards[shard_].meta = std::move(meta);
    done(absl::OkStatus());
  }
  void SetAppliedLsn(Lsn lsn) override {
    const bool next = lsn == replica_.applied + 1 && !replica_.opening;
    replica_.applied = lsn;
    if (next) world_.CheckApplied(server_.index, shard_, replica_, lsn);
  }

  bool PeekRow(uint64_t id, std::vector<uint8_t>* row) override {
    const uint64_t chain = replica_.rows[id - first_].chain;
    row->resize(sizeof(chain));
    std::memcpy(row->data(), &chain, sizeof(chain));
    return true;
  }
  bool BeginPass(bool further, std::vector<uint64_t>* positions) override {
    if (replica_.replaying || world_.Chance(0.5)) return false;
    const uint32_t changed = std::exchange(replica_.changed, 0);
    for (uint64_t row = 0; row < kRows; ++row) {
      const bool sent = further ? (changed >> row & 1) != 0 : replica_.rows[row].node != 0;
      if (sent) positions->push_back(first_ + row);
    }
    return true;
  }
  void ReadPass(absl::Span<const uint64_t> positions, LiveRows* rows) override {
    std::string block;
    for (const uint64_t position : positions) {
      Row row = replica_.rows[position - first_];
      row.lsn = replica_.applied;
      AddToBlock(&block, position - first_, row);
    }
    rows->records.assign(block.begin(), block.end());
  }
  // A sweep looks at all rows: it is never told how many there are.
  StoreStats Stats() const override {
    StoreStats stats;
    stats.began_with_rows = true;
    return stats;
  }
  // Positions are those of a hashed table, whose rows alone expire.
  bool VisitMemory(uint32_t, MemoryWalk* walk, RowVisitor visit) override {
    walk->slots_left = 0;
    walk->all = true;
    for (uint64_t index = 0; index < kRows; ++index) {
      const Row& row = replica_.rows[index];
      const uint64_t id = first_ + index;
      if (row.touched_s == 0 || id < range_.first || id >= range_.limit) continue;
      const float weights[kColumns] = {static_cast<float>(row.sum)};
      uint8_t touches[kTouchBytes];
      StoreTouches({1, row.touched_s, row.touched_step}, touches);
      visit(Mix64(id), reinterpret_cast<const uint8_t*>(weights), touches);
    }
    return true;
  }

 private:
  struct Table : RowTable {
    Store* store = nullptr;
  };

  // As Pull, for the reads that need no store: those that it has to answer later miss their rows,
  // and Pull is called next.
  static void Gather(GatherBatch* gather) {
    Store* const store = static_cast<const Table*>(gather->table)->store;
    store->Read(*gather);
    store->takes_time_ = !store->world_.Chance(0.7);
    gather->missing_count = store->takes_time_ ? 1 : 0;
  }
  void Read(const RowReads& reads) {
    for (uint32_t i = 0; i < reads.count; ++i) {
      const float row[kColumns] = {static_cast<float>(replica_.rows[reads.ids[i] - first_].sum)};
      std::memcpy(reads.rows + i * kRowBytes, row, kRowBytes);
    }
  }
  // Ends a call after `delay`, or sooner where the replica is retired.
  void Later(Time delay, absl::AnyInvocable<void()> end) {
    auto call = std::make_shared<StoreCall>();
    call->end = [executor = executor_, end = std::move(end)]() mutable {
      executor->Run([end = std::move(end)]() mutable { end(); });
    };
    replica_.calls.push_back(call);
    world_.At(delay, world_.ForLife(server_.index, [world = &world_, server = server_.index,
                                                    shard = shard_, call] {
      if (call->end == nullptr) return;
      std::erase(world->servers_[server].process->replicas[shard]->calls, call);
      std::exchange(call->end, nullptr)();
      world->AfterEvent(server, shard);
    }));
  }

  void Update(const RowUpdates& updates) {
    uint64_t state = 0;
    for (uint32_t i = 0; i < updates.count; ++i) {
      const uint64_t index = updates.ids[i] - first_;
      Row& row = replica_.rows[index];
      float columns[kColumns] = {updates.scalars.learning_rate};
      if (!updates.deletes) std::memcpy(columns, updates.gradients[i], kRowBytes);
      const bool there = replica_.replaying && row.lsn >= updates.lsn;
      for (int column = 0; column < kColumns && !there; ++column) {
        const auto push = static_cast<PushId>(columns[column]);
        if (push != 0) Add(&row, push);
      }
      if (touches_ && !there) Touch(updates, &row);
      row.lsn = std::max(row.lsn, updates.lsn);
      replica_.changed |= 1u << index;
      state = (state + row.chain) * 0xc4ceb9fe1a85ec53ull + index;
    }
    if (world_.trace_ != nullptr) {
      world_.Trace(absl::StrCat("ROWS s", server_.index + 1, " shard ", shard_, " lsn ",
                                updates.lsn, replica_.replaying ? " guarded to " : "",
                                replica_.replaying ? absl::StrCat(replica_.guard) : ""));
      for (uint32_t i = 0; i < updates.count; ++i) {
        const Row& row = replica_.rows[updates.ids[i] - first_];
        world_.Trace(absl::StrCat("  row ", updates.ids[i] - first_, " sum ", row.sum, " lsn ",
                                  row.lsn, " push ", world_.nodes_[row.node].push));
      }
    }
    replica_.state = state;
    replica_.state_lsn = updates.lsn;
  }
  // Clients' deletes name their push.
  static void Touch(const RowUpdates& updates, Row* row) {
    const bool by_shard = updates.deletes && updates.scalars.learning_rate == 0;
    row->touched_s = by_shard ? 0 : updates.scalars.time_s;
    row->touched_step = by_shard ? 0 : updates.scalars.step;
    if (by_shard) row->chain = (row->chain ^ 0x5bd1e9955bd1e995ull) * 0xff51afd7ed558ccdull;
  }
  void Add(Row* row, PushId push) {
    if (push >= world_.pushes_.size()) {
      return world_.Violation(absl::StrCat("shard ", shard_, ": no such push: ", push));
    }
    const PushInfo& info = world_.pushes_[push];
    if (info.staged && !world_.IsCommitted(shard_, info)) {
      world_.Violation("a staged push was applied before its commit");
    }
    world_.AddToRow(row, push);
  }

  ClusterSimulation& world_;
  Server& server_;
  const int shard_;
  const uint64_t first_;
  Replica& replica_;
  Executor* const executor_;
  FetchHint* const hint_;
  const ShardRange range_;
  const bool touches_;
  Table table_;
  bool takes_time_ = false;  // the next Pull
};

class ClusterSimulation::Tiers final : public TierHost {
 public:
  Tiers(ClusterSimulation* world, int server) : world_(*world), server_(server) {}
  absl::StatusOr<std::unique_ptr<TieredStore>> OpenShard(ShardParams params) override {
    return std::make_unique<Store>(&world_, &world_.servers_[server_], params);
  }
  absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadShard(const SpillShard& shard,
                                                            Lsn above) override {
    const Disk& disk = world_.servers_[server_].disk;
    return std::make_unique<SpilledRows>(disk.shards[shard.shard.index].rows, above);
  }
  absl::StatusOr<std::unique_ptr<ShardRowReader>> ReadLive(const SpillShard&,
                                                           LivePass pass) override {
    return std::make_unique<RowsInMemory>(std::move(pass));
  }
  // The shard host's part, which the simulation has in simulated_transfers.cc.
  absl::StatusOr<std::unique_ptr<ShardRowWriter>> WriteShard(const SpillShard&) override {
    return absl::UnimplementedError("rows come by OnSnapshot");
  }
  absl::Status InheritMeta(const SpillShard&, const SpillShard&) override {
    return absl::UnimplementedError("shards are cut by DivideDisk");
  }
  absl::Status DeleteShard(const SpillShard&) override {
    return absl::UnimplementedError("rows go with their SpilledShard");
  }
  absl::Status Flush() override { return absl::OkStatus(); }
  absl::Status Freeze() override { return absl::OkStatus(); }
  absl::Status RestoreTable(TableId) override { return absl::OkStatus(); }
  Health GetHealth() const override { return {}; }
  absl::Status TryResume() override { return absl::OkStatus(); }
  absl::Status Renew() override { return absl::OkStatus(); }

 private:
  ClusterSimulation& world_;
  const int server_;
};

void ClusterSimulation::MakeDisk(Server* server) {
  Process& p = *server->process;
  p.clock = std::make_unique<ServerClock>(this, server->index);
  p.log = std::make_unique<Log>(this, server->index);
  p.tiers = std::make_unique<Tiers>(this, server->index);
}

void ClusterSimulation::TakeBlock(Server* server, int shard, absl::Span<const uint8_t> block) {
  for (size_t at = 0; at + sizeof(RowInBlock) <= block.size(); at += sizeof(RowInBlock)) {
    RowInBlock record;
    std::memcpy(&record, block.data() + at, sizeof(record));
    server->disk.shards[shard].rows[record.row] = record.value;
  }
}

void ClusterSimulation::WriteBackRow(Server* server, int shard, int row, Lsn applied) {
  const Replica& replica = *server->process->replicas[shard];
  Row& stored = server->disk.shards[shard].rows[row];
  if (stored.chain == replica.rows[row].chain) return;
  if (replica.before_write_back != nullptr) replica.before_write_back(applied).IgnoreError();
  Flushed(&server->disk);
  stored = replica.rows[row];
  stored.lsn = applied;
}

// One row to the spill tier, with the LSN of now: ahead of the meta stored there.
void ClusterSimulation::WriteBack(Server* server, int shard) {
  const Replica* const replica = Open(*server, shard);
  const bool logged = shards_[shard].setting.durability != Durability::kCheckpoint;
  if (replica != nullptr && logged) WriteBackRow(server, shard, Pick(kRows), replica->applied);
}

void ClusterSimulation::NoteCheckpoint(Server* server, int shard) {
  SpilledShard& spilled = server->disk.shards[shard];
  spilled.kept = true;
  if (shards_[shard].setting.durability != Durability::kCheckpoint) return;
  spilled.unflushed = nullptr;
  const RowSet rows = RowsOf(shard, spilled.range);
  for (int row = 0; row < kRows; ++row) {
    if ((rows >> row & 1) == 0) continue;
    Family(shard).checkpointed[server->index][row] = spilled.rows[row].node;
  }
}

// All rows and the meta. For class checkpoint this is a checkpoint: the shard stands still for it.
void ClusterSimulation::WriteBackAll(Server* server, int shard) {
  Shard& stored = *Open(*server, shard)->shard;
  const bool settled = stored.logged() || stored.Pause(true);
  const absl::StatusOr<Lsn> lsn =
      settled ? stored.WriteBack() : absl::UnavailableError("in motion");
  if (lsn.ok()) {
    stored.SetDurable(*lsn);
    NoteCheckpoint(server, shard);
  }
  if (!stored.logged()) stored.Pause(false);
  AfterEvent(server->index, shard);
}

}  // namespace hotbed::sim
