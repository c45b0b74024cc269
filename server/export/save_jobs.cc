#include "server/export/save_jobs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_folder.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "places/servers_path.h"
#include "row_math/candidate.h"
#include "server/export/array_sink.h"
#include "server/export/own_disk.h"
#include "server/host/shard_copy.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(500);
constexpr int64_t kRateStepNs = 50 * kMillisecondNs;

absl::Status CheckRequest(const v1::BeginSaveRequest& request) {
  if (request.save() == 0) return absl::InvalidArgumentError("a save has a number above 0");
  HOTBED_RETURN_IF_ERROR(CheckCompression(request.compress()));
  const auto check = [](const std::string& file) {
    const bool inside = !absl::StrContains(file, '/') && file != "." && file != "..";
    if (!file.empty() && inside) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the file \"", file, "\" of a save must lie in the folder itself"));
  };
  if (request.has_arrays()) {
    if (NamesObjectStore(request.directory())) {
      return absl::InvalidArgumentError("arrays are written into a directory");
    }
    HOTBED_RETURN_IF_ERROR(check(request.fence()));
    HOTBED_RETURN_IF_ERROR(check(request.arrays().weights().path()));
    if (request.arrays().has_state()) {
      HOTBED_RETURN_IF_ERROR(check(request.arrays().state().path()));
    }
  }
  for (const v1::ShardToSave& shard : request.shards()) {
    HOTBED_RETURN_IF_ERROR(check(shard.file()));
  }
  return absl::OkStatus();
}

// Rows into a file of their own. A file without the state, by which candidates for admission are
// told from rows, gets none of them.
class RowsFileSink : public RowSink {
 public:
  // `stored_bytes`: how many bytes of each row's payload the file gets.
  RowsFileSink(RowsFileWriter* file, uint32_t stored_bytes, const AdmissionParams& admission)
      : file_(*file), stored_bytes_(stored_bytes), admission_(admission) {}
  absl::Status BeginPass(uint64_t /*bytes*/) override {
    file_.BeginPass();
    ++passes_;
    return absl::OkStatus();
  }
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) override {
    const size_t bytes = payloads.size() / ids.size();
    if (bytes == stored_bytes_) return file_.AddRows(ids, payloads);
    stored_.clear();
    rows_.clear();
    std::vector<uint64_t> candidates;
    for (size_t k = 0; k < ids.size(); ++k) {
      const auto row = payloads.subspan(k * bytes, stored_bytes_);
      if (IsCandidateRow(admission_, payloads.data() + (k + 1) * bytes)) {
        candidates.push_back(ids[k]);
        continue;
      }
      rows_.push_back(ids[k]);
      stored_.insert(stored_.end(), row.begin(), row.end());
    }
    if (!rows_.empty()) HOTBED_RETURN_IF_ERROR(file_.AddRows(rows_, stored_));
    // One may come in place of a row of an earlier pass, which was deleted.
    if (passes_ == 1 || candidates.empty()) return absl::OkStatus();
    return file_.AddDeleted(candidates);
  }
  absl::Status TakeDeleted(absl::Span<const uint64_t> ids) override {
    return file_.AddDeleted(ids);
  }

 private:
  RowsFileWriter& file_;
  const uint32_t stored_bytes_;
  const AdmissionParams admission_;
  int passes_ = 0;
  std::vector<uint64_t> rows_;
  std::vector<uint8_t> stored_;
};

}  // namespace

// Passes blocks of rows on, at the rate of the job.
class SaveJobs::JobSink : public RowSink {
 public:
  JobSink(SaveJobs* jobs, Job* job, RowSink* to) : jobs_(*jobs), job_(*job), to_(*to) {}

