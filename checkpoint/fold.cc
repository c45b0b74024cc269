#include "checkpoint/fold.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pass_rows.h"
#include "checkpoint/rows_file.h"
#include "common/status_macros.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"

namespace hotbed {
namespace {

constexpr uint64_t kFoldBlockBytes = 1ull << 20;

class Folder {
 public:
  Folder(std::string folder, const FoldOptions& options, Place* place, const Clock* clock)
      : source_(std::move(folder)), options_(options), place_(*place), clock_(*clock) {}

  absl::StatusOr<Folded> Fold() {
    HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> chain, FoldersNeeded(source_, &place_));
    for (const std::string& one : chain) {
      HOTBED_ASSIGN_OR_RETURN(manifests_[one], ReadManifest(one, &place_));
      for (const v1::CheckpointTable& table : manifests_[one].tables()) {
        bytes_total_ += BytesOf(table);
      }
    }
    manifest_ = manifests_[source_];
    folded_.path = source_;
    folded_.checkpoints = chain.size();
    if (chain.size() == 1) return folded_;
    begun_ns_ = clock_.NowNs();
    const std::string name = source_.substr(source_.rfind('/') + 1);
    mark_ = SavingMark(clock_.WallUs() / 1000, std::random_device()(), name);
    manifest_.set_folded_from(name);
    manifest_.set_name(name + kFoldedSuffix);
    manifest_.clear_parent();
    manifest_.clear_generation();
    HOTBED_ASSIGN_OR_RETURN(
        folded_.path, MakeCheckpointFolder(source_.substr(0, source_.rfind('/')), manifest_.name(),
                                           mark_, &place_));
    const absl::Status done = WriteAll();
    if (done.ok()) return folded_;
    if (OwnsFolder()) (void)DeleteCheckpoint(folded_.path, &place_);
    return done;
  }

 private:
  absl::Status WriteAll() {
    for (v1::CheckpointTable& table : *manifest_.mutable_tables()) {
      if (table.has_arrays()) {
        return absl::FailedPreconditionError(absl::StrCat(source_, ": table ", table.spec().name(),
                                                          " lies in arrays of another program"));
      }
      for (v1::CheckpointShard& shard : *table.mutable_shards()) {
        HOTBED_RETURN_IF_ERROR(WriteShard(table.spec(), &shard));
        folded_.rows += shard.rows();
        folded_.bytes += shard.bytes();
      }
    }
    if (!OwnsFolder()) {
      return absl::AbortedError(absl::StrCat(folded_.path, " was deleted meanwhile"));
    }
    manifest_.set_format(FormatOf(manifest_));
    HOTBED_RETURN_IF_ERROR(WriteManifest(folded_.path, manifest_, &place_));
    return place_.Delete(folded_.path, {kSavingFile});
  }

  absl::Status WriteShard(const v1::TableSpec& spec, v1::CheckpointShard* shard) {
    const std::string newest = absl::StrCat(source_, "/", shard->file());
    HOTBED_ASSIGN_OR_RETURN(
        const auto own, RowsFileReader::Open(newest, shard->bytes(), shard->index_crc(), &place_));
    passes_.clear();
    const ShardRange range = {shard->range_first(), shard->range_limit(), shard->column_first(),
                              shard->column_limit()};
    HOTBED_RETURN_IF_ERROR(AddPasses(source_, spec, *shard, range));
    shard->set_file(absl::StrCat(spec.id(), "-", shard->index(), "-", begun_ns_, ".rows"));
    HOTBED_ASSIGN_OR_RETURN(const auto file,
                            RowsFileWriter::Create(absl::StrCat(folded_.path, "/", shard->file()),
                                                   own->header(), &place_));
    file->BeginPass();
    HOTBED_RETURN_IF_ERROR(Merge(file.get(), 8 + own->header().payload_bytes));
    if (shard->sessions() > 0) {
      HOTBED_ASSIGN_OR_RETURN(const std::string sessions, own->ReadSessions());
      HOTBED_RETURN_IF_ERROR(file->AddSessions(sessions));
    }
    HOTBED_ASSIGN_OR_RETURN(const std::string touch_filter, own->ReadTouchFilter());
    HOTBED_RETURN_IF_ERROR(file->AddTouchFilter(touch_filter));
    HOTBED_RETURN_IF_ERROR(file->Finish());
    shard->set_bytes(file->bytes());
    shard->set_rows(file->rows());
    shard->set_index_crc(file->index_crc());
    shard->set_passes(1);
    shard->clear_above_lsn();
    shard->clear_deleted();
    return absl::OkStatus();
  }

