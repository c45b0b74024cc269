#include "bench/device/bench_report.h"

#include <cstdio>

namespace hotbed {
namespace device {
namespace {

const char* VerdictOf(const Result& result) {
  if (result.bar == Bar::kNone) return "no bar";
  return result.reached() ? "reached" : "missed";
}

// Names and details are ours; a device's name may contain any character.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + "\"";
}

void PrintLine(const Result& result) {
  std::printf("%-52s %9.3f %-16s", result.name.c_str(), result.value, result.unit.c_str());
  if (result.bar != Bar::kNone) {
    std::printf(" bar %s %.2f: %s", result.bar == Bar::kAtLeast ? ">=" : "<=", result.limit,
                VerdictOf(result));
  }
  if (result.timing.median_s > 0) {
    std::printf("; a call %.3f ms, p99 %.3f ms", 1e3 * result.timing.median_s,
                1e3 * result.timing.p99_s);
  }
  if (result.bytes > 0) std::printf(", %.1f GB/s", result.bytes / result.timing.median_s / 1e9);
  if (!result.detail.empty()) std::printf("; %s", result.detail.c_str());
  std::printf("\n");
}

void PrintJson(const Result& result, const char* before) {
  std::printf("%s{\"name\": %s, \"value\": %.6g, \"unit\": %s, \"verdict\": \"%s\"", before,
              Quoted(result.name).c_str(), result.value, Quoted(result.unit).c_str(),
              VerdictOf(result));
  if (result.bar != Bar::kNone) {
    std::printf(", \"bar\": %.6g, \"bar_is\": \"%s\"", result.limit,
                result.bar == Bar::kAtLeast ? "at least" : "at most");
  }
  if (result.timing.median_s > 0) {
    std::printf(", \"median_ms\": %.6g, \"p99_ms\": %.6g", 1e3 * result.timing.median_s,
                1e3 * result.timing.p99_s);
  }
  if (result.bytes > 0) std::printf(", \"bytes\": %.6g", result.bytes);
  std::printf(", \"detail\": %s}", Quoted(result.detail).c_str());
}

}  // namespace

// Prints each row at once, so that an interrupted run has printed its results so far.
Report::Report(bool json, const std::string& title) : json_(json) {
  if (json_) {
    std::printf("{\"run\": %s, \"results\": [", Quoted(title).c_str());
  } else {
    std::printf("%s\n", title.c_str());
  }
  std::fflush(stdout);
}

void Report::Add(const Result& result) {
  if (json_) {
    PrintJson(result, results_++ == 0 ? "\n" : ",\n");
  } else {
    PrintLine(result);
  }
  bars_ += result.bar != Bar::kNone;
  reached_ += result.bar != Bar::kNone && result.reached();
  std::fflush(stdout);
}

void Report::End() const {
  if (json_) {
    std::printf("\n]}\n");
  } else {
    std::printf("%d of %d bars reached\n", reached_, bars_);
  }
}

}  // namespace device
}  // namespace hotbed