  absl::Status BeginPass(uint64_t bytes) override {
    HOTBED_RETURN_IF_ERROR(to_.BeginPass(bytes));
    if (expected_ == 0) {  // further passes are short
      expected_ = std::max<uint64_t>(bytes, 1);
      job_.bytes_begun.fetch_add(expected_);
    }
    return absl::OkStatus();
  }
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) override {
    if (job_.broken_off.load()) return absl::CancelledError("the save was broken off");
    const uint64_t bytes = ids.size() * sizeof(uint64_t) + payloads.size();
    // Arrays also get first values, and count what they write themselves.
    if (!job_.request.has_arrays()) HOTBED_RETURN_IF_ERROR(jobs_.AwaitRate(&job_, bytes));
    HOTBED_RETURN_IF_ERROR(to_.Take(ids, payloads));
    job_.bytes_written.fetch_add(bytes);
    written_ += bytes;
    return absl::OkStatus();
  }
  absl::Status TakeDeleted(absl::Span<const uint64_t> ids) override {
    if (job_.broken_off.load()) return absl::CancelledError("the save was broken off");
    return to_.TakeDeleted(ids);
  }
  // The estimate becomes exact.
  void Ended() { job_.bytes_begun.fetch_add(written_ - expected_); }

 private:
  SaveJobs& jobs_;
  Job& job_;
  RowSink& to_;
  uint64_t expected_ = 0;
  uint64_t written_ = 0;
};

SaveJobs::SaveJobs(ShardHost* host, PlaceFinder* places, const Clock* clock, std::string own_disk)
    : host_(host), places_(places), clock_(clock), own_disk_(std::move(own_disk)) {
  for (int i = 0; i < kCopiesMax; ++i) threads_.emplace_back([this] { Work(); });
  threads_.emplace_back([this] { TakeRows(); });
}

void SaveJobs::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stops_ = true;
    for (const auto& [number, job] : jobs_) job->broken_off.store(true);
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  absl::MutexLock lock(&mu_);
  jobs_.clear();  // rows that were taken must not outlive the host
}

absl::Status SaveJobs::Begin(const v1::BeginSaveRequest& asked) {
  HOTBED_RETURN_IF_ERROR(CheckRequest(asked));
  v1::BeginSaveRequest request = asked;
  if (NamesServersDisks(asked.directory())) {
    if (own_disk_.empty()) {
      return absl::FailedPreconditionError("there is no disk for checkpoints here");
    }
    HOTBED_ASSIGN_OR_RETURN(*request.mutable_directory(), PathBelow(own_disk_, asked.directory()));
    for (const v1::ShardToSave& shard : asked.shards()) {
      HOTBED_RETURN_IF_ERROR(CheckServersPath(absl::StrCat(asked.directory(), "/", shard.file())));
    }
  }
  HOTBED_RETURN_IF_ERROR(places_->Of(request.directory()).status());
  const int64_t now_ns = clock_->NowNs();
  absl::MutexLock lock(&mu_);
  if (stops_) return absl::UnavailableError("this server is stopping");
  DropUnwatched(now_ns);
  if (jobs_.contains(request.save())) return absl::OkStatus();
  if (jobs_.size() >= kSavesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        jobs_.size(), " saves are in progress on this server, the limit; try again later"));
  }
  auto job = std::make_shared<Job>(
      request, NamesServersDisks(asked.directory()) ? asked.directory() : std::string());
  job->watched_ns = now_ns;
  jobs_[request.save()] = std::move(job);
  return absl::OkStatus();
}

absl::StatusOr<v1::WatchSaveReply> SaveJobs::Watch(const v1::WatchSaveRequest& request) {
  absl::MutexLock lock(&mu_);
  const auto it = jobs_.find(request.save());
  if (it == jobs_.end()) {
    return absl::NotFoundError(absl::StrCat("save ", request.save(), " is not in progress here"));
  }
  Job& job = *it->second;
  job.watched_ns = clock_->NowNs();
  job.takes |= request.take();
  v1::WatchSaveReply reply;
  reply.set_prepared(job.prepared);
  reply.set_taken(job.taken.size());
  for (const v1::SavedShard& done : job.done) *reply.add_shards() = done;
  reply.set_bytes_written(job.bytes_written.load());
  const uint64_t begun = std::max(job.begun, 1);
  reply.set_bytes_total(job.bytes_begun.load() * job.request.shards_size() / begun);
  reply.set_ended(static_cast<int>(job.done.size()) == job.request.shards_size());
  if (request.end()) {
    job.broken_off.store(true);
    jobs_.erase(it);
  }
  return reply;
}

