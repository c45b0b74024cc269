#include "server/tiers/spill/write_back.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kWriteBytesMax = 4ull << 20;  // per write to the spill tier
// Per write of rows that were gathered, or half of the budget. The other half is for rows that must
// leave memory meanwhile.
constexpr uint64_t kGatheredBytesMax = 32ull << 20;

}  // namespace

WriteBack::WriteBack(const SpillShard& shard, Wiring wiring)
    : shard_(shard), wiring_(std::move(wiring)), highest_lsn_(wiring_.highest_lsn) {}

WriteBack::~WriteBack() {
  *alive_ = false;
  wiring_.budget->bytes.fetch_sub(bytes_, std::memory_order_relaxed);
}

bool WriteBack::HasRoom(uint64_t rows) const {
  const uint64_t all = wiring_.budget->bytes.load(std::memory_order_relaxed);
  // If nothing waits to be written, the remaining rows wait for fetches. One of these may belong to
  // the very update that asks for room, and no write would ever make room.
  return waiting_.empty() || all + rows * shard_.record_bytes() <= wiring_.budget->bytes_max;
}

WriteBack::Space WriteBack::Reserve(uint32_t rows) {
  if (open_ == nullptr || open_->rows_max < rows) {
    open_ = std::make_shared<Batch>();
    open_->positions.reset(new uint64_t[rows]);
    open_->records.reset(new uint8_t[uint64_t{rows} * shard_.record_bytes()]);
    open_->rows_max = rows;
  }
  return {open_->positions.get(), open_->records.get() + kSpillHeaderBytes, shard_.record_bytes()};
}

void WriteBack::Commit(uint32_t count, Lsn lsn, bool deleted) {
  HOTBED_CHECK(open_ != nullptr && count <= open_->rows_max);
  if (count == 0) return;  // the next Reserve takes the same memory
  const std::shared_ptr<Batch> batch = std::move(open_);
  open_ = nullptr;
  batch->count = count;
  batch->lsn = lsn;
  batch->deleted = deleted;
  batch->bytes = uint64_t{batch->rows_max} * (shard_.record_bytes() + sizeof(uint64_t));
  bytes_ += batch->bytes;
  wiring_.budget->bytes.fetch_add(batch->bytes, std::memory_order_relaxed);
  for (uint32_t row = 0; row < count; ++row) {
    latest_[batch->positions[row]] = {batch.get(), row};
  }
  waiting_.push_back(batch);
  ++committed_;
}

absl::Status WriteBack::WriteNow(const Wiring& wiring, const SpillShard& shard,
                                 const std::vector<std::shared_ptr<Batch>>& batches,
                                 Lsn highest_lsn) {
  std::vector<SpillRows> rows;
  Lsn newest = 0;
  for (const auto& batch : batches) {
    rows.push_back(
        {batch->positions.get(), batch->records.get(), batch->count, batch->lsn, batch->deleted});
    newest = std::max(newest, batch->lsn);
  }
  // The log must hold a record before a row changed by it can reach an SST: otherwise a
  // crash would leave a row that no logged record explains.
  if (wiring.before_write_back) HOTBED_RETURN_IF_ERROR(wiring.before_write_back(newest));
  return wiring.spill->Write(shard, rows, highest_lsn);
}

uint64_t WriteBack::GatheredBytesMax() const {
  return std::min(kGatheredBytesMax, wiring_.budget->bytes_max / 2);
}

bool WriteBack::Gather(uint64_t rows) {
  const uint64_t more = rows * (shard_.record_bytes() + sizeof(uint64_t));
  const bool was_gathering = gathering_;
  gathering_ = !writing_ && HasRoom(rows) && bytes_ + more <= GatheredBytesMax();
  gathered_ = gathered_ || was_gathering;
  return gathering_;
}

// An update may have waited for room meanwhile. Nothing else begins the write that it waits for.
void WriteBack::StopGathering() {
  gathering_ = false;
  Pump();
}

void WriteBack::Pump() {
  if (writing_ || gathering_ || waiting_.empty()) return;
  writing_ = true;
  const uint64_t bytes_max = std::exchange(gathered_, false)
                                 ? std::max(GatheredBytesMax(), kWriteBytesMax)
                                 : kWriteBytesMax;
  error_ = absl::OkStatus();
  std::vector<std::shared_ptr<Batch>> batches;
  uint64_t bytes = 0;
  for (const auto& batch : waiting_) {
    if (!batches.empty() && bytes + batch->bytes > bytes_max) break;
    bytes += batch->bytes;
    highest_lsn_ = std::max(highest_lsn_, batch->lsn);
    batches.push_back(batch);
  }
  // The wiring is alive only while the task is inside the gate.
  wiring_.io->SubmitWrite([this, alive = alive_, gate = wiring_.gate, batches = std::move(batches),
                           highest = highest_lsn_] {
    if (!gate->Enter()) return;
    absl::Status status = WriteNow(wiring_, shard_, batches, highest);
    wiring_.executor->Run([this, alive, count = batches.size(), status = std::move(status)] {
      if (*alive) OnWritten(count, status);
    });
    gate->Leave();
  });
}

void WriteBack::OnWritten(size_t batches, const absl::Status& status) {
  HOTBED_CHECK(writing_ && batches <= waiting_.size());
  writing_ = false;
  error_ = status;
  if (status.ok()) {
    const uint64_t fetches_before = fetches_first_ + fetches_.size();
    for (size_t i = 0; i < batches; ++i) {
      waiting_.front()->fetches_before = fetches_before;
      rows_written_ += waiting_.front()->count;
      retained_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    written_ += batches;
    HOTBED_CHECK(written_ <= committed_);
    Release();
    Pump();
  }
  if (wiring_.progress) wiring_.progress();
}

WriteBack::Kept WriteBack::Find(uint64_t position) const {
  const auto it = latest_.find(position);
  if (it == latest_.end()) return {};
  const Batch& batch = *it->second.batch;
  if (batch.deleted) return {true, nullptr};
  return {true, batch.records.get() + uint64_t{shard_.record_bytes()} * it->second.row +
                    kSpillHeaderBytes};
}

void WriteBack::AddPositions(std::vector<uint64_t>* positions) const {
  for (const auto& [position, place] : latest_) positions->push_back(position);
}

uint64_t WriteBack::BeginFetch() {
  fetches_.push_back(false);
  return fetches_first_ + fetches_.size() - 1;
}

void WriteBack::EndFetch(uint64_t fetch) {
  HOTBED_CHECK(fetch >= fetches_first_ && fetch < next_fetch());
  HOTBED_DCHECK(!fetches_[fetch - fetches_first_]) << "a fetch that ends twice";
  fetches_[fetch - fetches_first_] = true;
  while (!fetches_.empty() && fetches_.front()) {
    fetches_.pop_front();
    ++fetches_first_;
  }
  Release();
}

void WriteBack::Release() {
  while (!retained_.empty() && retained_.front()->fetches_before <= fetches_first_) {
    const std::shared_ptr<Batch> batch = std::move(retained_.front());
    retained_.pop_front();
    for (uint32_t row = 0; row < batch->count; ++row) {
      const auto it = latest_.find(batch->positions[row]);
      if (it != latest_.end() && it->second.batch == batch.get()) latest_.erase(it);
    }
    bytes_ -= batch->bytes;
    wiring_.budget->bytes.fetch_sub(batch->bytes, std::memory_order_relaxed);
  }
}

}  // namespace hotbed
