// SaveCheckpoint: gives each shard to its primary, watches the servers, gives shards that failed or
// moved to their next primary, and writes the manifest when all are there.
#include "client/checkpoint/save_checkpoint.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "checkpoint/block_packer.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/write_fence.h"
#include "client/checkpoint/step_hold.h"
#include "client/checkpoint/whole_table.h"
#include "client/client_impl.h"
#include "client/map/checkpoint_cluster.h"
#include "client/net/grpc_checkpoint_cluster.h"
#include "common/clock.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "hotbed/checkpoint.h"
#include "places/place_finder.h"

namespace hotbed {
namespace {

constexpr int kShardsPerCall = 256;  // a call's message stays below 64 KiB
constexpr int64_t kSaveWatchNs = 100 * kMillisecondNs;
constexpr int64_t kTakeWatchNs = 10 * kMillisecondNs;  // while trainers are held
constexpr int64_t kRetryNs = kSecondNs / 2;
constexpr int64_t kKeepNs = kSecondNs / 4;  // between two writes of an export's progress

// Another server, or the same one later, may well save the shard.
bool MayPass(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kFailedPrecondition ||
         code == absl::StatusCode::kAborted || code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kNotFound || code == absl::StatusCode::kCancelled;
}

uint64_t RandomMark() {
  std::random_device entropy;
  return uint64_t{entropy()} << 32 | entropy();
}

class Saver {
 public:
  Saver(const SaveOptions& options, CheckpointCluster* cluster, Place* place, const Clock* clock)
      : options_(options), cluster_(*cluster), place_(*place), clock_(*clock) {}

  absl::StatusOr<SavedCheckpoint> Save() {
    const absl::Time now = absl::Now();
    number_ = static_cast<uint64_t>(absl::ToUnixNanos(now));
    manifest_.set_format(options_.compress.empty() ? kCheckpointFormat : kCompressedFormat);
    manifest_.set_compression(options_.compress);
    manifest_.set_name(!options_.name.empty()
                           ? options_.name
                           : absl::FormatTime("%Y%m%dT%H%M%E3SZ", now, absl::UTCTimeZone()));
    folder_ = absl::StrCat(options_.directory, "/", manifest_.name());
    HOTBED_RETURN_IF_ERROR(CheckOptions());
    HOTBED_RETURN_IF_ERROR(ChooseTables());
    if (options_.incremental) HOTBED_RETURN_IF_ERROR(ChooseParent());
    if (!options_.at_step.has_value()) HOTBED_RETURN_IF_ERROR(MakeFolder());
    const absl::Status done = SaveShards();
    EndJobs();
    const absl::Status whole = done.ok() ? MakeWhole() : done;
    if (whole.ok()) return Result();
    return absl::Status(whole.code(), absl::StrCat(whole.message(), ". ", TakeBack()));
  }

  // See SaveMissingShards.
  absl::Status SaveMissing(const std::string& folder, bool weights_only,
                           v1::CheckpointManifest* manifest) {
    exports_ = true;
    weights_only_ = weights_only;
    number_ = static_cast<uint64_t>(absl::ToUnixNanos(absl::Now()));
    folder_ = folder;
    manifest_ = *manifest;
    table_of_[manifest_.tables(0).spec().id()] = 0;
    shards_ = static_cast<size_t>(manifest_.tables(0).shards_size());
    HOTBED_RETURN_IF_ERROR(WantParts());
    const absl::Status done = SaveShards();
    EndJobs();
    HOTBED_RETURN_IF_ERROR(KeepProgress());
    HOTBED_RETURN_IF_ERROR(done);
    HOTBED_RETURN_IF_ERROR(CheckWhole());
    *manifest = manifest_;
    return absl::OkStatus();
  }

 private:
  struct Wanted {
    v1::ShardRecord record;  // the newest
    bool in_job = false;
    int64_t not_before_ns = 0;
    int64_t failing_since_ns = 0;  // 0: it is not
    std::string error;
  };
  // Of a save at a step.
  enum class Phase : uint8_t { kAnyMoment, kPreparing, kHolding, kTaking, kTaken };
  struct Job {
    std::string address;
    uint64_t number = 0;
    uint32_t count = 0;            // of its shards
    std::vector<uint64_t> shards;  // packed
    v1::WatchSaveReply last;
    std::string fence;  // of an export into arrays
  };

