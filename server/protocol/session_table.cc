#include "server/protocol/session_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint32_t kMetaVersion = 5;
constexpr uint32_t kMetaVersionOldest = 1;   // without `forgotten`
constexpr uint32_t kMetaVersionStaged = 3;   // the first with committed_step and `staged`
constexpr uint32_t kMetaVersionHistory = 4;  // the first with `history`
constexpr uint32_t kMetaVersionMarks = 5;    // the first with marks and touch_filter
constexpr size_t kSessionBytes = 24;
constexpr size_t kStagedBytesMin = 28;

absl::Status TakeStaged(ByteReader* in, ShardMeta* meta) {
  meta->committed_step = in->Take<uint64_t>();
  const uint32_t count = in->Take<uint32_t>();
  if (!in->ok() || in->left() / kStagedBytesMin < count) {
    return absl::DataLossError(
        absl::StrCat("shard meta: ", count, " staged pushes in ", in->left(), " bytes"));
  }
  for (uint32_t i = 0; i < count; ++i) {
    StagedPush& staged = meta->staged.emplace_back();
    staged.lsn = in->Take<uint64_t>();
    staged.session = in->Take<uint64_t>();
    staged.seq = in->Take<uint64_t>();
    staged.payload = in->TakeString();
  }
  return absl::OkStatus();
}

absl::Status TakeHistory(ByteReader* in, ShardMeta* meta) {
  const uint32_t count = in->Take<uint32_t>();
  if (!in->ok() || count == 0 || count > kHistoryRunsMax) {
    return absl::DataLossError(absl::StrCat("shard meta: a history of ", count, " epochs"));
  }
  for (uint32_t i = 0; i < count; ++i) {
    const Lsn first = in->Take<uint64_t>();
    const Epoch epoch = in->Take<uint64_t>();
    if (i == 0) meta->history.Reset(first, epoch);
    if (i > 0) meta->history.AddRun({first, epoch});
  }
  return absl::OkStatus();
}

}  // namespace

void SessionTable::Set(SessionId id, const Session& session) {
  const uint32_t number = NumberOf(id);
  if (number != kNone) {
    entries_[number].session = session;
    return;
  }
  if (entries_.size() == entries_.capacity()) {
    ReserveEntries(entries_.size() + std::max<size_t>(1, entries_.size() / 4));
  }
  entries_.push_back({id, session});
  if (entries_.size() <= kScannedMax) return;
  if (entries_.size() * 4 > places_.size() * 3) return MakePlaces();
  places_[PlaceOf(id)] = static_cast<uint32_t>(entries_.size() - 1);
}

void SessionTable::Erase(SessionId id) {
  const uint32_t number = NumberOf(id);
  if (number == kNone) return;
  if (!places_.empty()) {
    FreePlace(PlaceOf(id));
    // The last entry will take the place of this one.
    if (number + 1 < entries_.size()) places_[PlaceOf(entries_.back().id)] = number;
  }
  entries_[number] = entries_.back();
  entries_.pop_back();
  if (entries_.capacity() * 3 > entries_.size() * 4) {
    ReserveEntries(entries_.size() + entries_.size() / 8);
  }
  if (entries_.size() <= kScannedMax) {
    places_ = std::vector<uint32_t>();
  } else if (places_.size() > entries_.size() * 4) {
    MakePlaces();
  }
}

// Entries behind the place that a search passes over it to find move up, or they would be lost.
void SessionTable::FreePlace(size_t place) {
  const size_t mask = places_.size() - 1;
  for (size_t next = (place + 1) & mask; places_[next] != kNone; next = (next + 1) & mask) {
    const size_t home = HomeOf(entries_[places_[next]].id);
    if (((next - home) & mask) < ((next - place) & mask)) continue;  // its home is behind `place`
    places_[place] = places_[next];
    place = next;
  }
  places_[place] = kNone;
}

// Leaves room for exactly `count` entries, which is at least size().
void SessionTable::ReserveEntries(size_t count) {
  std::vector<Entry> entries;
  entries.reserve(count);
  entries.assign(entries_.begin(), entries_.end());
  entries_ = std::move(entries);
}

// Builds places_ for the present entries, at most half full.
void SessionTable::MakePlaces() {
  size_t count = 2 * kScannedMax;
  while (count < entries_.size() * 2) count *= 2;
  places_ = std::vector<uint32_t>(count, kNone);
  for (uint32_t i = 0; i < entries_.size(); ++i) places_[PlaceOf(entries_[i].id)] = i;
}

