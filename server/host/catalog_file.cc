#include "server/host/catalog_file.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/files/byte_reader.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::string_view kMagic = "HOTBDCAT";
constexpr uint32_t kVersion = 11;
constexpr uint32_t kVersionOldest = 6;
constexpr uint32_t kVersionOfCuts = 7;
constexpr uint32_t kVersionOfMerges = 8;
constexpr uint32_t kVersionOfLives = 9;
constexpr uint32_t kVersionOfStatistics = 10;
constexpr uint32_t kVersionOfMergedParts = 11;

// Visits a table's fields in the order of the format, both to write and to read them. A new field
// goes where it belongs and raises kVersion.
template <typename Io, typename Counter>
void VisitCounter(Io* io, Counter& counter) {
  io->Enum(counter.mode);
  io->Number(counter.from_step);
  for (auto* value : {&counter.half_life, &counter.threshold, &counter.most, &counter.power,
                      &counter.clip_coefficient, &counter.clip_least}) {
    io->Number(*value);
  }
}

template <typename Io, typename Optimizer>
void VisitOptimizer(Io* io, Optimizer& o) {
  io->Enum(o.kind);
  for (auto* value :
       {&o.learning_rate, &o.epsilon, &o.beta1, &o.beta2, &o.weight_decay, &o.initial_accumulator,
        &o.momentum, &o.trust_coefficient, &o.l1, &o.l2, &o.ftrl_beta, &o.clip_value,
        &o.clip_row_norm, &o.max_norm, &o.max_norm_type, &o.lazy_decay_least}) {
    io->Number(*value);
  }
  io->Enum(o.decay_mode);
  io->Bool(o.lazy_decay);
  io->Bool(o.row_bias_correction);
  io->Bool(o.stochastic_rounding);
  io->Enum(o.state_type);
  VisitCounter(io, o.counter);
  io->Number(o.average.rate);
  io->Number(o.average.every);
  io->Number(o.average.from_step);
}

template <typename Io, typename ScheduleType>
void VisitSchedule(Io* io, ScheduleType& schedule) {
  io->Enum(schedule.kind);
  io->Number(schedule.warmup_steps);
  io->Number(schedule.warmup_from);
  io->Number(schedule.total_steps);
  io->Number(schedule.min_factor);
  io->Number(schedule.step_size);
  io->Number(schedule.gamma);
}

template <typename Io, typename Change>
void VisitChange(Io* io, Change& change) {
  io->Number(change.at_step);
  io->Bool(change.has_learning_rate);
  io->Number(change.learning_rate);
  io->Bool(change.has_clip_value);
  io->Number(change.clip_value);
  io->Bool(change.has_clip_row_norm);
  io->Number(change.clip_row_norm);
  io->Bool(change.has_schedule);
  VisitSchedule(io, change.schedule);
  io->Bool(change.has_memory_share_min);
  io->Number(change.memory_share_min);
  io->Bool(change.has_memory_share_max);
  io->Number(change.memory_share_max);
}

template <typename Io, typename Table>
void VisitTable(Io* io, Table& table) {
  io->Number(table.id);
  io->Text(table.name);
  io->Bool(table.hashed);
  io->Number(table.rows);
  io->Number(table.dim);
  io->Enum(table.weight_type);
  VisitOptimizer(io, table.optimizer);
  io->Enum(table.initializer.kind);
  io->Number(table.initializer.a);
  io->Number(table.initializer.b);
  io->Number(table.seed);
  io->Enum(table.durability);
  io->Number(table.replicas);
  io->Bool(table.data_parallel);
  io->Enum(table.nan_policy);
  io->Number(table.column_slices);
  io->Enum(table.row_statistics);
  io->Bool(table.has_padding_id);
  io->Number(table.padding_id);
  io->Enum(table.bounds_mode);
  io->Enum(table.gradient_reduction);
  io->Enum(table.consistency);
  io->Number(table.staleness);
  io->Number(table.clip_slice_norm);
  VisitSchedule(io, table.schedule);
  io->Number(table.memory_share_min);
  io->Number(table.memory_share_max);
  io->Text(table.restored_from.checkpoint);
  io->Text(table.restored_from.table);
  io->Bool(table.restored_from.sessions);
  io->Count(table.changes);
  for (auto& change : table.changes) VisitChange(io, change);
}

// How the rows of a table come and go.
template <typename Io, typename Life>
void VisitPolicies(Io* io, Life& life) {
  for (auto* value : {&life.ttl_s, &life.ttl_steps, &life.rows_max, &life.bytes_max}) {
    io->Number(*value);
  }
  io->Enum(life.evict_by);
  io->Number(life.admission.after);
  io->Number(life.admission.probability);
  io->Bool(life.admission.zeros);
}

// At the end of the file.
template <typename Io, typename Table>
void VisitLife(Io* io, Table& table) {
  io->Bool(table.optimizer.touches);
  VisitPolicies(io, table.life);
}

