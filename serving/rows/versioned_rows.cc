#include "serving/rows/versioned_rows.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr size_t kRowsPerStep = 256;  // of a take-up, with the lock held
// How long memory that was given up may be in the hands of readers.
constexpr int kReleaseTries = 200;
constexpr int64_t kReleaseTryNs = kMillisecondNs;

}  // namespace

absl::Status VersionOverlay::Set(uint64_t id, const uint8_t* row) {
  static constexpr uint8_t kNoBytes = 0;
  HOTBED_RETURN_IF_ERROR(row != nullptr ? rows_.PutRow(id, row) : absent_.PutRow(id, &kNoBytes));
  (row != nullptr ? absent_ : rows_).Delete(id);
  return absl::OkStatus();
}

RowsView::Reader::Reader(const RowsView& view) : latest_(*view.latest) {
  if (view.version == nullptr) return;
  rows_.emplace(view.version->rows_);
  absent_.emplace(view.version->absent_);
}

const uint8_t* RowsView::Reader::Find(uint64_t id) const {
  const uint8_t* const latest = latest_.Find(id);
  if (!rows_.has_value()) return latest;
  // Not before: see the head of this header.
  if (const uint8_t* const row = rows_->Find(id)) return row;
  return absent_->Find(id) != nullptr ? nullptr : latest;
}

// Why walks over `latest` and then over the overlay meet with every row of the version: if the
// overlay has a row before its part begins, that part finds it. If not, the row in `latest` was the
// version's until then, so that its part there has found it, and nothing about it in the overlay.
void RowsView::Reader::Begin(bool whole, uint32_t part, Walk* walk) const {
  walk->of_version = part >= (whole ? 1 : ServedRows::kStripes);
  if (whole) return ReaderOf(*walk).BeginWhole(&walk->rows);
  ReaderOf(*walk).Begin(part % ServedRows::kStripes, &walk->rows);
}

void RowsView::Reader::Identify(
    const Walk& walk, uint32_t stripe, const uint8_t* row,
    absl::FunctionRef<void(uint64_t id, const uint8_t* now)> tell) const {
  ReaderOf(walk).Identify(stripe, row, [&](uint64_t id, const uint8_t* now) {
    // The overlay wins, and is looked into after the row was found: see the head of the header.
    if (walk.of_version || !Differs(id)) tell(id, now);
  });
}

VersionedRows::VersionedRows(const RowCoder& coder, ServedMemory* memory)
    : memory_(memory),
      latest_(std::make_shared<ServedRows>(coder, memory)),
      none_(std::make_shared<ServedRows>(coder, memory)) {}

absl::Status VersionedRows::Put(uint64_t id, const float* weights, bool* finite) {
  absl::MutexLock lock(&mu_);
  for (;;) {
    const absl::Status put = latest_->Put(id, weights, finite);
    if (!absl::IsResourceExhausted(put) || !GiveUpOne()) return put;
  }
}

absl::Status VersionedRows::PutRow(uint64_t id, const uint8_t* row) {
  absl::MutexLock lock(&mu_);
  for (;;) {
    const absl::Status put = latest_->PutRow(id, row);
    if (!absl::IsResourceExhausted(put) || !GiveUpOne()) return put;
  }
}

std::optional<uint64_t> VersionedRows::MakePlaceFor(uint64_t id, uint64_t random,
                                                    std::vector<uint8_t>* rows) {
  absl::MutexLock lock(&mu_);
  const std::optional<uint64_t> other = latest_->OtherOf(id, random);
  if (other.has_value()) {
    const uint8_t* const row = latest_->Get(*other);
    rows->insert(rows->end(), row, row + latest_->coder().row_bytes());
    latest_->Delete(*other);
  }
  latest_->Reclaim();
  return other;
}

bool VersionedRows::Delete(uint64_t id) {
  absl::MutexLock lock(&mu_);
  return latest_->Delete(id);
}

void VersionedRows::Unmark(const std::function<bool(uint64_t id)>& of) {
  absl::MutexLock lock(&mu_);
  latest_->Unmark(of);
}

