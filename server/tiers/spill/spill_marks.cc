// Marks of deleted rows that nobody needs any more leave the spill tier.
//
// The shard may be written meanwhile. Before a mark goes it is read again, while no write runs, so
// that a row stays which was pushed again since.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/files/byte_order.h"
#include "common/status_macros.h"
#include "server/tiers/spill/spill_record.h"
#include "server/tiers/spill/spill_tier.h"

namespace hotbed {
namespace {

// Of one step: they are deleted together, while no row is written.
constexpr size_t kMarksStep = 1024;
constexpr uint64_t kMarksStepBytes = 4ull << 20;  // that are read for them

bool IsMarkThrough(absl::string_view record, Lsn through) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(record.data());
  return record.size() == kDeletedRecordBytes && IsDeleted(bytes) &&
         SpillTier::LsnOf(bytes) <= through;
}

}  // namespace

struct SpillTier::MarkWalk {
  Lsn through = 0;
  std::string next;  // the key with which the next step begins
  bool at_end = false;
  std::vector<SpillKey> found;
  uint64_t left = 0;  // marks that stay
};

absl::StatusOr<uint64_t> SpillTier::DropMarks(const SpillShard& shard, Lsn through,
                                              absl::FunctionRef<absl::Status()> go_on) {
  HOTBED_ASSIGN_OR_RETURN(const std::shared_ptr<KvStore> store, Use());
  MarkWalk walk;
  walk.through = through;
  walk.next = std::string(View(FirstRowKey(shard)));
  while (!walk.at_end) {
    HOTBED_RETURN_IF_ERROR(go_on());
    HOTBED_RETURN_IF_ERROR(FindMarks(shard, store.get(), &walk));
    if (!walk.found.empty()) HOTBED_RETURN_IF_ERROR(EndMarks(shard, store.get(), &walk));
  }
  return walk.left;
}

absl::Status SpillTier::FindMarks(const SpillShard& shard, KvReads* reads, MarkWalk* walk) const {
  walk->found.clear();
  walk->at_end = true;
  uint64_t bytes = 0;
  return reads->Scan(walk->next, RowKeyLimit(shard),
                     [&](absl::string_view key, absl::string_view record) {
                       if (walk->found.size() == kMarksStep || bytes >= kMarksStepBytes) {
                         walk->next = std::string(key);
                         walk->at_end = false;
                         return false;
                       }
                       bytes += key.size() + record.size();
                       if (IsMarkThrough(record, walk->through)) {
                         SpillKey found;
                         std::memcpy(found.data(), key.data(), found.size());
                         walk->found.push_back(found);
                       } else if (record.size() == kDeletedRecordBytes) {
                         ++walk->left;
                       }
                       return true;
                     });
}

absl::Status SpillTier::EndMarks(const SpillShard& shard, KvStore* store, MarkWalk* walk) {
  std::vector<absl::string_view> views;
  views.reserve(walk->found.size());
  for (const SpillKey& key : walk->found) views.push_back(View(key));
  const std::unique_ptr<KvBatch> batch = store->NewBatch();
  absl::MutexLock no_writes(&marks_mu_);
  absl::Status damage;
  HOTBED_RETURN_IF_ERROR(store->MultiGet(views, [&](size_t i, absl::string_view record) {
    if (!IsMarkThrough(record, walk->through)) return;
    const SpillKey& key = walk->found[i];
    const uint64_t position = LoadBig64(key.data() + kSpillKeyBytes - 8);
    const absl::Status whole = CheckRecord(shard, position, key, record);
    if (!whole.ok()) damage = whole;
    batch->Delete(views[i]);
  }));
  HOTBED_RETURN_IF_ERROR(damage);
  return store->Write(batch.get());
}

}  // namespace hotbed