template <typename Io, typename Life>
void VisitScoreAndFilter(Io* io, Life& life) {
  io->Number(life.score.show);
  io->Number(life.score.click);
  io->Number(life.score.least);
  io->Enum(life.admission.by);
  io->Number(life.admission.ids);
  io->Number(life.admission.false_positives);
}

// Fields of version 10, also written at the end of the file.
template <typename Io, typename Table>
void VisitStatistics(Io* io, Table& table) {
  io->Number(table.vocabulary);
  io->Bool(table.optimizer.shows.kept);
  io->Number(table.optimizer.shows.decay);
  io->Number(table.optimizer.shows.period_s);
  VisitScoreAndFilter(io, table.life);
  for (auto& change : table.changes) {
    io->Bool(change.has_life);
    VisitPolicies(io, change.life);
    VisitScoreAndFilter(io, change.life);
  }
}

template <typename Io, typename Range, typename Flag, typename Position>
void VisitShard(Io* io, Range& range, Flag& installing, Position& log_from) {
  io->Number(range.first);
  io->Number(range.limit);
  io->Number(range.column_first);
  io->Number(range.column_limit);
  io->Bool(installing);
  io->Number(log_from.segment);
  io->Number(log_from.offset);
}

template <typename Io, typename Lane>
void VisitLane(Io* io, Lane& lane) {
  io->Number(lane.index);
  io->Number(lane.tag);
  io->Number(lane.tag_before);
  io->Number(lane.first);
  io->Number(lane.limit);
}

// Fields of version 11, also written at the end of the file.
template <typename Io, typename Merge>
void VisitMerge(Io* io, Merge& merge) {
  io->Number(merge.with.table);
  io->Number(merge.with.index);
  io->Number(merge.boundary);
  io->Number(merge.base.epoch);
  io->Number(merge.base.lsn);
  io->Count(merge.lanes);
  for (auto& lane : merge.lanes) VisitLane(io, lane);
}

class Writer {
 public:
  explicit Writer(std::string* out) : out_(out) {}
  template <typename T>
  void Number(T value) {
    AppendLittle<T>(value, out_);
  }
  template <typename T>
  void Enum(T value) {
    AppendLittle<uint8_t>(static_cast<uint8_t>(value), out_);
  }
  void Bool(bool value) { AppendLittle<uint8_t>(value, out_); }
  void Text(const std::string& value) { AppendString(value, out_); }
  template <typename T>
  void Count(const std::vector<T>& list) {
    AppendLittle<uint32_t>(static_cast<uint32_t>(list.size()), out_);
  }

 private:
  std::string* out_;
};

class Reader {
 public:
  explicit Reader(ByteReader* in) : in_(in) {}
  template <typename T>
  void Number(T& value) {
    value = in_->Take<T>();
  }
  template <typename T>
  void Enum(T& value) {
    value = static_cast<T>(in_->Take<uint8_t>());
  }
  void Bool(bool& value) { value = in_->Take<uint8_t>() != 0; }
  void Text(std::string& value) { value = in_->TakeString(); }
  template <typename T>
  void Count(std::vector<T>& list) {
    list.resize(std::min<size_t>(in_->Take<uint32_t>(), in_->left()));
  }

 private:
  ByteReader* in_;
};

}  // namespace

std::string Catalog::Serialize() const {
  std::string out(kMagic);
  AppendLittle<uint32_t>(kVersion, &out);
  AppendLittle<uint32_t>(static_cast<uint32_t>(tables.size()), &out);
  Writer writer(&out);
  for (const auto& [id, table] : tables) VisitTable(&writer, table);
  writer.Number(static_cast<uint32_t>(shards.size()));
  for (const auto& [shard, range] : shards) {
    const auto from = log_from.find(shard);
    const LogPosition position = from == log_from.end() ? LogPosition() : from->second;
    const bool incomplete = installing.contains(shard);
    writer.Number(shard.packed());
    VisitShard(&writer, range, incomplete, position);
  }
  writer.Number(static_cast<uint32_t>(cuts.size()));
  for (const auto& [shard, cut] : cuts) {
    writer.Number(shard.packed());
    writer.Number(cut.parent.packed());
    writer.Number(cut.from.segment);
    writer.Number(cut.from.offset);
  }
  writer.Number(static_cast<uint32_t>(merges.size()));
  for (const auto& [shard, merge] : merges) writer.Number(shard.packed());
  writer.Number(static_cast<uint32_t>(lanes.size()));
  for (const auto& [shard, list] : lanes) {
    writer.Number(shard.packed());
    writer.Count(list);
    for (const ShardLane& lane : list) VisitLane(&writer, lane);
  }
  for (const auto& [id, table] : tables) VisitLife(&writer, table);
  for (const auto& [id, table] : tables) VisitStatistics(&writer, table);
  for (const auto& [shard, merge] : merges) VisitMerge(&writer, merge);
  AppendLittle<uint32_t>(Crc32c(out.data(), out.size()), &out);
  return out;
}

