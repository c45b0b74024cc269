#include "serving/rows/served_rows.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

constexpr uint64_t kChunkBytes = 2432;  // about
constexpr uint32_t kChunkRowsMax = 32;
constexpr uint32_t kChunksPerNew = 256;  // a stripe of as many chunks takes one more at a time
// Memory is taken in pieces of this size, so that a table of few rows takes little.
constexpr uint64_t kPieceBytes = 64 << 10;
constexpr int kCollapse = 25;          // MADV_COLLAPSE of Linux 6.1; older headers lack it
constexpr uint32_t kChunksAhead = 16;  // whose bits a walk fetches before it comes to them
constexpr uint32_t kEntriesMin = 8;
constexpr size_t kRetiredMax = 1 << 16;  // beyond it a Put reclaims

// A planted bug, which tests/serving compiles in and must find.
#ifdef HOTBED_PLANTED_LATE_SAVE
constexpr bool kSavesLate = true;
#else
constexpr bool kSavesLate = false;
#endif

uint32_t ChunkRows(uint32_t stride) {
  const uint64_t rows = std::clamp<uint64_t>(kChunkBytes / stride, 1, kChunkRowsMax);
  return std::bit_floor(static_cast<uint32_t>(rows));
}

uint32_t RowShift(uint32_t row_bytes) {
  const bool apart = std::has_single_bit(row_bytes) && row_bytes >= 64 && row_bytes <= 8192;
  return apart ? static_cast<uint32_t>(std::countr_zero(row_bytes)) : 0;
}

// A load of nine tenths: a found id takes 5 looks on average, a missing one 50 along 3 cache lines.
bool IsFull(uint64_t used, uint64_t capacity) { return used * 10 >= capacity * 9; }

}  // namespace

bool ServedMemory::Take(uint64_t bytes) {
  if (used_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= bytes_max_) return true;
  Give(bytes);
  return false;
}

ServedRows::ServedRows(const RowCoder& coder, ServedMemory* memory)
    : coder_(coder),
      row_shift_(RowShift(coder.row_bytes())),
      stride_(coder.row_bytes() + (row_shift_ == 0 ? kKeyBytes : 0)),
      chunk_rows_(ChunkRows(stride_)),
      chunk_shift_(static_cast<uint32_t>(std::countr_zero(chunk_rows_))),
      chunk_bytes_(uint64_t{chunk_rows_} * stride_),
      memory_(memory) {}

ServedRows::~ServedRows() {
  for (Stripe& stripe : stripes_) {
    delete stripe.index.load();
    delete[] stripe.chunks.load();
    delete[] stripe.bits.load();
  }
  memory_->Give(bytes());
}

bool ServedRows::Take(uint64_t bytes) {
  if (!memory_->Take(bytes)) return false;
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

void ServedRows::Give(uint64_t bytes) {
  memory_->Give(bytes);
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
}

absl::Status ServedRows::Full() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      rows(), " rows of this table take ", bytes(), " bytes, and all tables of this server ",
      memory_->used(), " of ", memory_->bytes_max(),
      ": give the server more --host-bytes, serve the table from another server or in a smaller "
      "format"));
}

uint64_t ServedRows::PositionOf(uint32_t stripe, uint32_t entry) const {
  uint64_t key = 0;
  std::memcpy(&key, KeyOf(RecordOf(stripes_[stripe], (entry & kSlotMask) - kFirstSlot)), kKeyBytes);
  return uint64_t{stripe} << 56 | key << 8 | entry >> 24;
}

bool ServedRows::HasKey(const uint8_t* record, uint64_t position) const {
  const uint64_t key = position >> 8;
  return std::memcmp(KeyOf(record), &key, kKeyBytes) == 0;
}

std::atomic<uint32_t>* ServedRows::FindEntry(const Stripe& stripe, uint64_t position) const {
  const Index* const index = stripe.index.load();
  if (index == nullptr) return nullptr;
  const auto digest = static_cast<uint32_t>(position & 0xff);
  uint32_t at = HomeOf(position, index->capacity);
  for (;;) {
    const uint32_t entry = index->entries[at].load();
    if (entry == 0) return nullptr;
    if (entry >> 24 == digest && (entry & kSlotMask) != kGone &&
        HasKey(RecordOf(stripe, (entry & kSlotMask) - kFirstSlot), position)) {
      return &index->entries[at];
    }
    if (++at == index->capacity) at = 0;
  }
}

