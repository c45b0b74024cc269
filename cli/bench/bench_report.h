// The result of a run, as a table for people or JSON for programs, with the command and the machine
// that are needed to repeat it.
#ifndef HOTBED_CLI_BENCH_BENCH_REPORT_H_
#define HOTBED_CLI_BENCH_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "cli/bench/bench_options.h"
#include "cli/bench/load.h"
#include "cli/bench/roof_lines.h"

namespace hotbed {

double Median(std::vector<double> values);

// One load, several rounds, each with the roofs of its round.
struct BenchRun {
  double load_before = 0;  // load average of the machine
  std::vector<LoadResult> rounds;
  std::vector<std::vector<RoofLine>> roofs;  // by round; the same lines in each
  std::vector<LoadResult> unpooled;          // by round, for a pooled load: the same ids as rows
};

// One row of the table of bars.
struct SuiteRow {
  std::string measure;
  std::string ours;  // with unit
  std::string roof;  // the roof, with unit
  double ratio = 0;  // median over the rounds
  double bar = 0;
  bool at_most = false;  // the bar is an upper limit; otherwise a lower one
  bool met() const { return at_most ? ratio <= bar : ratio >= bar; }
};

void PrintRun(const BenchOptions& options, const BenchRun& run);
// `load_before`: the load average of the machine before the rows were measured.
void PrintSuite(const BenchOptions& options, double load_before, const std::vector<SuiteRow>& rows);

}  // namespace hotbed

#endif  // HOTBED_CLI_BENCH_BENCH_REPORT_H_