absl::StatusOr<Catalog> Catalog::Parse(absl::string_view bytes) {
  if (bytes.size() < kMagic.size() + 8 || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError(absl::StrCat("CATALOG: ", bytes.size(), " bytes are no catalog"));
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - 4);
  if (LoadLittle<uint32_t>(bytes.data() + body.size()) != Crc32c(body.data(), body.size())) {
    return absl::DataLossError("CATALOG: the checksum does not match");
  }
  ByteReader in(body.substr(kMagic.size()));
  const uint32_t version = in.Take<uint32_t>();
  if (version < kVersionOldest || version > kVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "CATALOG: version ", version, ", this program reads ", kVersionOldest, " to ", kVersion));
  }
  Catalog catalog;
  Reader reader(&in);
  for (uint32_t left = in.Take<uint32_t>(); left > 0 && in.ok(); --left) {
    TableSpec table;
    VisitTable(&reader, table);
    catalog.tables[table.id] = std::move(table);
  }
  for (uint32_t left = in.Take<uint32_t>(); left > 0 && in.ok(); --left) {
    const ShardId shard = ShardId::FromPacked(in.Take<uint64_t>());
    bool incomplete = false;
    LogPosition from;
    VisitShard(&reader, catalog.shards[shard], incomplete, from);
    if (!catalog.tables.contains(shard.table)) {
      return absl::DataLossError(absl::StrCat("CATALOG: ", shard.ToString(), " has no table"));
    }
    if (incomplete) catalog.installing.insert(shard);
    if (from != LogPosition()) catalog.log_from[shard] = from;
  }
  const uint32_t cuts = version >= kVersionOfCuts ? in.Take<uint32_t>() : 0;
  for (uint32_t left = cuts; left > 0 && in.ok(); --left) {
    const ShardId shard = ShardId::FromPacked(in.Take<uint64_t>());
    Cut& cut = catalog.cuts[shard];
    cut.parent = ShardId::FromPacked(in.Take<uint64_t>());
    cut.from = {in.Take<uint64_t>(), in.Take<uint64_t>()};
    if (!catalog.shards.contains(shard) || !catalog.shards.contains(cut.parent)) {
      return absl::DataLossError(absl::StrCat("CATALOG: ", shard.ToString(), " was cut from ",
                                              cut.parent.ToString(), ", and one is not here"));
    }
  }
  if (version >= kVersionOfMerges) {
    for (uint32_t left = in.Take<uint32_t>(); left > 0 && in.ok(); --left) {
      const ShardId shard = ShardId::FromPacked(in.Take<uint64_t>());
      catalog.merges[shard].with = shard;  // before version 11: nothing else is left of the parts
    }
    for (uint32_t left = in.Take<uint32_t>(); left > 0 && in.ok(); --left) {
      std::vector<ShardLane>& list = catalog.lanes[ShardId::FromPacked(in.Take<uint64_t>())];
      reader.Count(list);
      for (ShardLane& lane : list) VisitLane(&reader, lane);
    }
  }
  if (version >= kVersionOfLives) {
    for (auto& [id, table] : catalog.tables) VisitLife(&reader, table);
  }
  if (version >= kVersionOfStatistics) {
    for (auto& [id, table] : catalog.tables) VisitStatistics(&reader, table);
  }
  if (version >= kVersionOfMergedParts) {
    for (auto& [shard, merge] : catalog.merges) VisitMerge(&reader, merge);
  }
  if (!in.ok() || in.left() != 0) return absl::DataLossError("CATALOG: it does not parse");
  return catalog;
}

absl::StatusOr<Catalog> Catalog::Load(KeptFile* file) {
  HOTBED_ASSIGN_OR_RETURN(const std::string bytes, file->Read());
  absl::StatusOr<Catalog> catalog = Parse(bytes);
  if (catalog.ok()) return catalog;
  return absl::Status(catalog.status().code(),
                      absl::StrCat(file->path(), ": ", catalog.status().message()));
}

void Catalog::Forget(ShardId shard) {
  shards.erase(shard);
  log_from.erase(shard);
  installing.erase(shard);
  cuts.erase(shard);
  merges.erase(shard);
  lanes.erase(shard);
}

void Catalog::NoteRange(const ShardRecord& record) {
  shards[record.shard] = record.range;
  lanes.erase(record.shard);
  if (!record.lanes.empty()) lanes[record.shard] = record.lanes;
}

LogPosition Catalog::LogFrom(ShardId shard) const {
  const auto from = log_from.find(shard);
  return from == log_from.end() ? LogPosition() : from->second;
}

bool Catalog::IsCutFrom(ShardId shard) const {
  return std::any_of(cuts.begin(), cuts.end(),
                     [shard](const auto& cut) { return cut.second.parent == shard; });
}

bool Catalog::HoldsUnderAnother(ShardId shard, const ShardRange& range) const {
  for (auto it = shards.lower_bound(ShardId{shard.table, 0});
       it != shards.end() && it->first.table == shard.table; ++it) {
    const ShardRange& held = it->second;
    const bool overlap = held.first < range.limit && range.first < held.limit &&
                         held.column_first < range.column_limit &&
                         range.column_first < held.column_limit;
    if (overlap && it->first != shard) return true;
  }
  return false;
}

}  // namespace hotbed
