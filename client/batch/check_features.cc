#include "client/batch/check_features.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

std::string FeatureName(size_t index, const Table& table) {
  return absl::StrCat("feature ", index, " of table ", table.name());
}

template <typename... Text>
absl::Status Bad(size_t index, const Table* table, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat(FeatureName(index, *table), ": ", text...));
}

// Checks the rows of `gradients` that the ids name.
absl::Status CheckGradientRows(size_t index, const PushFeature& feature) {
  if (feature.ids.empty()) return absl::OkStatus();
  if ((feature.arg_max == nullptr) != (feature.bag_positions == nullptr)) {
    return Bad(index, feature.table, "arg_max and bag_positions come together; one is missing");
  }
  if (feature.gradient_stride != 0 && feature.gradient_stride < feature.table->dim()) {
    return Bad(index, feature.table, "gradient_stride is ", feature.gradient_stride,
               ", below the dim ", feature.table->dim());
  }
  if (feature.gradient_rows == nullptr) return absl::OkStatus();
  uint32_t largest = 0;
  for (size_t i = 0; i < feature.ids.size(); ++i) {
    largest = std::max(largest, feature.gradient_rows[i]);
  }
  if (largest < feature.gradient_row_count) return absl::OkStatus();
  const uint32_t* const at =
      std::find(feature.gradient_rows, feature.gradient_rows + feature.ids.size(), largest);
  return Bad(index, feature.table, "gradient row ", largest, " at position ",
             at - feature.gradient_rows, ", gradient_row_count is ", feature.gradient_row_count);
}

}  // namespace

absl::Status CheckFeatures(absl::Span<const FeatureIds> features, const ClusterMap& map,
                           const void* owner) {
  absl::flat_hash_map<const TableHandle*, uint64_t> ids_of_table;
  for (size_t f = 0; f < features.size(); ++f) {
    const FeatureIds& feature = features[f];
    if (feature.table->owner() != owner) {
      return Bad(f, feature.table, "the table was opened by another client; open it with this one");
    }
    const TableRoute* route = map.Table(feature.table->id());
    if (route == nullptr) {
      return absl::NotFoundError(
          absl::StrCat(FeatureName(f, *feature.table), ": the table was dropped"));
    }
    feature.table->LearnCuts(route->cut_from);
    uint64_t& ids = ids_of_table[feature.table];
    ids += feature.ids.size();
    if (ids > kIdsPerCallMax) {
      return Bad(f, feature.table, ids, " ids of one table in one call, the limit is ",
                 kIdsPerCallMax, "; make several calls");
    }
  }
  return absl::OkStatus();
}

absl::Status ResolveFeatures(absl::Span<FeatureIds> features, std::vector<ResolvedIds>* resolved,
                             uint64_t* zeroed) {
  if (resolved->size() < features.size()) resolved->resize(features.size());
  for (size_t f = 0; f < features.size(); ++f) {
    FeatureIds& feature = features[f];
    const TableOptions& table = feature.table->options();
    ResolvedIds& to = (*resolved)[f];
    const size_t bad = ResolveIds(table, feature.ids, &to);
    if (bad != feature.ids.size()) {
      return absl::OutOfRangeError(absl::StrCat(
          FeatureName(f, *feature.table), ": id ", feature.ids[bad], " at position ", bad,
          " is outside the table's 0..", table.rows - 1,
          "; bring ids into range, use a hashed table, or one of bounds_mode zero or modulo"));
    }
    feature.ids = to.ids;
    feature.skip = to.skip;
    *zeroed += to.zeroed;
  }
  return absl::OkStatus();
}

// Checks that a pull that is not pooled leaves the fields of bags alone.
absl::Status CheckNoBags(size_t index, const PullFeature& feature) {
  const char* asked = feature.id_weights != nullptr         ? "id_weights"
                      : feature.arg_max != nullptr          ? "arg_max"
                      : feature.pooling != BagPooling::kSum ? "pooling"
                      : feature.row_stride != 0             ? "row_stride"
                                                            : nullptr;
  if (asked == nullptr) return absl::OkStatus();
  return Bad(index, feature.table, asked,
             " without bag_lengths: it is for pooled rows; give the bags' lengths");
}

absl::Status CheckBags(size_t index, const PullFeature& feature, RowType wire_type) {
  if (feature.bag_lengths.empty()) return CheckNoBags(index, feature);
  const std::string name = FeatureName(index, *feature.table);
  const auto error = [&](const auto&... text) { return Bad(index, feature.table, "", text...); };
  uint64_t end = 0;
  for (size_t b = 0; b < feature.bag_lengths.size(); ++b) {
    end += feature.bag_lengths[b];
    if (end <= feature.ids.size()) continue;
    return error("bag ", b, " of length ", feature.bag_lengths[b], " ends at id ", end, " of ",
                 feature.ids.size(), "; lengths must add up to the number of ids");
  }
  if (end != feature.ids.size()) {
    return error("the last of ", feature.bag_lengths.size(), " bags ends at id ", end, " of ",
                 feature.ids.size(), "; lengths must add up to the number of ids");
  }
  if (feature.rows == nullptr) {
    return error("no buffer for ", feature.bag_lengths.size(), " pooled rows");
  }
  if (feature.row_type != RowType::kFp32) {
    return error("pooled rows arrive as fp32; leave row_type at that");
  }
  if (wire_type == RowType::kInt8) {
    return error("pooled rows travel as fp32, fp16 or bf16, not int8; set wire_type");
  }
  if (feature.pooling == BagPooling::kMax && feature.id_weights != nullptr) {
    return error("weights with pooling max; they are for sum and mean");
  }
  if (feature.pooling != BagPooling::kMax && feature.arg_max != nullptr) {
    return error("arg_max without pooling max");
  }
  if (feature.pooling > BagPooling::kMax) {
    return error("unknown pooling ", static_cast<int>(feature.pooling));
  }
  if (feature.row_stride != 0 && feature.row_stride < feature.table->dim()) {
    return error("row_stride is ", feature.row_stride, ", below the dim ", feature.table->dim());
  }
  return absl::OkStatus();
}