const uint8_t* ServedRows::Reader::Find(uint64_t id) const {
  const uint64_t position = Mix64(id);
  const Stripe& stripe = rows_.stripes_[position >> 56];
  // The entry may turn to another slot between two loads, so that it is loaded once: a loop of its
  // own, not FindEntry's.
  const Index* const index = stripe.index.load();
  if (index == nullptr) return nullptr;
  const auto digest = static_cast<uint32_t>(position & 0xff);
  uint32_t at = HomeOf(position, index->capacity);
  for (;;) {
    const uint32_t entry = index->entries[at].load();
    if (entry == 0) return nullptr;
    if (entry >> 24 == digest && (entry & kSlotMask) != kGone) {
      const uint8_t* const record = rows_.RecordOf(stripe, (entry & kSlotMask) - kFirstSlot);
      if (rows_.HasKey(record, position)) return record;
    }
    if (++at == index->capacity) at = 0;
  }
}

void ServedRows::Reader::Prefetch(uint64_t id) const {
  const uint64_t position = Mix64(id);
  const Index* const index = rows_.stripes_[position >> 56].index.load();
  if (index != nullptr) __builtin_prefetch(&index->entries[HomeOf(position, index->capacity)]);
}

uint32_t ServedRows::Reader::LikelySlot(uint64_t position) const {
  const Index* const index = rows_.stripes_[position >> 56].index.load();
  if (index == nullptr) return kNoSlot;
  const auto digest = static_cast<uint32_t>(position & 0xff);
  for (uint32_t at = HomeOf(position, index->capacity); at < index->capacity; ++at) {
    const uint32_t entry = index->entries[at].load();
    if (entry == 0) return kNoSlot;
    if (entry >> 24 == digest && (entry & kSlotMask) != kGone) {
      return (entry & kSlotMask) - kFirstSlot;
    }
  }
  return kNoSlot;
}

void ServedRows::Reader::PrefetchChunk(uint64_t id) const {
  const uint64_t position = Mix64(id);
  const uint32_t slot = LikelySlot(position);
  if (slot == kNoSlot) return;
  const Stripe& stripe = rows_.stripes_[position >> 56];
  __builtin_prefetch(&stripe.chunks.load()[slot >> rows_.chunk_shift_]);
}

void ServedRows::Reader::PrefetchRow(uint64_t id) const {
  const uint64_t position = Mix64(id);
  const uint32_t slot = LikelySlot(position);
  if (slot == kNoSlot) return;
  const uint8_t* const record = rows_.RecordOf(rows_.stripes_[position >> 56], slot);
  __builtin_prefetch(rows_.KeyOf(record));
  for (uint32_t b = 0; b < rows_.stride_; b += 64) __builtin_prefetch(record + b);
}

// Rows move from slot to slot. One that has moved between the looks at its two slots might be seen
// in neither; then the number of moves has changed, and the stripe is looked at again. Where rows
// move all the time, the index tells: an entry stays where it is when its row moves.
void ServedRows::Reader::TakeBits(uint32_t number, std::vector<uint32_t>* bits) const {
  constexpr int kLooksMax = 4;
  const Stripe& stripe = rows_.stripes_[number];
  const size_t first = bits->size();
  for (int look = 0; look < kLooksMax; ++look) {
    const uint64_t moves = stripe.moves.load();
    const uint32_t chunks = stripe.slots.load() >> rows_.chunk_shift_;
    bits->resize(first + chunks);
    const RowBits* const now = stripe.bits.load();
    for (uint32_t c = 0; c < chunks; ++c) (*bits)[first + c] = now[c].load();
    if (stripe.moves.load() == moves) return;
  }
  bits->resize(first);
  const Index* const index = stripe.index.load();
  for (uint32_t i = 0; index != nullptr && i < index->capacity; ++i) {
    const uint32_t entry = index->entries[i].load() & kSlotMask;
    if (entry < kFirstSlot) continue;
    const uint32_t slot = entry - kFirstSlot;
    const size_t chunk = first + (slot >> rows_.chunk_shift_);
    if (chunk >= bits->size()) bits->resize(chunk + 1);
    (*bits)[chunk] |= rows_.MaskOf(slot);
  }
}

void ServedRows::Reader::Begin(uint32_t stripe, Walk* walk) const {
  *walk = Walk();
  walk->stripe = stripe;
  TakeBits(stripe, &walk->rows);
}

