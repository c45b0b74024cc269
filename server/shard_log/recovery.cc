#include "server/shard_log/recovery.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "server/shard_log/epoch_runs.h"
#include "server/shard_log/segment_files.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/segment_reader.h"

namespace hotbed {
namespace {

using Found = SegmentReader::Found;

constexpr size_t kPartsNamed = 8;  // of a damaged group; all of them are refused

class Recovery {
 public:
  Recovery(const ShardLogOptions& options, FileSystem* files) : options_(options), files_(files) {}

  absl::StatusOr<RecoveredLog> Run() {
    HOTBED_RETURN_IF_ERROR(ListSegments());
    HOTBED_RETURN_IF_ERROR(TakeMarks());
    HOTBED_RETURN_IF_ERROR(DropUnborn());
    HOTBED_RETURN_IF_ERROR(FindLooseEnd());
    HOTBED_RETURN_IF_ERROR(ScanAll());
    HOTBED_RETURN_IF_ERROR(CheckEnd());
    HOTBED_RETURN_IF_ERROR(SyncLooseEnd());
    return std::move(log_);
  }

 private:
  absl::Status ListSegments() {
    HOTBED_ASSIGN_OR_RETURN(segments_, ListSegmentFiles(options_.dir, files_));
    if (!segments_.empty()) log_.last_sequence = segments_.back().sequence;
    return absl::OkStatus();
  }

  // Where the chain must begin, and where it must reach.
  absl::Status TakeMarks() {
    if (options_.marks == nullptr) return absl::OkStatus();
    written_ = options_.marks->Get(Marks::kLogWritten);
    must_ = options_.rebooted ? options_.marks->Get(Marks::kLogSynced) : written_;
    if (segments_.empty()) {
      if (must_.a == 0) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat(options_.dir,
                                              " holds no log segment, and the log reached ",
                                              MustText(), ": it is missing"));
    }
    const uint64_t oldest = options_.marks->Get(Marks::kLogOldest).a;
    DeleteBefore(oldest);
    if (oldest != 0 && oldest < segments_[0].sequence) {
      ReportHole(oldest, segments_[0].sequence - 1, oldest);
    }
    return absl::OkStatus();
  }

  // Segments that nobody needed any more: they were about to be deleted or written over, and may
  // have holes between them. If there are no others, the marks are not this log's.
  void DeleteBefore(uint64_t oldest) {
    if (segments_.back().sequence < oldest) return;
    while (segments_.front().sequence < oldest) {
      const absl::Status status = files_->Delete(segments_.front().path);
      if (!status.ok())
        HOTBED_LOG(Warning) << "the log leaves a file that it needs no more: " << status;
      segments_.erase(segments_.begin());
    }
  }

  // A kill left the newest file without a whole header: the segment before it is the last one.
  absl::Status DropUnborn() {
    if (segments_.empty()) return absl::OkStatus();
    const SegmentFile& file = segments_.back();
    if (file.bytes >= kSegmentHeaderBytes || MustBeThere(file.sequence, 0)) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(files_->Delete(file.path));
    segments_.pop_back();
    if (!segments_.empty()) log_.last_sequence = segments_.back().sequence;
    return absl::OkStatus();
  }

  std::string MustText() const {
    return absl::StrCat("offset ", must_.b, " of segment ", SegmentName(must_.a), " (",
                        options_.marks->path(), ")");
  }
  // Whether bytes at that position were written, and may not be lost.
  bool MustBeThere(uint64_t sequence, uint64_t offset) const {
    return std::make_pair(sequence, offset) < std::make_pair(must_.a, must_.b);
  }

