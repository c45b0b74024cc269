#include "server/shard_log/log_writer.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/log.h"
#include "common/rare_counter.h"
#include "common/status_macros.h"
#include "server/shard_log/planted_bugs.h"

namespace hotbed {
namespace {

// A segment is an eighth of the log, and no shorter than this: each costs a file.
constexpr uint64_t kSegmentBytesMin = 16ull << 20;
constexpr uint64_t kSegmentsOfLog = 8;
// A reused segment may be longer than a new one by this factor: the log is cut by whole segments,
// and one that has become short would be cut too seldom.
constexpr uint64_t kReusedFactorMax = 2;
// How many segments may wait for the sync thread before a roll syncs by itself.
constexpr size_t kUnsyncedSegmentsMax = 64;

// No file is a spare without marks: only they tell recovery where the records of a reused file end.
uint64_t SpareBytesMin(const ShardLogOptions& options) {
  if (options.marks == nullptr) return UINT64_MAX;
  return std::min(options.segment_bytes, kSegmentBytesMin) / 2;
}

// The segments that the logs of this process have begun, by SegmentOrigin.
struct SegmentsBegun {
  static SegmentsBegun& Get() {  // never deleted
    static SegmentsBegun* const counters = new SegmentsBegun;
    return *counters;
  }
  static constexpr char kName[] = "hotbed_server_log_segments_total";
  static constexpr char kHelp[] =
      "Log segments begun: over an old file (reused), or in a new one, because there was no old "
      "one "
      "(none), it was too long (too_long), the system had evicted its pages (evicted), or it could "
      "not be written over (refused).";
  RareCounter counters[5] = {{kName, kHelp, {{"file", "reused"}}},
                             {kName, kHelp, {{"file", "none"}}},
                             {kName, kHelp, {{"file", "too_long"}}},
                             {kName, kHelp, {{"file", "evicted"}}},
                             {kName, kHelp, {{"file", "refused"}}}};
  void Add(SegmentOrigin origin) { counters[static_cast<int>(origin)].Add(1); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardLog>> ShardLog::Open(const ShardLogOptions& options,
                                                         FileSystem* files, const Clock* clock) {
  if (options.marks != nullptr && options.marks->Get(Marks::kLogWritten).a != 0 &&
      !files->Exists(options.dir)) {
    return absl::DataLossError(
        absl::StrCat(options.dir,
                     " does not exist, and this server has written a log there: it is missing; "
                     "check that its disk is mounted"));
  }
  HOTBED_RETURN_IF_ERROR(files->MakeDir(options.dir));
  HOTBED_ASSIGN_OR_RETURN(RecoveredLog recovered, RecoverLog(options, files));
  auto log = std::make_unique<LogWriter>(options, files, clock, std::move(recovered));
  HOTBED_RETURN_IF_ERROR(log->Start());
  return log;
}

LogWriter::LogWriter(const ShardLogOptions& options, FileSystem* files, const Clock* clock,
                     RecoveredLog recovered)
    : options_(options),
      files_(files),
      clock_(clock),
      damage_(std::move(recovered.damage)),
      cuts_(std::move(recovered.cuts)),
      last_sequence_(recovered.last_sequence),
      end_{recovered.end_bytes, recovered.end_crc},
      spares_(options.dir, SpareBytesMin(options), files),
      chain_(std::move(recovered.chain)) {
  counts_.torn_bytes = recovered.torn_bytes;
  counts_.torn_message = std::move(recovered.torn_message);
  (void)SegmentsBegun::Get();  // shown from the start
}

LogWriter::~LogWriter() {
  {
    absl::MutexLock lock(&mu_);
    HOTBED_CHECK(!writing_ && queue_.empty()) << "the log is destroyed with appends in flight";
  }
  {
    absl::MutexLock lock(&stop_.mu);
    stop_.wanted = true;
  }
  if (sync_thread_.joinable()) sync_thread_.join();
  (void)file_.End();  // so that the next start need not look at what follows
}

absl::Status LogWriter::Start() {
  bool append_to_newest = false;
  Segment newest;
  {
    absl::MutexLock lock(&mu_);
    if (!chain_.empty()) {
      newest = chain_.newest();
      last_sequence_ = newest.sequence;
      append_to_newest = !newest.damaged && newest.version == kSegmentFormatVersion &&
                         newest.bytes < options_.segment_bytes;
    } else {
      // A sequence number is reused only when its file is gone.
      last_sequence_ = last_sequence_ == 0 ? 0 : last_sequence_ - 1;
    }
  }
  spares_.DeleteLeft();
  HOTBED_RETURN_IF_ERROR(append_to_newest ? OpenSegment(newest) : BeginSegment(last_sequence_ + 1));
  if (options_.marks != nullptr) HOTBED_RETURN_IF_ERROR(MarkStart(append_to_newest));
  if (options_.sync_interval_ms > 0) sync_thread_ = std::thread([this] { SyncLoop(); });
  return absl::OkStatus();
}

// From here on, all records beyond the marks are of this run. A power loss may bring back some of
// the earlier marks, so the run before counts as well.
absl::Status LogWriter::MarkStart(bool append_to_newest) {
  Marks* const marks = options_.marks;
  {
    absl::MutexLock lock(&mu_);
    if (append_to_newest) {
      MarkWritten();
      marks->Set(Marks::kLogSynced, {last_sequence_, end_.bytes, end_.crc});  // by recovery
    } else {
      HOTBED_RETURN_IF_ERROR(SyncThrough(sync_.written));
    }
    if (marks->Get(Marks::kLogOldest).a == 0) {
      marks->Set(Marks::kLogOldest, {chain_.segments().front().sequence, 0, 0});
    }
  }
  const uint64_t before = marks->Get(Marks::kLogRuns).a;
  if (before != options_.run) marks->Set(Marks::kLogRuns, {options_.run, before, 0});
  return marks->Sync();
}

absl::Status LogWriter::Replay(const Visitor& visitor) {
  SegmentChain chain;
  {
    absl::MutexLock lock(&mu_);
    chain = chain_;
  }
  if (cuts_.empty()) return ReplayChain(chain, files_, visitor);
  return ReplayChain(chain, files_, [&](const RecordView& record) {
    const auto cuts = cuts_.find(record.header.shard);
    if (cuts == cuts_.end()) return visitor(record);
    for (const LogCut& cut : cuts->second) {
      if (record.at < cut.at && record.header.lsn >= cut.lsn) return absl::OkStatus();
    }
    return visitor(record);
  });
}

absl::StatusOr<LogPosition> LogWriter::End() {
  absl::MutexLock lock(&mu_);
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !writing_; };
  mu_.Await(absl::Condition(&idle));
  const LogPosition end = {chain_.newest().sequence, chain_.newest().bytes};
  HOTBED_RETURN_IF_ERROR(SyncThrough(sync_.written));
  return end;
}

void LogWriter::Prepare(LogAppend* append) {
  const RecordHeader& h = append->header;
  LogAppend::Queued& queued = append->queued;
  queued.refused = absl::OkStatus();
  queued.bytes = RecordBytes(h);
  if (queued.bytes > kRecordBytesMax) {
    queued.refused = absl::InvalidArgumentError(
        absl::StrCat("a log record of ", queued.bytes, " bytes for ", h.shard.ToString(),
                     " exceeds the limit of ", kRecordBytesMax, " bytes: push fewer rows at once"));
    return;
  }
  HOTBED_CHECK(append->encoded.empty() || append->encoded.size() == queued.bytes);
  queued.payload_crc = RunLayout::PayloadCrc(*append);
}

absl::Status LogWriter::RefusalOf(const LogAppend& append) {
  const LogAppend::Queued& queued = append.queued;
  if (!queued.refused.ok()) return queued.refused;
  if (!stopped_.ok()) return stopped_;
  const RecordHeader& header = append.header;
  const auto failed = failed_.find(header.shard);
  if (failed != failed_.end()) {
    if (header.lsn > failed->second) {
      return absl::FailedPreconditionError(
          absl::StrCat("LSN ", header.lsn, " of ", header.shard.ToString(), " follows LSN ",
                       failed->second, ", whose append failed: append that one again first"));
    }
    failed_.erase(failed);
  }
  if (queue_bytes_ + queued.bytes > options_.queue_bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the log queue holds ", queue_bytes_, " bytes, another ", queued.bytes,
        " would exceed its limit of ", options_.queue_bytes_max, ": push again later"));
  }
  return absl::OkStatus();
}

void LogWriter::Append(LogAppend* append) {
  Prepare(append);
  LogAppend::Queued& queued = append->queued;
  absl::MutexLock lock(&mu_);
  queued.refused = RefusalOf(*append);
  if (queued.refused.ok()) {
    queue_bytes_ += queued.bytes;
  } else {
    failed_.try_emplace(append->header.shard, append->header.lsn);
    queued.bytes = 0;
  }
  queue_.push_back(append);
}

void LogWriter::Commit() {
  mu_.Lock();
  if (!writing_) {
    writing_ = true;
    while (!queue_.empty()) {
      batch_.swap(queue_);
      mu_.Unlock();
      WriteBatch(batch_);
      batch_.clear();
      mu_.Lock();
    }
    writing_ = false;
  }
  mu_.Unlock();
}

void LogWriter::Complete(LogAppend* append, absl::Status status) {
  // The completion may free the append, and with it the callable that is running.
  absl::AnyInvocable<void(absl::Status)> done = std::move(append->done);
  done(std::move(status));
}

// Cuts the batch into runs that fit the newest segment, and completes each run once it is written.
void LogWriter::WriteBatch(absl::Span<LogAppend* const> batch) {
  while (!batch.empty()) {
    if (!batch.front()->queued.refused.ok()) {
      Complete(batch.front(), batch.front()->queued.refused);
      batch.remove_prefix(1);
      continue;
    }
    absl::Status status;
    if (file_.bytes() > kSegmentHeaderBytes &&
        file_.bytes() + batch.front()->queued.bytes > file_.bytes_max()) {
      status = Roll();
    }
    const absl::Span<LogAppend* const> run = batch.first(RunLength(batch));
    batch.remove_prefix(run.size());
    if (status.ok()) status = WriteRun(run);
    {
      absl::MutexLock lock(&mu_);
      for (const LogAppend* append : run) queue_bytes_ -= append->queued.bytes;
      if (!status.ok()) FailBehind(run, status, batch);
    }
    for (LogAppend* append : run) Complete(append, status);
  }
}

// How many of the batch the newest segment has room for as one group; at least one.
size_t LogWriter::RunLength(absl::Span<LogAppend* const> batch) const {
  const uint64_t room = file_.bytes_max() - std::min(file_.bytes(), file_.bytes_max());
  const uint64_t bytes_max = std::min(room, kGroupBytesMax);
  const size_t count_max = std::min(batch.size(), kGroupPartsMax);
  uint64_t bytes = batch.front()->queued.bytes;
  size_t count = 1;
  while (count < count_max && batch[count]->queued.refused.ok()) {
    bytes += batch[count]->queued.bytes;
    if (bytes > bytes_max) break;
    ++count;
  }
  return count;
}

// Records that were written with the failed one, or queued behind it before anyone could know, fail
// with it: the shards numbered them on the assumption that the failed one stands.
void LogWriter::FailBehind(absl::Span<LogAppend* const> run, const absl::Status& status,
                           absl::Span<LogAppend* const> behind) {
  const absl::Span<LogAppend* const> queues[] = {behind, queue_};
  for (const auto& queue : queues) {
    for (LogAppend* append : queue) {
      if (!append->queued.refused.ok()) continue;
      append->queued.refused = status;
      queue_bytes_ -= append->queued.bytes;
      append->queued.bytes = 0;
    }
  }
  for (const LogAppend* append : run) {
    const RecordHeader& header = append->header;
    const auto [failed, added] = failed_.try_emplace(header.shard, header.lsn);
    if (!added) failed->second = std::min(failed->second, header.lsn);
  }
  for (const auto& queue : queues) {
    for (const LogAppend* append : queue) {
      failed_.try_emplace(append->header.shard, append->header.lsn);
    }
  }
}

absl::Status LogWriter::WriteRun(absl::Span<LogAppend* const> run) {
  uint64_t synced = options_.sync_interval_ms == 0 ? file_.bytes() : 0;
  {
    absl::MutexLock lock(&mu_);
    if (!stopped_.ok()) return stopped_;
    if (sync_.sequence == last_sequence_) synced = std::max(synced, sync_.offset);
  }
  layout_.LayOut(run, {.synced_bytes = synced, .run = options_.run, .segment = last_sequence_});
  const uint64_t bytes = layout_.bytes();
  const absl::Status written = file_.Append(layout_.pieces(), bytes);
  if (!written.ok()) return CutBack(written);
  if (options_.sync_interval_ms == 0) {
    if (const absl::Status failed = file_.Sync(); !failed.ok()) {
      // The system may have dropped the pages: nothing read from this file can be trusted until a
      // restart has read it again.
      (void)file_.CutBack();
      absl::MutexLock lock(&mu_);
      Stop(failed, /*poison=*/true);
      return stopped_;
    }
  }
  file_.Keep(bytes);
  end_.crc = layout_.header_crc();
  MarkWritten();
  absl::MutexLock lock(&mu_);
  for (const LogAppend* append : run) {
    chain_.AddRecord(append->header.shard, append->header.lsn);
  }
  chain_.AddBytes(bytes, end_.crc);
  if (sync_.written == sync_.synced) sync_.unsynced_since_ns = clock_->NowNs();
  sync_.written += bytes;
  counts_.appends += run.size();
  ++counts_.writes;
  if (options_.sync_interval_ms == 0) {
    sync_.synced = sync_.written;
    ++counts_.syncs;
  }
  return absl::OkStatus();
}

// Before the completions run: what was reported written must be there after a kill.
void LogWriter::MarkWritten() {
  end_.bytes = file_.bytes();
  if (options_.marks == nullptr || PlantedBug("ack_before_append")) return;
  options_.marks->Set(Marks::kLogWritten, {last_sequence_, end_.bytes, end_.crc});
  if (options_.sync_interval_ms == 0) {
    options_.marks->Set(Marks::kLogSynced, {last_sequence_, end_.bytes, end_.crc});
  }
}

// Takes the failed bytes out of the file, durably, so that no recovery finds a record that was
// reported failed.
absl::Status LogWriter::CutBack(const absl::Status& cause) {
  absl::Status cut = file_.CutBack();
  if (cut.ok()) cut = file_.Sync();
  absl::MutexLock lock(&mu_);
  if (cut.ok()) {
    Stop(cause, /*poison=*/false);
  } else {
    Stop(absl::InternalError(
             absl::StrCat(cause.message(), "; cutting it back failed too: ", cut.message())),
         /*poison=*/true);
  }
  return stopped_;
}

void LogWriter::Stop(absl::Status why, bool poison) {
  if (poisoned_) return;
  poisoned_ = poison;
  if (poison) {
    stopped_ = absl::DataLossError(
        absl::StrCat("the log in ", options_.dir, " is poisoned until a restart: ", why.message()));
  } else {
    stopped_ = absl::ResourceExhaustedError(absl::StrCat(
        "the log in ", options_.dir, " is read-only: ", why.message(), "; free space on its disk"));
  }
  HOTBED_LOG(Error) << stopped_.message();
  sync_done_.SignalAll();
}

absl::Status LogWriter::Roll() {
  {
    absl::MutexLock lock(&mu_);
    if (!stopped_.ok()) return stopped_;
    if (sync_.segments.size() >= kUnsyncedSegmentsMax) {
      HOTBED_RETURN_IF_ERROR(SyncThrough(sync_.written));
    }
  }
  // Gives back a long rest of a reused file. The header of the next segment will say where this
  // one ends, so an error does no harm.
  if (file_.bytes() < file_.bytes_max() / kSegmentsOfLog * (kSegmentsOfLog - 1)) (void)file_.End();
  const absl::Status begun = BeginSegment(last_sequence_ + 1);
  if (begun.ok()) return begun;
  absl::MutexLock lock(&mu_);
  Stop(begun, /*poison=*/false);
  return stopped_;
}

uint64_t LogWriter::NewSegmentBytes() const {
  return std::max(kSegmentBytesMin, chain_.bytes() / kSegmentsOfLog);
}

absl::Status LogWriter::OpenSegment(const Segment& segment) {
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                          files_->OpenAt(segment.path, segment.bytes));
  HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> sync_file,
                          files_->OpenAppend(segment.path));
  if (PlantedBug("ack_before_append")) file = MakeLateFile(std::move(file));
  absl::MutexLock lock(&mu_);
  const uint64_t bytes_max = std::min(
      options_.segment_bytes, segment.reused_bytes > 0 ? segment.reused_bytes : NewSegmentBytes());
  file_ = NewestSegment(std::move(file), segment.bytes, bytes_max, segment.reused_bytes > 0);
  if (sync_.synced == sync_.written) sync_.segments.clear();
  sync_.segments.push_back({segment.sequence, std::move(sync_file)});
  return absl::OkStatus();
}

