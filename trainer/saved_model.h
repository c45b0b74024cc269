// The parts of a trained model besides its rows: one row of the table PREFIX_model in the cluster,
// so that a model can be scored without the file that it was trained on.
#ifndef HOTBED_TRAINER_SAVED_MODEL_H_
#define HOTBED_TRAINER_SAVED_MODEL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hotbed/client.h"
#include "trainer/dataset.h"

namespace hotbed {

struct SavedModel {
  DataFormat format = DataFormat::kCriteo;
  int factors = 0;
  float offset = 0;     // FmShape::offset
  float label_min = 0;  // predicted ratings are clamped to [label_min, label_max]
  float label_max = 1;
};

// Stores `model` as that of `prefix`, or returns the one that is there: of several trainers that
// start together the first one stores its own, and the others train with that. `like` has the
// durability of the table. FailedPrecondition: the stored model has another format or size.
absl::StatusOr<SavedModel> ShareModel(Client* client, const std::string& prefix,
                                      const SavedModel& model, const TableOptions& like);

// NotFound: no model was trained under `prefix`.
absl::StatusOr<SavedModel> LoadModel(Client* client, const std::string& prefix);

}  // namespace hotbed

#endif  // HOTBED_TRAINER_SAVED_MODEL_H_