void SaveJobs::DropUnwatched(int64_t now_ns) {
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    if (now_ns - it->second->watched_ns < kUnwatchedNsMax) {
      ++it;
      continue;
    }
    HOTBED_LOG(Warning) << "a save into " << it->second->request.directory()
                        << " ends: its client has not asked for it for a minute";
    it->second->broken_off.store(true);
    jobs_.erase(it++);
  }
}

std::shared_ptr<SaveJobs::Job> SaveJobs::FirstWaiting() const {
  for (const auto& [number, job] : jobs_) {
    const int ready = job->request.takes_when_told() ? static_cast<int>(job->taken.size())
                                                     : job->request.shards_size();
    if (job->begun < ready) return job;
  }
  return nullptr;
}

std::shared_ptr<SaveJobs::Job> SaveJobs::FirstToTake() const {
  for (const auto& [number, job] : jobs_) {
    if (!job->request.takes_when_told()) continue;
    const int shards = job->request.shards_size();
    if (job->prepared < shards) return job;
    if (job->takes && static_cast<int>(job->taken.size()) < shards) return job;
  }
  return nullptr;
}

void SaveJobs::TakeRows() {
  for (;;) {
    std::shared_ptr<Job> job;
    bool prepares = false;
    int number = 0;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || FirstToTake() != nullptr;
      };
      mu_.Await(absl::Condition(&wakes));
      if (stops_) return;
      job = FirstToTake();
      prepares = job->prepared < job->request.shards_size();
      number = prepares ? job->prepared : static_cast<int>(job->taken.size());
    }
    const v1::ShardToSave& wanted = job->request.shards(number);
    const ShardId id = ShardId::FromPacked(wanted.shard());
    if (prepares) {
      // An error shows when the rows are taken.
      if (const auto shard = host_->Find(id); shard != nullptr) (void)shard->WriteBack();
      absl::MutexLock lock(&mu_);
      ++job->prepared;
      continue;
    }
    absl::StatusOr<TakenRows> taken = host_->Take(id, {wanted.above_epoch(), wanted.above_lsn()});
    absl::MutexLock lock(&mu_);
    job->taken.push_back(std::move(taken));
  }
}

absl::StatusOr<TakenRows> SaveJobs::TakenOf(Job* job, const v1::ShardToSave& wanted) {
  absl::MutexLock lock(&mu_);
  for (int k = 0; k < job->request.shards_size(); ++k) {
    if (job->request.shards(k).shard() != wanted.shard()) continue;
    return std::exchange(job->taken[k], absl::CancelledError("its rows were copied"));
  }
  return absl::InternalError("a shard that is not of the save");
}

void SaveJobs::Work() {
  for (;;) {
    std::shared_ptr<Job> job;
    int shard = 0;
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stops_ || FirstWaiting() != nullptr;
      };
      AwaitFor(&mu_, absl::Condition(&wakes), kLook);
      if (stops_) return;
      DropUnwatched(clock_->NowNs());
      job = FirstWaiting();
      if (job != nullptr) shard = job->begun++;
    }
    if (job == nullptr) continue;
    v1::SavedShard saved = Save(job.get(), job->request.shards(shard));
    absl::MutexLock lock(&mu_);
    job->done.push_back(std::move(saved));
  }
}

v1::SavedShard SaveJobs::Save(Job* job, const v1::ShardToSave& wanted) {
  absl::StatusOr<v1::CheckpointShard> written = Write(job, wanted);
  v1::SavedShard saved;
  saved.set_shard(wanted.shard());
  if (written.ok()) {
    *saved.mutable_saved() = *std::move(written);
    return saved;
  }
  HOTBED_LOG_EVERY_S(Warning, 1) << "the save of " << ShardId::FromPacked(wanted.shard()).ToString()
                                 << " failed: " << written.status().message();
  saved.set_code(static_cast<uint32_t>(written.status().code()));
  saved.set_error(std::string(written.status().message()));
  return saved;
}

