#include "client/composed/composed_calls.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/batch/check_features.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

template <typename... Text>
absl::Status Refused(size_t index, const Table& table, const Text&... text) {
  return absl::InvalidArgumentError(absl::StrCat("feature ", index, " of table ", table.name(),
                                                 ", which is composed: ", text...));
}

absl::Status CheckOwner(size_t index, const ComposedHandle& table, const void* owner) {
  if (table.owner() == owner) return absl::OkStatus();
  return Refused(index, table, "the table was opened by another client; open it with this one");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ComposedPull>> ComposedPull::Plan(
    absl::Span<const PullFeature> features, RowType wire_type, const void* owner,
    ClientCounters* counters) {
  HOTBED_RETURN_IF_ERROR(CheckPullFeatures(features, wire_type));
  auto pull = std::make_unique<ComposedPull>();
  for (size_t f = 0; f < features.size(); ++f) {
    const PullFeature& feature = features[f];
    const ComposedHandle* const table = AsComposed(feature.table);
    if (table == nullptr) {
      pull->pulls_.push_back(feature);
      continue;
    }
    HOTBED_RETURN_IF_ERROR(CheckOwner(f, *table, owner));
    if (feature.missing != nullptr) {
      return Refused(f, *table, "`missing` is set; leave it null, or pull the parts");
    }
    if (feature.row_type != RowType::kFp32) {
      return Refused(f, *table, "rows are made as fp32; leave row_type at that");
    }
    Feature& made = pull->composed_.emplace_back();
    made.asked = feature;
    made.rows = std::make_unique<ComposedRows>(table);
    HOTBED_RETURN_IF_ERROR(made.rows->Bind(f, feature.ids));
    counters->ids_zeroed += made.rows->zeroed();
    made.rows->AddPulls(feature.exists != nullptr, &pull->pulls_);
  }
  return pull;
}

void ComposedPull::Finish() {
  for (Feature& feature : composed_) {
    feature.rows->TakeRows();
    if (feature.asked.exists != nullptr) feature.rows->WriteExists(feature.asked.exists);
    if (feature.asked.bag_lengths.empty()) {
      feature.rows->WriteRows(static_cast<float*>(feature.asked.rows));
    } else {
      feature.rows->WriteBags(feature.asked);
    }
  }
}

absl::StatusOr<std::unique_ptr<ComposedPush>> ComposedPush::Plan(
    absl::Span<const PushFeature> features, const PushOptions& options, const void* owner) {
  HOTBED_RETURN_IF_ERROR(CheckPushFeatures(features, options.assign));
  auto push = std::make_unique<ComposedPush>();
  for (size_t f = 0; f < features.size(); ++f) {
    const PushFeature& feature = features[f];
    const ComposedHandle* const table = AsComposed(feature.table);
    if (table == nullptr) {
      push->pushes_.push_back(feature);
      continue;
    }
    HOTBED_RETURN_IF_ERROR(CheckOwner(f, *table, owner));
    if (options.assign) {
      return Refused(f, *table,
                     "its rows are made of those of its parts and cannot be assigned; assign to "
                     "the parts, the first is ",
                     table->parts().front()->name(), "; nothing of this step was sent");
    }
    Feature& made = push->composed_.emplace_back();
    made.given = feature;
    made.rows = std::make_unique<ComposedRows>(table);
    HOTBED_RETURN_IF_ERROR(made.rows->Bind(f, feature.ids));
    if (DependsOnRows(feature, *made.rows)) made.rows->AddPulls(/*exists=*/false, &push->pulls_);
  }
  return push;
}

absl::Span<const PushFeature> ComposedPush::Pushes() {
  for (Feature& feature : composed_) {
    feature.rows->TakeRows();
    feature.rows->ClearGradients();
    SplitGradients(feature.given, feature.rows.get());
    feature.rows->AddPushes(&pushes_);
  }
  return pushes_;
}

bool SumsById(const ComposedHandle& table, bool max) {
  const Composition& c = table.options().composition;
  if (c.form != ComposeForm::kQuotientRemainder) return !max;
  return !c.pool_first || (!max && c.combine != Combine::kMultiply);
}

}  // namespace hotbed