void ServedRows::Reader::BeginWhole(Walk* walk) const {
  *walk = Walk();
  walk->whole = true;
  walk->begins.reserve(kStripes + 1);
  for (uint32_t stripe = 0; stripe < kStripes; ++stripe) {
    walk->begins.push_back(static_cast<uint32_t>(walk->rows.size()));
    TakeBits(stripe, &walk->rows);
  }
  walk->begins.push_back(static_cast<uint32_t>(walk->rows.size()));
  walk->block = rows_.first_block_.load();  // not before: the first row may just have come
}

bool ServedRows::Reader::NextChunk(Walk* walk) const {
  if (!walk->whole) {
    while (walk->chunk < walk->rows.size()) {
      walk->bits = walk->rows[walk->chunk++];
      if (walk->bits == 0) continue;
      walk->memory = rows_.stripes_[walk->stripe].chunks.load()[walk->chunk - 1];
      return true;
    }
    return false;
  }
  while (walk->block != nullptr) {
    const uint32_t chunks = walk->block->chunks.load();
    if (walk->chunk == chunks) {
      walk->block = walk->block->next.load();
      walk->chunk = 0;
      continue;
    }
    const uint32_t* const owners = walk->block->owners + walk->chunk;
    if (walk->chunk + kChunksAhead < chunks) {
      __builtin_prefetch(walk->rows.data() + walk->PlaceOf(owners[kChunksAhead]));
    }
    const uint32_t owner = *owners;
    const uint64_t at = walk->PlaceOf(owner);
    walk->bits = at < walk->begins[(owner >> 24) + 1] ? walk->rows[at] : 0;
    walk->memory = walk->block->memory + walk->chunk++ * rows_.chunk_bytes_;
    if (walk->bits != 0) return true;
  }
  return false;
}

void ServedRows::Reader::TakeFullChunks(Walk* walk, uint32_t rows_max, Run* run) const {
  const uint32_t chunks = walk->block->chunks.load();
  if (run->rows + uint64_t{rows_.stride_} * run->count !=
      walk->block->memory + walk->chunk * rows_.chunk_bytes_) {
    return;
  }
  const uint32_t full = FullBits();
  const uint32_t* const owners = walk->block->owners;
  while (walk->chunk < chunks && run->count + rows_.chunk_rows_ <= rows_max) {
    const uint32_t owner = owners[walk->chunk];
    const uint64_t at = walk->PlaceOf(owner);
    if (at >= walk->begins[(owner >> 24) + 1] || walk->rows[at] != full) return;
    if (walk->chunk + kChunksAhead < chunks) {
      __builtin_prefetch(walk->rows.data() + walk->PlaceOf(owners[walk->chunk + kChunksAhead]));
    }
    ++walk->chunk;
    run->count += rows_.chunk_rows_;
  }
}

bool ServedRows::Reader::Next(Walk* walk, uint32_t rows_max, Run* run) const {
  *run = Run();
  const uint64_t stride = rows_.stride_;
  while (walk->bits != 0 || NextChunk(walk)) {
    if (run->count == rows_max || (run->count > 0 && run->block != walk->block)) return true;
    const auto first = static_cast<uint32_t>(std::countr_zero(walk->bits));
    const uint8_t* const row = walk->memory + stride * first;
    if (run->count == 0) {
      *run = {row, 0, walk->stripe, walk->block};
    } else if (row != run->rows + stride * run->count) {
      return true;
    }
    const uint32_t side_by_side = static_cast<uint32_t>(std::countr_one(walk->bits >> first));
    const uint32_t count = std::min(side_by_side, rows_max - run->count);
    run->count += count;
    walk->bits &= ~static_cast<uint32_t>(((uint64_t{1} << count) - 1) << first);
    if (walk->block != nullptr && walk->bits == 0) TakeFullChunks(walk, rows_max, run);
  }
  return run->count > 0;
}

