// AddTableChange: changes of a table's options from a step on.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "common/tables/table_spec.h"

namespace hotbed {
namespace {

void Overwrite(const TableChange& with, TableChange* change) {
  if (with.has_learning_rate) {
    change->has_learning_rate = true;
    change->learning_rate = with.learning_rate;
  }
  if (with.has_clip_value) {
    change->has_clip_value = true;
    change->clip_value = with.clip_value;
  }
  if (with.has_clip_row_norm) {
    change->has_clip_row_norm = true;
    change->clip_row_norm = with.clip_row_norm;
  }
  if (with.has_schedule) {
    change->has_schedule = true;
    change->schedule = with.schedule;
  }
  if (with.has_memory_share_min) {
    change->has_memory_share_min = true;
    change->memory_share_min = with.memory_share_min;
  }
  if (with.has_memory_share_max) {
    change->has_memory_share_max = true;
    change->memory_share_max = with.memory_share_max;
  }
  if (with.has_life) {
    change->has_life = true;
    change->life = with.life;
  }
}

void AppendLimit(absl::string_view name, float limit, std::string* text) {
  absl::StrAppend(text, text->empty() ? "" : " ", name, "=");
  limit == 0 ? absl::StrAppend(text, "off") : absl::StrAppend(text, limit);
}

}  // namespace

std::string ChangeText(const TableChange& change) {
  std::string text;
  if (change.has_learning_rate) absl::StrAppend(&text, "learning_rate=", change.learning_rate);
  if (change.has_clip_value) AppendLimit("clip_value", change.clip_value, &text);
  if (change.has_clip_row_norm) AppendLimit("clip_row_norm", change.clip_row_norm, &text);
  const auto append = [&text](const auto&... parts) {
    absl::StrAppend(&text, text.empty() ? "" : " ", parts...);
  };
  if (change.has_schedule) append("schedule=", change.schedule.ToText());
  if (change.has_memory_share_min) append("memory_share_min=", change.memory_share_min);
  if (change.has_memory_share_max) append("memory_share_max=", change.memory_share_max);
  if (!change.has_life) return text;
  const LifeParams& life = change.life;
  append("ttl_s=", life.ttl_s, " ttl_steps=", life.ttl_steps, " rows_max=", life.rows_max,
         " bytes_max=", life.bytes_max,
         " evict_by=", kEvictByWords[static_cast<size_t>(life.evict_by)]);
  if (!(life.score == ScoreParams())) {
    append("score_show=", life.score.show, " score_click=", life.score.click,
           " score_least=", life.score.least);
  }
  return text;
}

absl::Status AddTableChange(const TableChange& asked, TableSpec* spec) {
  TableSpec changed = *spec;
  TableChange change = asked;
  change.life.admission = {};  // stays the table's own (LifeOf)
  const uint64_t last = changed.changes.empty() ? 0 : changed.changes.back().at_step;
  if (!changed.changes.empty() && change.at_step < last) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", spec->name, "\": at_step is ", change.at_step, ", allowed: ", last,
                     " (which adds to the change there) or later, for a change is given for step ",
                     last, " already"));
  }
  if (last == change.at_step && !changed.changes.empty()) {
    Overwrite(change, &changed.changes.back());
  } else {
    changed.changes.push_back(change);
  }
  HOTBED_RETURN_IF_ERROR(ValidateTableSpec(changed));
  *spec = std::move(changed);
  return absl::OkStatus();
}

}  // namespace hotbed
