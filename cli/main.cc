// `hotbed`: see cli/run_cli.h.
#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "bench/roofs/roofs.h"
#include "cli/run_cli.h"
#include "common/process_tuning.h"

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  if (const std::optional<int> served = hotbed::roofs::ServeIfAsked(argc, argv)) return *served;
  signal(SIGPIPE, SIG_IGN);  // `hotbed ... | head` must end by a failed write, not by a signal
  return hotbed::RunCli(std::vector<std::string>(argv + 1, argv + argc), &std::cout, &std::cerr);
}