void ServedRows::Reader::Identify(
    uint32_t number, const uint8_t* row,
    absl::FunctionRef<void(uint64_t id, const uint8_t* now)> tell) const {
  const Stripe& stripe = rows_.stripes_[number];
  uint64_t key = 0;
  std::memcpy(&key, rows_.KeyOf(row), kKeyBytes);
  const uint64_t position = uint64_t{number} << 56 | key << 8;
  const Index* const index = stripe.index.load();
  if (index == nullptr) return;
  const uint32_t home = HomeOf(position, index->capacity);
  const auto next = [index](uint32_t at) { return at + 1 == index->capacity ? 0 : at + 1; };
  // Most rows have not changed, and an entry tells where its row is without a look at it.
  for (uint32_t at = home;; at = next(at)) {
    const uint32_t entry = index->entries[at].load();
    if (entry == 0) break;
    if ((entry & kSlotMask) == kGone) continue;
    if (rows_.RecordOf(stripe, (entry & kSlotMask) - kFirstSlot) == row) {
      return tell(Unmix64(position | entry >> 24), row);
    }
  }
  for (uint32_t at = home;; at = next(at)) {
    const uint32_t entry = index->entries[at].load();
    if (entry == 0) return;
    if ((entry & kSlotMask) != kGone) {
      const uint8_t* const record = rows_.RecordOf(stripe, (entry & kSlotMask) - kFirstSlot);
      if (rows_.HasKey(record, position)) tell(Unmix64(position | entry >> 24), record);
    }
  }
}

absl::Status ServedRows::AddBlock() {
  constexpr uint64_t kOwnerBytes = sizeof(uint32_t);
  const uint64_t aligned = row_shift_ == 0 ? 64 : stride_;
  const uint64_t least = aligned + kOwnerBytes + chunk_bytes_;
  absl::StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(std::max(kHugePageBytes, least));
  if (!buffer.ok()) return buffer.status();
  // Small pages until all of it is paid for.
  ::madvise(buffer->data(), buffer->size(), MADV_NOHUGEPAGE);
  Block* const before = blocks_.empty() ? nullptr : &blocks_.back();
  Block& block = blocks_.emplace_back();
  block.buffer = *std::move(buffer);
  // Keys that stand apart have places for the whole block, with those that lie before the rows.
  const uint64_t keys = row_shift_ == 0 ? 0 : (block.buffer.size() >> row_shift_) * kKeyBytes;
  const uint64_t room = block.buffer.size() - keys - aligned;
  block.chunks_max = static_cast<uint32_t>(room / (chunk_bytes_ + kOwnerBytes));
  block.owners = reinterpret_cast<uint32_t*>(block.buffer.data() + keys);
  const uint64_t head = keys + block.chunks_max * kOwnerBytes;
  block.memory = block.buffer.data() + (head + aligned - 1) / aligned * aligned;
  (before == nullptr ? first_block_ : before->next).store(&block);
  return absl::OkStatus();
}

// A block that is paid for gets a huge page, so that a look at a row seldom misses the TLB.
absl::Status ServedRows::Pay(uint64_t chunks, Block* block) {
  uint8_t* const begin = block->buffer.data();
  const uint64_t size = block->buffer.size();
  const auto wanted = static_cast<uint64_t>(block->memory - begin) + chunks * chunk_bytes_;
  if (wanted <= block->paid) return absl::OkStatus();
  const uint64_t paid = std::min((wanted + kPieceBytes - 1) / kPieceBytes * kPieceBytes, size);
  if (!Take(paid - block->paid)) return Full();
  block->paid = paid;
  // Where memory is too scattered for huge pages, the kernel may find some later.
  if (paid == size && ::madvise(begin, size, MADV_HUGEPAGE) == 0) {
    ::madvise(begin, size, kCollapse);
  }
  return absl::OkStatus();
}

// The more chunks a stripe has, the more are made side by side, so that a walk over a stripe of a
// large table reads long runs of memory, too.
absl::Status ServedRows::AddChunks(Stripe* stripe) {
  const uint32_t slots = stripe->slots.load(), chunks = slots >> chunk_shift_;
  if (blocks_.empty() || blocks_.back().chunks.load() == blocks_.back().chunks_max) {
    HOTBED_RETURN_IF_ERROR(AddBlock());
  }
  Block& block = blocks_.back();
  const uint32_t first = block.chunks.load();
  const uint32_t count = std::clamp<uint32_t>(chunks / kChunksPerNew, 1, block.chunks_max - first);
  if (slots + count * chunk_rows_ > kSlotMask - kFirstSlot) return Full();
  HOTBED_RETURN_IF_ERROR(Pay(uint64_t{first} + count, &block));
  HOTBED_RETURN_IF_ERROR(MakeChunkRoom(stripe, chunks, count));
  const auto number = static_cast<uint32_t>(stripe - stripes_.data());
  for (uint32_t c = 0; c < count; ++c) {
    block.owners[first + c] = number << 24 | (chunks + c);
    stripe->chunks.load()[chunks + c] = block.memory + (first + c) * chunk_bytes_;
  }
  for (uint32_t i = count * chunk_rows_; i > 0; --i) stripe->free.push_back(slots + i - 1);
  block.chunks.store(first + count);
  stripe->slots.store(slots + count * chunk_rows_);
  stripe->marks.resize(chunks + count);
  stripe->seen.resize(chunks + count);
  return absl::OkStatus();
}

