#include "client/changes/joined_stream.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int64_t kReadAgainNs = kSecondNs / 5;  // of a range with a slice that is not reached
constexpr uint64_t kJoinBytes = 256u << 10;      // of whole rows that are asked for together
constexpr uint64_t kJoinBytesMin = 4u << 10;     // likewise, while answers come too late
constexpr size_t kTurnIdsMax = 1u << 16;         // about: then they are joined first
constexpr size_t kPendingBytesMax = 8u << 20;    // of ids: beyond, no more are taken
constexpr size_t kPendingIdBytes = 2 * sizeof(uint64_t);  // about, in a set

// A planted bug, which tests/serving compiles in and must find.
#ifdef HOTBED_PLANTED_EARLY_JOINS
constexpr bool kJoinsEarly = true;
#else
constexpr bool kJoinsEarly = false;
#endif

// By the first row and column of a shard.
using Places = std::map<std::pair<uint64_t, uint32_t>, RangePosition>;

std::pair<uint64_t, uint32_t> KeyOf(const ChangedRange& range) {
  return {range.first, range.column_first};
}

Places PlacesOf(const ChangePositions& positions) {
  Places places;
  for (const RangePosition& position : positions) places[KeyOf(position.range)] = position;
  return places;
}

bool IsBefore(const v1::LogPlace& at, const RangePosition& told) {
  // While a list is told, what was seen of it is later than the place that was told before.
  return std::pair(at.epoch(), at.lsn()) <
         std::max(std::pair(told.epoch, told.lsn), std::pair(told.seen_epoch, told.seen_lsn));
}

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

using Rows = std::pair<uint64_t, uint64_t>;  // first and limit of a range

Rows RowsOf(const ChangedRange& range) { return {range.first, range.limit}; }

// The slices of one range of rows.
struct JoinedRange {
  std::vector<SliceShard> slices;     // by column
  std::set<uint32_t> awaited;         // shards whose lists have not begun: nothing is joined yet
  absl::flat_hash_set<uint64_t> ids;  // told, and not joined yet
  bool fails = false;                 // a slice did not answer when it was asked last
  int64_t not_before_ns = 0;
  uint64_t join_bytes = kJoinBytes;  // less after a failure: it may have been too much for its time

  bool Joins(int64_t now_ns) const {
    return awaited.empty() && !ids.empty() && now_ns >= not_before_ns;
  }
};

class JoinedStream final : public CopyStream {
 public:
  JoinedStream(std::unique_ptr<SlicedTable> table, uint32_t dim, ChangePositions from,
               const Clock* clock)
      : table_(std::move(table)),
        dim_(dim),
        clock_(*clock),
        begins_again_(!from.empty()),
        positions_(std::move(from)) {}

  absl::StatusOr<std::optional<RowChanges>> Next(absl::Duration wait) override {
    HOTBED_ASSIGN_OR_RETURN(std::optional<CopyChanges> next, NextOfCopy(wait));
    if (!next.has_value()) return std::nullopt;
    return std::optional<RowChanges>(std::move(static_cast<RowChanges&>(*next)));
  }

  absl::StatusOr<std::optional<CopyChanges>> NextOfCopy(absl::Duration wait) override {
    if (!ready_.empty()) return Take();
    if (ids_ == nullptr) {
      HOTBED_ASSIGN_OR_RETURN(const bool begun, Begin());
      if (!begun) return Rest(wait);
      if (!ready_.empty()) return Take();
    }
    // A range that is asked again and again keeps no ids of other ranges from being told.
    const bool joins = AnyJoins();
    if (!joins || std::exchange(join_failed_, false)) {
      HOTBED_RETURN_IF_ERROR(Gather(joins ? absl::ZeroDuration() : wait));
    }
    if (AnyJoins()) HOTBED_RETURN_IF_ERROR(Join());
    if (!ready_.empty()) return Take();
    return std::nullopt;
  }

  ChangePositions Positions() const override { return positions_; }

  absl::Duration Age() const override {
    if (as_of_ns_ == 0) return absl::InfiniteDuration();
    return absl::Nanoseconds(std::max<int64_t>(clock_.NowNs() - as_of_ns_, 0));
  }