  absl::Status MakeFolder() {
    manifest_.set_begun_unix_ms(absl::ToUnixMillis(absl::Now()));
    mark_ = SavingMark(manifest_.begun_unix_ms(), RandomMark(), parent_.name());
    const auto made = MakeCheckpointFolder(options_.directory, manifest_.name(), mark_, &place_);
    made_ = made.ok();
    return made.status();
  }

  absl::Status CheckOptions() const {
    if (absl::StrContains(options_.name, '/') || absl::StartsWith(options_.name, ".")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the name \"", options_.name, "\" is a folder's: no '/', and no '.' at its begin"));
    }
    if (OnServersDisks()) {
      if (options_.incremental) return absl::InvalidArgumentError(kNoSeriesOnServersDisks);
      HOTBED_RETURN_IF_ERROR(CheckServersPath(folder_));
    }
    return CheckCompression(options_.compress);
  }

  bool OnServersDisks() const { return NamesServersDisks(options_.directory); }

  absl::Status ChooseTables() {
    HOTBED_ASSIGN_OR_RETURN(const v1::ClusterMap map, cluster_.GetMap());
    manifest_.set_cluster_id(map.cluster_id());
    std::vector<std::string> missing = options_.tables;
    for (const v1::TableSpec& spec : map.tables()) {
      const bool asked = options_.tables.empty() ||
                         std::count(options_.tables.begin(), options_.tables.end(), spec.name());
      std::erase(missing, spec.name());
      if (!asked) continue;
      table_of_[spec.id()] = manifest_.tables_size();
      v1::CheckpointTable& table = *manifest_.add_tables();
      *table.mutable_spec() = spec;
      table.mutable_spec()->clear_restored_from();
    }
    if (!missing.empty()) {
      return absl::NotFoundError(
          absl::StrCat("the cluster has no table ", absl::StrJoin(missing, ", ")));
    }
    for (const v1::ShardRecord& record : map.shards()) {
      if (table_of_.contains(TableOf(record.shard()))) wanted_[record.shard()].record = record;
    }
    shards_ = wanted_.size();
    return absl::OkStatus();
  }

  absl::Status ChooseParent() {
    auto listed = ListCheckpoints(options_.directory, &place_);
    if (absl::IsNotFound(listed.status())) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(listed.status());
    std::vector<CheckpointFolder>& found = *listed;
    while (!found.empty() && !found.back().whole) found.pop_back();
    if (found.empty() || found.back().generation >= kGenerationsMax ||
        found.back().cluster_id != manifest_.cluster_id() ||
        !FoldersNeeded(found.back().path, &place_).ok()) {
      return absl::OkStatus();
    }
    HOTBED_ASSIGN_OR_RETURN(parent_, ReadManifest(found.back().path, &place_));
    parent_.set_name(found.back().name);
    return absl::OkStatus();
  }

  // The shard of the parent, a part of which became this one; null: none.
  const v1::CheckpointShard* InParent(const v1::ShardRecord& record) const {
    const uint32_t id = TableOf(record.shard());
    for (const v1::CheckpointTable& table : parent_.tables()) {
      if (table.spec().id() != id) continue;
      for (const v1::CheckpointShard& shard : table.shards()) {
        if (record.range_first() >= shard.range_first() &&
            record.range_limit() <= shard.range_limit() &&
            record.column_first() == shard.column_first() &&
            record.column_limit() == shard.column_limit()) {
          return &shard;
        }
      }
    }
    return nullptr;
  }

  static uint32_t TableOf(uint64_t shard) { return ShardId::FromPacked(shard).table; }

  // Shards may be cut meanwhile: what is saved of one then is its lower part, and the others are
  // saved after it.
  absl::Status SaveShards() {
    if (options_.at_step.has_value()) return SaveAtStep();
    do {
      HOTBED_RETURN_IF_ERROR(SaveWanted());
      HOTBED_RETURN_IF_ERROR(WantParts());
    } while (!wanted_.empty());
    return absl::OkStatus();
  }

  // --- at a step

