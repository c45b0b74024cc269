#include "checkpoint/restore_rules.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

template <typename Value>
absl::Status MustBeEqual(const TableSpec& wanted, absl::string_view option, const Value& saved,
                         const Value& asked) {
  if (saved == asked) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table \"", wanted.name, "\": ", option, " is ", asked, ", and ", saved,
                   " in the checkpoint. A restored table may differ in its name, placement, "
                   "durability and weight type"));
}

}  // namespace

absl::Status CheckRestorable(const TableSpec& saved, const TableSpec& wanted) {
  for (const absl::Status& same :
       {MustBeEqual(wanted, "hashed", int{saved.hashed}, int{wanted.hashed}),
        MustBeEqual(wanted, "dim", saved.dim, wanted.dim),
        MustBeEqual(wanted, "optimizer.kind",
                    kOptimizerWords[static_cast<size_t>(saved.optimizer.kind)],
                    kOptimizerWords[static_cast<size_t>(wanted.optimizer.kind)]),
        MustBeEqual(wanted, "optimizer.touches", int{saved.optimizer.touches},
                    int{wanted.optimizer.touches}),
        MustBeEqual(wanted, "optimizer.shows", int{saved.optimizer.shows.kept},
                    int{wanted.optimizer.shows.kept}),
        MustBeEqual(wanted, "vocabulary", saved.vocabulary, wanted.vocabulary),
        MustBeEqual(wanted, "bytes of optimizer state", StateBytes(saved.optimizer, saved.dim),
                    StateBytes(wanted.optimizer, wanted.dim)),
        MustBeEqual(wanted, "column_slices", saved.column_slices, wanted.column_slices),
        MustBeEqual(wanted, "seed", saved.seed, wanted.seed)}) {
    if (!same.ok()) return same;
  }
  if (saved.hashed || wanted.rows >= saved.rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("table \"", wanted.name, "\": rows is ",
                                                 wanted.rows, ", allowed: at least the ",
                                                 saved.rows, " of the checkpoint"));
}

}  // namespace hotbed