  bool ended() const override { return false; }

 private:
  std::optional<CopyChanges> Rest(absl::Duration wait) const {
    clock_.SleepNs(std::min(absl::ToInt64Nanoseconds(wait), kReadAgainNs));
    return std::nullopt;
  }

  // Where all slices of the range go on; nothing: one has no position.
  std::optional<ChangePositions> PositionsOf(const JoinedRange& range) const {
    ChangePositions positions;
    for (const SliceShard& slice : range.slices) {
      const auto known =
          std::find_if(positions_.begin(), positions_.end(), [&](const RangePosition& position) {
            return position.table == table_->number() && position.range == slice.range &&
                   position.lsn != 0;
          });
      if (known == positions_.end()) return std::nullopt;
      positions.push_back(*known);
    }
    return positions;
  }

  // False: a slice or the coordinator is not reached. The rows that were told stay meanwhile.
  absl::StatusOr<bool> Begin() {
    const absl::StatusOr<std::vector<SliceShard>> shards = table_->Shards();
    if (IsAway(shards.status())) return false;
    HOTBED_RETURN_IF_ERROR(shards.status());
    ranges_.clear();
    for (const SliceShard& shard : *shards) ranges_[RowsOf(shard.range)].slices.push_back(shard);
    ChangePositions from;
    std::vector<SlicedTable::Wanted> wanted;  // places of slices that are not listed
    std::vector<JoinedRange*> begin;
    for (auto& [rows, range] : ranges_) {
      std::sort(range.slices.begin(), range.slices.end(), [](const auto& a, const auto& b) {
        return a.range.column_first < b.range.column_first;
      });
      if (const std::optional<ChangePositions> known = PositionsOf(range)) {
        from.insert(from.end(), known->begin(), known->end());
        continue;
      }
      begin.push_back(&range);
      range.awaited.insert(range.slices[0].shard);
      for (size_t i = 1; i < range.slices.size(); ++i) wanted.push_back({range.slices[i], {}});
    }
    HOTBED_ASSIGN_OR_RETURN(const bool placed, Place(wanted, &from));
    if (!placed) return false;
    absl::StatusOr<std::unique_ptr<IdStream>> ids = table_->FollowIds(from);
    if (IsAway(ids.status())) return false;
    HOTBED_RETURN_IF_ERROR(ids.status());
    ids_ = *std::move(ids);
    if (begins_again_) {
      for (const JoinedRange* const range : begin) TellAgain(*range);
    }
    begins_again_ = true;
    return true;
  }