  // The servers write back what they can while training goes on; then the trainers are held at the
  // step, the rows of all shards are taken, the trainers go on, and the rows are written.
  absl::Status SaveAtStep() {
    if (wanted_.empty()) {
      return absl::FailedPreconditionError("there is no table to be saved at a step");
    }
    v1::HoldStepRequest wanted;
    wanted.set_hold(RandomMark() | 1);
    wanted.set_group(options_.group);
    wanted.set_step(*options_.at_step);
    for (const auto& [table, index] : table_of_) wanted.add_tables(table);
    hold_.emplace(wanted, options_.patience, &cluster_, &clock_);
    phase_ = Phase::kPreparing;
    absl::Status done = SaveWanted();
    if (done.ok()) done = WantParts();
    const std::string group = hold_->group();
    hold_.reset();  // the trainers go on
    HOTBED_RETURN_IF_ERROR(done);
    if (wanted_.empty()) return CheckSteps(group);
    return absl::AbortedError("shards were split while their rows were taken; save again");
  }

  // The next phase, if it is time.
  absl::Status Advance() {
    switch (phase_) {
      case Phase::kAnyMoment:
        return absl::OkStatus();
      case Phase::kPreparing:
        if (AllJobs([](const Job& job) { return job.last.prepared() == job.count; })) {
          phase_ = Phase::kHolding;
        }
        return absl::OkStatus();
      case Phase::kHolding:
        return AwaitStep();
      case Phase::kTaking:
        if (!AllJobs([](const Job& job) { return job.last.taken() == job.count; })) {
          return hold_->Hold().status();
        }
        if (const absl::Status ended = hold_->End(); !ended.ok()) {
          return absl::IsUnavailable(ended) ? hold_->Hold().status() : ended;  // asked again
        }
        phase_ = Phase::kTaken;
        return absl::OkStatus();
      case Phase::kTaken:
        return CheckTaken();
    }
    return absl::OkStatus();
  }

  absl::Status AwaitStep() {
    HOTBED_ASSIGN_OR_RETURN(const bool reached, hold_->Hold());
    if (!reached) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(MakeFolder());  // not before: the step may be hours away
    phase_ = Phase::kTaking;
    manifest_.set_at_step(hold_->step());
    manifest_.set_group(hold_->group());
    return absl::OkStatus();
  }

  template <typename Holds>
  bool AllJobs(Holds holds) const {
    const auto in_job = [](const auto& entry) { return entry.second.in_job; };
    return std::all_of(wanted_.begin(), wanted_.end(), in_job) &&
           std::all_of(jobs_.begin(), jobs_.end(), holds);
  }

