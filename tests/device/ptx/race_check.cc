#include "tests/device/ptx/race_check.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace hotbed {
namespace device {

void WarpClocks::Reset() {
  std::memset(rows_, 0, sizeof(rows_));
  for (uint32_t lane = 0; lane < 32; ++lane) {
    members_[lane] = 1u << lane;
    row_of_[lane] = lane;
  }
}

void WarpClocks::Sync(uint32_t lanes) {
  const uint32_t first = row_of_[__builtin_ctz(lanes)];
  if (members_[first] == lanes) {
    for (uint32_t lane = 0; lane < 32; ++lane) rows_[first][lane] += lanes >> lane & 1;
    return;
  }
  uint32_t joined[32] = {};
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const uint32_t* const row = rows_[row_of_[__builtin_ctz(rest)]];
    for (uint32_t k = 0; k < 32; ++k) joined[k] = std::max(joined[k], row[k]);
  }
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const uint32_t lane = __builtin_ctz(rest);
    ++joined[lane];
    members_[row_of_[lane]] &= ~(1u << lane);
  }
  // There is one: the other lanes cannot have more rows than they are.
  uint32_t free = 0;
  while (members_[free] != 0) ++free;
  members_[free] = lanes;
  std::memcpy(rows_[free], joined, sizeof(joined));
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) row_of_[__builtin_ctz(rest)] = free;
}

void RaceCheck::BeginLaunch(const std::vector<AllowedReads>& allowed) {
  ++launch_;
  allowed_ = allowed;
  found_.clear();
  pairs_.clear();
  if (pages_.size() <= kPagesMax) return;
  pages_.clear();
  last_number_ = ~0ull;
  last_page_ = nullptr;
}

RaceCheck::Page* RaceCheck::PageOf(uint64_t address) {
  const uint64_t number = address / kPageBytes;
  if (number != last_number_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>();
    last_number_ = number;
    last_page_ = page.get();
  }
  if (last_page_->launch != launch_) {
    std::memset(last_page_->cells, 0, sizeof(last_page_->cells));
    last_page_->launch = launch_;
  }
  return last_page_;
}

bool RaceCheck::Unordered(const Record& record, const Accessor& by) {
  if (record.lanes == 0) return false;
  if (record.warp != by.warp) return true;
  for (uint32_t rest = record.lanes & ~(1u << by.lane); rest != 0; rest &= rest - 1) {
    if (!by.clocks->Knows(by.lane, __builtin_ctz(rest), record.epoch)) return true;
  }
  return false;
}

// An access that is ordered after all that is remembered takes its place: what is unordered with
// the earlier ones is so with it, or has been found already.
void RaceCheck::Remember(const Accessor& by, bool is_wide, Record* record) {
  const uint32_t epoch = by.clocks->Epoch(by.lane);
  const uint32_t line = by.line & 0x7fffffffu;
  const bool known =
      record->warp == by.warp && record->epoch == epoch && (record->lanes >> by.lane & 1) != 0;
  if (known || (record->lanes != 0 && record->warp == kSeveralWarps)) {
    record->is_wide = record->is_wide || is_wide;
    return;
  }
  if (!Unordered(*record, by)) {
    const bool same = record->lanes != 0 && record->epoch == epoch;
    *record = {by.warp, (same ? record->lanes : 0) | 1u << by.lane, epoch, line,
               is_wide || (same && record->is_wide != 0)};
    return;
  }
  if (record->warp != by.warp) record->warp = kSeveralWarps;
  record->lanes |= 1u << by.lane;
  record->epoch = std::max(record->epoch, epoch);
  record->line = line;
  record->is_wide = record->is_wide || is_wide;
}

bool RaceCheck::IsAllowed(uint64_t address) const {
  for (const AllowedReads& range : allowed_) {
    if (address < range.begin || address >= range.end) continue;
    if ((address - range.begin) % range.period >= range.from) return true;
  }
  return false;
}

void RaceCheck::Add(const char* what, uint64_t address, const Record& before, const Accessor& by) {
  if (!pairs_.insert({before.line, by.line}).second || found_.size() >= 8) return;
  char warps[64], text[256];
  if (before.warp == kSeveralWarps) {
    std::snprintf(warps, sizeof(warps), "several warps");
  } else {
    std::snprintf(warps, sizeof(warps), "warp %u lanes 0x%x", before.warp, before.lanes);
  }
  std::snprintf(text, sizeof(text),
                "race, %s: PTX line %u by %s, and line %u by warp %u lane %u, at address 0x%llx",
                what, static_cast<uint32_t>(before.line), warps, by.line, by.warp, by.lane,
                static_cast<unsigned long long>(address));
  found_.push_back(text);
}

void RaceCheck::NoteByte(Access access, uint64_t address, bool is_wide, const Accessor& by,
                         Cell* cell) {
  if (Unordered(cell->write, by)) {
    Add(access == Access::kRead    ? "a write and a read"
        : access == Access::kWrite ? "two writes"
                                   : "a write and an atomic",
        address, cell->write, by);
  }
  if (access == Access::kWrite) {
    if (Unordered(cell->atomic, by)) Add("an atomic and a write", address, cell->atomic, by);
    if (Unordered(cell->read, by)) Add("a read and a write", address, cell->read, by);
    return Remember(by, is_wide, &cell->write);
  }
  if (access == Access::kAtomic) {
    if (Unordered(cell->read, by) && (cell->read.is_wide != 0 || !IsAllowed(address))) {
      Add("a plain read and an atomic", address, cell->read, by);
    }
    return Remember(by, is_wide, &cell->atomic);
  }
  if (Unordered(cell->atomic, by) && (is_wide || !IsAllowed(address))) {
    Add("an atomic and a plain read", address, cell->atomic, by);
  }
  Remember(by, is_wide, &cell->read);
}

void RaceCheck::Note(Access access, uint64_t address, uint32_t bytes, const Accessor& by) {
  Page* const page = PageOf(address);  // an aligned access does not cross pages
  for (uint32_t i = 0; i < bytes; ++i) {
    NoteByte(access, address + i, bytes > 1, by, &page->cells[(address + i) % kPageBytes]);
  }
}

}  // namespace device
}  // namespace hotbed