  // Adds what `shard` of the checkpoint in `folder` has of `range`, in the order in which a later
  // row replaces an earlier one.
  absl::Status AddPasses(const std::string& folder, const v1::TableSpec& spec,
                         const v1::CheckpointShard& shard, const ShardRange& range) {
    if (shard.above_lsn() != 0) {
      const std::string before = ParentOf(folder, manifests_[folder]);
      HOTBED_RETURN_IF_ERROR(AddOverlapping(before, spec, range));
    }
    const std::string path = absl::StrCat(folder, "/", shard.file());
    HOTBED_ASSIGN_OR_RETURN(auto reader,
                            RowsFileReader::Open(path, shard.bytes(), shard.index_crc(), &place_));
    std::set<std::pair<uint32_t, RowsFileBlock>> passes;
    for (const RowsFileEntry& entry : reader->index()) {
      if (!HoldsRows(entry.kind)) continue;
      passes.emplace(entry.pass, entry.kind);
    }
    for (const auto& [pass, kind] : passes) {
      // Each has a reader of its own, so that all of them read on from where they are.
      if (reader == nullptr) {
        HOTBED_ASSIGN_OR_RETURN(
            reader, RowsFileReader::Open(path, shard.bytes(), shard.index_crc(), &place_));
      }
      passes_.push_back(std::make_unique<PassRows>(std::move(reader), pass, kind,
                                                   range.first_position(spec.hashed()),
                                                   range.last_position(spec.hashed())));
    }
    return absl::OkStatus();
  }

  absl::Status AddOverlapping(const std::string& folder, const v1::TableSpec& spec,
                              const ShardRange& range) {
    for (const v1::CheckpointTable& table : manifests_[folder].tables()) {
      if (table.spec().id() != spec.id()) continue;
      for (const v1::CheckpointShard& shard : table.shards()) {
        if (shard.column_first() != range.column_first || shard.range_first() >= range.limit ||
            shard.range_limit() <= range.first) {
          continue;
        }
        ShardRange part = range;
        part.first = std::max(part.first, shard.range_first());
        part.limit = std::min(part.limit, shard.range_limit());
        HOTBED_RETURN_IF_ERROR(AddPasses(folder, table.spec(), shard, part));
      }
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat(folder, " has no table ", spec.name()));
  }

