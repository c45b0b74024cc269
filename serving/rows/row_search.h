// The rows of a served table that are nearest to vectors, exactly (row_math/nearness.h): every row
// is compared as it lies in memory. A row's score is that of the fp32 row which lookups give.
//
// Rows are read in the order in which they lie in memory, and most of them need no look at the
// index: the id of a row is asked for only when the row is still among the nearest after as many
// others were met with.
#ifndef HOTBED_SERVING_ROWS_ROW_SEARCH_H_
#define HOTBED_SERVING_ROWS_ROW_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/top_rows.h"
#include "row_math/line_vectors.h"
#include "row_math/metric.h"
#include "row_math/rank_batch.h"
#include "serving/rows/versioned_rows.h"

namespace hotbed {

struct RowQuery {
  RowMetric metric = RowMetric::kDot;
  uint32_t k = 1;                                      // per vector
  absl::Span<const float> vectors;                     // one after another, each of the table's dim
  std::optional<absl::Span<const uint64_t>> only_ids;  // other rows are passed over
  uint64_t first_id = 0;                               // likewise
  uint64_t last_id = ~uint64_t{0};
};

// Used once, by one thread. A Reader is held for a part of the rows (RowsView::parts) at a time.
class RowSearch {
 public:
  // The query's memory outlives it.
  RowSearch(const RowsView& view, const RowQuery& query);

  // Compares all rows. `go_on` is asked every millisecond or so; its error ends the search. Where
  // the rows are of a version, they are right if the view holds afterwards. Unavailable: the disk
  // has failed.
  absl::Status Run(absl::FunctionRef<absl::Status()> go_on);
  uint64_t rows_read() const { return rows_read_; }
  // Per vector, the nearest rows in order; none are left.
  std::vector<std::vector<ScoredRow>> Take();

 private:
  using Reader = RowsView::Reader;
  using GoOn = absl::FunctionRef<absl::Status()>;
  // Offers a row of `rows_`, with the score that it had there.
  using OfferRow = absl::FunctionRef<void(uint32_t vector, uint32_t row, double score)>;

  // A row that was met with in a walk, and is near.
  struct Met {
    const uint8_t* row;
    uint32_t stripe;
    double score;
  };

  absl::Status RankPart(bool whole, uint32_t part, GoOn go_on);
  absl::Status RankOnly(absl::Span<const uint64_t> ids, GoOn go_on);
  absl::Status RankMemory(GoOn go_on);
  // All rows, in the order of their ids.
  absl::Status RankBelow(GoOn go_on);
  RankBatch BatchOf(size_t vector) const;
  double ScoreOf(size_t vector, const uint8_t* row) const;
  // Compares rows that lie one after another with all vectors.
  absl::Status RankRun(const Reader& reader, const RowsView::Walk& walk, const ServedRows::Run& run,
                       GoOn go_on);
  // Compares the first `count` of rows_; the others are fetched ahead.
  absl::Status RankScattered(const Reader& reader, const RowsView::Walk& walk, size_t count,
                             GoOn go_on);
  absl::Status RankSome(size_t count, OfferRow offer, GoOn go_on);
  absl::Status Compare(RankBatch rows, OfferRow offer, GoOn go_on);
  // Leaves the k nearest of met_, and those that are as near as the last of them.
  void Prune(size_t vector);
  // Offers what was met with under its ids.
  void Settle(const Reader& reader, const RowsView::Walk& walk, size_t vector);
  void Keep(const Reader& reader, const RowsView::Walk& walk, size_t vector, const Met& met);
  bool Nearer(double a, double b) const;
  void Offer(size_t vector, uint64_t id, double score);

  const RowsView& view_;
  const RowQuery query_;
  const uint32_t dim_;
  const uint32_t rows_max_;  // of those that are compared in one step
  LineVectors<double> vectors_;
  std::vector<double> norms_;
  LineVectors<int8_t> codes_;             // of quick_
  std::vector<CodeQuery> quick_;          // one per vector, if rows hold codes
  LineVectors<float> floats_;             // of quick_floats_
  std::vector<FloatQuery> quick_floats_;  // one per vector, if rows hold floats
  std::vector<TopRows> tops_;
  // Whether ids are asked for late. Not where a row may turn out to be out of question by its id.
  bool late_ = false;
  bool lost_ = false;                  // a row of met_ was deleted meanwhile
  std::vector<std::vector<Met>> met_;  // per vector
  std::vector<double> floors_;         // of what was pruned; no number: of nothing
  std::vector<const uint8_t*> rows_;   // scattered ones, that are compared in this step or the next
  std::vector<uint32_t> stripes_;      // of rows_
  uint64_t elements_ = 0;              // compared since go_on was asked
  bool dropped_ = false;               // the view does not hold any more
  uint64_t rows_read_ = 0;
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_ROWS_ROW_SEARCH_H_
