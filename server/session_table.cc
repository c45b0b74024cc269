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

void SessionTable::AppendTo(std::string* out) const {
  std::vector<std::pair<SessionId, Session>> sorted(sessions_.begin(), sessions_.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  AppendLittle<uint32_t>(static_cast<uint32_t>(sorted.size()), out);
  for (const auto& [id, session] : sorted) {
    AppendLittle<uint64_t>(id, out);
    AppendLittle<uint64_t>(session.incarnation, out);
    AppendLittle<uint64_t>(session.last_seq, out);
  }
}

absl::StatusOr<SessionTable> SessionTable::TakeFrom(ByteReader* in) {
  const uint32_t count = in->Take<uint32_t>();
  if (!in->ok() || in->left() / kSessionBytes < count) {
    return absl::DataLossError(absl::StrCat("session table: ", count, " sessions in ", in->left(),
                                            " bytes, ", kSessionBytes, " each"));
  }
  SessionTable table;
  table.sessions_.reserve(count);
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
