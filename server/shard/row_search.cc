#include "server/shard/row_search.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "row_math/candidate.h"

namespace hotbed {
namespace {

// That one task of the strand reads.
constexpr uint64_t kReadAgainRowsMax = 512;
constexpr uint64_t kReadAgainBytesMax = 256 << 10;
constexpr uint64_t kSearchBlockBytes = 256 << 10;

}  // namespace

absl::StatusOr<bool> RowSearch::StepOverMemory(RowRanking* ranking, MemoryWalk* walk) {
  absl::Status may;
  bool readable = false;
  shard_.RunAndWait([&] {
    may = shard_.serving.error();
    if (shard_.serving.closed() || shard_.store == nullptr) {
      may = absl::AbortedError(absl::StrCat(shard_.Name(), " has left this server"));
    }
    if (may.ok()) readable = shard_.store->RankMemory(ranking, walk);
  });
  HOTBED_RETURN_IF_ERROR(may);
  return readable;
}

absl::Status RowSearch::All(RowRanking* ranking, GoOn go_on) {
  MemoryWalk walk;
  while (walk.slots_left > 0) {
    HOTBED_RETURN_IF_ERROR(go_on());
    HOTBED_ASSIGN_OR_RETURN(const bool readable, StepOverMemory(ranking, &walk));
    if (readable) continue;
    if (absl::StatusOr<Lsn> written = snapshots_.WriteBack(); !written.ok()) {
      return written.status();
    }
    return AllFromSpill(/*exact=*/true, ranking, go_on);
  }
  if (walk.all) return absl::OkStatus();
  std::sort(walk.leaving.begin(), walk.leaving.end());
  HOTBED_RETURN_IF_ERROR(Only(walk.leaving, ranking, go_on));
  return AllFromSpill(/*exact=*/false, ranking, go_on);
}

absl::Status RowSearch::Only(absl::Span<const uint64_t> positions, RowRanking* ranking,
                             GoOn go_on) {
  MemoryWalk none;
  none.slots_left = 0;
  HOTBED_ASSIGN_OR_RETURN(const bool readable, StepOverMemory(ranking, &none));
  if (!readable && !positions.empty()) {
    if (absl::StatusOr<Lsn> written = snapshots_.WriteBack(); !written.ok()) {
      return written.status();
    }
  }
  const uint64_t step = std::clamp<uint64_t>(
      kReadAgainBytesMax / shard_.options.Spilled().record_bytes(), 1, kReadAgainRowsMax);
  for (size_t first = 0; first < positions.size(); first += step) {
    HOTBED_RETURN_IF_ERROR(go_on());
    const absl::Span<const uint64_t> some = positions.subspan(first, step);
    HOTBED_RETURN_IF_ERROR(readable ? ReadAgain(some, ranking) : FromSpill(some, ranking));
  }
  return absl::OkStatus();
}

absl::Status RowSearch::ReadAgain(absl::Span<const uint64_t> positions, RowRanking* ranking) {
  LiveRows rows;
  HOTBED_RETURN_IF_ERROR(snapshots_.ReadPass(positions, &rows));
  const uint64_t stride = shard_.options.Spilled().record_bytes();
  const StoredRun run = {rows.records.data() + kSpillHeaderBytes, stride,
                         static_cast<uint32_t>(positions.size())};
  ranking->Offer(run, [&](uint32_t row, uint64_t* position) {
    *position = positions[row];
    return rows.found[row] == kRowThere && IsRow(run, row);
  });
  if (rows.all) return absl::OkStatus();
  std::vector<uint64_t> missing;
  for (size_t k = 0; k < positions.size(); ++k) {
    if (rows.found[k] == kRowNotThere) missing.push_back(positions[k]);
  }
  return FromSpill(missing, ranking);
}

// A row that memory did not hold a moment ago is in the spill tier like that, or newer.
absl::Status RowSearch::FromSpill(absl::Span<const uint64_t> positions, RowRanking* ranking) {
  if (positions.empty()) return absl::OkStatus();
  const SpillShard shard = shard_.options.Spilled();
  std::vector<uint8_t> records(positions.size() * shard.record_bytes());
  std::vector<uint8_t> found(positions.size());
  HOTBED_RETURN_IF_ERROR(
      shard_.options.tiers->ReadRows(shard, positions, records.data(), found.data()));
  const StoredRun run = {records.data() + kSpillHeaderBytes, shard.record_bytes(),
                         static_cast<uint32_t>(positions.size())};
  ranking->Offer(run, [&](uint32_t row, uint64_t* position) {
    *position = positions[row];
    return found[row] == kRowThere && IsRow(run, row);
  });
  return absl::OkStatus();
}

// Candidates for admission do not exist to readers.
bool RowSearch::IsRow(const StoredRun& run, uint32_t row) const {
  const uint8_t* const end =
      run.weights + run.stride * row + shard_.options.Spilled().payload_bytes;
  return !IsCandidateRow(shard_.options.table->life.admission, end);
}

SpillShard RowSearch::Wanted(const RowRanking& ranking) const {
  SpillShard wanted = shard_.options.Spilled();
  wanted.first_position = std::max(wanted.first_position, ranking.first_position());
  wanted.last_position = std::min(wanted.last_position, ranking.last_position());
  return wanted;
}

absl::Status RowSearch::AllFromSpill(bool exact, RowRanking* ranking, GoOn go_on) {
  const SpillShard wanted = Wanted(*ranking);
  if (wanted.first_position > wanted.last_position) return absl::OkStatus();
  HOTBED_ASSIGN_OR_RETURN(const auto reader, shard_.options.tiers->ReadShard(wanted, 0));
  for (;;) {
    HOTBED_RETURN_IF_ERROR(go_on());
    HOTBED_ASSIGN_OR_RETURN(const std::string block, reader->Next(kSearchBlockBytes));
    if (block.empty()) return absl::OkStatus();
    HOTBED_ASSIGN_OR_RETURN(const BlockRows rows, RowsIn(wanted, block));
    const StoredRun run = {rows.first, rows.stride, rows.count};
    const auto position_of = [&](uint32_t row, uint64_t* position) {
      *position = rows.position(row);
      return !rows.deleted(row) && IsRow(run, row);
    };
    std::vector<uint64_t> again;
    if (exact) {
      ranking->Offer(run, position_of);
    } else {
      for (const uint32_t row : ranking->Wanted(run, position_of)) {
        again.push_back(rows.position(row));
      }
    }
    // Also without rows: it ends the search of a shard that has left this server.
    HOTBED_RETURN_IF_ERROR(Only(again, ranking, go_on));
  }
}

}  // namespace hotbed
