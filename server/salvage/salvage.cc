#include "server/salvage/salvage.h"

#include <sys/uio.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/files/byte_order.h"
#include "common/files/file_system.h"
#include "common/files/kept_file.h"
#include "common/files/marks.h"
#include "common/status_macros.h"
#include "kv/kv_store.h"
#include "row_math/half.h"
#include "row_math/position.h"
#include "server/host/catalog_file.h"
#include "server/shard_log/identity_file.h"
#include "server/shard_log/promise_file.h"
#include "server/shard_log/segment_files.h"
#include "server/shard_log/segment_reader.h"
#include "server/tiers/spill/spill_record.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {
namespace {

constexpr size_t kWriteBytes = 1 << 20;  // of rows at a time

// Appends lines to a file, if there is one.
class LineFile {
 public:
  static absl::StatusOr<LineFile> Make(const std::string& path) {
    LineFile lines;
    if (FileSystem::Real()->Exists(path)) {
      return absl::AlreadyExistsError(absl::StrCat(path, " exists: give an empty folder"));
    }
    HOTBED_ASSIGN_OR_RETURN(lines.file_, FileSystem::Real()->OpenAppend(path));
    return lines;
  }
  absl::Status Add(const std::string& line) {
    absl::StrAppend(&waiting_, line, "\n");
    return waiting_.size() < kWriteBytes ? absl::OkStatus() : Flush();
  }
  absl::Status Flush() {
    const iovec piece = {waiting_.data(), waiting_.size()};
    HOTBED_RETURN_IF_ERROR(file_->Append({&piece, 1}));
    waiting_.clear();
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<WritableFile> file_;
  std::string waiting_;
};

std::string WeightsText(WeightType type, uint32_t dim, const uint8_t* weights) {
  std::vector<float> values(dim);
  for (uint32_t i = 0; i < dim; ++i) {
    if (type == WeightType::kFp32) {
      values[i] = LoadLittle<float>(weights + 4 * i);
    } else {
      const uint16_t half = LoadLittle<uint16_t>(weights + 2 * i);
      values[i] = type == WeightType::kFp16 ? Fp16ToFloat(half) : Bf16ToFloat(half);
    }
  }
  return absl::StrJoin(values, ",");
}

class Salvager {
 public:
  Salvager(std::string dir, std::string out) : dir_(std::move(dir)), out_(std::move(out)) {}

  absl::StatusOr<SalvageReport> Run() {
    HOTBED_RETURN_IF_ERROR(Lock());
    HOTBED_RETURN_IF_ERROR(ReadSmallFiles());
    HOTBED_RETURN_IF_ERROR(ReadLog());
    HOTBED_RETURN_IF_ERROR(ReadRows());
    for (auto& [id, shard] : shards_) report_.shards.push_back(std::move(shard));
    return std::move(report_);
  }

 private:
  std::string PathOf(const std::string& name) const { return absl::StrCat(dir_, "/", name); }
  void Note(const std::string& name, const absl::Status& status) {
    report_.files.push_back({name, std::string(status.message())});
  }

  // A directory that cannot be locked because nothing can be written there is used by nobody.
  absl::Status Lock() {
    bool known = false;
    for (const char* name : {"IDENTITY", "MARKS", "CATALOG", "PROMISES", "log", "spill"}) {
      known = known || files_->Exists(PathOf(name));
    }
    if (!known) {
      return absl::NotFoundError(absl::StrCat(dir_, " is no data directory of a server"));
    }
    auto lock = files_->Lock(PathOf("LOCK"));
    if (absl::IsAlreadyExists(lock.status())) return lock.status();
    if (lock.ok()) lock_ = *std::move(lock);
    return absl::OkStatus();
  }

