#include "server/shard_log/recovery.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/shard_log/epoch_runs.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/segment_reader.h"

namespace hotbed {
namespace {

using Found = SegmentReader::Found;

struct SegmentFile {
  uint64_t sequence = 0;
  std::string path;
  uint64_t bytes = 0;
};

class Recovery {
 public:
  Recovery(const ShardLogOptions& options, FileSystem* files) : options_(options), files_(files) {}

  absl::StatusOr<RecoveredLog> Run() {
    HOTBED_RETURN_IF_ERROR(ListSegments());
    HOTBED_RETURN_IF_ERROR(FindLooseEnd());
    for (size_t i = 0; i < segments_.size(); ++i) {
      const SegmentFile& file = segments_[i];
      if (i > 0 && file.sequence != segments_[i - 1].sequence + 1) {
        if (IsLoose(segments_[i - 1].sequence + 1, 0)) {
          HOTBED_RETURN_IF_ERROR(DropFrom(i, "the segment before it was lost unsynced"));
          break;
        }
        ReportHole(segments_[i - 1].sequence + 1, file.sequence - 1);
      }
      HOTBED_ASSIGN_OR_RETURN(const std::optional<uint64_t> cut_at, Scan(file));
      if (cut_at.has_value()) {
        HOTBED_RETURN_IF_ERROR(DropFrom(i + 1, "it follows the cut"));
        break;
      }
    }
    HOTBED_RETURN_IF_ERROR(SyncLooseEnd());
    return std::move(log_);
  }

 private:
  absl::Status ListSegments() {
    HOTBED_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(options_.dir));
    for (const std::string& name : names) {
      const std::optional<uint64_t> sequence = ParseSegmentName(name);
      if (!sequence.has_value()) continue;
      SegmentFile file;
      file.sequence = *sequence;
      file.path = absl::StrCat(options_.dir, "/", name);
      HOTBED_ASSIGN_OR_RETURN(file.bytes, files_->FileSize(file.path));
      segments_.push_back(std::move(file));
    }
    std::sort(segments_.begin(), segments_.end(),
              [](const SegmentFile& a, const SegmentFile& b) { return a.sequence < b.sequence; });
    if (!segments_.empty()) log_.last_sequence = segments_.back().sequence;
    return absl::OkStatus();
  }

