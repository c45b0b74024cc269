#include "server/export/save_jobs.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/rows_file.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "server/shard/shard.h"

namespace hotbed {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(500);
constexpr int64_t kRateStepNs = 50 * kMillisecondNs;

absl::Status CheckRequest(const v1::BeginSaveRequest& request) {
  if (request.save() == 0 || request.directory().empty() || request.directory()[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("a save has a number above 0 and an absolute path; it has ", request.save(),
                     " and \"", request.directory(), "\""));
  }
  for (const v1::ShardToSave& shard : request.shards()) {
    if (!shard.file().empty() && !absl::StrContains(shard.file(), '/')) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the file \"", shard.file(), "\" of a shard must lie in the folder itself"));
  }
  return absl::OkStatus();
}

}  // namespace

// Blocks of rows into a file, at the rate of the job.
class SaveJobs::FileSink : public RowSink {
 public:
  FileSink(SaveJobs* jobs, Job* job, RowsFileWriter* file)
      : jobs_(*jobs), job_(*job), file_(*file) {}

  absl::Status BeginPass(uint64_t bytes) override {
    file_.BeginPass();
    if (expected_ == 0) {  // further passes are short
      expected_ = std::max<uint64_t>(bytes, 1);
      job_.bytes_begun.fetch_add(expected_);
    }
    return absl::OkStatus();
  }
  absl::Status Take(absl::Span<const uint64_t> ids, absl::Span<const uint8_t> payloads) override {
    if (job_.broken_off.load()) return absl::CancelledError("the save was broken off");
    const uint64_t bytes = ids.size() * sizeof(uint64_t) + payloads.size();
    HOTBED_RETURN_IF_ERROR(jobs_.AwaitRate(&job_, bytes));
    HOTBED_RETURN_IF_ERROR(file_.AddRows(ids, payloads));
    job_.bytes_written.fetch_add(bytes);
    written_ += bytes;
    return absl::OkStatus();
  }
  // The estimate becomes exact.
  void Ended() { job_.bytes_begun.fetch_add(written_ - expected_); }

 private:
  SaveJobs& jobs_;
  Job& job_;
  RowsFileWriter& file_;
  uint64_t expected_ = 0;
  uint64_t written_ = 0;
};

SaveJobs::SaveJobs(ShardHost* host, FileSystem* files, const Clock* clock)
    : host_(host), files_(files), clock_(clock) {
  for (int i = 0; i < kCopiesMax; ++i) threads_.emplace_back([this] { Work(); });
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
}

absl::Status SaveJobs::Begin(const v1::BeginSaveRequest& request) {
  HOTBED_RETURN_IF_ERROR(CheckRequest(request));
  const int64_t now_ns = clock_->NowNs();
  absl::MutexLock lock(&mu_);
  if (stops_) return absl::UnavailableError("this server is stopping");
  DropUnwatched(now_ns);
  if (jobs_.contains(request.save())) return absl::OkStatus();
  if (jobs_.size() >= kSavesMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        jobs_.size(), " saves are in progress on this server, the limit; try again later"));
  }
  auto job = std::make_shared<Job>(request);
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
  v1::WatchSaveReply reply;
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
    if (job->begun < job->request.shards_size()) return job;
  }
  return nullptr;
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
  const std::string path = absl::StrCat(job->request.directory(), "/", wanted.file());
  if (files_->Exists(path)) (void)files_->Delete(path);
  saved.set_code(static_cast<uint32_t>(written.status().code()));
  saved.set_error(std::string(written.status().message()));
  return saved;
}

absl::StatusOr<v1::CheckpointShard> SaveJobs::Write(Job* job, const v1::ShardToSave& wanted) {
  const ShardId id = ShardId::FromPacked(wanted.shard());
  const std::shared_ptr<Shard> shard = host_->Find(id);
  if (shard == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(id.ToString(), " is not held here"));
  }
  const SpillShard rows = shard->spilled();
  const RowsFileHeader header = {rows.hashed, BytesPerWeight(rows.weight_type) * rows.dim,
                                 rows.payload_bytes};
  const std::string& folder = job->request.directory();
  if (!files_->Exists(absl::StrCat(folder, "/", kSavingFile))) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder,
                     " is no checkpoint's folder as this server sees it; a checkpoint's "
                     "directory must be one that every server reaches under the same path"));
  }
  const std::string path = absl::StrCat(folder, "/", wanted.file());
  HOTBED_ASSIGN_OR_RETURN(const auto file, RowsFileWriter::Create(path, header, files_));
  FileSink sink(this, job, file.get());
  HOTBED_ASSIGN_OR_RETURN(
      const CopiedShard copied,
      host_->Copy(id, {{wanted.above_epoch(), wanted.above_lsn()}, job->request.begins_series()},
                  &sink));
  sink.Ended();
  if (copied.session_count > 0) HOTBED_RETURN_IF_ERROR(file->AddSessions(copied.sessions));
  HOTBED_RETURN_IF_ERROR(file->Finish());
  HOTBED_RETURN_IF_ERROR(files_->SyncDir(job->request.directory()));
  v1::CheckpointShard saved;
  saved.set_index(id.index);
  saved.set_range_first(shard->range().first);
  saved.set_range_limit(shard->range().limit);
  saved.set_column_first(shard->range().column_first);
  saved.set_column_limit(shard->range().column_limit);
  saved.set_epoch(copied.epoch);
  saved.set_lsn(copied.lsn);
  saved.set_file(wanted.file());
  saved.set_bytes(file->bytes());
  saved.set_rows(file->rows());
  saved.set_passes(copied.passes);
  saved.set_index_crc(file->index_crc());
  saved.set_sessions(copied.session_count);
  saved.set_last_step(copied.last_step);
  saved.set_committed_step(copied.committed_step);
  saved.set_staged_pushes(copied.staged_pushes);
  saved.set_forgotten(copied.forgotten);
  saved.set_lsn_epoch(copied.lsn_epoch);
  saved.set_above_lsn(copied.above);
  return saved;
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