  absl::Status ScanAll() {
    for (size_t i = 0; i < segments_.size(); ++i) {
      const SegmentFile& file = segments_[i];
      if (i > 0 && file.sequence != segments_[i - 1].sequence + 1) {
        const uint64_t first = segments_[i - 1].sequence + 1;
        if (IsLoose(first, 0)) return DropFrom(i, "the segment before it was lost unsynced");
        ReportHole(first, file.sequence - 1, first);
        before_ = std::nullopt;
      }
      HOTBED_ASSIGN_OR_RETURN(const Ends ends, Scan(file));
      if (ends == Ends::kBefore) {
        return DropFrom(i, "the end of the segment before it was lost unsynced");
      }
      if (ends == Ends::kInside) return DropFrom(i + 1, "it follows the cut");
    }
    return absl::OkStatus();
  }

  // False: the segment before lacks unsynced records at its end, so that the log ends there.
  bool FollowsTheOneBefore(const SegmentHeader& header, const SegmentFile& file) {
    if (!before_.has_value() || header.previous_bytes == 0) return true;
    const bool same_record = header.previous_crc == 0 || header.previous_crc == before_->last_crc;
    if (before_->bytes == header.previous_bytes && same_record) return true;
    if (before_->bytes < header.previous_bytes && IsLoose(before_->sequence, before_->bytes)) {
      return false;
    }
    ReportMissingEnd(*before_, header.previous_bytes, file.path);
    log_.chain.MarkNewestUnknown();
    return true;
  }

  void ReportMissingEnd(const Segment& segment, uint64_t bytes, const std::string& told_by) {
    ShardLog::Damage damage;
    damage.all_shards = true;
    damage.end = {segment.sequence + 1, 0};
    damage.message =
        segment.bytes < bytes
            ? absl::StrCat("log segment ", segment.path, " ends at offset ", segment.bytes,
                           ", and was written up to ", bytes, " (", told_by, "): whole records, ",
                           bytes - segment.bytes, " bytes, are missing at its end")
            : absl::StrCat("log segment ", segment.path,
                           " is another one than was written here: its records up to offset ",
                           bytes, " do not end as ", told_by, " says");
    HOTBED_LOG(Error) << damage.message;
    log_.damage.push_back(std::move(damage));
  }

  // After the last segment: whether the log reaches as far as the marks say.
  absl::Status CheckEnd() {
    if (log_.chain.empty()) return absl::OkStatus();
    const Segment& newest = log_.chain.newest();
    log_.end_bytes = newest.bytes;
    log_.end_crc = newest.last_crc;
    const std::pair<uint64_t, uint64_t> end = {newest.sequence, newest.bytes};
    if (newest.sequence < must_.a) {
      ReportHole(newest.sequence + 1, must_.a, must_.a);
    } else if (newest.sequence == must_.a && !must_seen_) {
      if (!newest.damaged) ReportMissingEnd(newest, must_.b, options_.marks->path());
      log_.chain.MarkNewestUnknown();
    } else {
      if (options_.rebooted && log_.torn_message.empty() &&
          end < std::make_pair(written_.a, written_.b)) {
        ReportTorn(written_.a == newest.sequence ? written_.b - newest.bytes : 0,
                   absl::StrCat("the log in ", options_.dir, " ends at offset ", newest.bytes,
                                " of ", SegmentName(newest.sequence), "; it was written up to ",
                                "offset ", written_.b, " of ", SegmentName(written_.a),
                                ", and what lay between was not synced before the machine went "
                                "down"));
      }
      return absl::OkStatus();
    }
    log_.last_sequence = std::max(log_.last_sequence, must_.a);
    log_.end_bytes = must_.b;
    log_.end_crc = must_.c;
    return absl::OkStatus();
  }