absl::Status SaveJobs::CheckFolder(const Job& job, Place* place) const {
  const std::string& folder = job.request.directory();
  if (job.broken_off.load()) return absl::CancelledError("the save was broken off");
  if (!job.request.mark().empty() && !job.own_folder.empty()) {
    absl::MutexLock lock(&folders_mu_);
    const absl::Status made = MakeOwnFolder(own_disk_, job.own_folder, FileSystem::Real());
    if (made.ok()) {
      return place->Put(absl::StrCat(folder, "/", kSavingFile), job.request.mark());
    }
    if (!absl::IsAlreadyExists(made)) return made;
  }
  const absl::StatusOr<std::string> mark = place->ReadAll(absl::StrCat(folder, "/", kSavingFile));
  if (mark.ok() && *mark == kDeletingMark) {
    return absl::InvalidArgumentError(absl::StrCat(folder, " is being deleted"));
  }
  if (mark.ok() || !absl::IsNotFound(mark.status())) return mark.status();
  return absl::InvalidArgumentError(
      absl::StrCat(folder,
                   " is no checkpoint's folder as this server sees it; a checkpoint's "
                   "directory must be one that every server reaches under the same path"));
}

absl::StatusOr<v1::CheckpointShard> SaveJobs::Write(Job* job, const v1::ShardToSave& wanted) {
  const ShardId id = ShardId::FromPacked(wanted.shard());
  const std::shared_ptr<Shard> shard = host_->Find(id);
  if (shard == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(id.ToString(), " is not held here"));
  }
  const std::string& folder = job->request.directory();
  HOTBED_ASSIGN_OR_RETURN(Place* const place, places_->Of(folder));
  HOTBED_RETURN_IF_ERROR(CheckFolder(*job, place));
  v1::CheckpointShard saved;
  saved.set_index(id.index);
  saved.set_range_first(shard->range().first);
  saved.set_column_first(shard->range().column_first);
  saved.set_column_limit(shard->range().column_limit);
  saved.set_range_limit(shard->range().limit);
  HOTBED_RETURN_IF_ERROR(job->request.has_arrays() ? WriteArrays(job, wanted, *shard, &saved)
                                                   : WriteFile(job, wanted, *shard, &saved));
  return saved;
}

absl::StatusOr<CopiedShard> SaveJobs::Copy(Job* job, const v1::ShardToSave& wanted, RowSink* to,
                                           v1::CheckpointShard* saved) {
  JobSink sink(this, job, to);
  absl::StatusOr<CopiedShard> copy = absl::InternalError("it was not copied");
  if (job->request.takes_when_told()) {
    HOTBED_ASSIGN_OR_RETURN(TakenRows taken, TakenOf(job, wanted));
    copy = CopyTaken(std::move(taken), &sink);
  } else {
    HOTBED_ASSIGN_OR_RETURN(Place* const place, places_->Of(job->request.directory()));
    ShardHost::CopyOptions options = {{wanted.above_epoch(), wanted.above_lsn()},
                                      job->request.begins_series()};
    options.sink_bytes =
        place->writer_bytes() + (job->request.compress().empty() ? 0 : kPackerBytes);
    options.wanted = [job] {
      return job->broken_off.load() ? absl::CancelledError("the save was broken off")
                                    : absl::OkStatus();
    };
    copy = host_->Copy(ShardId::FromPacked(wanted.shard()), options, &sink);
  }
  HOTBED_ASSIGN_OR_RETURN(CopiedShard copied, std::move(copy));
  sink.Ended();
  if (copied.range.first != saved->range_first() || copied.range.limit != saved->range_limit()) {
    return absl::AbortedError(absl::StrCat(ShardId::FromPacked(wanted.shard()).ToString(),
                                           " was cut before it was copied"));
  }
  saved->set_epoch(copied.epoch);
  saved->set_lsn(copied.lsn);
  saved->set_passes(copied.passes);
  saved->set_sessions(copied.session_count);
  saved->set_last_step(copied.last_step);
  saved->set_committed_step(copied.committed_step);
  saved->set_staged_pushes(copied.staged_pushes);
  saved->set_forgotten(copied.forgotten);
  saved->set_lsn_epoch(copied.lsn_epoch);
  saved->set_above_lsn(copied.above);
  return copied;
}

