#include "serving/rows/disk_rows.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/metrics.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// Keys: 'r' and the id, big-endian, so that they are in the order of the ids; names, of which the
// position's is behind them, so that it can end a file of rows. A row's value is its age, and its
// bytes.
constexpr char kKindKey[] = "mkind";
constexpr char kPositionKey[] = "sposition";
constexpr char kAgeKey[] = "mage";
constexpr size_t kRowKeyBytes = 1 + sizeof(uint64_t);
constexpr size_t kAgeBytes = sizeof(uint32_t);
constexpr uint64_t kBlockCacheBytes = 8ull << 20;
constexpr uint64_t kMemtableBytes = 16ull << 20;
constexpr size_t kDeletesPerBatch = 4096;
constexpr size_t kReadMax = 4096;
constexpr size_t kRowsPerReader = 64;    // of memory: its slots are not used again meanwhile
constexpr uint64_t kRowsPerLook = 1024;  // rows between two looks whether a pass is to stop

struct DiskCounters {
  static DiskCounters& Get() {
    static auto* const counters = new DiskCounters;
    return *counters;
  }
  Counter rows{"hotbed_serving_disk_rows_read_total",
               "Rows that lookups found on the disk of the serving server, not in memory."};
};

std::string KeyOfRow(uint64_t id) {
  std::string key(kRowKeyBytes, 'r');
  for (size_t i = 0; i < sizeof(id); ++i) key[1 + i] = static_cast<char>(id >> (56 - 8 * i));
  return key;
}

uint64_t IdOf(absl::string_view key) {
  uint64_t id = 0;
  for (size_t i = 1; i < kRowKeyBytes; ++i) id = id << 8 | static_cast<uint8_t>(key[i]);
  return id;
}

uint32_t AgeOf(absl::string_view value) {
  uint32_t age = 0;
  std::memcpy(&age, value.data(), sizeof(age));
  return age;
}

absl::string_view AgeBytes(const uint32_t& age) {
  return {reinterpret_cast<const char*>(&age), sizeof(age)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskRows>> DiskRows::Open(const std::string& dir, uint32_t row_bytes,
                                                         const std::string& kind,
                                                         const std::function<bool()>& stops) {
  DiskCounters::Get();
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("the folder ", dir, " cannot be made: ", error.message()));
  }
  KvOptions options;
  options.dir = dir;
  options.wal = false;
  options.block_cache_bytes = kBlockCacheBytes;
  options.memtable_bytes = kMemtableBytes;
  // What lies there can be read from the table again.
  for (const bool again : {false, true}) {
    if (again) HOTBED_RETURN_IF_ERROR(KvStore::Destroy(dir));
    absl::StatusOr<std::unique_ptr<KvStore>> kv = KvStore::Open(options);
    if (!kv.ok() && !again) continue;
    HOTBED_RETURN_IF_ERROR(kv.status());
    std::unique_ptr<DiskRows> rows(new DiskRows(dir, *std::move(kv), row_bytes, stops));
    bool other = false;
    const absl::Status loaded = rows->Load(kind, &other);
    if (absl::IsCancelled(loaded)) return loaded;
    if ((!loaded.ok() || other) && !again) continue;
    HOTBED_RETURN_IF_ERROR(loaded);
    return rows;
  }
  return absl::InternalError(absl::StrCat("an empty store in ", dir, " has rows"));
}

DiskRows::~DiskRows() {
  if (!delete_at_end_) {
    (void)Flush();
    return;
  }
  batch_.reset();
  kv_.reset();
  (void)KvStore::Destroy(dir_);
}