  // Headers and records state how much was synced when they were written; the newest one counts.
  absl::Status FindLooseEnd() {
    HOTBED_RETURN_IF_ERROR(FindStatedEnd());
    if (options_.rebooted) loose_from_ = std::max(loose_from_, std::make_pair(must_.a, must_.b));
    return absl::OkStatus();
  }
  absl::Status FindStatedEnd() {
    loose_from_ = {log_.last_sequence, 0};
    for (size_t i = segments_.size(); i-- > 0;) {
      SegmentReader reader(files_, segments_[i].path, segments_[i].bytes);
      const absl::StatusOr<SegmentHeader> header = reader.ReadHeader();
      if (!header.ok() && absl::IsFailedPrecondition(header.status())) return header.status();
      // A reused file may have lost its new header.
      if (!header.ok() || header->sequence != segments_[i].sequence) continue;
      HOTBED_ASSIGN_OR_RETURN(const uint64_t synced, SyncedBytes(&reader));
      if (synced > 0) {
        loose_from_ = {segments_[i].sequence, synced};
        return absl::OkStatus();
      }
      if (header->emptied()) {
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
        synced = std::max(synced, reader->origin().synced_bytes);
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

  // `remembered`: the one of them that stands for all in the chain.
  void ReportHole(uint64_t first, uint64_t last, uint64_t remembered) {
    ShardLog::Damage damage;
    damage.all_shards = true;
    damage.end = {last + 1, 0};
    damage.message = absl::StrCat(
        first == last ? "log segment " : absl::StrCat("log segments ", SegmentName(first), " to "),
        SegmentName(last), first == last ? " is" : " are", " missing in ", options_.dir,
        options_.marks == nullptr ? "" : absl::StrCat(" (", options_.marks->path(), ")"));
    HOTBED_LOG(Error) << damage.message;
    log_.damage.push_back(std::move(damage));
    PushUnknown(
        {.sequence = remembered, .path = absl::StrCat(options_.dir, "/", SegmentName(remembered))});
  }

  // A segment that is missing or cannot be read: it is unknown whose records are in it.
  void PushUnknown(Segment segment) {
    log_.chain.Push(std::move(segment));
    log_.chain.MarkNewestUnknown();
  }

  // Whether the log ends with a segment.
  enum class Ends {
    kLater,
    kInside,  // the segment was cut
    kBefore,  // it does not belong to the log any more
  };
  // Reads one segment to its end.
  absl::StatusOr<Ends> Scan(const SegmentFile& file) {
    Segment segment;
    segment.sequence = file.sequence;
    segment.path = file.path;
    segment.bytes = file.bytes;
    SegmentReader reader(files_, file.path, file.bytes);
    const absl::StatusOr<SegmentHeader> header = reader.ReadHeader();
    if (header.ok()) segment.version = header->version;
    if (!header.ok() || header->sequence != file.sequence) {
      if (header.ok() || absl::IsDataLoss(header.status())) {
        return BadSegmentHeader(
            file, header.ok()
                      ? absl::StrCat(file.path, " says that it is segment ", header->sequence)
                      : std::string(header.status().message()));
      }
      return header.status();
    }
    if (!FollowsTheOneBefore(*header, file)) return Ends::kBefore;
    uint64_t whole_end = kSegmentHeaderBytes;
    while (true) {
      HOTBED_ASSIGN_OR_RETURN(const Found found, reader.Next());
      if (!reader.is_later_part()) NoteEnd(file.sequence, reader.begin(), segment.last_crc);
      if (found == Found::kEnd) break;
      if (found == Found::kRecord) {
        HOTBED_RETURN_IF_ERROR(CheckOrigin(file, reader));
        segment.last_crc = reader.header_crc();
        whole_end = reader.next_offset();
        segment.Add(reader.record().header.shard, reader.record().header.lsn);
        NoteRecord(reader.record().header, {file.sequence, reader.offset()});
        continue;
      }
      HOTBED_ASSIGN_OR_RETURN(const bool torn, IsTorn(file, found, reader));
      if (torn) {
        HOTBED_RETURN_IF_ERROR(Cut(file, found, reader));
        segment.bytes = reader.offset();
        log_.chain.Push(std::move(segment));
        return Ends::kInside;
      }
      segment.damaged = true;
      HOTBED_ASSIGN_OR_RETURN(const bool more, ReportDamage(file, found, &reader));
      if (!more) break;
    }
    // Behind damage, the bytes of an older segment must not count as this one's.
    if (segment.damaged && file.may_have_old_bytes)
      segment.bytes = std::max(whole_end, must_.a == file.sequence ? must_.b : 0);
    before_ = segment.damaged || header->emptied() ? std::nullopt : std::optional(segment);
    // CheckEnd() looks at the newest segment. An older one must have the marked end too: that of a
    // copy of the folder that went on by itself does not.
    const bool another = file.sequence == must_.a && file.sequence < log_.last_sequence &&
                         !must_seen_ && before_.has_value();
    if (another) ReportMissingEnd(segment, must_.b, options_.marks->path());
    log_.chain.Push(std::move(segment));
    if (another) log_.chain.MarkNewestUnknown();
    return Ends::kLater;
  }

  // A copy of this directory has the same log up to the mark, and may have gone on by itself.
  absl::Status CheckOrigin(const SegmentFile& file, const SegmentReader& reader) const {
    if (options_.marks == nullptr || MustBeThere(file.sequence, reader.offset())) {
      return absl::OkStatus();
    }
    const Mark runs = options_.marks->Get(Marks::kLogRuns);
    const uint64_t run = reader.origin().run;
    if (runs.a == 0 || run == runs.a || run == runs.b) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "log segment ", file.path, " is from a copy of this directory: the record at offset ",
        reader.offset(), " was written by start ", absl::Hex(run),
        ", and the last to write here was ", absl::Hex(runs.a), " (", options_.marks->path(), ")"));
  }

  // Records are whole up to here, and `crc` is the last one's.
  void NoteEnd(uint64_t sequence, uint64_t offset, uint32_t crc) {
    if (sequence != must_.a || offset != must_.b) return;
    must_seen_ = must_.c == 0 || crc == must_.c;
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
    if (MustBeThere(file.sequence, reader.offset())) return false;
    // Nothing was acknowledged beyond the mark, and one write at a time was on its way. A record
    // behind it says that the mark is older than the log.
    if (file.may_have_old_bytes && options_.marks != nullptr && !options_.rebooted) {
      HOTBED_ASSIGN_OR_RETURN(const uint64_t end, reader.EndBehindDamage());
      return end == 0;
    }
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
        return DescribeParts(reader.bad_parts());
      default:
        return "the record header fails its checksum";
    }
  }