absl::Status ServedRows::MakeChunkRoom(Stripe* stripe, uint32_t chunks, uint32_t count) {
  constexpr uint64_t kBytes = sizeof(uint8_t*) + sizeof(RowBits);  // of a chunk
  if (chunks + count <= stripe->chunks_max) return absl::OkStatus();
  const uint32_t more = std::max<uint32_t>(4, chunks + std::max(count, chunks / 8));
  if (!Take(more * kBytes)) return Full();
  auto grown = std::make_unique<uint8_t*[]>(more);
  auto bits = std::make_unique<RowBits[]>(more);
  uint8_t** const before = stripe->chunks.load();
  RowBits* const bits_before = stripe->bits.load();
  for (uint32_t c = 0; c < chunks; ++c) {
    grown[c] = before[c];
    bits[c].store(bits_before[c].load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  stripe->chunks.store(grown.release());
  stripe->bits.store(bits.release());
  if (before != nullptr) {
    retired_arrays_.push_back({epochs_.now(), nullptr, std::unique_ptr<uint8_t*[]>(before),
                               std::unique_ptr<RowBits[]>(bits_before),
                               stripe -> chunks_max* kBytes});
  }
  stripe->chunks_max = more;
  return absl::OkStatus();
}

absl::Status ServedRows::TakeSlot(Stripe* stripe, uint32_t* slot) {
  if (stripe->free.empty()) HOTBED_RETURN_IF_ERROR(AddChunks(stripe));
  *slot = stripe->free.back();
  stripe->free.pop_back();
  stripe->marks[*slot >> chunk_shift_] |= MaskOf(*slot);
  stripe->seen[*slot >> chunk_shift_] &= ~MaskOf(*slot);
  return absl::OkStatus();
}

// Makes room for one more entry. A new index holds none of the deleted ones.
absl::Status ServedRows::MakeRoom(uint32_t number) {
  Stripe& stripe = stripes_[number];
  Index* const before = stripe.index.load();
  if (before != nullptr && !IsFull(stripe.used + 1, before->capacity)) return absl::OkStatus();
  const uint32_t capacity =
      std::max<uint32_t>(kEntriesMin, (stripe.live + 1) + (stripe.live + 1) / 5 + 2);
  if (!Take(uint64_t{capacity} * sizeof(uint32_t))) return Full();
  auto grown = std::make_unique<Index>(capacity);
  for (uint32_t i = 0; before != nullptr && i < before->capacity; ++i) {
    const uint32_t entry = before->entries[i].load(std::memory_order_relaxed);
    if ((entry & kSlotMask) < kFirstSlot) continue;
    uint32_t at = HomeOf(PositionOf(number, entry), capacity);
    while (grown->entries[at].load(std::memory_order_relaxed) != 0) {
      if (++at == capacity) at = 0;
    }
    grown->entries[at].store(entry, std::memory_order_relaxed);
  }
  stripe.used = stripe.live;
  stripe.index.store(grown.release());
  if (before != nullptr) {
    retired_arrays_.push_back({epochs_.now(), std::unique_ptr<Index>(before), nullptr, nullptr,
                               uint64_t{before->capacity} * sizeof(uint32_t)});
  }
  return absl::OkStatus();
}

void ServedRows::Retire(uint32_t stripe, uint32_t slot) {
  retired_.push_back({epochs_.now(), stripe, slot});
  if (retired_.size() >= kRetiredMax) Reclaim();
}

void ServedRows::Reclaim() {
  if (retired_.empty() && retired_arrays_.empty()) return;
  const uint64_t oldest = epochs_.Advance();
  for (; !retired_.empty() && retired_.front().epoch < oldest; retired_.pop_front()) {
    stripes_[retired_.front().stripe].free.push_back(retired_.front().slot);
  }
  for (; !retired_arrays_.empty() && retired_arrays_.front().epoch < oldest;
       retired_arrays_.pop_front()) {
    Give(retired_arrays_.front().bytes);
  }
}

absl::Status ServedRows::Put(uint64_t id, const float* weights, bool* finite) {
  return Write(id, [&](uint8_t* record) { *finite = coder_.Encode(weights, record); });
}

void ServedRows::PrefetchPut(uint64_t id) const {
  const uint64_t position = Mix64(id);
  const Stripe& stripe = stripes_[position >> 56];
  const Index* const index = stripe.index.load(std::memory_order_relaxed);
  if (index != nullptr) __builtin_prefetch(&index->entries[HomeOf(position, index->capacity)], 1);
  if (stripe.free.empty()) return;
  const uint8_t* const record = RecordOf(stripe, stripe.free.back());
  for (uint32_t at = 0; at < coder_.row_bytes(); at += 64) __builtin_prefetch(record + at, 1);
  __builtin_prefetch(KeyOf(record), 1);
}

absl::Status ServedRows::PutRow(uint64_t id, const uint8_t* row) {
  return Write(id, [&](uint8_t* record) { std::copy_n(row, coder_.row_bytes(), record); });
}

template <typename Fill>
absl::Status ServedRows::Write(uint64_t id, Fill fill) {
  const uint64_t position = Mix64(id);
  const auto number = static_cast<uint32_t>(position >> 56);
  Stripe& stripe = stripes_[number];
  uint32_t slot = 0;
  HOTBED_RETURN_IF_ERROR(TakeSlot(&stripe, &slot));
  uint8_t* const record = RecordOf(stripe, slot);
  fill(record);
  const uint64_t key = position >> 8;
  std::memcpy(KeyOf(record), &key, kKeyBytes);
  const uint32_t entry = static_cast<uint32_t>(position & 0xff) << 24 | (slot + kFirstSlot);
  if (std::atomic<uint32_t>* const present = FindEntry(stripe, position)) {
    Replace(number, present, slot, entry);
    return absl::OkStatus();
  }
  const absl::Status room = MakeRoom(number);
  if (!room.ok()) {
    stripe.free.push_back(slot);
    return room;
  }
  if (watcher_ != nullptr) watcher_->BeforeChange(id, nullptr, false);
  const Index& index = *stripe.index.load();
  uint32_t at = HomeOf(position, index.capacity);
  while ((index.entries[at].load(std::memory_order_relaxed) & kSlotMask) >= kFirstSlot) {
    if (++at == index.capacity) at = 0;
  }
  if (index.entries[at].load(std::memory_order_relaxed) == 0) ++stripe.used;
  ++stripe.live;
  SetRowBit(stripe, slot);
  index.entries[at].store(entry);
  count_.fetch_add(1, std::memory_order_relaxed);
  return absl::OkStatus();
}

void ServedRows::Replace(uint32_t number, std::atomic<uint32_t>* present, uint32_t slot,
                         uint32_t entry) {
  Stripe& stripe = stripes_[number];
  const uint32_t old = (present->load(std::memory_order_relaxed) & kSlotMask) - kFirstSlot;
  const uint8_t* const before = RecordOf(stripe, old);
  const bool seen = IsSeen(stripe, old);
  if (watcher_ != nullptr) {
    if (std::memcmp(before, RecordOf(stripe, slot), coder_.row_bytes()) == 0) {
      stripe.marks[old >> chunk_shift_] |= MaskOf(old);
      stripe.free.push_back(slot);
      return;
    }
    if (!kSavesLate) watcher_->BeforeChange(Unmix64(PositionOf(number, entry)), before, seen);
  }
  if (seen) stripe.seen[slot >> chunk_shift_] |= MaskOf(slot);
  SetRowBit(stripe, slot);
  present->store(entry);
  stripe.moves.fetch_add(1);
  ClearRowBit(stripe, old);
  if (kSavesLate && watcher_ != nullptr) {
    Clock::Real()->SleepNs(100'000);  // so that readers come in between
    watcher_->BeforeChange(Unmix64(PositionOf(number, entry)), before, seen);
  }
  Retire(number, old);
}

void ServedRows::Unlink(uint32_t number, std::atomic<uint32_t>* entry) {
  const uint32_t before = entry->load(std::memory_order_relaxed);
  const uint32_t slot = (before & kSlotMask) - kFirstSlot;
  Stripe& stripe = stripes_[number];
  if (watcher_ != nullptr) {
    watcher_->BeforeChange(Unmix64(PositionOf(number, before)), RecordOf(stripe, slot),
                           IsSeen(stripe, slot));
  }
  entry->store(kGone);
  ClearRowBit(stripe, slot);
  --stripe.live;
  count_.fetch_sub(1, std::memory_order_relaxed);
  Retire(number, slot);
}

const uint8_t* ServedRows::Get(uint64_t id) const {
  const uint64_t position = Mix64(id);
  const Stripe& stripe = stripes_[position >> 56];
  const std::atomic<uint32_t>* const entry = FindEntry(stripe, position);
  if (entry == nullptr) return nullptr;
  return RecordOf(stripe, (entry->load(std::memory_order_relaxed) & kSlotMask) - kFirstSlot);
}

std::optional<uint64_t> ServedRows::OtherOf(uint64_t id, uint64_t random) const {
  const auto number = static_cast<uint32_t>(Mix64(id) >> 56);
  const Index* const index = stripes_[number].index.load();
  if (index == nullptr) return std::nullopt;
  for (uint32_t i = 0; i < index->capacity; ++i) {
    const uint32_t entry = index->entries[(random + i) % index->capacity].load();
    if ((entry & kSlotMask) < kFirstSlot) continue;
    return Unmix64(PositionOf(number, entry));
  }
  return std::nullopt;
}

bool ServedRows::Delete(uint64_t id) {
  const uint64_t position = Mix64(id);
  const auto number = static_cast<uint32_t>(position >> 56);
  std::atomic<uint32_t>* const entry = FindEntry(stripes_[number], position);
  if (entry == nullptr) return false;
  Unlink(number, entry);
  return true;
}

void ServedRows::ForEach(
    const std::function<void(uint32_t stripe, std::atomic<uint32_t>* entry)>& each) {
  for (uint32_t number = 0; number < kStripes; ++number) {
    Index* const index = stripes_[number].index.load();
    for (uint32_t i = 0; index != nullptr && i < index->capacity; ++i) {
      std::atomic<uint32_t>* const entry = &index->entries[i];
      if ((entry->load(std::memory_order_relaxed) & kSlotMask) >= kFirstSlot) each(number, entry);
    }
  }
}

void ServedRows::Unmark(const std::function<bool(uint64_t id)>& of) {
  ForEach([&](uint32_t number, std::atomic<uint32_t>* at) {
    const uint32_t entry = at->load(std::memory_order_relaxed);
    if (!of(Unmix64(PositionOf(number, entry)))) return;
    const uint32_t slot = (entry & kSlotMask) - kFirstSlot;
    stripes_[number].marks[slot >> chunk_shift_] &= ~MaskOf(slot);
  });
}

void ServedRows::SetSeen(uint64_t id) {
  const uint64_t position = Mix64(id);
  Stripe& stripe = stripes_[position >> 56];
  const std::atomic<uint32_t>* const entry = FindEntry(stripe, position);
  if (entry == nullptr) return;
  const uint32_t slot = (entry->load(std::memory_order_relaxed) & kSlotMask) - kFirstSlot;
  stripe.seen[slot >> chunk_shift_] |= MaskOf(slot);
}

void ServedRows::ForgetSeen() {
  for (Stripe& stripe : stripes_) std::fill(stripe.seen.begin(), stripe.seen.end(), 0);
}

std::vector<uint64_t> ServedRows::Unseen(uint32_t number) const {
  std::vector<uint64_t> ids;
  const Stripe& stripe = stripes_[number];
  const Index* const index = stripe.index.load();
  for (uint32_t i = 0; index != nullptr && i < index->capacity; ++i) {
    const uint32_t entry = index->entries[i].load(std::memory_order_relaxed);
    if ((entry & kSlotMask) < kFirstSlot) continue;
    if (IsSeen(stripe, (entry & kSlotMask) - kFirstSlot)) continue;
    ids.push_back(Unmix64(PositionOf(number, entry)));
  }
  return ids;
}

uint64_t ServedRows::DeleteUnmarked() {
  uint64_t gone = 0;
  ForEach([&](uint32_t number, std::atomic<uint32_t>* at) {
    const uint32_t slot = (at->load(std::memory_order_relaxed) & kSlotMask) - kFirstSlot;
    if ((stripes_[number].marks[slot >> chunk_shift_] & MaskOf(slot)) != 0) return;
    Unlink(number, at);
    ++gone;
  });
  return gone;
}

}  // namespace hotbed
