#include "cli/demo/click_data.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "terminal/progress.h"
#include "trainer/datagen.h"

namespace hotbed {

absl::StatusOr<ClickData> MakeClickData(const ClickDataOptions& options, std::ostream* progress_out,
                                        const Clock* clock) {
  ClickData data;
  data.path = absl::StrCat(options.keep_dir, "/criteo-", options.rows, "-", options.seed, ".tsv");
  const std::string about_path = absl::StrCat(data.path, ".json");
  if (FileSystem::Real()->Exists(about_path)) {
    HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(about_path));
    data.about = nlohmann::ordered_json::parse(text, nullptr, false);
    if (data.about.is_object() && std::filesystem::exists(data.path)) return data;
  }
  const std::string partial = absl::StrCat(options.partial_dir, "/criteo.tsv");
  std::ofstream out(partial, std::ios::binary);
  Progress progress(progress_out, isatty(STDERR_FILENO) != 0, clock, "      datagen", options.rows);
  CriteoDatagenOptions datagen;
  datagen.rows = options.rows;
  datagen.seed = options.seed;
  datagen.progress = [&progress](uint64_t rows) { progress.Update(rows); };
  HOTBED_ASSIGN_OR_RETURN(const CriteoDatagenReport report, GenerateCriteo(datagen, &out));
  out.close();
  if (!out)
    return absl::UnavailableError(absl::StrCat(partial, ": the last bytes were not written"));
  std::error_code error;
  std::filesystem::rename(partial, data.path, error);
  if (error) return absl::UnavailableError(absl::StrCat(data.path, ": ", error.message()));
  data.is_new = true;
  data.about = {{"rows", report.rows},
                {"bytes", report.bytes},
                {"positive_fraction", report.positive_fraction},
                {"auc_best", report.auc_best},
                {"auc_best_linear", report.auc_linear}};
  HOTBED_RETURN_IF_ERROR(
      FileSystem::Real()->WriteAtomically(about_path, data.about.dump(2) + "\n"));
  return data;
}

}  // namespace hotbed
