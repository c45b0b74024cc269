#include "server/session_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint32_t kMetaVersion = 3;
constexpr uint32_t kMetaVersionOldest = 1;  // without `forgotten`
constexpr uint32_t kMetaVersionStaged = 3;  // the first with committed_step and `staged`
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

}  // namespace

void SessionTable::Set(SessionId id, const Session& session) {
  if (!entries_.empty()) {
    Entry& entry = entries_[PlaceOf(id)];
    if (!entry.free()) {
      entry.session = session;
      return;
    }
  }
  if ((size_ + 1) * 3 > entries_.size() * 2) MakeRoom(size_ + 1);
  entries_[PlaceOf(id)] = {id, session};
  ++size_;
}

// What stands behind it and would be looked for from here on moves up, or it would not be found.
void SessionTable::Erase(SessionId id) {
  if (entries_.empty()) return;
  size_t place = PlaceOf(id);
  if (entries_[place].free()) return;
  for (size_t next = Next(place); !entries_[next].free(); next = Next(next)) {
    const size_t home = HomeOf(entries_[next].id, entries_.size());
    if (Steps(home, next) < Steps(place, next)) continue;  // its home is behind `place`
    entries_[place] = entries_[next];
    place = next;
  }
  entries_[place] = Entry();
  --size_;
  if (entries_.size() > size_ * 2) MakeRoom(size_);
}

// Five ninths full: neither the next session nor the next one to go moves all again.
void SessionTable::MakeRoom(size_t count) {
  std::vector<Entry> old(count == 0 ? 0 : std::max(count + 1, count * 9 / 5));
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (!entry.free()) entries_[PlaceOf(entry.id)] = entry;
  }
}

bool operator==(const SessionTable& a, const SessionTable& b) {
  return a.size() == b.size() &&
         std::all_of(a.entries_.begin(), a.entries_.end(), [&b](const SessionTable::Entry& entry) {
           const Session* const found = entry.free() ? nullptr : b.Find(entry.id);
           return entry.free() || (found != nullptr && *found == entry.session);
         });
}

void SessionTable::AppendTo(std::string* out) const {
  std::vector<const Entry*> sorted;
  sorted.reserve(size_);
  for (const Entry& entry : entries_) {
    if (!entry.free()) sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Entry* a, const Entry* b) { return a->id < b->id; });
  AppendLittle<uint32_t>(static_cast<uint32_t>(sorted.size()), out);
  for (const Entry* entry : sorted) {
    AppendLittle<uint64_t>(entry->id, out);
    AppendLittle<uint64_t>(entry->session.incarnation, out);
    AppendLittle<uint64_t>(entry->session.last_seq, out);
  }
}

absl::StatusOr<SessionTable> SessionTable::TakeFrom(ByteReader* in) {
  const uint32_t count = in->Take<uint32_t>();
  if (!in->ok() || in->left() / kSessionBytes < count) {
    return absl::DataLossError(absl::StrCat("session table: ", count, " sessions in ", in->left(),
                                            " bytes, ", kSessionBytes, " each"));
  }
  SessionTable table;
  table.MakeRoom(count);
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
  out.reserve(32 + sessions.size() * kSessionBytes);
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
  if (!reader.ok() || reader.left() != 0) {
    return absl::DataLossError(absl::StrCat("shard meta: ", bytes.size(), " bytes do not parse"));
  }
  return meta;
}

}  // namespace hotbed