absl::Status SaveJobs::WriteFile(Job* job, const v1::ShardToSave& wanted, const Shard& shard,
                                 v1::CheckpointShard* saved) {
  const SpillShard rows = shard.spilled();
  const uint32_t weight_bytes = BytesPerWeight(rows.weight_type) * rows.dim;
  const uint32_t stored = job->request.weights_only() ? weight_bytes : rows.payload_bytes;
  HOTBED_ASSIGN_OR_RETURN(Place* const place, places_->Of(job->request.directory()));
  const std::string path = absl::StrCat(job->request.directory(), "/", wanted.file());
  const RowsFileHeader header = {rows.hashed, weight_bytes, stored,
                                 !job->request.compress().empty()};
  HOTBED_ASSIGN_OR_RETURN(const auto file, RowsFileWriter::Create(path, header, place));
  RowsFileSink sink(file.get(), stored, shard.table().life.admission);
  const absl::Status filled = FillFile(job, wanted, file.get(), &sink, saved);
  if (!filled.ok()) (void)place->Delete(job->request.directory(), {wanted.file()});
  return filled;
}

absl::Status SaveJobs::FillFile(Job* job, const v1::ShardToSave& wanted, RowsFileWriter* file,
                                RowSink* sink, v1::CheckpointShard* saved) {
  HOTBED_ASSIGN_OR_RETURN(const CopiedShard copied, Copy(job, wanted, sink, saved));
  if (copied.session_count > 0) HOTBED_RETURN_IF_ERROR(file->AddSessions(copied.sessions));
  if (!job->request.weights_only()) {
    HOTBED_RETURN_IF_ERROR(file->AddTouchFilter(copied.touch_filter));
    saved->set_touch_filter_bytes(copied.touch_filter.size());
  }
  HOTBED_RETURN_IF_ERROR(file->Finish());
  saved->set_file(wanted.file());
  saved->set_bytes(file->bytes());
  saved->set_rows(file->rows());
  saved->set_deleted(file->deleted());
  saved->set_index_crc(file->index_crc());
  return absl::OkStatus();
}

absl::Status SaveJobs::WriteArrays(Job* job, const v1::ShardToSave& wanted, const Shard& shard,
                                   v1::CheckpointShard* saved) {
  const auto may_write = [this, job](uint64_t bytes) {
    if (job->broken_off.load()) return absl::CancelledError("the save was broken off");
    return AwaitRate(job, bytes);
  };
  HOTBED_ASSIGN_OR_RETURN(const auto sink,
                          ArraySink::Open(job->request, shard.table(), shard.range(), may_write));
  HOTBED_RETURN_IF_ERROR(Copy(job, wanted, sink.get(), saved).status());
  return sink->Finish();
}

absl::Status SaveJobs::AwaitRate(Job* job, uint64_t bytes) {
  if (job->request.bytes_per_s() == 0) return absl::OkStatus();
  const int64_t ns = static_cast<int64_t>(static_cast<double>(bytes) * kSecondNs /
                                          static_cast<double>(job->request.bytes_per_s()));
  absl::MutexLock lock(&mu_);
  const int64_t now_ns = clock_->NowNs();
  int64_t wait_ns = std::max<int64_t>(job->free_ns - now_ns, 0);
  job->free_ns = now_ns + wait_ns + ns;
  for (; wait_ns > 0; wait_ns -= kRateStepNs) {
    AwaitFor(&mu_, absl::Condition(&stops_), absl::Nanoseconds(std::min(wait_ns, kRateStepNs)));
    if (stops_ || job->broken_off.load()) return absl::CancelledError("the save was broken off");
  }
  return absl::OkStatus();
}

}  // namespace hotbed
