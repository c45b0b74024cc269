// The rows of a table that follow its changes (`latest`), and beside them the rows of versions
// (docs/serving.md), of which only those are kept that differ.
//
// A version has an overlay: the bytes of rows, and the ids of rows that it does not have. Once it
// is whole, this holds for every id at every moment:
//
//   (1) The overlay has the version's row, or says that there is none; or it has nothing about the
//       id, and then the version's row is the one of `latest`, which may be none.
//   (2) What an overlay has never changes or goes.
//
// The writer keeps (1): before it changes or deletes a row of `latest`, or makes a new one, it
// saves the row as it was into every overlay that has nothing about the id. Readers look into
// `latest` first and into the overlay second, and the overlay wins. If it has nothing, then by (2)
// it had nothing when they looked into `latest`, so that by (1) the row they found there is the
// version's. So no lock and no retry is needed, and a reader never sees a later row.
//
// While a version is taken up, (1) holds for the rows that were read from its files: they are
// marked as seen in `latest` and in the overlay, and a mark moves with its row. A row of the files
// takes the place of one that was saved before. In the end the rows without a mark, which the files
// do not have, are told to be absent.
//
// If memory is used up, overlays are given up before rows of `latest` are: the one that is being
// taken up, then others, the one that readers want most at last. A reader of a version that was
// given up may have found later rows, and asks Holds when it has found all.
#ifndef HOTBED_SERVING_ROWS_VERSIONED_ROWS_H_
#define HOTBED_SERVING_ROWS_VERSIONED_ROWS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "serving/rows/rows_below.h"
#include "serving/rows/served_rows.h"

namespace hotbed {

class RowsOnDevice;

class VersionOverlay {
 public:
  VersionOverlay(uint64_t number, const RowCoder& coder, ServedMemory* memory)
      : number_(number), rows_(coder, memory), absent_(RowCoder(RowFormatKind::kFp32, 0), memory) {}

  uint64_t number() const { return number_; }
  uint64_t rows() const { return rows_.rows() + absent_.rows(); }
  uint64_t bytes() const { return rows_.bytes() + absent_.bytes(); }

 private:
  friend class VersionedRows;
  friend struct RowsView;
  bool Has(uint64_t id) const { return rows_.Get(id) != nullptr || absent_.Get(id) != nullptr; }
  // Sets what it has of the id; null: there is no such row.
  absl::Status Set(uint64_t id, const uint8_t* row);
  void Reclaim() {
    rows_.Reclaim();
    absent_.Reclaim();
  }

  const uint64_t number_;
  ServedRows rows_;
  ServedRows absent_;  // rows without bytes
  std::atomic<bool> given_up_{false};
  std::atomic<bool> whole_{false};
};

// The rows of `latest`, or of a version.
struct RowsView {
  RowsView(std::shared_ptr<const ServedRows> rows, std::shared_ptr<const VersionOverlay> overlay)
      : latest(std::move(rows)), version(std::move(overlay)) {}
  // The newest rows, which outlive it.
  RowsView(const ServedRows& rows) : latest(std::shared_ptr<void>(), &rows) {}  // NOLINT

  std::shared_ptr<const ServedRows> latest;
  std::shared_ptr<const VersionOverlay> version;  // null: latest
  std::shared_ptr<const RowsBelow> below;         // null: memory has all rows
  // Some rows of `latest`, and some that are below; null: there is no device.
  std::shared_ptr<const RowsOnDevice> device;

  const RowCoder& coder() const { return latest->coder(); }
  // A walk over all rows is whole, and has one part, or two with a version; or stripe by stripe.
  struct Walk {
    bool of_version = false;
    ServedRows::Walk rows;
  };
  uint32_t parts(bool whole) const {
    return (whole ? 1 : ServedRows::kStripes) * (version == nullptr ? 1 : 2);
  }
  // True: the rows that Readers found before this call are right.
  bool Holds() const { return version == nullptr || !version->given_up_.load(); }

  // True: no row is looked for on a device or on disk.
  bool InMemory() const { return device == nullptr && (below == nullptr || !below->needed()); }

  // As ServedRows::Reader.
  class Reader {
   public:
    explicit Reader(const RowsView& view);
    const uint8_t* Find(uint64_t id) const;
    // Whether the row of this id that `latest` had before this call is not the view's.
    bool Differs(uint64_t id) const {
      return rows_.has_value() && (rows_->Find(id) != nullptr || absent_->Find(id) != nullptr);
    }
    void Prefetch(uint64_t id) const { latest_.Prefetch(id); }
    void PrefetchChunk(uint64_t id) const { latest_.PrefetchChunk(id); }
    void PrefetchRow(uint64_t id) const { latest_.PrefetchRow(id); }
    // Walks over the rows of a part, as ServedRows::Reader does. Together, walks over all parts,
    // one after another from 0 on, each with a Reader of its own, meet with every row of the view,
    // and with others, which Identify sorts out.
    void Begin(bool whole, uint32_t part, Walk* walk) const;
    bool Next(Walk* walk, uint32_t rows_max, ServedRows::Run* run) const {
      return ReaderOf(*walk).Next(&walk->rows, rows_max, run);
    }
    uint32_t StripeOf(const Walk& walk, const ServedRows::Run& run, const uint8_t* row) const {
      return ReaderOf(walk).rows().StripeOf(run, row);
    }
    void Identify(const Walk& walk, uint32_t stripe, const uint8_t* row,
                  absl::FunctionRef<void(uint64_t id, const uint8_t* now)> tell) const;