uint64_t VersionedRows::DeleteUnmarked() {
  absl::MutexLock lock(&mu_);
  return latest_->DeleteUnmarked();
}

void VersionedRows::Reclaim() {
  absl::MutexLock lock(&mu_);
  latest_->Reclaim();
  for (const auto& overlay : overlays_) overlay->Reclaim();
}

void VersionedRows::BeforeChange(uint64_t id, const uint8_t* row, bool seen) {
  for (size_t i = 0; i < overlays_.size();) {
    VersionOverlay& overlay = *overlays_[i];
    if (overlay.Has(id)) {
      ++i;
      continue;
    }
    if (overlay.Set(id, row).ok()) {
      if (seen && row != nullptr) overlay.rows_.SetSeen(id);
      ++i;
      continue;
    }
    // Rows of `latest` must not wait for it. Each round ends with fewer overlays.
    GiveUpOne();
    i = 0;
  }
}

VersionedRows::Overlays::iterator VersionedRows::Locate(uint64_t number) {
  return std::find_if(overlays_.begin(), overlays_.end(),
                      [number](const auto& overlay) { return overlay->number_ == number; });
}

void VersionedRows::Begin(uint64_t number) {
  absl::MutexLock lock(&mu_);
  if (const auto at = Locate(number); at != overlays_.end()) Drop(at);
  overlays_.push_back(std::make_shared<VersionOverlay>(number, latest_->coder(), memory_));
  latest_->ForgetSeen();
  latest_->SetWatcher(this);
  Show();
}

void VersionedRows::Show() {
  Overlays before = overlays_;
  absl::MutexLock lock(&shown_mu_);
  shown_.swap(before);
}

absl::Status VersionedRows::Gone(uint64_t number) const {
  return absl::AbortedError(absl::StrCat("version number ", number,
                                         " was given up while it was taken up: it is not wanted "
                                         "any more, or the memory of rows (--host-bytes) is used "
                                         "up"));
}

absl::Status VersionedRows::TakeUp(uint64_t number, absl::Span<const uint64_t> ids,
                                   absl::Span<const float> weights) {
  const RowCoder& coder = latest_->coder();
  std::vector<uint8_t> coded(kRowsPerStep * coder.row_bytes());
  for (size_t first = 0; first < ids.size(); first += kRowsPerStep) {
    const size_t count = std::min(kRowsPerStep, ids.size() - first);
    for (size_t i = 0; i < count; ++i) {
      coder.Encode(weights.data() + (first + i) * coder.dim(), &coded[i * coder.row_bytes()]);
    }
    absl::MutexLock lock(&mu_);
    const auto at = Locate(number);
    if (at == overlays_.end()) return Gone(number);
    for (size_t i = 0; i < count; ++i) {
      const absl::Status taken =
          TakeUpRow(ids[first + i], &coded[i * coder.row_bytes()], at->get());
      if (taken.ok()) continue;
      Drop(at);
      return taken;
    }
    (*at)->Reclaim();
  }
  return absl::OkStatus();
}

absl::Status VersionedRows::TakeUpRow(uint64_t id, const uint8_t* row, VersionOverlay* overlay) {
  if (!overlay->Has(id)) {
    const uint8_t* const latest = latest_->Get(id);
    if (latest != nullptr && std::memcmp(latest, row, latest_->coder().row_bytes()) == 0) {
      latest_->SetSeen(id);
      return absl::OkStatus();
    }
  }
  HOTBED_RETURN_IF_ERROR(overlay->Set(id, row));
  overlay->rows_.SetSeen(id);
  latest_->SetSeen(id);
  return absl::OkStatus();
}

absl::Status VersionedRows::End(uint64_t number) {
  for (uint32_t stripe = 0; stripe < ServedRows::kStripes; ++stripe) {
    absl::MutexLock lock(&mu_);
    const auto at = Locate(number);
    if (at == overlays_.end()) return Gone(number);
    const absl::Status ended = EndStripe(stripe, at->get());
    if (!ended.ok()) {
      Drop(at);
      return ended;
    }
    (*at)->Reclaim();
  }
  absl::MutexLock lock(&mu_);
  const auto at = Locate(number);
  if (at == overlays_.end()) return Gone(number);
  (*at)->whole_.store(true);
  return absl::OkStatus();
}