  static std::string DescribeParts(absl::Span<const RecordHeader> parts) {
    if (parts.empty()) return "the table of the record group fails its checksum";
    std::string names;
    for (const RecordHeader& part : parts.first(std::min(parts.size(), kPartsNamed))) {
      absl::StrAppend(&names, names.empty() ? "" : "; ", part.shard.ToString(), ", LSN ", part.lsn);
    }
    if (parts.size() > kPartsNamed) {
      absl::StrAppend(&names, "; and ", parts.size() - kPartsNamed, " more");
    }
    return absl::StrCat("the payload fails its checksum (", names, ")");
  }

  // Records the damage and moves past it; false: nothing follows in this segment.
  absl::StatusOr<bool> ReportDamage(const SegmentFile& file, Found found, SegmentReader* reader) {
    const uint64_t at = reader->offset();
    ShardLog::Damage damage;
    damage.message = absl::StrCat("log segment ", file.path, " is damaged at offset ", at, ": ",
                                  Describe(found, *reader));
    bool more = false;
    for (const RecordHeader& part : reader->bad_parts()) damage.shards.push_back(part.shard);
    damage.all_shards = damage.shards.empty();
    if (found == Found::kBadPayload || found == Found::kBadHeader) {
      HOTBED_ASSIGN_OR_RETURN(more, reader->SkipDamage());
    }
    damage.end = {file.sequence, more ? reader->next_offset() : file.bytes};
    HOTBED_LOG(Error) << damage.message;
    log_.damage.push_back(std::move(damage));
    return more;
  }