  // Takes the least position next, from the last pass that has it.
  absl::Status Merge(RowsFileWriter* file, uint64_t row_bytes) {
    using At = std::pair<uint64_t, size_t>;  // position, index of the pass
    std::vector<At> heads;                   // a heap
    const auto advance = [&](size_t pass) -> absl::Status {
      HOTBED_ASSIGN_OR_RETURN(const bool more, passes_[pass]->Next());
      bytes_read_ += passes_[pass]->TakeBytesRead();
      if (!more) return absl::OkStatus();
      heads.emplace_back(passes_[pass]->position(), pass);
      std::push_heap(heads.begin(), heads.end(), std::greater<>());
      return absl::OkStatus();
    };
    for (size_t pass = 0; pass < passes_.size(); ++pass) HOTBED_RETURN_IF_ERROR(advance(pass));
    ids_.clear();
    payloads_.clear();
    while (!heads.empty()) {
      const uint64_t position = heads.front().first;
      bool kept = false;
      while (!heads.empty() && heads.front().first == position) {
        std::pop_heap(heads.begin(), heads.end(), std::greater<>());
        const size_t pass = heads.back().second;
        heads.pop_back();
        if (kept) {
          ids_.pop_back();
          payloads_.resize(payloads_.size() - (row_bytes - 8));
        }
        kept = !passes_[pass]->deleted();
        if (kept) {
          const absl::Span<const uint8_t> payload = passes_[pass]->payload();
          ids_.push_back(passes_[pass]->id());
          payloads_.insert(payloads_.end(), payload.begin(), payload.end());
        }
        HOTBED_RETURN_IF_ERROR(advance(pass));
      }
      if (ids_.size() * row_bytes >= kFoldBlockBytes) HOTBED_RETURN_IF_ERROR(Write(file));
    }
    return Write(file);
  }

  absl::Status Write(RowsFileWriter* file) {
    if (options_.stop && options_.stop()) return absl::CancelledError("folding was broken off");
    if (options_.progress) options_.progress(bytes_read_, bytes_total_);
    HOTBED_RETURN_IF_ERROR(file->AddRows(ids_, payloads_));
    written_ += ids_.size() * sizeof(uint64_t) + payloads_.size();
    ids_.clear();
    payloads_.clear();
    if (options_.bytes_per_s == 0) return absl::OkStatus();
    const double due_s = static_cast<double>(written_) / static_cast<double>(options_.bytes_per_s);
    const int64_t due_ns = begun_ns_ + static_cast<int64_t>(due_s * kSecondNs);
    while (clock_.NowNs() < due_ns) {
      if (options_.stop && options_.stop()) return absl::CancelledError("folding was broken off");
      clock_.SleepNs(std::min<int64_t>(due_ns - clock_.NowNs(), kSecondNs / 10));
    }
    return absl::OkStatus();
  }

  bool OwnsFolder() {
    const auto mark = place_.ReadAll(absl::StrCat(folded_.path, "/", kSavingFile));
    return mark.ok() && *mark == mark_;
  }

  const std::string source_;
  const FoldOptions& options_;
  Place& place_;
  const Clock& clock_;
  std::map<std::string, v1::CheckpointManifest> manifests_;  // of the chain, by folder
  v1::CheckpointManifest manifest_;
  Folded folded_;
  std::string mark_;
  int64_t begun_ns_ = 0;
  uint64_t bytes_read_ = 0;
  uint64_t bytes_total_ = 0;
  uint64_t written_ = 0;
  std::vector<std::unique_ptr<PassRows>> passes_;  // of the shard that is folded
  std::vector<uint64_t> ids_;
  std::vector<uint8_t> payloads_;
};

}  // namespace

absl::StatusOr<Folded> FoldCheckpoint(const std::string& folder, const FoldOptions& options,
                                      Place* place, const Clock* clock) {
  return Folder(folder, options, place, clock).Fold();
}

bool IsFoldOf(const v1::CheckpointManifest& folded, const v1::CheckpointManifest& source) {
  const auto states = [](const v1::CheckpointManifest& manifest) {
    std::map<std::tuple<uint32_t, uint64_t, uint64_t, uint32_t>, std::tuple<uint64_t, uint64_t>> by;
    for (const v1::CheckpointTable& table : manifest.tables()) {
      for (const v1::CheckpointShard& shard : table.shards()) {
        by[{table.spec().id(), shard.range_first(), shard.range_limit(), shard.column_first()}] = {
            shard.lsn_epoch(), shard.lsn()};
      }
    }
    return by;
  };
  return !folded.folded_from().empty() && folded.cluster_id() == source.cluster_id() &&
         folded.at_step() == source.at_step() && folded.begun_unix_ms() == source.begun_unix_ms() &&
         states(folded) == states(source);
}

}  // namespace hotbed