absl::Status DiskRows::Load(const std::string& kind, bool* other) {
  const auto get = [this](const char* key, std::string* value) {
    absl::StatusOr<std::string> found = kv_->Get(key);
    if (absl::IsNotFound(found.status())) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(found.status());
    *value = *std::move(found);
    return absl::OkStatus();
  };
  std::string kind_there, age;
  HOTBED_RETURN_IF_ERROR(get(kKindKey, &kind_there));
  HOTBED_RETURN_IF_ERROR(get(kPositionKey, &position_));
  HOTBED_RETURN_IF_ERROR(get(kAgeKey, &age));
  if (age.size() == kAgeBytes) age_ = AgeOf(age);
  bool broken = false;
  HOTBED_RETURN_IF_ERROR(
      ScanUnlessStopped("r", [&](absl::string_view key, absl::string_view value) {
        broken |= key.size() != kRowKeyBytes || value.size() != kAgeBytes + row_bytes_;
        rows_.fetch_add(1, std::memory_order_relaxed);
        return !broken;
      }));
  *other = broken || (kind_there != kind && (!kind_there.empty() || rows() > 0));
  if (*other || !kind_there.empty()) return absl::OkStatus();
  batch_->Put(kKindKey, kind);
  const absl::Status written = kv_->Write(batch_.get());
  batch_->Clear();
  return written;
}

void DiskRows::Put(uint64_t id, const uint8_t* row, bool known) {
  std::string value(kAgeBytes + row_bytes_, '\0');
  std::memcpy(value.data(), &age_, kAgeBytes);
  std::memcpy(value.data() + kAgeBytes, row, row_bytes_);
  batch_->Put(KeyOfRow(id), value);
  if (known) return;
  changed_.push_back(id);
  put_.push_back(true);
}

void DiskRows::Delete(uint64_t id) {
  batch_->Delete(KeyOfRow(id));
  changed_.push_back(id);
  put_.push_back(false);
}

absl::Status DiskRows::Commit(const std::string& position) {
  // An id that comes twice ends as it came last.
  absl::flat_hash_map<uint64_t, bool> there;
  absl::Status status =
      Find(changed_, [&](size_t, uint64_t id, const uint8_t*) { there[id] = true; });
  int64_t more = 0;
  for (size_t i = 0; i < changed_.size(); ++i) {
    bool& is_there = there[changed_[i]];
    more += static_cast<int64_t>(put_[i]) - static_cast<int64_t>(is_there);
    is_there = put_[i];
  }
  batch_->Put(kPositionKey, position);
  if (status.ok()) status = Note(kv_->Write(batch_.get()));
  batch_->Clear();
  changed_.clear();
  put_.clear();
  HOTBED_RETURN_IF_ERROR(status);
  rows_.fetch_add(static_cast<uint64_t>(more), std::memory_order_relaxed);
  position_ = position;
  flushed_ = false;
  return absl::OkStatus();
}

absl::Status DiskRows::Flush() {
  if (flushed_) return absl::OkStatus();
  HOTBED_RETURN_IF_ERROR(Note(kv_->Flush()));
  flushed_ = true;
  return absl::OkStatus();
}

