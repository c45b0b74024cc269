// hotbed table histogram: how often each id occurs in files of ids, for tables of frequency blocks.
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/base/command.h"
#include "cli/tables/id_histogram.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/tables/composition.h"
#include "config/units.h"
#include "nlohmann/json.hpp"
#include "terminal/progress.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct HistogramFlags {
  std::vector<std::string> files;
  std::string out;
  uint64_t rows = 0;
  uint32_t dim = 0;
  uint32_t blocks = 4;
};

absl::StatusOr<IdHistogram> Count(const CommandContext& context, const HistogramFlags& flags) {
  constexpr uint64_t kParts = 10'000;
  IdHistogram histogram;
  histogram.counts.resize(flags.rows);
  for (const std::string& path : flags.files) {
    std::unique_ptr<Progress> bar;
    if (!context.json()) {
      bar = std::make_unique<Progress>(context.err, isatty(STDERR_FILENO) != 0, Clock::Real(),
                                       path.c_str(), kParts);
    }
    HOTBED_RETURN_IF_ERROR(CountIds(path, &histogram, [&](uint64_t done, uint64_t all) {
      if (bar == nullptr) return;
      bar->Update(done * kParts / std::max<uint64_t>(all, 1), FormatBytes(done));
    }));
    if (bar != nullptr) bar->Finish();
  }
  return histogram;
}

absl::Status Measure(const CommandContext& context, const HistogramFlags& flags) {
  HOTBED_ASSIGN_OR_RETURN(const IdHistogram histogram, Count(context, flags));
  HOTBED_ASSIGN_OR_RETURN(
      const FrequencyOrder order,
      OrderByFrequency(histogram.counts, std::max(flags.dim, 1u), flags.blocks));
  if (!flags.out.empty()) {
    HOTBED_RETURN_IF_ERROR(WriteHistogram(flags.out, histogram.counts));
  }
  const uint64_t inside = histogram.ids - histogram.outside;
  const auto distinct = static_cast<uint64_t>(std::count_if(
      histogram.counts.begin(), histogram.counts.end(), [](uint64_t n) { return n; }));
  nlohmann::ordered_json blocks = nlohmann::ordered_json::array();
  TablePrinter printer({"block", "ids", "occurrences", "part", "dim"});
  uint64_t at = 0;
  for (uint32_t b = 0; b < flags.blocks; ++b) {
    const uint64_t rows = RowsOfBlock(flags.rows, flags.blocks, b);
    uint64_t occurrences = 0;
    for (uint64_t i = 0; i < rows; ++i, ++at) occurrences += histogram.counts[order.ids[at]];
    const double part =
        static_cast<double>(occurrences) / static_cast<double>(std::max<uint64_t>(inside, 1));
    blocks.push_back({{"ids", rows}, {"occurrences", occurrences}, {"part", part}});
    if (flags.dim != 0) blocks.back()["dim"] = order.block_dims[b];
    printer.AddRow({absl::StrCat(b), WithCommas(rows), WithCommas(occurrences),
                    absl::StrFormat("%.2f %%", 100 * part),
                    flags.dim != 0 ? absl::StrCat(order.block_dims[b]) : "-"});
  }
  return context.Answer(
      {{"ids", histogram.ids},
       {"outside", histogram.outside},
       {"rows", flags.rows},
       {"distinct", distinct},
       {"file", flags.out},
       {"blocks", blocks}},
      absl::StrCat(
          WithCommas(histogram.ids), " ids, ", WithCommas(distinct), " different of 0..",
          flags.rows - 1, "; ", WithCommas(histogram.outside), " outside\n", printer.ToText(),
          flags.out.empty()
              ? ""
              : absl::StrCat("counts: ", flags.out, " (hotbed table create NAME --histogram ",
                             flags.out, ")\n")));
}

}  // namespace

void AddTableHistogramCommand(CLI::App* table, CommandContext* context) {
  auto flags = std::make_shared<HistogramFlags>();
  CLI::App* app = table->add_subcommand(
      "histogram",
      "Count how often each id occurs in files of ids, for tables of frequency blocks");
  app->footer("Ids outside 0..rows-1 are counted apart. Frequency blocks: docs/composed.md.");
  app->add_option("FILE", flags->files,
                  "Ids: .npy of whole numbers of 64 bits, or text with ids between blanks, commas "
                  "or line ends")
      ->required();
  app->add_option("--rows", flags->rows, "Ids are 0..rows-1")
      ->required()
      ->check(CLI::Range(uint64_t{1}, kFrequencyRowsMax));
  app->add_option("--out", flags->out, "New .npy file of the counts, one per id");
  app->add_option("--blocks", flags->blocks, "Blocks of equal numbers of ids to show")
      ->check(CLI::Range(uint32_t{1}, kBlocksMax))
      ->capture_default_str();
  app->add_option("--dim", flags->dim, "Also show the dims of the blocks of a table of this dim")
      ->check(CLI::Range(uint32_t{1}, kDimMax));
  context->Runs(app, [context, flags] { return Measure(*context, *flags); });
}

}  // namespace hotbed
