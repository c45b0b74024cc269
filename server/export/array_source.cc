#include "server/export/array_source.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "checkpoint/array_file.h"
#include "checkpoint/array_rows.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kBlockBytes = 1ull << 20;

struct RowPlace {
  uint64_t position = 0;
  uint64_t row = 0;
};

absl::StatusOr<std::unique_ptr<ArrayFile>> OpenChecked(const std::string& folder,
                                                       const v1::ArrayInFile& array) {
  const std::string path = absl::string_view(array.path()).substr(0, 1) == "/"
                               ? array.path()
                               : absl::StrCat(folder, "/", array.path());
  auto file = ArrayFile::Open(path, /*writes=*/false);
  if (!file.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.status().message(),
                     "; every server must reach the arrays of an import under the same path"));
  }
  const bool checked = array.file_bytes() != 0;
  if (!checked || ((*file)->bytes() == array.file_bytes() &&
                   (*file)->modified_unix_ns() == array.modified_unix_ns())) {
    return file;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": it has changed since it was checked; import it again"));
}

class ArrayRows : public RowSource::Rows {
 public:
  ArrayRows(const TableSpec* table, const ShardRange& range)
      : hashed_(table->hashed),
        spec_(*table),
        slice_(*table, range.column_first, range.column_limit),
        next_(range.first_position(table->hashed)),
        last_(range.last_position(table->hashed)) {}

  absl::Status Open(const std::string& folder, const v1::TableArrays& arrays) {
    HOTBED_ASSIGN_OR_RETURN(weights_, OpenChecked(folder, arrays.weights()));
    RowArrays from = {weights_.get(), arrays.weights().offset(),
                      static_cast<WeightType>(arrays.weights().type()), nullptr, 0};
    if (!arrays.state().path().empty()) {
      HOTBED_ASSIGN_OR_RETURN(state_, OpenChecked(folder, arrays.state()));
      from.state = state_.get();
      from.state_at = arrays.state().offset();
    }
    reader_.emplace(&spec_, slice_, from);
    at_once_ = std::max<uint64_t>(kBlockBytes / reader_->payload_bytes(), 1);
    limit_ = hashed_ ? 0 : last_ + 1;
    if (hashed_) HOTBED_RETURN_IF_ERROR(FindOrder(absl::StrCat(folder, "/", arrays.order())));
    bytes_total_ = (limit_ - next_) * reader_->payload_bytes();
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Next(std::vector<uint64_t>* positions,
                            std::vector<uint8_t>* payloads) override {
    positions->clear();
    payloads->clear();
    const uint64_t count = std::min(at_once_, limit_ - next_);
    if (count == 0) return false;
    if (!hashed_) {
      for (uint64_t i = 0; i < count; ++i) positions->push_back(next_ + i);
      HOTBED_RETURN_IF_ERROR(reader_->Read(next_, count, payloads));
    } else {
      HOTBED_RETURN_IF_ERROR(ReadPlaces(count, positions, payloads));
    }
    next_ += count;
    return true;
  }
  uint64_t bytes_total() const override { return bytes_total_; }
  std::string sessions() const override { return ""; }
  Incarnation forgotten() const override { return 0; }

 private:
  // From here on next_ and limit_ are places in the order instead of positions.
  absl::Status FindOrder(const std::string& path) {
    HOTBED_ASSIGN_OR_RETURN(order_, ArrayFile::Open(path, /*writes=*/false));
    HOTBED_ASSIGN_OR_RETURN(const uint64_t first, FirstFrom(next_));
    limit_ = order_->bytes() / sizeof(RowPlace);
    if (last_ != ~uint64_t{0}) {
      HOTBED_ASSIGN_OR_RETURN(limit_, FirstFrom(last_ + 1));
    }
    next_ = first;
    return absl::OkStatus();
  }

  // The first place in the order whose position is not below `position`.
  absl::StatusOr<uint64_t> FirstFrom(uint64_t position) const {
    uint64_t first = 0, limit = order_->bytes() / sizeof(RowPlace);
    while (first < limit) {
      const uint64_t middle = first + (limit - first) / 2;
      RowPlace place;
      HOTBED_RETURN_IF_ERROR(order_->Read(middle * sizeof(place), sizeof(place), &place));
      place.position < position ? first = middle + 1 : limit = middle;
    }
    return first;
  }

  // Rows that follow each other in the arrays, too, are read together.
  absl::Status ReadPlaces(uint64_t count, std::vector<uint64_t>* positions,
                          std::vector<uint8_t>* payloads) {
    places_.resize(count);
    HOTBED_RETURN_IF_ERROR(
        order_->Read(next_ * sizeof(RowPlace), count * sizeof(RowPlace), places_.data()));
    for (uint64_t i = 0; i < count;) {
      uint64_t run = 1;
      while (i + run < count && places_[i + run].row == places_[i].row + run) ++run;
      HOTBED_RETURN_IF_ERROR(reader_->Read(places_[i].row, run, payloads));
      i += run;
    }
    for (const RowPlace& place : places_) positions->push_back(place.position);
    return absl::OkStatus();
  }

  const bool hashed_;
  const TableSpec spec_;
  const ArraySlice slice_;
  uint64_t next_;
  const uint64_t last_;  // position
  uint64_t limit_ = 0;
  uint64_t at_once_ = 1;
  uint64_t bytes_total_ = 0;
  std::unique_ptr<ArrayFile> weights_;
  std::unique_ptr<ArrayFile> state_;
  std::unique_ptr<ArrayFile> order_;  // of a hashed table
  std::optional<ArrayRowReader> reader_;
  std::vector<RowPlace> places_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RowSource::Rows>> OpenArrayRows(const std::string& folder,
                                                               const v1::TableArrays& arrays,
                                                               const TableSpec& table,
                                                               const ShardRange& range) {
  auto rows = std::make_unique<ArrayRows>(&table, range);
  HOTBED_RETURN_IF_ERROR(rows->Open(folder, arrays));
  return rows;
}

}  // namespace hotbed