  absl::Status ReadSmallFiles() {
    const auto identity = IdentityFile::Load(PathOf("IDENTITY"), files_);
    Note("IDENTITY", identity.status());
    if (identity.ok()) {
      report_.server = identity->server;
      report_.cluster_id = identity->cluster_id;
    }
    auto marks = Marks::Open(PathOf("MARKS"), files_, /*make=*/false);
    Note("MARKS", marks.status());
    if (marks.ok()) marks_ = *std::move(marks);
    // A write that a kill kept from its mark is not told from a copy here.
    KeptFile::Proof proof;
    KeptFile promises(PathOf("PROMISES"), files_, proof);
    Note("PROMISES", PromiseFile::Open(std::move(promises), /*make=*/false).status());
    KeptFile catalog_file(PathOf("CATALOG"), files_, proof);
    absl::StatusOr<Catalog> catalog = Catalog::Load(&catalog_file);
    Note("CATALOG", catalog.status());
    if (!catalog.ok()) return absl::OkStatus();
    catalog_ = *std::move(catalog);
    for (const auto& [id, range] : catalog_.shards) {
      SalvagedShard& shard = shards_[id];
      shard.shard = id;
      shard.table = catalog_.tables.at(id.table).name;
      if (catalog_.installing.contains(id)) shard.trouble = "it was being received or deleted";
    }
    return absl::OkStatus();
  }

  absl::Status ReadLog() {
    const auto segments = ListSegmentFiles(PathOf("log"), files_);
    if (!segments.ok()) {
      Note("log", segments.status());
      return absl::OkStatus();
    }
    const Mark written = MarkOf(Marks::kLogWritten);
    const uint64_t oldest = MarkOf(Marks::kLogOldest).a;
    uint64_t last = 0;
    for (const SegmentFile& segment : *segments) {
      if (segment.sequence < oldest) continue;  // not needed, and perhaps being written over
      if (last != 0 && segment.sequence != last + 1) NoteMissing(last + 1, segment.sequence - 1);
      last = segment.sequence;
      HOTBED_RETURN_IF_ERROR(ReadSegment(segment, written));
    }
    if (written.a > last) NoteMissing(last + 1, written.a);
    return absl::OkStatus();
  }

  Mark MarkOf(Marks::Field field) const { return marks_ == nullptr ? Mark() : marks_->Get(field); }

  void NoteMissing(uint64_t first, uint64_t last) {
    report_.files.push_back(
        {absl::StrCat("log/", SegmentName(first)),
         first == last
             ? "it is missing"
             : absl::StrCat("it is missing, and so is every segment up to ", SegmentName(last))});
  }

  absl::Status ReadSegment(const SegmentFile& file, const Mark& written) {
    SegmentReader reader(files_, file.path, file.bytes);
    const auto header = reader.ReadHeader();
    std::string trouble = std::string(header.status().message());
    const bool reads = header.ok() && header->sequence == file.sequence;
    if (header.ok() && !reads) {
      trouble = absl::StrCat("it says that it is ", SegmentName(header->sequence));
    }
    while (reads) {
      HOTBED_ASSIGN_OR_RETURN(const SegmentReader::Found found, reader.Next());
      if (found == SegmentReader::Found::kEnd) break;
      if (found == SegmentReader::Found::kRecord) {
        Count(reader.header());
        continue;
      }
      HOTBED_ASSIGN_OR_RETURN(const bool ends, EndsBeforeOldBytes(file, written, &reader));
      if (ends && marks_ == nullptr && trouble.empty()) {
        trouble = absl::StrCat("without MARKS, nobody knows whether it had records behind offset ",
                               reader.begin());
      }
      if (ends) break;
      if (trouble.empty()) trouble = absl::StrCat("damaged or cut at offset ", reader.offset());
      if (found != SegmentReader::Found::kBadPayload && found != SegmentReader::Found::kBadHeader) {
        break;
      }
      HOTBED_ASSIGN_OR_RETURN(const bool more, reader.SkipDamage());
      if (!more) break;
    }
    if (trouble.empty() && file.sequence == written.a && reader.begin() < written.b) {
      trouble =
          absl::StrCat("it ends at offset ", reader.begin(), " and was written up to ", written.b);
    }
    report_.files.push_back({"log/" + SegmentName(file.sequence), trouble});
    return absl::OkStatus();
  }

  // Whether the bytes at which the reader stopped are those of an older segment, as far as anybody
  // can tell.
  static absl::StatusOr<bool> EndsBeforeOldBytes(const SegmentFile& file, const Mark& written,
                                                 SegmentReader* reader) {
    const auto at = std::make_pair(file.sequence, reader->begin());
    if (!file.may_have_old_bytes || at < std::make_pair(written.a, written.b)) return false;
    HOTBED_ASSIGN_OR_RETURN(const uint64_t end, reader->EndBehindDamage());
    return end == 0;
  }