bool operator==(const SessionTable& a, const SessionTable& b) {
  return a.size() == b.size() &&
         std::all_of(a.entries_.begin(), a.entries_.end(), [&b](const SessionTable::Entry& entry) {
           const Session* const found = b.Find(entry.id);
           return found != nullptr && *found == entry.session;
         });
}

void SessionTable::AppendTo(std::string* out) const {
  std::vector<Entry> sorted(entries_.begin(), entries_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
  AppendLittle<uint32_t>(static_cast<uint32_t>(sorted.size()), out);
  for (const Entry& entry : sorted) {
    AppendLittle<uint64_t>(entry.id, out);
    AppendLittle<uint64_t>(entry.session.incarnation, out);
    AppendLittle<uint64_t>(entry.session.last_seq, out);
  }
}

absl::StatusOr<SessionTable> SessionTable::TakeFrom(ByteReader* in) {
  const uint32_t count = in->Take<uint32_t>();
  if (!in->ok() || in->left() / kSessionBytes < count) {
    return absl::DataLossError(absl::StrCat("session table: ", count, " sessions in ", in->left(),
                                            " bytes, ", kSessionBytes, " each"));
  }
  SessionTable table;
  table.ReserveEntries(count);
  for (uint32_t i = 0; i < count; ++i) {
    const SessionId id = in->Take<uint64_t>();
    Session session;
    session.incarnation = in->Take<uint64_t>();
    session.last_seq = in->Take<uint64_t>();
    table.Set(id, session);
  }
  return table;
}

std::string ShardMeta::Serialize() const {
  std::string out;
  out.reserve(1024 + sessions.size() * kSessionBytes + touch_filter.size());
  AppendLittle<uint32_t>(kMetaVersion, &out);
  AppendLittle<uint64_t>(applied_lsn, &out);
  AppendLittle<uint64_t>(applied_epoch, &out);
  AppendLittle<uint64_t>(forgotten, &out);
  sessions.AppendTo(&out);
  AppendLittle<uint64_t>(committed_step, &out);
  AppendLittle<uint32_t>(static_cast<uint32_t>(staged.size()), &out);
  for (const StagedPush& push : staged) {
    AppendLittle<uint64_t>(push.lsn, &out);
    AppendLittle<uint64_t>(push.session, &out);
    AppendLittle<uint64_t>(push.seq, &out);
    AppendString(push.payload, &out);
  }
  AppendLittle<uint32_t>(static_cast<uint32_t>(history.size()), &out);
  for (const EpochRuns::Run& run : history.runs()) {
    AppendLittle<uint64_t>(run.first, &out);
    AppendLittle<uint64_t>(run.epoch, &out);
  }
  AppendLittle<uint64_t>(marks, &out);
  AppendLittle<uint64_t>(marks_gone, &out);
  AppendString(touch_filter, &out);
  return out;
}

absl::StatusOr<ShardMeta> ShardMeta::Parse(absl::string_view bytes) {
  ShardMeta meta;
  if (bytes.empty()) return meta;
  ByteReader reader(bytes);
  const uint32_t version = reader.Take<uint32_t>();
  if (version < kMetaVersionOldest || version > kMetaVersion) {
    return absl::DataLossError(absl::StrCat("shard meta: version ", version,
                                            ", this program reads ", kMetaVersionOldest, " to ",
                                            kMetaVersion));
  }
  meta.applied_lsn = reader.Take<uint64_t>();
  meta.applied_epoch = reader.Take<uint64_t>();
  if (version > 1) meta.forgotten = reader.Take<uint64_t>();
  HOTBED_ASSIGN_OR_RETURN(meta.sessions, SessionTable::TakeFrom(&reader));
  if (version >= kMetaVersionStaged) HOTBED_RETURN_IF_ERROR(TakeStaged(&reader, &meta));
  meta.history.Reset(meta.applied_lsn, meta.applied_epoch);
  if (version >= kMetaVersionHistory) HOTBED_RETURN_IF_ERROR(TakeHistory(&reader, &meta));
  if (version >= kMetaVersionMarks) {
    meta.marks = reader.Take<uint64_t>();
    meta.marks_gone = reader.Take<uint64_t>();
    meta.touch_filter = reader.TakeString();
  }
  if (!reader.ok() || reader.left() != 0) {
    return absl::DataLossError(absl::StrCat("shard meta: ", bytes.size(), " bytes do not parse"));
  }
  return meta;
}

}  // namespace hotbed
