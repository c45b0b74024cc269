#include "terminal/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

constexpr int64_t kRedrawNs = 100'000'000;     // on a terminal
constexpr int64_t kLogLineNs = 5'000'000'000;  // elsewhere
constexpr int kBarWidth = 24;

int TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

// Eighths of a character cell, so that the bar moves smoothly.
std::string Bar(double fraction) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(fraction * kBarWidth * 8);
  std::string out;
  int cells = 0;
  for (; cells < eighths / 8; ++cells) out += "█";
  if (eighths % 8 != 0) {
    out += kEighths[eighths % 8];
    ++cells;
  }
  for (; cells < kBarWidth; ++cells) out += "·";
  return out;
}

// The first `width` characters of UTF-8 text.
std::string Cut(const std::string& text, int width) {
  int seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80 && ++seen > width)
      return text.substr(0, i);
  }
  return text;
}

}  // namespace

std::string RenderProgress(const std::string& label, uint64_t done, uint64_t total,
                           double elapsed_seconds, const std::string& note, int width) {
  std::string line = label;
  if (total > 0) {
    const double fraction = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    absl::StrAppend(&line, " ", Bar(fraction),
                    absl::StrFormat(" %3d%% ", static_cast<int>(fraction * 100)),
                    ShortSeconds(elapsed_seconds));
    if (done > 0 && done < total) {
      absl::StrAppend(&line, ", ETA ", ShortSeconds(elapsed_seconds * (1 - fraction) / fraction));
    }
  } else {
    absl::StrAppend(&line, " ", WithCommas(done), " in ", ShortSeconds(elapsed_seconds));
  }
  if (!note.empty()) absl::StrAppend(&line, "  ", note);
  return Cut(line, width);
}

Progress::Progress(std::ostream* out, bool terminal, const Clock* clock, std::string label,
                   uint64_t total)
    : out_(out),
      terminal_(terminal),
      clock_(clock),
      label_(std::move(label)),
      total_(total),
      start_ns_(clock->NowNs()),
      drawn_ns_(start_ns_) {}

Progress::~Progress() {
  if (line_open_) *out_ << "\n" << std::flush;
}

void Progress::Update(uint64_t done, const std::string& note) {
  done_ = done;
  const int64_t now = clock_->NowNs();
  if (finished_ || now - drawn_ns_ < (terminal_ ? kRedrawNs : kLogLineNs)) return;
  drawn_ns_ = now;
  Draw(note);
}

void Progress::Finish(const std::string& note) {
  if (finished_) return;
  finished_ = true;
  if (total_ > 0) done_ = total_;
  Draw(note);
  if (line_open_) *out_ << "\n" << std::flush;
  line_open_ = false;
}

void Progress::Draw(const std::string& note) {
  const double elapsed = static_cast<double>(clock_->NowNs() - start_ns_) * 1e-9;
  if (terminal_) {
    *out_ << "\r\x1b[2K"
          << RenderProgress(label_, done_, total_, elapsed, note, TerminalWidth() - 1)
          << std::flush;
    line_open_ = true;
  } else {
    *out_ << RenderProgress(label_, done_, total_, elapsed, note, 200) << "\n" << std::flush;
  }
}

}  // namespace hotbed