  // The rows of the step are gone where they could not be written.
  absl::Status CheckTaken() const {
    for (const auto& [packed, wanted] : wanted_) {
      if (wanted.in_job) continue;
      return absl::AbortedError(absl::StrCat(ShardId::FromPacked(packed).ToString(),
                                             " was not saved as it was at step ", hold_->step(),
                                             ": ", wanted.error, "; save again"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckSteps(const std::string& group) const {
    for (const v1::CheckpointTable& table : manifest_.tables()) {
      for (const v1::CheckpointShard& shard : table.shards()) {
        if (shard.committed_step() == table.shards(0).committed_step()) continue;
        return absl::AbortedError(
            absl::StrCat("table ", table.spec().name(), " is of step ", shard.committed_step(),
                         " in one "
                         "shard and of step ",
                         table.shards(0).committed_step(), " in another: group ", group,
                         " does not train it alone"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckStop() const {
    if (!options_.stop || !options_.stop()) return absl::OkStatus();
    return absl::CancelledError("the save was broken off");
  }

  // Wants the shards of which nothing is saved. A cut divides a range, so a saved one has all of a
  // later part or none.
  absl::Status WantParts() {
    const int64_t until_ns = clock_.NowNs() + absl::ToInt64Nanoseconds(options_.patience);
    absl::StatusOr<v1::ClusterMap> map = cluster_.GetMap();
    while (!map.ok() && MayPass(map.status().code()) && clock_.NowNs() < until_ns) {
      HOTBED_RETURN_IF_ERROR(CheckStop());
      clock_.SleepNs(kRetryNs);
      map = cluster_.GetMap();
    }
    HOTBED_RETURN_IF_ERROR(map.status());
    for (const v1::ShardRecord& record : map->shards()) {
      const auto table = table_of_.find(TableOf(record.shard()));
      if (table == table_of_.end()) continue;
      const auto& saved = manifest_.tables(table->second).shards();
      const auto has = [&record](const v1::CheckpointShard& shard) {
        return shard.range_first() <= record.range_first() &&
               record.range_first() < shard.range_limit() &&
               shard.column_first() == record.column_first();
      };
      if (std::any_of(saved.begin(), saved.end(), has)) continue;
      wanted_[record.shard()].record = record;
      ++shards_;
    }
    return absl::OkStatus();
  }

  absl::Status SaveWanted() {
    int64_t map_ns = clock_.NowNs();
    HOTBED_RETURN_IF_ERROR(RefreshMap());
    while (!wanted_.empty()) {
      const int64_t now_ns = clock_.NowNs();
      if (retry_ && now_ns - map_ns >= kRetryNs) {
        map_ns = now_ns;
        retry_ = false;
        HOTBED_RETURN_IF_ERROR(RefreshMap());
      }
      BeginJobs(now_ns);
      HOTBED_RETURN_IF_ERROR(WatchJobs());
      HOTBED_RETURN_IF_ERROR(fenced_);
      HOTBED_RETURN_IF_ERROR(CheckPatience());
      HOTBED_RETURN_IF_ERROR(Advance());
      if (exports_ && clock_.NowNs() - kept_ns_ > kKeepNs) HOTBED_RETURN_IF_ERROR(KeepProgress());
      TellProgress();
      HOTBED_RETURN_IF_ERROR(CheckStop());
      if (!wanted_.empty()) clock_.SleepNs(phase_ == Phase::kTaking ? kTakeWatchNs : kSaveWatchNs);
    }
    return absl::OkStatus();
  }

  absl::Status RefreshMap() {
    const absl::StatusOr<v1::ClusterMap> map = cluster_.GetMap();
    if (!map.ok()) {  // servers go on without the coordinator; so does the save
      retry_ = true;
      return MayPass(map.status().code()) ? absl::OkStatus() : map.status();
    }
    for (const v1::ServerInfo& server : map->servers()) {
      addresses_[server.server()] = server.address();
      names_[server.address()] = server.name();
    }
    std::vector<uint64_t> left;
    for (const auto& [packed, wanted] : wanted_) left.push_back(packed);
    for (const v1::ShardRecord& record : map->shards()) {
      const auto it = wanted_.find(record.shard());
      if (it == wanted_.end()) continue;
      it->second.record = record;
      std::erase(left, record.shard());
    }
    if (left.empty()) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat(ShardId::FromPacked(left[0]).ToString(),
                                           " is gone: its table was dropped or cut anew"));
  }

  void BeginJobs(int64_t now_ns) {
    std::map<uint64_t, std::vector<uint64_t>> of_server;
    for (const auto& [packed, wanted] : wanted_) {
      if (wanted.in_job || now_ns < wanted.not_before_ns) continue;
      of_server[wanted.record.primary().server()].push_back(packed);
    }
    for (const auto& [server, shards] : of_server) {
      for (size_t first = 0; first < shards.size(); first += kShardsPerCall) {
        const size_t limit = std::min(shards.size(), first + kShardsPerCall);
        BeginJob(addresses_[server], {shards.begin() + first, shards.begin() + limit});
      }
    }
  }

  void BeginJob(const std::string& address, std::vector<uint64_t> shards) {
    v1::BeginSaveRequest request;
    request.set_save(++number_);
    request.set_directory(folder_);
    request.set_bytes_per_s(options_.bytes_per_s);
    request.set_begins_series(options_.incremental);
    request.set_compress(options_.compress);
    if (OnServersDisks()) request.set_mark(mark_);
    request.set_takes_when_told(phase_ != Phase::kAnyMoment);
    for (const uint64_t packed : shards) {
      const ShardId id = ShardId::FromPacked(packed);
      v1::ShardToSave& shard = *request.add_shards();
      shard.set_shard(packed);
      // A server that was given up may still write to its file.
      shard.set_file(absl::StrCat(id.table, "-", id.index, "-", number_, ".rows"));
      wanted_[packed].in_job = true;
      const v1::CheckpointShard* const before = InParent(wanted_[packed].record);
      if (before == nullptr) continue;
      shard.set_above_epoch(before->lsn_epoch());
      shard.set_above_lsn(before->lsn());
    }
    const auto count = static_cast<uint32_t>(shards.size());
    Job job = {address, request.save(), count, std::move(shards), {}, ""};
    absl::Status begun = exports_ ? PrepareExport(&request, &job) : absl::OkStatus();
    if (begun.ok()) begun = cluster_.BeginSave(address, request);
    if (!begun.ok()) return GiveUp(job, begun);
    jobs_.push_back(std::move(job));
  }

  absl::Status PrepareExport(v1::BeginSaveRequest* request, Job* job) {
    const v1::CheckpointTable& table = manifest_.tables(0);
    request->set_weights_only(weights_only_);
    if (table.spec().hashed()) return absl::OkStatus();
    *request->mutable_arrays() = table.arrays();
    request->set_fence(absl::StrCat(kFencePrefix, job->number));
    job->fence = absl::StrCat(folder_, "/", request->fence());
    return WriteFence::Make(job->fence);
  }
  // No server writes for this job any more.
  void CloseFence(const Job& job) {
    if (job.fence.empty()) return;
    const absl::Status closed = WriteFence::Close(job.fence, kFencePatience);
    if (!closed.ok()) fenced_ = closed;
  }
  absl::Status KeepProgress() {
    kept_ns_ = clock_.NowNs();
    return place_.Put(absl::StrCat(folder_, "/", kProgressFile), ManifestText(manifest_));
  }

  absl::Status WatchJobs() {
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      v1::WatchSaveRequest request;
      request.set_save(job->number);
      request.set_take(phase_ >= Phase::kTaking);
      auto reply = cluster_.WatchSave(job->address, request);
      if (!reply.ok()) {
        GiveUp(*job, reply.status());
        job = jobs_.erase(job);
        continue;
      }
      job->last = *std::move(reply);
      for (const v1::SavedShard& saved : job->last.shards()) {
        if (std::erase(job->shards, saved.shard()) == 0) continue;  // told before
        HOTBED_RETURN_IF_ERROR(Take(saved, job->address));
      }
      if (!job->last.ended()) {
        ++job;
        continue;
      }
      bytes_of_ended_ += job->last.bytes_written();
      End(*job);
      job = jobs_.erase(job);
    }
    return absl::OkStatus();
  }

  // All shards of the job that are not saved yet.
  void GiveUp(const Job& job, const absl::Status& error) {
    CloseFence(job);
    for (const uint64_t packed : job.shards) Retry(packed, std::string(error.message()));
  }

  void Retry(uint64_t packed, std::string error) {
    Wanted& wanted = wanted_[packed];
    const int64_t now_ns = clock_.NowNs();
    wanted.in_job = false;
    wanted.not_before_ns = now_ns + kRetryNs;
    wanted.error = std::move(error);
    if (wanted.failing_since_ns == 0) wanted.failing_since_ns = now_ns;
    retry_ = true;
  }

  absl::Status Take(const v1::SavedShard& saved, const std::string& address) {
    const auto it = wanted_.find(saved.shard());
    if (it == wanted_.end()) return absl::OkStatus();
    const auto code = static_cast<absl::StatusCode>(saved.code());
    // A server that has not heard of its successor lacks what that one has acknowledged since.
    const bool overtaken = saved.saved().epoch() < it->second.record.epoch();
    if (code == absl::StatusCode::kOk && overtaken) {
      Retry(saved.shard(), "its primary was replaced");
      return absl::OkStatus();
    }
    if (code == absl::StatusCode::kOk) {
      const int table = table_of_[TableOf(saved.shard())];
      v1::CheckpointShard& shard = *manifest_.mutable_tables(table)->add_shards();
      shard = saved.saved();
      if (OnServersDisks()) shard.set_server(names_[address]);
      wanted_.erase(it);
      return absl::OkStatus();
    }
    if (!MayPass(code)) return absl::Status(code, saved.error());
    Retry(saved.shard(), saved.error());
    return absl::OkStatus();
  }

  absl::Status CheckPatience() const {
    const int64_t patience_ns = absl::ToInt64Nanoseconds(options_.patience);
    for (const auto& [packed, wanted] : wanted_) {
      if (wanted.in_job || wanted.failing_since_ns == 0) continue;
      if (clock_.NowNs() - wanted.failing_since_ns < patience_ns) continue;
      return absl::UnavailableError(
          absl::StrCat(ShardId::FromPacked(packed).ToString(), " was not saved within ",
                       absl::FormatDuration(options_.patience), ": ", wanted.error));
    }
    return absl::OkStatus();
  }

  void TellProgress() const {
    if (!options_.progress) return;
    CheckpointProgress progress;
    progress.shards = shards_;
    progress.shards_done = shards_ - wanted_.size();
    progress.bytes_done = progress.bytes = bytes_of_ended_;
    if (hold_.has_value()) progress.waits_for = hold_->waits_for();
    size_t in_jobs = progress.shards_done;
    for (const Job& job : jobs_) {
      progress.bytes_done += job.last.bytes_written();
      progress.bytes += std::max(job.last.bytes_total(), job.last.bytes_written());
      in_jobs += job.shards.size();
    }
    if (in_jobs > 0) progress.bytes = progress.bytes * shards_ / std::min(in_jobs, shards_);
    options_.progress(progress);
  }

  void End(const Job& job) {
    v1::WatchSaveRequest request;
    request.set_save(job.number);
    request.set_end(true);
    (void)cluster_.WatchSave(job.address, request);
    CloseFence(job);
  }
  void EndJobs() {
    for (const Job& job : jobs_) End(job);
    jobs_.clear();
  }

  // Puts the shards in order.
  absl::Status CheckWhole() {
    for (v1::CheckpointTable& table : *manifest_.mutable_tables()) {
      std::sort(table.mutable_shards()->pointer_begin(), table.mutable_shards()->pointer_end(),
                [](const v1::CheckpointShard* a, const v1::CheckpointShard* b) {
                  return std::pair(a->column_first(), a->range_first()) <
                         std::pair(b->column_first(), b->range_first());
                });
    }
    const auto parsed = ParseManifest(ManifestText(manifest_));
    if (parsed.ok()) return absl::OkStatus();
    return absl::AbortedError(absl::StrCat("the shards changed during the save (",
                                           parsed.status().message(), "); save again"));
  }

  // A file that the manifest does not name is of a try that failed.
  absl::Status MakeWhole() {
    manifest_.set_ended_unix_ms(absl::ToUnixMillis(absl::Now()));
    manifest_.set_format(FormatOf(manifest_));
    NameParent();
    HOTBED_RETURN_IF_ERROR(CheckWhole());
    HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> unnamed, CheckFiles());
    HOTBED_RETURN_IF_ERROR(place_.Delete(folder_, unnamed));
    // Not every store lists what is not whole; 'prune' tells of that.
    (void)place_.EndUnfinished(folder_, std::numeric_limits<int64_t>::max());
    if (!manifest_.parent().empty()) {
      const std::string parent = absl::StrCat(options_.directory, "/", manifest_.parent());
      HOTBED_RETURN_IF_ERROR(FoldersNeeded(parent, &place_).status());
    }
    if (!OwnsFolder()) {
      return absl::AbortedError(
          absl::StrCat(folder_, " was deleted meanwhile, or another save has taken it"));
    }
    HOTBED_RETURN_IF_ERROR(WriteManifest(folder_, manifest_, &place_));
    return place_.Delete(folder_, {kSavingFile});
  }

  // All files of the manifest are there as they were written. Returns those that it does not name.
  absl::StatusOr<std::vector<std::string>> CheckFiles() {
    std::map<std::string, uint64_t> named = {{kSavingFile, mark_.size()}};
    std::map<std::string, std::string> servers;  // of files on their own disks
    for (const v1::CheckpointTable& table : manifest_.tables()) {
      for (const v1::CheckpointShard& shard : table.shards()) {
        named[shard.file()] = shard.bytes();
        servers[shard.file()] = shard.server();
      }
    }
    HOTBED_ASSIGN_OR_RETURN(const auto there, place_.List(folder_));
    std::vector<std::string> unnamed;
    for (const Place::Entry& file : there) {
      const auto it = named.find(file.name);
      if (it == named.end()) {
        unnamed.push_back(file.name);
      } else if (it->second == file.bytes) {
        named.erase(it);
      }
    }
    if (named.empty()) return unnamed;
    const std::string& server = servers[named.begin()->first];
    return absl::AbortedError(absl::StrCat(
        folder_, "/", named.begin()->first, server.empty() ? "" : ", which server ", server,
        server.empty() ? "" : " wrote,", " is not there any more as it was written"));
  }

  // Another save may have made the same folder in the same moment, and prune deletes what looks
  // like an orphan.
  bool OwnsFolder() {
    const auto mark = place_.ReadAll(absl::StrCat(folder_, "/", kSavingFile));
    return mark.ok() && *mark == mark_;
  }

  // If a shard needs it.
  void NameParent() {
    for (const v1::CheckpointTable& table : manifest_.tables()) {
      for (const v1::CheckpointShard& shard : table.shards()) {
        if (shard.above_lsn() == 0) continue;
        manifest_.set_parent(parent_.name());
        manifest_.set_generation(parent_.generation() + 1);
        return;
      }
    }
  }

  std::string TakeBack() {
    if (!made_) return "Nothing is left of this save";
    if (OwnsFolder() && DeleteCheckpoint(folder_, &place_).ok()) {
      return "Nothing is left of this save";
    }
    return absl::StrCat("'hotbed checkpoint prune ", options_.directory,
                        "' deletes what is left of this save");
  }

  SavedCheckpoint Result() const {
    SavedCheckpoint result;
    result.path = folder_;
    result.parent = manifest_.parent();
    result.generation = manifest_.generation();
    result.at_step = manifest_.at_step();
    for (const v1::CheckpointTable& table : manifest_.tables()) {
      result.tables.push_back({table.spec().name(), static_cast<uint64_t>(table.shards_size()),
                               RowsOf(table), BytesOf(table)});
    }
    return result;
  }

  const SaveOptions& options_;
  CheckpointCluster& cluster_;
  Place& place_;
  const Clock& clock_;
  v1::CheckpointManifest manifest_;
  v1::CheckpointManifest parent_;  // without tables: none
  std::string folder_;
  std::string mark_;                   // in kSavingFile
  bool made_ = false;                  // the folder, with the mark
  std::map<uint32_t, int> table_of_;   // table id -> index in the manifest
  std::map<uint64_t, Wanted> wanted_;  // by packed shard; those that are not saved
  std::map<uint64_t, std::string> addresses_;
  std::map<std::string, std::string> names_;  // of servers, by address
  std::vector<Job> jobs_;
  uint64_t number_ = 0;
  size_t shards_ = 0;
  uint64_t bytes_of_ended_ = 0;
  bool retry_ = false;  // the map is to be asked for again
  // For a save at a step.
  Phase phase_ = Phase::kAnyMoment;
  std::optional<StepHold> hold_;
  // For an export.
  bool exports_ = false;
  bool weights_only_ = false;
  absl::Status fenced_;  // an error: a server may still write
  int64_t kept_ns_ = 0;
};

}  // namespace

absl::StatusOr<SavedCheckpoint> SaveCheckpoint(CheckpointCluster* cluster,
                                               const SaveOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(Place* const place, cluster->PlaceOf(options.directory));
  SaveOptions canonical = options;
  HOTBED_ASSIGN_OR_RETURN(canonical.directory, PlacePath(options.directory));
  return Saver(canonical, cluster, place, Clock::Real()).Save();
}

absl::Status SaveMissingShards(const SaveOptions& options, bool weights_only,
                               const std::string& folder, CheckpointCluster* cluster,
                               v1::CheckpointManifest* manifest) {
  HOTBED_ASSIGN_OR_RETURN(Place* const place, PlaceFinder::Real()->Of(folder));
  return Saver(options, cluster, place, Clock::Real()).SaveMissing(folder, weights_only, manifest);
}

absl::StatusOr<SavedCheckpoint> SaveCheckpoint(const std::string& target,
                                               const SaveOptions& options) {
  HOTBED_ASSIGN_OR_RETURN(const auto cluster, GrpcCheckpointCluster::Connect(target));
  return SaveCheckpoint(cluster.get(), options);
}

absl::StatusOr<SavedCheckpoint> SaveCheckpoint(Client* client, const SaveOptions& options) {
  const auto cluster = static_cast<ClientImpl*>(client)->WholeTables();
  return SaveCheckpoint(cluster.get(), options);
}

}  // namespace hotbed
