#include "server/tiers/spill/spill_marks.h"

#include <cstring>
#include <memory>

#include "common/files/byte_order.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

// The marks of one step are deleted together, while no row is written.
constexpr size_t kMarksStep = 1024;
constexpr uint64_t kMarksStepBytes = 4ull << 20;  // that are read for them

}  // namespace

bool MarkWalk::MayGo(absl::string_view record) const {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(record.data());
  return record.size() == kDeletedRecordBytes && IsDeleted(bytes) &&
         SpillTier::LsnOf(bytes) <= through_;
}

absl::StatusOr<uint64_t> MarkWalk::Run(absl::FunctionRef<absl::Status()> go_on) {
  next_ = std::string(View(FirstRowKey(shard_)));
  while (!at_end_) {
    HOTBED_RETURN_IF_ERROR(go_on());
    HOTBED_RETURN_IF_ERROR(Find());
    if (!found_.empty()) HOTBED_RETURN_IF_ERROR(Drop());
  }
  return left_;
}

absl::Status MarkWalk::Find() {
  found_.clear();
  at_end_ = true;
  uint64_t bytes = 0;
  return store_.Scan(next_, RowKeyLimit(shard_),
                     [&](absl::string_view key, absl::string_view record) {
                       if (found_.size() == kMarksStep || bytes >= kMarksStepBytes) {
                         next_ = std::string(key);
                         at_end_ = false;
                         return false;
                       }
                       bytes += key.size() + record.size();
                       if (MayGo(record)) {
                         SpillKey found;
                         std::memcpy(found.data(), key.data(), found.size());
                         found_.push_back(found);
                       } else if (record.size() == kDeletedRecordBytes) {
                         ++left_;
                       }
                       return true;
                     });
}

absl::Status MarkWalk::Drop() {
  std::vector<absl::string_view> views;
  views.reserve(found_.size());
  for (const SpillKey& key : found_) views.push_back(View(key));
  const std::unique_ptr<KvBatch> batch = store_.NewBatch();
  absl::MutexLock no_writes(&writes_);
  absl::Status damage;
  HOTBED_RETURN_IF_ERROR(store_.MultiGet(views, [&](size_t i, absl::string_view record) {
    if (!MayGo(record)) return;
    const SpillKey& key = found_[i];
    const uint64_t position = LoadBig64(key.data() + kSpillKeyBytes - 8);
    const absl::Status whole = CheckRecord(shard_, position, key, record);
    if (!whole.ok()) damage = whole;
    batch->Delete(views[i]);
  }));
  HOTBED_RETURN_IF_ERROR(damage);
  return store_.Write(batch.get());
}

}  // namespace hotbed