absl::Status DiskRows::WriteFile(absl::Span<const uint64_t> ids, const ServedRows& memory,
                                 absl::FunctionRef<std::string()> position) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<KvFile> file, kv_->NewFile());
  std::vector<std::string> values(kRowsPerReader);
  for (size_t first = 0; first < ids.size(); first += kRowsPerReader) {
    const absl::Span<const uint64_t> some = ids.subspan(first, kRowsPerReader);
    {
      // The file may wait for the disk; a reader must not.
      const ServedRows::Reader reader(memory);
      for (const uint64_t id : some) reader.Prefetch(id);
      for (size_t i = 0; i < some.size(); ++i) {
        values[i].clear();
        const uint8_t* const row = reader.Find(some[i]);
        if (row == nullptr) continue;
        absl::StrAppend(&values[i], AgeBytes(age_),
                        absl::string_view(reinterpret_cast<const char*>(row), row_bytes_));
      }
    }
    for (size_t i = 0; i < some.size(); ++i) {
      const std::string key = KeyOfRow(some[i]);
      HOTBED_RETURN_IF_ERROR(values[i].empty() ? file->Delete(key) : file->Add(key, values[i]));
    }
  }
  const uint64_t rows_then = memory.rows();
  const std::string then = position();
  if (then.empty()) return absl::AbortedError("the rows have no position");
  HOTBED_RETURN_IF_ERROR(file->Add(kPositionKey, then));
  HOTBED_RETURN_IF_ERROR(Note(file->Ingest()));
  position_ = then;
  rows_.store(rows_then, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> DiskRows::BeginAge() {
  const uint32_t next = age_ + 1;
  batch_->Put(kAgeKey, AgeBytes(next));
  HOTBED_RETURN_IF_ERROR(Commit(position_));
  age_ = next;
  return age_;
}

absl::StatusOr<uint64_t> DiskRows::DeleteOlder(absl::FunctionRef<uint32_t(uint64_t id)> least) {
  uint64_t deleted = 0;
  std::string first = "r";
  for (bool ended = false; !ended;) {
    size_t in_batch = 0;
    ended = true;
    HOTBED_RETURN_IF_ERROR(
        ScanUnlessStopped(first, [&](absl::string_view key, absl::string_view value) {
          if (AgeOf(value) >= least(IdOf(key))) return true;
          Delete(IdOf(key));
          if (++in_batch < kDeletesPerBatch) return true;
          first = std::string(key);
          ended = false;
          return false;
        }));
    deleted += in_batch;
    HOTBED_RETURN_IF_ERROR(Commit(position_));
  }
  return deleted;
}

absl::Status DiskRows::Find(absl::Span<const uint64_t> ids, const Visit& visit) const {
  std::vector<size_t> order(ids.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a] < ids[b]; });
  std::vector<std::string> keys;
  keys.reserve(ids.size());
  for (const size_t i : order) keys.push_back(KeyOfRow(ids[i]));
  const std::vector<absl::string_view> views(keys.begin(), keys.end());
  absl::Status broken;
  const absl::Status read = kv_->MultiGet(views, [&](size_t i, absl::string_view value) {
    if (value.size() != kAgeBytes + row_bytes_) {
      broken =
          absl::DataLossError(absl::StrCat("row ", ids[order[i]], " on disk has ", value.size(),
                                           " bytes, not ", kAgeBytes + row_bytes_));
      return;
    }
    visit(order[i], ids[order[i]], reinterpret_cast<const uint8_t*>(value.data()) + kAgeBytes);
  });
  HOTBED_RETURN_IF_ERROR(Note(read));
  return Note(broken);
}

absl::Status DiskRows::Read(absl::Span<const uint64_t> ids, const Visit& visit) const {
  std::vector<uint64_t> found;
  HOTBED_RETURN_IF_ERROR(Find(ids, [&](size_t at, uint64_t id, const uint8_t* row) {
    found.push_back(id);
    visit(at, id, row);
  }));
  DiskCounters::Get().rows.Add(found.size());
  absl::MutexLock lock(&read_mu_);
  for (const uint64_t id : found) {
    if (read_.size() < kReadMax) read_.push_back(id);
  }
  return absl::OkStatus();
}

std::vector<uint64_t> DiskRows::TakeRead() {
  std::vector<uint64_t> read;
  absl::MutexLock lock(&read_mu_);
  read.swap(read_);
  return read;
}

absl::Status DiskRows::Scan(
    const std::function<bool(uint64_t id, const uint8_t* row)>& visit) const {
  return Note(kv_->Scan("r", "s", [&](absl::string_view key, absl::string_view value) {
    return visit(IdOf(key), reinterpret_cast<const uint8_t*>(value.data()) + kAgeBytes);
  }));
}

absl::Status DiskRows::ScanUnlessStopped(
    const std::string& first,
    absl::FunctionRef<bool(absl::string_view key, absl::string_view value)> visit) const {
  uint64_t seen = 0;
  bool stopped = false;
  HOTBED_RETURN_IF_ERROR(
      Note(kv_->Scan(first, "s", [&](absl::string_view key, absl::string_view value) {
        stopped = ++seen % kRowsPerLook == 0 && stops_ && stops_();
        return !stopped && visit(key, value);
      })));
  return stopped ? absl::CancelledError("the copy ends") : absl::OkStatus();
}

}  // namespace hotbed
