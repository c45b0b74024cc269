#include "trainer/saved_model.h"

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

using ModelRow = std::array<float, 5>;  // format, factors, offset, label_min, label_max
constexpr uint64_t kModelId = 0;
// The trainer that made the table stores the row at once. If it died in between, another one does.
constexpr absl::Duration kMakerTime = absl::Seconds(10);
constexpr absl::Duration kLookAgain = absl::Milliseconds(20);

std::string TableOf(const std::string& prefix) { return prefix + "_model"; }

std::string FormatName(DataFormat format) {
  return format == DataFormat::kRatings ? "ratings" : "criteo";
}

absl::Status Store(Client* client, const Table* table, const SavedModel& model) {
  const ModelRow row = {static_cast<float>(model.format), static_cast<float>(model.factors),
                        model.offset, model.label_min, model.label_max};
  PushOptions options;
  options.assign = true;
  const std::vector<PushFeature> features = {
      {table, absl::MakeConstSpan(&kModelId, 1), row.data()}};
  return client->Push(1, features, options).Wait().status;
}

// False if no trainer has stored the row yet.
absl::StatusOr<bool> Read(Client* client, const Table* table, SavedModel* model) {
  ModelRow row{};
  uint8_t exists = 0;
  HOTBED_RETURN_IF_ERROR(client
                             ->Pull({{.table = table,
                                      .ids = absl::MakeConstSpan(&kModelId, 1),
                                      .rows = row.data(),
                                      .exists = &exists}})
                             .Wait());
  model->format = row[0] == 0 ? DataFormat::kCriteo : DataFormat::kRatings;
  model->factors = static_cast<int>(row[1]);
  model->offset = row[2];
  model->label_min = row[3];
  model->label_max = row[4];
  return exists != 0;
}

}  // namespace

absl::StatusOr<SavedModel> ShareModel(Client* client, const std::string& prefix,
                                      const SavedModel& model, const TableOptions& like) {
  TableOptions spec;
  spec.name = TableOf(prefix);
  spec.rows = 1;
  spec.dim = static_cast<uint32_t>(ModelRow().size());
  spec.optimizer.kind = OptimizerKind::kNone;
  spec.initializer = {InitializerKind::kZero};
  spec.durability = like.durability;
  spec.replicas = like.replicas;
  absl::StatusOr<const Table*> table = client->CreateTable(spec);
  const bool is_maker = table.ok();
  if (absl::IsAlreadyExists(table.status())) table = client->OpenTable(spec.name);
  if (!table.ok()) return table.status();
  if (is_maker) HOTBED_RETURN_IF_ERROR(Store(client, *table, model));
  SavedModel stored;
  const absl::Time limit = absl::Now() + kMakerTime;
  while (true) {
    HOTBED_ASSIGN_OR_RETURN(const bool is_there, Read(client, *table, &stored));
    if (is_there) break;
    if (absl::Now() > limit) HOTBED_RETURN_IF_ERROR(Store(client, *table, model));
    absl::SleepFor(kLookAgain);
  }
  if (stored.format != model.format || stored.factors != model.factors) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the tables ", prefix, "_... hold a model of format ", FormatName(stored.format), " with ",
        stored.factors, " factors; this run is ", FormatName(model.format), " with ", model.factors,
        ". Choose another --table-prefix, or drop the tables"));
  }
  return stored;
}

absl::StatusOr<SavedModel> LoadModel(Client* client, const std::string& prefix) {
  const absl::StatusOr<const Table*> table = client->OpenTable(TableOf(prefix));
  SavedModel model;
  absl::StatusOr<bool> is_there = false;
  if (table.ok()) is_there = Read(client, *table, &model);
  if (!table.ok() && !absl::IsNotFound(table.status())) return table.status();
  if (!is_there.ok()) return is_there.status();
  if (!*is_there) {
    return absl::NotFoundError(absl::StrCat("no model was trained under --table-prefix=", prefix,
                                            ": table ", TableOf(prefix),
                                            " is missing or empty. Train one with --train"));
  }
  return model;
}

}  // namespace hotbed