  absl::StatusOr<Ends> BadSegmentHeader(const SegmentFile& file, const std::string& why) {
    if (IsLoose(file.sequence, 0)) {
      HOTBED_RETURN_IF_ERROR(Drop(file, why));
      return Ends::kInside;
    }
    ShardLog::Damage damage;
    damage.all_shards = true;
    damage.end = {file.sequence + 1, 0};
    damage.message = absl::StrCat("log segment ", file.path, " is damaged at offset 0: ", why);
    HOTBED_LOG(Error) << damage.message;
    log_.damage.push_back(std::move(damage));
    before_ = std::nullopt;
    PushUnknown({.sequence = file.sequence, .path = file.path, .bytes = file.bytes});
    return Ends::kLater;
  }

  void ReportTorn(uint64_t bytes, std::string message) {
    HOTBED_LOG(Warning) << message;
    log_.torn_bytes += bytes;
    if (log_.torn_message.empty()) log_.torn_message = std::move(message);
  }

  absl::Status Cut(const SegmentFile& file, Found found, SegmentReader& reader) {
    const uint64_t offset = reader.offset();
    HOTBED_ASSIGN_OR_RETURN(const uint64_t lost, LostBehind(file, found, reader));
    HOTBED_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> out, files_->OpenAppend(file.path));
    HOTBED_RETURN_IF_ERROR(out->Truncate(offset));
    HOTBED_RETURN_IF_ERROR(out->Sync());
    if (lost > 0)
      ReportTorn(lost, absl::StrCat("cut the torn end of log segment ", file.path, ": ", lost,
                                    " bytes from offset ", offset, ", ", Describe(found, reader)));
    return out->Close();
  }

  // Bytes of this segment behind the end of its whole records. Those of an older one are no loss.
  absl::StatusOr<uint64_t> LostBehind(const SegmentFile& file, Found found, SegmentReader& reader) {
    const uint64_t offset = reader.offset();
    if (!file.may_have_old_bytes) return file.bytes - offset;
    HOTBED_ASSIGN_OR_RETURN(uint64_t end, reader.EndBehindDamage());
    if (found == Found::kBadPayload) end = std::max(end, reader.next_offset());
    const bool has_header = file.bytes - offset >= kRecordHeaderBytes;
    if (found == Found::kCutShort && has_header) end = file.bytes;
    if (end == 0) return 0;  // CheckEnd() asks the marks
    if (written_.a == file.sequence) end = std::max(end, written_.b);
    return end - offset;
  }

  absl::Status Drop(const SegmentFile& file, const std::string& why) {
    uint64_t bytes = file.bytes;
    if (file.may_have_old_bytes) {
      SegmentReader reader(files_, file.path, file.bytes);
      HOTBED_ASSIGN_OR_RETURN(bytes, reader.EndBehind(kSegmentHeaderBytes));
    }
    HOTBED_RETURN_IF_ERROR(files_->Delete(file.path));
    ReportTorn(bytes, absl::StrCat("removed log segment ", file.path, " with ", bytes,
                                   " bytes of records: ", why));
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
      if (segment.sequence < loose_from_.first || !files_->Exists(segment.path)) continue;
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
  Mark written_;                                       // where the log ended
  Mark must_;  // up to where it must be there; as written_, or as synced
  bool must_seen_ = false;
  std::optional<Segment> before_;  // the last one scanned, if nothing is wrong with it
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
    const absl::StatusOr<SegmentHeader> header = reader.ReadHeader();
    if (!header.ok() || header->sequence != segment.sequence) {
      if (segment.damaged) continue;
      return header.ok() ? absl::DataLossError(absl::StrCat(
                               segment.path, " says that it is segment ", header->sequence))
                         : header.status();
    }
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