// On an error nothing has changed: the newest segment is still the one before.
absl::Status LogWriter::BeginSegment(uint64_t sequence) {
  SegmentHeader header;
  header.sequence = sequence;
  header.previous_bytes = end_.bytes;
  header.previous_crc = end_.crc;
  uint64_t reused_most = 0;
  {
    absl::MutexLock lock(&mu_);
    reused_most = kReusedFactorMax * NewSegmentBytes();
    header.unsynced_from =
        sync_.synced == sync_.written ? sequence : sync_.segments.front().sequence;
  }
  Segment segment;
  segment.sequence = sequence;
  segment.path = absl::StrCat(options_.dir, "/", SegmentName(sequence));
  segment.bytes = kSegmentHeaderBytes;
  absl::Cleanup remove = [&] { (void)files_->Delete(segment.path); };
  const bool sync = options_.sync_interval_ms == 0;
  const LogSpares::Reused reused = spares_.Reuse(header, sync, segment.path, reused_most);
  segment.reused_bytes = reused.bytes;
  if (reused.origin != SegmentOrigin::kReused) {
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files_->OpenAppend(segment.path));
    // A failed attempt may have left a file that could not be deleted.
    if (file->size() > 0) HOTBED_RETURN_IF_ERROR(file->Truncate(0));
    HOTBED_RETURN_IF_ERROR(WriteSegmentHeader(header, sync, file.get()));
  }
  if (sync) HOTBED_RETURN_IF_ERROR(files_->SyncDir(options_.dir));
  HOTBED_RETURN_IF_ERROR(OpenSegment(segment));
  std::move(remove).Cancel();
  SegmentsBegun::Get().Add(reused.origin);
  last_sequence_ = sequence;
  end_.crc = 0;
  MarkWritten();
  absl::MutexLock lock(&mu_);
  chain_.Push(std::move(segment));
  sync_.dir_changed = options_.sync_interval_ms != 0;
  return absl::OkStatus();
}

}  // namespace hotbed