  void Count(const RecordHeader& header) {
    const auto it = shards_.find(header.shard);
    if (it == shards_.end()) return;
    SalvagedShard& shard = it->second;
    shard.first_lsn = shard.records == 0 ? header.lsn : std::min(shard.first_lsn, header.lsn);
    shard.last_lsn = std::max(shard.last_lsn, header.lsn);
    ++shard.records;
  }

  absl::Status ReadRows() {
    KvOptions options;
    options.dir = PathOf("spill/rows");
    options.wal = false;
    options.read_only = true;
    const auto store = KvStore::Open(options);
    Note("spill/rows", store.status());
    if (!store.ok()) {
      for (auto& [id, shard] : shards_) shard.trouble = "its rows cannot be read";
      return absl::OkStatus();
    }
    if (!out_.empty()) HOTBED_RETURN_IF_ERROR(files_->MakeDir(out_));
    for (auto& [id, shard] : shards_) HOTBED_RETURN_IF_ERROR(ReadShard(store->get(), &shard));
    return absl::OkStatus();
  }

  absl::Status ReadShard(KvStore* store, SalvagedShard* shard) {
    const TableSpec& table = catalog_.tables.at(shard->shard.table);
    const SpillShard spilled(table, catalog_.shards.at(shard->shard), shard->shard);
    std::optional<LineFile> lines;
    if (!out_.empty()) {
      shard->file = absl::StrCat(out_, "/", table.name, "-", shard->shard.index, ".jsonl");
      HOTBED_ASSIGN_OR_RETURN(lines, LineFile::Make(shard->file));
    }
    absl::Status written;
    const absl::Status read =
        store->Scan(View(FirstRowKey(spilled)), RowKeyLimit(spilled),
                    [&](absl::string_view key, absl::string_view record) {
                      const uint64_t position = LoadBig64(key.data() + kSpillKeyBytes - 8);
                      const absl::Status whole =
                          CheckRecord(spilled, position, SpillRowKey(spilled, position), record);
                      if (!whole.ok()) {
                        shard->trouble = std::string(whole.message());
                        return true;
                      }
                      const auto* const bytes = reinterpret_cast<const uint8_t*>(record.data());
                      shard->rows_lsn = std::max(shard->rows_lsn, SpillTier::LsnOf(bytes));
                      if (IsDeleted(bytes)) return true;
                      shard->rows += 1;
                      if (lines.has_value())
                        written = lines->Add(RowText(spilled, table, position, bytes));
                      return written.ok();
                    });
    if (!read.ok()) shard->trouble = std::string(read.message());
    if (lines.has_value() && written.ok()) written = lines->Flush();
    return written;
  }

  static std::string RowText(const SpillShard& shard, const TableSpec& table, uint64_t position,
                             const uint8_t* record) {
    const uint64_t id = shard.hashed ? Unmix64(position) : position;
    const uint8_t* const weights = SpillTier::PayloadOf(record);
    const uint32_t state_bytes = StateBytes(table.optimizer, shard.dim);
    const uint32_t weight_bytes = shard.payload_bytes - state_bytes;
    const absl::string_view state(reinterpret_cast<const char*>(weights) + weight_bytes,
                                  state_bytes);
    return absl::StrCat("{\"id\":", id, ",\"lsn\":", SpillTier::LsnOf(record), ",\"weights\":[",
                        WeightsText(shard.weight_type, shard.dim, weights), "],\"state\":\"",
                        absl::BytesToHexString(state), "\"}");
  }

  const std::string dir_;
  const std::string out_;
  FileSystem* const files_ = FileSystem::Real();
  std::unique_ptr<WritableFile> lock_;
  std::unique_ptr<Marks> marks_;
  Catalog catalog_;
  std::map<ShardId, SalvagedShard> shards_;
  SalvageReport report_;
};

}  // namespace

absl::StatusOr<SalvageReport> Salvage(const std::string& dir, const std::string& out) {
  return Salvager(dir, out).Run();
}

}  // namespace hotbed
