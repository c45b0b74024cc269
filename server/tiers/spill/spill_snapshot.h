// ShardRowReader and ShardRowWriter over a KvStore: the rows of one shard leave one server's spill
// tier and enter another's, in blocks (row_block.h). Thread-compatible. Each prevents
// SpillTier::Renew while it lives.
#ifndef HOTBED_SERVER_TIERS_SPILL_SPILL_SNAPSHOT_H_
#define HOTBED_SERVER_TIERS_SPILL_SPILL_SNAPSHOT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kv/kv_store.h"
#include "server/tiers/api/rows.h"
#include "server/tiers/spill/row_block.h"
#include "server/tiers/spill/spill_record.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {

class SpillReader : public ShardRowReader {
 public:
  static absl::StatusOr<std::unique_ptr<SpillReader>> Open(const SpillShard& shard, Lsn above,
                                                           std::shared_ptr<KvStore> store);
  absl::StatusOr<std::string> Next(uint64_t bytes_max) override;
  uint64_t bytes_total() const override { return bytes_total_; }
  void StayHere() override { sealed_ = false; }

 private:
  SpillReader(const SpillShard& shard, Lsn above, std::shared_ptr<KvStore> store);
  bool Wanted(absl::string_view record) const;
  // Visits stored rows from next_ on: all, or those that the journal names.
  absl::Status Visit(
      absl::FunctionRef<bool(absl::string_view key, absl::string_view record)> visit);

  const SpillShard shard_;
  const Lsn above_;
  const std::shared_ptr<KvStore> store_;
  const std::unique_ptr<KvSnapshot> snapshot_;
  // The next positions where rows with LSNs above above_ may be, ascending; nothing: anywhere. Few
  // at a time, since readers of slow clients live long.
  std::optional<std::vector<uint64_t>> positions_;
  SpillKey next_;
  const std::string limit_;
  uint64_t bytes_total_ = 0;
  bool at_end_ = false;
  bool sealed_ = true;
};

// Visits the rows of `positions` (ascending) that exist, in their order, until `visit` returns
// false. Reads ahead by 128 rows or 1 MiB.
absl::Status VisitRowsAt(
    const SpillShard& shard, absl::Span<const uint64_t> positions, KvReads* reads,
    absl::FunctionRef<bool(absl::string_view key, absl::string_view record)> visit);

// Rows go into files that the store ingests whole, one after the other, each of at most
// kSnapshotFileBytes and in order of position. A file ends where a further pass begins, so that
// newer rows are ingested later. A block of less than `file_bytes_min` goes through the memtable if
// no file is open.
constexpr uint64_t kSnapshotFileBytes = 64ull << 20;

class SpillWriter : public ShardRowWriter {
 public:
  // Hears of each block that Write has written.
  using Written = std::function<void(const RowBlock&)>;

  SpillWriter(const SpillShard& shard, std::shared_ptr<KvStore> store, uint64_t file_bytes_min,
              Written written)
      : shard_(shard),
        store_(std::move(store)),
        file_bytes_min_(file_bytes_min),
        written_(std::move(written)) {}
  absl::Status Write(absl::string_view block) override;
  absl::Status WriteValues(absl::Span<const uint64_t> positions, const uint8_t* payloads,
                           Lsn lsn) override;
  absl::Status WriteDeleted(absl::Span<const uint64_t> positions, Lsn lsn) override;
  absl::Status Finish(absl::string_view meta) override;

 private:
  // Rows as values, or deleted ones; a record is made when it is asked for.
  class Values;

  absl::Status CheckRecords(const RowBlock& block) const;
  absl::Status WriteAll(const Values& values, Lsn lsn);
  // `Rows` is a RowBlock or Values: rows(), position(row), record(row).
  template <typename Rows>
  absl::Status CheckPositions(const Rows& rows) const;
  template <typename Rows>
  absl::Status Put(const Rows& rows, uint64_t bytes);
  template <typename Rows>
  absl::Status WriteFew(const Rows& rows);
  template <typename Rows>
  absl::Status AddToFile(const Rows& rows);
  absl::Status EndFile();

  const SpillShard shard_;
  const std::shared_ptr<KvStore> store_;
  const uint64_t file_bytes_min_;
  const Written written_;         // may be null
  std::unique_ptr<KvFile> file_;  // null: none is open
  uint64_t last_position_ = 0;    // in the file
  Lsn highest_ = 0;
  absl::Status broken_;  // the error of a write that may have left part of a block
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_TIERS_SPILL_SPILL_SNAPSHOT_H_