  absl::StatusOr<bool> Place(const std::vector<SlicedTable::Wanted>& wanted,
                             ChangePositions* from) {
    if (wanted.empty()) return true;
    HOTBED_ASSIGN_OR_RETURN(const std::vector<SlicedTable::Found> found, table_->Read(wanted));
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (!found[i].answered) return false;
      const SliceShard& slice = wanted[i].from;
      const v1::LogPlace& at = found[i].at;
      if (at.lsn() != 0) {
        from->push_back(
            {table_->number(), slice.range, at.epoch(), at.lsn(), at.epoch(), at.lsn()});
        continue;
      }
      // A shard without any entry has no place: it begins with a list as well.
      ranges_.at(RowsOf(slice.range)).awaited.insert(slice.shard);
    }
    return true;
  }

  CopyChanges ChangesOf(const JoinedRange& range) const {
    CopyChanges changes;
    changes.shard = range.slices[0].shard;
    changes.range = range.slices[0].range;
    changes.range.column_first = 0;
    changes.range.column_limit = dim_;
    return changes;
  }

  void TellAgain(const JoinedRange& range) {
    ready_.push_back(ChangesOf(range));
    ready_.back().again = true;
  }

  // The range begins from nothing, and the others go on from where they were told.
  void BeginAgain(const ChangedRange& lost) {
    std::erase_if(positions_, [&](const RangePosition& position) {
      return position.range.first < lost.limit && lost.first < position.range.limit;
    });
    as_of_ns_ = 0;
    ranges_.clear();
    ids_ = nullptr;
  }

  bool AnyJoins() const {
    const int64_t now_ns = clock_.NowNs();
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [now_ns](const auto& one) { return one.second.Joins(now_ns); });
  }

  absl::Status Gather(absl::Duration wait) {
    size_t pending = 0;
    for (const auto& [rows, range] : ranges_) pending += range.ids.size();
    if (pending * kPendingIdBytes > kPendingBytesMax) {
      Rest(wait);
      return absl::OkStatus();
    }
    const bool fails = std::any_of(ranges_.begin(), ranges_.end(), [](const auto& one) {
      return one.second.awaited.empty() && !one.second.ids.empty();
    });
    if (fails) wait = std::min(wait, absl::Nanoseconds(kReadAgainNs));
    for (size_t told = 0; told < kTurnIdsMax; wait = absl::ZeroDuration()) {
      HOTBED_ASSIGN_OR_RETURN(const std::optional<CopyChanges> changes, ids_->NextOfCopy(wait));
      if (!changes.has_value()) break;
      if (changes->again) {
        BeginAgain(changes->range);
        return absl::OkStatus();
      }
      Note(*changes);
      told += changes->ids.size() + changes->deleted.size();
    }
    // Before the age is looked at: a pause of the process between the two must not make it less.
    const int64_t now_ns = clock_.NowNs();
    const absl::Duration age = ids_->Age();
    turn_as_of_ns_ = age == absl::InfiniteDuration()
                         ? 0
                         : std::max<int64_t>(now_ns - absl::ToInt64Nanoseconds(age), 1);
    EndTurnIfJoined();
    return absl::OkStatus();
  }

  void Note(const CopyChanges& changes) {
    const auto found = ranges_.find(RowsOf(changes.range));
    if (found == ranges_.end()) return;
    JoinedRange& range = found->second;
    range.awaited.erase(changes.shard);
    if (kJoinsEarly) range.awaited.clear();
    const bool lists = changes.shard == range.slices[0].shard;
    if (!lists && !range.awaited.empty()) return;  // dropped: see joined_stream.h
    range.ids.insert(changes.ids.begin(), changes.ids.end());
    range.ids.insert(changes.deleted.begin(), changes.deleted.end());
  }

  // All that was told before the turn ended is joined and taken.
  void EndTurnIfJoined() {
    if (ids_ == nullptr || !ready_.empty()) return;
    const bool joined = std::all_of(ranges_.begin(), ranges_.end(),
                                    [](const auto& one) { return one.second.ids.empty(); });
    if (!joined) return;
    as_of_ns_ = turn_as_of_ns_;
    positions_ = ids_->Positions();
  }

  // Ranges that fail have calls of their own, by turns with the others: they take up no room in the
  // calls of these, nor their time.
  std::vector<JoinedRange*> NextToJoin() {
    const int64_t now_ns = clock_.NowNs();
    std::vector<JoinedRange*> well;
    std::vector<JoinedRange*> failing;
    for (auto& [rows, range] : ranges_) {
      if (range.Joins(now_ns)) (range.fails ? failing : well).push_back(&range);
    }
    const bool joins_well = !well.empty() && (failing.empty() || !joined_well_);
    joined_well_ = joins_well;
    return joins_well ? well : failing;
  }

  // Some ids of some ranges, so that an answer may have the rows of all.
  absl::Status Join() {
    std::vector<JoinedRange*> ranges;
    std::vector<SlicedTable::Wanted> wanted;
    uint64_t left = kJoinBytes;
    for (JoinedRange* const range : NextToJoin()) {
      const uint64_t row_bytes = dim_ * sizeof(float) + range->slices.size() * 2;
      const uint64_t many = std::min(left, range->join_bytes) / row_bytes;
      if (many == 0 && !ranges.empty()) break;
      std::vector<uint64_t> ids;
      for (const uint64_t id : range->ids) {
        if (ids.size() >= std::max<uint64_t>(many, 1)) break;
        ids.push_back(id);
      }
      left -= std::min(left, ids.size() * row_bytes);
      for (const SliceShard& slice : range->slices) wanted.push_back({slice, ids});
      ranges.push_back(range);
    }
    const int64_t asked_ns = clock_.NowNs();
    HOTBED_ASSIGN_OR_RETURN(const std::vector<SlicedTable::Found> found, table_->Read(wanted));
    size_t next = 0;
    const Places told = PlacesOf(ids_->Positions());
    for (JoinedRange* const range : ranges) {
      const size_t slices = range->slices.size();
      const absl::Span<const SlicedTable::Found> of = absl::MakeSpan(found).subspan(next, slices);
      if (Answered(*range, of, told)) {
        Add(wanted[next].ids, of, range);
      } else {
        Postpone(asked_ns, range);
      }
      next += slices;
    }
    NoteSeen();
    return absl::OkStatus();
  }

  // For at least as long as the answer was waited for, so that others have half of the time.
  void Postpone(int64_t asked_ns, JoinedRange* range) {
    const int64_t now_ns = clock_.NowNs();
    range->fails = true;
    range->not_before_ns = now_ns + std::max(kReadAgainNs, now_ns - asked_ns);
    range->join_bytes = std::max(range->join_bytes / 2, kJoinBytesMin);
    join_failed_ = true;
  }

  // A server that is no primary any more may answer with rows from before what was told.
  bool Answered(const JoinedRange& range, absl::Span<const SlicedTable::Found> found,
                const Places& told) {
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].answered) return false;
      const auto place = told.find(KeyOf(range.slices[i].range));
      if (place == told.end() || !IsBefore(found[i].at, place->second)) continue;
      table_->LookAgain();
      return false;
    }
    return true;
  }

  void Add(const std::vector<uint64_t>& ids, absl::Span<const SlicedTable::Found> found,
           JoinedRange* range) {
    range->fails = false;
    range->join_bytes = std::min(range->join_bytes + range->join_bytes / 8, kJoinBytes);
    CopyChanges changes = ChangesOf(*range);
    for (size_t i = 0; i < ids.size(); ++i) {
      range->ids.erase(ids[i]);
      const bool whole = std::all_of(found.begin(), found.end(),
                                     [i](const auto& slice) { return slice.found[i] != 0; });
      if (!whole) {
        changes.deleted.push_back(ids[i]);
        continue;
      }
      changes.ids.push_back(ids[i]);
      for (const SlicedTable::Found& slice : found) {
        const size_t columns = slice.rows.size() / ids.size();
        const float* const row = slice.rows.data() + i * columns;
        changes.rows.insert(changes.rows.end(), row, row + columns);
      }
    }
    for (size_t i = 0; i < found.size(); ++i) ids_->NoteSeen(range->slices[i].shard, found[i].at);
    ready_.push_back(std::move(changes));
  }

  // The rows that are told next may be later than those before.
  void NoteSeen() {
    const Places seen = PlacesOf(ids_->Positions());
    for (RangePosition& position : positions_) {
      const auto other = seen.find(KeyOf(position.range));
      if (other == seen.end()) continue;
      position.seen_epoch = other->second.seen_epoch;
      position.seen_lsn = other->second.seen_lsn;
    }
  }

  std::optional<CopyChanges> Take() {
    CopyChanges changes = std::move(ready_.front());
    ready_.pop_front();
    if (!changes.again) EndTurnIfJoined();
    return changes;
  }

  const std::unique_ptr<SlicedTable> table_;
  const uint32_t dim_;
  const Clock& clock_;
  bool begins_again_;          // the reader may have rows of ranges that begin
  ChangePositions positions_;  // of the last turn that has ended
  int64_t as_of_ns_ = 0;       // likewise; 0: not all rows are told yet
  int64_t turn_as_of_ns_ = 0;
  std::unique_ptr<IdStream> ids_;  // null: to begin
  std::map<Rows, JoinedRange> ranges_;
  std::deque<CopyChanges> ready_;
  bool join_failed_ = false;  // since ids were gathered last
  bool joined_well_ = false;  // the last call was not for ranges that fail
};

}  // namespace

std::unique_ptr<CopyStream> JoinSlices(std::unique_ptr<SlicedTable> table, uint32_t dim,
                                       const ChangePositions& from, const Clock* clock) {
  return std::make_unique<JoinedStream>(std::move(table), dim, from, clock);
}

}  // namespace hotbed
