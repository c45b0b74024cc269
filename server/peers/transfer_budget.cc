#include "server/peers/transfer_budget.h"

#include <vector>

#include "common/check.h"

namespace hotbed {

std::shared_ptr<uint8_t> TransferBudget::Allocate(Kind kind, uint64_t bytes) {
  std::atomic<uint64_t>& held = kind == Kind::kLog ? log_bytes_ : rows_bytes_;
  const uint64_t before = held.fetch_add(bytes, std::memory_order_relaxed);
  if (kind == Kind::kLog && before > 0 && before + bytes > log_bytes_max_) {
    held.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  auto* const words = new uint64_t[(bytes + 7) / 8];
  return std::shared_ptr<uint8_t>(reinterpret_cast<uint8_t*>(words),
                                  [budget = shared_from_this(), words, kind, bytes](uint8_t*) {
                                    delete[] words;
                                    budget->Release(kind, bytes);
                                  });
}

bool TransferBudget::MayRead(Reader* reader) {
  if (rows_bytes() < rows_bytes_max_) return true;
  absl::MutexLock lock(&mu_);
  // Release() takes the lock after it has counted, so a release from here on finds the reader
  // waiting.
  waiting_.insert(reader);
  if (rows_bytes() >= rows_bytes_max_) return false;
  waiting_.erase(reader);
  return true;
}

void TransferBudget::Forget(Reader* reader) {
  absl::MutexLock lock(&mu_);
  waiting_.erase(reader);
}

void TransferBudget::Release(Kind kind, uint64_t bytes) {
  if (kind == Kind::kLog) {
    const uint64_t held = log_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    HOTBED_DCHECK(held >= bytes) << "released more log bytes than were allocated";
    return;
  }
  const uint64_t before = rows_bytes_.fetch_sub(bytes);
  HOTBED_DCHECK(before >= bytes) << "released more bytes of rows than were allocated";
  if (before < rows_bytes_max_ || before - bytes >= rows_bytes_max_) return;
  std::vector<Reader*> readers;
  {
    absl::MutexLock lock(&mu_);
    for (Reader* reader : waiting_) {
      if (reader->TryRefReader()) readers.push_back(reader);
    }
    waiting_.clear();
  }
  for (Reader* reader : readers) {
    reader->ReadAgain();
    reader->UnrefReader();
  }
}

}  // namespace hotbed