  // Headers and records state how much was synced when they were written; the newest one counts.
  absl::Status FindLooseEnd() {
    loose_from_ = {log_.last_sequence, 0};
    for (size_t i = segments_.size(); i-- > 0;) {
      SegmentReader reader(files_, segments_[i].path, segments_[i].bytes);
      const absl::StatusOr<SegmentHeader> header = reader.ReadHeader();
      if (!header.ok() && absl::IsFailedPrecondition(header.status())) return header.status();
      if (!header.ok()) continue;
      HOTBED_ASSIGN_OR_RETURN(const uint64_t synced, SyncedBytes(&reader));
      if (synced > 0) {
        loose_from_ = {segments_[i].sequence, synced};
        return absl::OkStatus();
      }
      if (header->unsynced_from > segments_[i].sequence) {  // emptied
        loose_from_ = {header->unsynced_from, 0};
        return absl::OkStatus();
      }
      loose_from_ = {std::min(header->unsynced_from, segments_[i].sequence), 0};
      if (!options_.rebooted) return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  // The highest statement of any whole record of a segment. Read only after a reboot, when it
  // matters.
  absl::StatusOr<uint64_t> SyncedBytes(SegmentReader* reader) {
    uint64_t synced = 0;
    while (options_.rebooted) {
      HOTBED_ASSIGN_OR_RETURN(const Found found, reader->Next());
      if (found == Found::kRecord) {
        synced = std::max(synced, reader->synced_bytes());
        continue;
      }
      if (found != Found::kBadHeader && found != Found::kBadPayload) break;
      HOTBED_ASSIGN_OR_RETURN(const bool more, reader->SkipDamage());
      if (!more) break;
    }
    return synced;
  }

  // Whether bytes at that position may have been lost without damage of the disk.
  bool IsLoose(uint64_t sequence, uint64_t offset) const {
    return options_.rebooted && std::make_pair(sequence, offset) >= loose_from_;
  }

  void ReportHole(uint64_t first, uint64_t last) {
    ShardLog::Damage damage;
    damage.all_shards = true;
    damage.message = absl::StrCat("log segments ", SegmentName(first), " to ", SegmentName(last),
                                  " are missing in ", options_.dir,
                                  ": restore them from a backup, or the tables from a checkpoint");
    log_.damage.push_back(std::move(damage));
  }

  // Reads one segment to its end. Returns the offset at which it was cut, if it was.
  absl::StatusOr<std::optional<uint64_t>> Scan(const SegmentFile& file) {
    Segment segment;
    segment.sequence = file.sequence;
    segment.path = file.path;
    segment.bytes = file.bytes;
    SegmentReader reader(files_, file.path, file.bytes);
    const absl::StatusOr<SegmentHeader> header = reader.ReadHeader();
    if (!header.ok() || header->sequence != file.sequence) {
      if (header.ok() || absl::IsDataLoss(header.status())) {
        return BadSegmentHeader(
            file, header.ok()
                      ? absl::StrCat(file.path, " says that it is segment ", header->sequence)
                      : std::string(header.status().message()));
      }
      return header.status();
    }
    while (true) {
      HOTBED_ASSIGN_OR_RETURN(const Found found, reader.Next());
      if (found == Found::kEnd) break;
      if (found == Found::kRecord) {
        segment.Add(reader.record().header.shard, reader.record().header.lsn);
        NoteRecord(reader.record().header, {file.sequence, reader.offset()});
        continue;
      }
      HOTBED_ASSIGN_OR_RETURN(const bool torn, IsTorn(file, found, reader));
      if (torn) {
        HOTBED_RETURN_IF_ERROR(Cut(file, reader.offset(), Describe(found, reader)));
        segment.bytes = reader.offset();
        log_.chain.Push(std::move(segment));
        return std::optional<uint64_t>(reader.offset());
      }
      segment.damaged = true;
      HOTBED_ASSIGN_OR_RETURN(const bool more, ReportDamage(file, found, &reader));
      if (!more) break;
    }
    log_.chain.Push(std::move(segment));
    return std::optional<uint64_t>();
  }

  // A truncation has no record of its own: the record that replaced the removed ones shows it. The
  // later record counts, even if its epoch is lower: the surviving primary decides which of two
  // uncommitted tails survives (Raft's figure 8).
  void NoteRecord(const RecordHeader& header, const LogPosition& at) {
    Tail& tail = tails_[header.shard];
    if (tail.last == 0) {
      tail.first = header.lsn;
      tail.runs.Reset(header.lsn, header.epoch);
    } else if (header.lsn > tail.last) {
      tail.runs.Append(header.lsn, header.epoch);
    } else if (tail.runs.At(header.lsn) == header.epoch) {
      return;  // the same record again
    } else {
      log_.cuts[header.shard].push_back({at, header.lsn});
      if (header.lsn <= tail.first) {
        tail.first = header.lsn;
        tail.runs.Reset(header.lsn, header.epoch);
      } else {
        tail.runs.CutFrom(header.lsn);
        tail.runs.Append(header.lsn, header.epoch);
      }
    }
    tail.last = header.lsn;
  }

  // Whether the bytes at the reader's offset are the torn end of the log.
  absl::StatusOr<bool> IsTorn(const SegmentFile& file, Found found, SegmentReader& reader) {
    if (IsLoose(file.sequence, reader.offset())) return true;
    if (file.sequence != log_.last_sequence) return false;
    if (found == Found::kCutShort || found == Found::kZeros) return true;
    if (found != Found::kBadHeader || reader.offset() + reader.raw_length() <= file.bytes)
      return false;
    HOTBED_ASSIGN_OR_RETURN(const bool more, reader.SkipDamage());
    return !more;
  }

  static std::string Describe(Found found, const SegmentReader& reader) {
    switch (found) {
      case Found::kCutShort:
        return "the file ends inside the record";
      case Found::kZeros:
        return "only zeros follow";
      case Found::kBadPayload:
        return absl::StrCat("the payload fails its checksum (", reader.header().shard.ToString(),
                            ", LSN ", reader.header().lsn, ")");
      default:
        return "the record header fails its checksum";
    }
  }

  // Records the damage and moves past it; false: nothing follows in this segment.
  absl::StatusOr<bool> ReportDamage(const SegmentFile& file, Found found, SegmentReader* reader) {
    const uint64_t at = reader->offset();
    ShardLog::Damage damage;
    damage.message = absl::StrCat("log segment ", file.path, " is damaged at offset ", at, ": ",
                                  Describe(found, *reader));
    bool more = false;
    if (found == Found::kBadPayload) {
      damage.shards.push_back(reader->header().shard);
    } else {
      damage.all_shards = true;
    }
    if (found == Found::kBadPayload || found == Found::kBadHeader) {
      HOTBED_ASSIGN_OR_RETURN(more, reader->SkipDamage());
    }
    HOTBED_LOG(Error) << damage.message;
    log_.damage.push_back(std::move(damage));
    return more;
  }

  absl::StatusOr<std::optional<uint64_t>> BadSegmentHeader(const SegmentFile& file,
                                                           const std::string& why) {
    const bool unborn = file.sequence == log_.last_sequence && file.bytes < kSegmentHeaderBytes;
    if (unborn || IsLoose(file.sequence, 0)) {
      HOTBED_RETURN_IF_ERROR(Drop(file, why));
      return std::optional<uint64_t>(0);
    }
    ShardLog::Damage damage;
    damage.all_shards = true;
    damage.message = absl::StrCat("log segment ", file.path, " is damaged at offset 0: ", why);
    HOTBED_LOG(Error) << damage.message;
    log_.damage.push_back(std::move(damage));
    Segment segment;
    segment.sequence = file.sequence;
    segment.path = file.path;
    segment.bytes = file.bytes;
    segment.damaged = true;
    // It is unknown whose records are in it: no shard's entry prevents its deletion.
    segment.Add(ShardId(), ~Lsn{0});
    log_.chain.Push(std::move(segment));
    return std::optional<uint64_t>();
  }

  void ReportTorn(uint64_t bytes, std::string message) {
    HOTBED_LOG(Warning) << message;
    log_.torn_bytes += bytes;
    if (log_.torn_message.empty()) log_.torn_message = std::move(message);
  }

  absl::Status Cut(const SegmentFile& file, uint64_t offset, const std::string& why) {
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> out, files_->OpenAppend(file.path));
    HOTBED_RETURN_IF_ERROR(out->Truncate(offset));
    HOTBED_RETURN_IF_ERROR(out->Sync());
    ReportTorn(file.bytes - offset,
               absl::StrCat("cut the torn end of log segment ", file.path, ": ",
                            file.bytes - offset, " bytes from offset ", offset, ", ", why));
    return out->Close();
  }

  absl::Status Drop(const SegmentFile& file, const std::string& why) {
    HOTBED_RETURN_IF_ERROR(files_->Delete(file.path));
    ReportTorn(file.bytes, absl::StrCat("removed log segment ", file.path, " of ", file.bytes,
                                        " bytes: ", why));
    return absl::OkStatus();
  }

  // Newest first, so that a crash in between leaves no hole.
  absl::Status DropFrom(size_t index, const std::string& why) {
    for (size_t i = segments_.size(); i-- > index;) {
      HOTBED_RETURN_IF_ERROR(Drop(segments_[i], why));
    }
    return absl::OkStatus();
  }

  absl::Status SyncLooseEnd() {
    for (const Segment& segment : log_.chain.segments()) {
      if (segment.sequence < loose_from_.first) continue;
      HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files_->OpenAppend(segment.path));
      HOTBED_RETURN_IF_ERROR(file->Sync());
    }
    return files_->SyncDir(options_.dir);
  }

