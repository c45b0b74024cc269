#include "serving/kept_rows.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kWriteNs = 10 * kSecondNs;
constexpr char kKind[] = "rows, 2";
// The priority of threads that write noted rows while nobody waits: readers and the stream come
// first.
constexpr int kPassNice = 10;

// A planted bug, which tests/serving compiles in and must find.
#ifdef HOTBED_PLANTED_LATE_POSITIONS
constexpr bool kTellsLate = true;
#else
constexpr bool kTellsLate = false;
#endif
// How the positions on disk begin.
constexpr char kWhole = 'w';
constexpr char kPartly = 'p';  // while rows come at first, or again

static_assert(std::is_trivially_copyable_v<RangePosition>);

std::string Kept(char how, const ChangePositions& positions) {
  std::string kept(1 + positions.size() * sizeof(RangePosition), how);
  std::memcpy(kept.data() + 1, positions.data(), positions.size() * sizeof(RangePosition));
  return kept;
}

// The positions of rows that are as of `from` or later, but not later than `seen`. Empty: there are
// none, because shards were cut in between.
std::string KeptWhole(ChangePositions from, const ChangePositions& seen) {
  if (from.size() != seen.size()) return "";
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].table != seen[i].table || !(from[i].range == seen[i].range)) return "";
    from[i].seen_epoch = seen[i].seen_epoch;
    from[i].seen_lsn = seen[i].seen_lsn;
  }
  return Kept(kWhole, from);
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeptRows>> KeptRows::Open(const std::string& dir,
                                                         const ServedPlaces& places,
                                                         uint32_t row_bytes,
                                                         const std::string& cluster,
                                                         const std::function<bool()>& stops) {
  HOTBED_ASSIGN_OR_RETURN(
      std::unique_ptr<DiskRows> rows,
      DiskRows::Open(dir, row_bytes, absl::StrCat(kKind, ", ", cluster), stops));
  return std::unique_ptr<KeptRows>(new KeptRows(places, std::move(rows)));
}

ChangePositions KeptRows::Positions() const {
  if (!told_.empty()) return told_;
  const std::string& kept = rows_->position();
  if (kept.empty() || kept[0] != kWhole) return {};
  ChangePositions positions((kept.size() - 1) / sizeof(RangePosition));
  std::memcpy(positions.data(), kept.data() + 1, positions.size() * sizeof(RangePosition));
  return positions;
}

absl::Status KeptRows::BeginStream() {
  again_.clear();
  whole_ = !Positions().empty();
  HOTBED_RETURN_IF_ERROR(rows_->TryResume());
  return WriteNoted();
}

absl::Status KeptRows::BeginAgain(const ChangedRange& range, const ChangePositions& positions) {
  HOTBED_RETURN_IF_ERROR(WriteNoted());
  HOTBED_ASSIGN_OR_RETURN(const uint32_t age, rows_->BeginAge());
  again_.push_back({range, age});
  whole_ = false;
  return Commit(positions);
}

absl::Status KeptRows::Commit(const ChangePositions& positions) {
  told_.clear();
  return rows_->Commit(Kept(whole_ ? kWhole : kPartly, positions));
}

uint32_t KeptRows::LeastAge(uint64_t id) const {
  uint32_t least = 0;
  const uint64_t place = places_.PlaceOf(id);
  for (const Again& again : again_) {
    if (place >= again.range.first && place < again.range.limit) least = std::max(least, again.age);
  }
  return least;
}

absl::Status KeptRows::EndAgain(const ChangePositions& positions) {
  if (whole_) return absl::OkStatus();
  if (!again_.empty()) {
    HOTBED_RETURN_IF_ERROR(
        rows_->DeleteOlder([this](uint64_t id) { return LeastAge(id); }).status());
    again_.clear();
  }
  whole_ = true;
  return Commit(positions);
}

void KeptRows::Note(absl::Span<const uint64_t> changed, absl::Span<const uint64_t> deleted,
                    const ChangePositions& positions, std::shared_ptr<const ServedRows> memory) {
  if (told_.empty()) told_ = Positions();
  memory_ = std::move(memory);
  noted_.insert(changed.begin(), changed.end());
  noted_.insert(deleted.begin(), deleted.end());
  absl::MutexLock lock(&mu_);
  telling_ = positions;
}

void KeptRows::BeginPass(bool must) {
  pass_ = std::make_unique<Pass>();
  pass_->from = told_;
  pass_->memory = memory_;
  pass_->ids.swap(noted_);
  noted_.reserve(pass_->ids.size());  // no growth in the midst of changes, in the steady state
  pass_->thread = std::thread([this, pass = pass_.get(), must] {
    RunPass(pass, must);
    pass->ended.store(true);
  });
}

void KeptRows::RunPass(Pass* pass, bool must) {
  // On Linux this sets the calling thread's, which takes short turns, too, as its maker does.
  if (!must) setpriority(PRIO_PROCESS, 0, kPassNice);
  std::vector<uint64_t> ids(pass->ids.begin(), pass->ids.end());
  std::sort(ids.begin(), ids.end());
  pass->status = rows_->WriteFile(ids, *pass->memory, [&] {
    absl::MutexLock lock(&mu_);
    std::string kept = KeptWhole(kTellsLate ? telling_ : pass->from, telling_);
    return kept.empty() && must ? Kept(kPartly, {}) : kept;
  });
}

absl::Status KeptRows::EndPass() {
  if (pass_ == nullptr) return absl::OkStatus();
  pass_->thread.join();
  const std::unique_ptr<Pass> pass = std::move(pass_);
  if (pass->status.ok()) return absl::OkStatus();
  noted_.insert(pass->ids.begin(), pass->ids.end());
  written_ns_ = 0;
  return absl::IsAborted(pass->status) ? absl::OkStatus() : pass->status;
}

absl::Status KeptRows::WriteNoted() {
  HOTBED_RETURN_IF_ERROR(EndPass());
  if (noted_.empty()) return absl::OkStatus();
  BeginPass(/*must=*/true);
  return EndPass();
}

absl::Status KeptRows::WriteIfDue(int64_t now_ns) {
  const bool full = noted_.size() >= kNotedMax;
  if (pass_ != nullptr) {
    if (!full && !pass_->ended.load()) return absl::OkStatus();
    HOTBED_RETURN_IF_ERROR(EndPass());
  }
  if (!full && now_ns - written_ns_ < kWriteNs) return absl::OkStatus();
  written_ns_ = now_ns;
  if (noted_.empty()) return rows_->Flush();
  BeginPass(/*must=*/false);
  return absl::OkStatus();
}

}  // namespace hotbed