// A row that changes afterwards is in the overlay, and a new one is saved there as absent.
absl::Status VersionedRows::EndStripe(uint32_t stripe, VersionOverlay* overlay) {
  // Saved ones that the files do not have; some are in `latest` no more.
  for (const uint64_t id : overlay->rows_.Unseen(stripe)) {
    HOTBED_RETURN_IF_ERROR(overlay->Set(id, nullptr));
  }
  // One that came back to `latest` after it was seen has no mark there; the overlay has its row.
  for (const uint64_t id : latest_->Unseen(stripe)) {
    if (!overlay->Has(id)) HOTBED_RETURN_IF_ERROR(overlay->Set(id, nullptr));
  }
  return absl::OkStatus();
}

std::shared_ptr<VersionOverlay> VersionedRows::Drop(Overlays::iterator at) {
  std::shared_ptr<VersionOverlay> dropped = std::move(*at);
  // Before any row changes without being saved there: RowsView::Holds.
  dropped->given_up_.store(true);
  overlays_.erase(at);
  if (overlays_.empty()) latest_->SetWatcher(nullptr);
  Show();
  return dropped;
}

bool VersionedRows::GiveUpOne() {
  if (overlays_.empty()) return false;
  const auto rank = [&most_wanted = most_wanted_](const std::shared_ptr<VersionOverlay>& overlay) {
    const uint64_t number = overlay->number_;
    const bool wanted =
        std::find(most_wanted.begin(), most_wanted.end(), number) != most_wanted.end();
    return std::tuple(overlay->whole_.load(), wanted, number);
  };
  const auto least =
      std::min_element(overlays_.begin(), overlays_.end(),
                       [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  const std::shared_ptr<VersionOverlay> dropped = Drop(least);
  // Its memory comes back when the readers that are under way have left.
  for (int i = 0; i < kReleaseTries && dropped.use_count() > 1; ++i) {
    Clock::Real()->SleepNs(kReleaseTryNs);
  }
  return true;
}

void VersionedRows::Drop(uint64_t number) {
  absl::MutexLock lock(&mu_);
  if (const auto at = Locate(number); at != overlays_.end()) Drop(at);
}

void VersionedRows::Keep(const std::function<bool(uint64_t number)>& wanted,
                         std::vector<uint64_t> most_wanted) {
  absl::MutexLock lock(&mu_);
  most_wanted_ = std::move(most_wanted);
  {
    absl::MutexLock shown(&shown_mu_);
    std::erase_if(below_, [&](const auto& one) { return !wanted(one.first); });
  }
  for (auto at = overlays_.begin(); at != overlays_.end();) {
    if (wanted((*at)->number_)) {
      ++at;
      continue;
    }
    const auto behind = at - overlays_.begin();
    Drop(at);
    at = overlays_.begin() + behind;
  }
}

std::optional<RowsView> VersionedRows::Version(uint64_t number) const {
  if (std::shared_ptr<const RowsBelow> below = FindBelow(number)) {
    RowsView view(none_, nullptr);
    view.below = std::move(below);
    return view;
  }
  const std::shared_ptr<const VersionOverlay> overlay = Find(number);
  if (overlay != nullptr && overlay->whole_.load()) return RowsView(latest_, overlay);
  return std::nullopt;
}

void VersionedRows::AddBelow(uint64_t number, std::shared_ptr<const RowsBelow> rows) {
  absl::MutexLock lock(&shown_mu_);
  below_[number] = std::move(rows);
}

std::shared_ptr<const RowsBelow> VersionedRows::FindBelow(uint64_t number) const {
  absl::MutexLock lock(&shown_mu_);
  const auto found = below_.find(number);
  return found == below_.end() ? nullptr : found->second;
}

std::shared_ptr<const VersionOverlay> VersionedRows::Find(uint64_t number) const {
  absl::MutexLock lock(&shown_mu_);
  for (const auto& overlay : shown_) {
    if (overlay->number_ == number) return overlay;
  }
  return nullptr;
}

}  // namespace hotbed