   private:
    const ServedRows::Reader& ReaderOf(const Walk& walk) const {
      return walk.of_version ? *rows_ : latest_;
    }

    const ServedRows::Reader latest_;
    std::optional<ServedRows::Reader> rows_;
    std::optional<ServedRows::Reader> absent_;
  };
};

// Thread-safe. Views outlive it.
class VersionedRows final : private RowChangeWatcher {
 public:
  // `memory` outlives it and its views.
  VersionedRows(const RowCoder& coder, ServedMemory* memory);

  // --- the thread that follows; as the functions of ServedRows
  // ResourceExhausted: there are no overlays to be given up any more.
  absl::Status Put(uint64_t id, const float* weights, bool* finite) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status PutRow(uint64_t id, const uint8_t* row) ABSL_LOCKS_EXCLUDED(mu_);
  // Deletes another row, so that PutRow of this one may find a place. Returns its id, and adds its
  // bytes to `rows`; nothing: there was none.
  std::optional<uint64_t> MakePlaceFor(uint64_t id, uint64_t random, std::vector<uint8_t>* rows)
      ABSL_LOCKS_EXCLUDED(mu_);
  bool Delete(uint64_t id) ABSL_LOCKS_EXCLUDED(mu_);
  void Unmark(const std::function<bool(uint64_t id)>& of) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t DeleteUnmarked() ABSL_LOCKS_EXCLUDED(mu_);
  void Reclaim() ABSL_LOCKS_EXCLUDED(mu_);
  void SetLife(uint32_t life) { latest_->SetLife(life); }
  void NoteChange(int64_t now_ns) { latest_->NoteChange(now_ns); }

  // --- the thread that takes up versions, one after another
  // Begin; TakeUp for all rows, of which a later one takes the place of an earlier one of the same
  // id; End, and readers find it. ResourceExhausted: memory is used up. Aborted: it was dropped
  // meanwhile. After both there is nothing of the version.
  void Begin(uint64_t number) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status TakeUp(uint64_t number, absl::Span<const uint64_t> ids,
                      absl::Span<const float> weights) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status End(uint64_t number) ABSL_LOCKS_EXCLUDED(mu_);
  // A version that was taken up whole elsewhere, where memory does not suffice for its table.
  void AddBelow(uint64_t number, std::shared_ptr<const RowsBelow> rows)
      ABSL_LOCKS_EXCLUDED(shown_mu_);

  // --- any thread
  void Drop(uint64_t number) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops all versions for which `wanted` is false; those that are `most_wanted` are given up last.
  void Keep(const std::function<bool(uint64_t number)>& wanted, std::vector<uint64_t> most_wanted)
      ABSL_LOCKS_EXCLUDED(mu_);
  const ServedRows& latest() const { return *latest_; }
  RowsView Latest() const { return {latest_, nullptr}; }
  // Nothing: the version is not whole here.
  std::optional<RowsView> Version(uint64_t number) const ABSL_LOCKS_EXCLUDED(shown_mu_);
  // Null: it is not held whole below.
  std::shared_ptr<const RowsBelow> FindBelow(uint64_t number) const ABSL_LOCKS_EXCLUDED(shown_mu_);
  // Null: there is nothing of it in memory.
  std::shared_ptr<const VersionOverlay> Find(uint64_t number) const ABSL_LOCKS_EXCLUDED(shown_mu_);

 private:
  using Overlays = std::vector<std::shared_ptr<VersionOverlay>>;

  void BeforeChange(uint64_t id, const uint8_t* row, bool seen) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Overlays::iterator Locate(uint64_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeUpRow(uint64_t id, const uint8_t* row, VersionOverlay* overlay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells that the rows of a stripe which were not seen are absent.
  absl::Status EndStripe(uint32_t stripe, VersionOverlay* overlay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Gone(uint64_t number) const;
  void Show() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) ABSL_LOCKS_EXCLUDED(shown_mu_);
  std::shared_ptr<VersionOverlay> Drop(Overlays::iterator at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Drops the overlay that is wanted least. False: there is none.
  bool GiveUpOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ServedMemory* const memory_;
  // Readers look into it at any time; it changes with mu_ held.
  const std::shared_ptr<ServedRows> latest_;
  absl::Mutex mu_;  // may be held for as long as it takes to look at all rows
  Overlays overlays_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> most_wanted_ ABSL_GUARDED_BY(mu_);
  mutable absl::Mutex shown_mu_;
  Overlays shown_ ABSL_GUARDED_BY(shown_mu_);  // overlays_, for readers
  std::map<uint64_t, std::shared_ptr<const RowsBelow>> below_ ABSL_GUARDED_BY(shown_mu_);
  // Without rows: memory's part of versions that lie below.
  const std::shared_ptr<ServedRows> none_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_VERSIONED_ROWS_H_
