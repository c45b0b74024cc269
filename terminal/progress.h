// A progress bar with ETA. On a terminal it redraws one line; elsewhere it writes a line every few
// seconds, so that a log stays readable. Thread-compatible.
//
//   Progress progress(&std::cerr, isatty(2), Clock::Real(), "training", total_examples);
//   // Cheap: draws at most ten times per second.
//   progress.Update(done, "812k examples/s, loss 0.4512");
//   progress.Finish("812k examples/s");
#ifndef HOTBED_TERMINAL_PROGRESS_H_
#define HOTBED_TERMINAL_PROGRESS_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "common/clock.h"

namespace hotbed {

// One line of at most `width` characters: label, bar, percent, elapsed, ETA, note. `total` 0 means
// unknown: no bar, no ETA.
std::string RenderProgress(const std::string& label, uint64_t done, uint64_t total,
                           double elapsed_seconds, const std::string& note, int width);

class Progress {
 public:
  // `out` and `clock` must outlive this.
  Progress(std::ostream* out, bool terminal, const Clock* clock, std::string label, uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;

  void Update(uint64_t done, const std::string& note = "");
  // Draws the last state and ends the line. The destructor ends an unfinished line.
  void Finish(const std::string& note = "");

 private:
  void Draw(const std::string& note);

  std::ostream* const out_;
  const bool terminal_;
  const Clock* const clock_;
  const std::string label_;
  const uint64_t total_;
  const int64_t start_ns_;
  int64_t drawn_ns_ = 0;
  uint64_t done_ = 0;
  bool line_open_ = false;
  bool finished_ = false;
};

}  // namespace hotbed

#endif  // HOTBED_TERMINAL_PROGRESS_H_