// An int8 row has one scale and one bias. A sliced row has a pair per slice, for which the caller's
// int8 row has no room.
absl::Status CheckInt8OfSlices(size_t index, const PullFeature& feature) {
  const TableOptions& options = feature.table->options();
  if (options.row_statistics != RowStatistics::kSlice) {
    return Bad(index, feature.table, "wire_type int8 scales whole rows, and the table has ",
               options.column_slices,
               " column slices; pull fp32, fp16 or bf16, or create it with row_statistics=slice");
  }
  if (feature.row_type == RowType::kInt8) {
    return Bad(index, feature.table, "row_type is int8, and the table's ", options.column_slices,
               " column slices each have a scale and bias; take rows as fp32");
  }
  return absl::OkStatus();
}

absl::Status CheckPullFeatures(absl::Span<const PullFeature> features, RowType wire_type) {
  if (features.empty())
    return absl::InvalidArgumentError("a pull of no features; name at least one");
  const PullFeature* first = nullptr;  // that asks for something
  for (size_t f = 0; f < features.size(); ++f) {
    const PullFeature& feature = features[f];
    if (feature.table == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("feature ", f, " names no table"));
    }
    HOTBED_RETURN_IF_ERROR(CheckBags(f, feature, wire_type));
    if (feature.rows == nullptr && !feature.ids.empty()) {
      return Bad(f, feature.table, "no buffer for ", feature.ids.size(), " rows");
    }
    const bool empty = feature.ids.empty() && feature.bag_lengths.empty();
    if (first == nullptr && !empty) first = &feature;
    if (!empty && (feature.missing == nullptr) != (first->missing == nullptr)) {
      return Bad(f, feature.table,
                 "`missing` is set for some features of the call; set it for all or none");
    }
    if (feature.row_type != RowType::kFp32 && feature.row_type != wire_type) {
      return Bad(f, feature.table,
                 "rows arrive as fp32 or as they travel; ask for the same wire_type");
    }
    if (wire_type == RowType::kInt8 && feature.table->options().column_slices > 1) {
      HOTBED_RETURN_IF_ERROR(CheckInt8OfSlices(f, feature));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNoVocabulary(const Table& table) {
  if (table.options().vocabulary == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table ", table.name(),
                   " is a vocabulary, whose rows change by look-ups alone (hotbed/vocabulary.h); "
                   "nothing was sent"));
}

absl::Status CheckShows(size_t index, const PushFeature& feature, bool assign) {
  if (feature.shows == nullptr && feature.clicks == nullptr) return absl::OkStatus();
  if (!feature.table->options().optimizer.shows.kept) {
    return Bad(index, feature.table,
               "shows and clicks, and the table keeps none; make one with shows and touches (a "
               "hashed table)");
  }
  if (assign) {
    return Bad(index, feature.table, "shows and clicks of rows that are assigned; leave them out");
  }
  for (const auto& [values, name] :
       {std::pair(feature.shows, "shows"), std::pair(feature.clicks, "clicks")}) {
    for (size_t i = 0; values != nullptr && i < feature.ids.size(); ++i) {
      if (std::isfinite(values[i]) && values[i] >= 0) continue;
      return Bad(index, feature.table, name, " of id ", feature.ids[i], " at position ", i, " is ",
                 values[i], ", allowed: finite numbers, 0 or more");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPushFeatures(absl::Span<const PushFeature> features, bool assign) {
  if (features.empty())
    return absl::InvalidArgumentError("a push of no features; name at least one");
  for (size_t f = 0; f < features.size(); ++f) {
    const PushFeature& feature = features[f];
    if (feature.table == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("feature ", f, " names no table"));
    }
    if (feature.gradients == nullptr && !feature.ids.empty()) {
      return Bad(f, feature.table, "no gradients for ", feature.ids.size(), " ids");
    }
    HOTBED_RETURN_IF_ERROR(CheckNoVocabulary(*feature.table));
    if (feature.table->options().optimizer.kind == OptimizerKind::kNone && !assign) {
      return absl::FailedPreconditionError(absl::StrCat(
          FeatureName(f, *feature.table),
          ": the table's optimizer is none, its rows never change by a push; take the summed "
          "gradient from Embeddings::Gradients and apply it yourself"));
    }
    HOTBED_RETURN_IF_ERROR(CheckGradientRows(f, feature));
    HOTBED_RETURN_IF_ERROR(CheckShows(f, feature, assign));
  }
  return absl::OkStatus();
}

absl::Status CheckDeletedFeatures(absl::Span<const PushFeature> features) {
  for (size_t f = 0; f < features.size(); ++f) {
    const PushFeature& feature = features[f];
    if (feature.table == nullptr) return absl::InvalidArgumentError("a delete names no table");
    HOTBED_RETURN_IF_ERROR(CheckNoVocabulary(*feature.table));
    if (feature.table->options().hashed) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "table ", feature.table->name(), ": rows of a bounded table are not deleted (it has ",
        feature.table->options().rows, "); assign them new weights (PushOptions::assign) instead"));
  }
  return absl::OkStatus();
}

}  // namespace hotbed