  // One shard's records so far; last 0: none.
  struct Tail {
    Lsn first = 0;
    Lsn last = 0;
    EpochRuns runs;
  };

  const ShardLogOptions& options_;
  FileSystem* files_;
  absl::flat_hash_map<ShardId, Tail> tails_;
  std::vector<SegmentFile> segments_;
  std::pair<uint64_t, uint64_t> loose_from_ = {0, 0};  // segment, offset
  RecoveredLog log_;
};

}  // namespace

absl::StatusOr<RecoveredLog> RecoverLog(const ShardLogOptions& options, FileSystem* files) {
  return Recovery(options, files).Run();
}

absl::Status ReplayChain(const SegmentChain& chain, FileSystem* files,
                         const ShardLog::Visitor& visitor) {
  for (const Segment& segment : chain.segments()) {
    SegmentReader reader(files, segment.path, segment.bytes);
    if (segment.damaged && !reader.ReadHeader().ok()) continue;
    while (true) {
      HOTBED_ASSIGN_OR_RETURN(const Found found, reader.Next());
      if (found == Found::kRecord) {
        RecordView record = reader.record();
        record.at = {segment.sequence, reader.offset()};
        HOTBED_RETURN_IF_ERROR(visitor(record));
        continue;
      }
      if (found != Found::kBadPayload && found != Found::kBadHeader) break;
      HOTBED_ASSIGN_OR_RETURN(const bool more, reader.SkipDamage());
      if (!more) break;
    }
  }
  return absl::OkStatus();
}

}  // namespace hotbed
