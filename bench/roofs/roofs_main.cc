// hotbed-roofs prints this machine's rates for the bytes of the usual messages, as a table or as
// JSON.
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "bench/roofs/roofs.h"
#include "common/json.h"
#include "common/process_tuning.h"

namespace hotbed::roofs {
namespace {

struct Line {
  std::string name;
  double value = 0;
  std::string unit;
};

struct Arguments {
  double seconds = 1.0;
  int server_threads = 0;
  std::string only;  // empty: all
  std::vector<uint64_t> ids = {512, 2048};
  std::string dir = ".";
  bool json = false;
};

bool Parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; ++i) {
    absl::string_view word = argv[i];
    bool good = true;
    if (absl::ConsumePrefix(&word, "--seconds=")) {
      good = absl::SimpleAtod(word, &out->seconds) && out->seconds > 0;
    } else if (absl::ConsumePrefix(&word, "--server-threads=")) {
      good = absl::SimpleAtoi(word, &out->server_threads);
    } else if (absl::ConsumePrefix(&word, "--only=")) {
      out->only = std::string(word);
    } else if (absl::ConsumePrefix(&word, "--ids=")) {
      out->ids.resize(1);
      good = absl::SimpleAtoi(word, &out->ids[0]) && out->ids[0] > 0;
    } else if (absl::ConsumePrefix(&word, "--dir=")) {
      out->dir = std::string(word);
    } else if (word == "--json") {
      out->json = true;
    } else {
      good = false;
    }
    if (!good) {
      std::fprintf(stderr,
                   "hotbed-roofs: bad argument '%s'\nusage: hotbed-roofs [--seconds=S] "
                   "[--server-threads=N] [--dir=DIR] [--only=pull|push|tcp|memory|disk|unary] "
                   "[--ids=N] [--json]\n",
                   argv[i]);
      return false;
    }
  }
  return true;
}

class Report {
 public:
  explicit Report(const Arguments& arguments) : arguments_(arguments) {}

  bool Wants(const char* kind) const { return arguments_.only.empty() || arguments_.only == kind; }

  // A number, or the reason why there is none.
  template <typename T, typename Value>
  void Add(const std::string& name, const std::string& unit, const absl::StatusOr<T>& measured,
           Value value) {
    if (!measured.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(),
                   std::string(measured.status().message()).c_str());
      failed_ = true;
      return;
    }
    const Line line{name, value(*measured), unit};
    if (!arguments_.json) {
      std::printf("%-48s %14.6g %s\n", line.name.c_str(), line.value, line.unit.c_str());
      std::fflush(stdout);
    }
    lines_.push_back(line);
  }

  int Finish() const {
    if (arguments_.json) {
      std::printf("[%s]\n", absl::StrJoin(lines_, ",\n ", [](std::string* out, const Line& line) {
                              absl::StrAppend(out, "{\"name\":", JsonString(line.name),
                                              ",\"value\":", absl::StrFormat("%.9g", line.value),
                                              ",\"unit\":", JsonString(line.unit), "}");
                            }).c_str());
    }
    return failed_ ? 1 : 0;
  }

 private:
  const Arguments arguments_;
  std::vector<Line> lines_;
  bool failed_ = false;
};

int Main(const Arguments& arguments) {
  Report report(arguments);
  const auto itself = [](double v) { return v; };
  const auto messages = [](const MessageRate& r) { return r.messages_per_s; };
  for (const uint64_t ids : arguments.ids) {
    MessageLoad pull{ids * 8 + 64, ids * 256 + 64, 8, arguments.seconds, arguments.server_threads};
    MessageLoad push{ids * 264 + 64, 64, 8, arguments.seconds, arguments.server_threads};
    const GatherLoad gather{1'000'000, 256, ids, arguments.seconds};
    const std::string rows = absl::StrCat(ids, " x 64 fp32");
    if (report.Wants("pull")) {
      report.Add(absl::StrCat("grpc stream, pull ", rows), "messages/s", GrpcStream(pull),
                 messages);
    }
    if (report.Wants("push")) {
      report.Add(absl::StrCat("grpc stream, push ", rows), "messages/s", GrpcStream(push),
                 messages);
    }
    if (report.Wants("tcp")) {
      report.Add(absl::StrCat("tcp loop, pull ", rows), "messages/s", TcpLoop(pull), messages);
      report.Add(absl::StrCat("tcp loop, push ", rows), "messages/s", TcpLoop(push), messages);
      report.Add(absl::StrCat("tcp loop with gather, ", rows), "messages/s", TcpGather(gather, 8),
                 messages);
    }
    if (report.Wants("memory")) {
      report.Add(absl::StrCat("gather, ", rows), "rows/s", GatherRows(gather), itself);
    }
    if (report.Wants("disk")) {
      report.Add(absl::StrCat("append, ", rows), "records/s",
                 Appends(arguments.dir, ids * 264 + 64, arguments.seconds, false), itself);
      report.Add(absl::StrCat("append and sync, ", rows), "records/s",
                 Appends(arguments.dir, ids * 264 + 64, arguments.seconds, true), itself);
    }
  }
  if (report.Wants("memory")) report.Add("memcpy", "bytes/s", Memcpy(arguments.seconds), itself);
  if (report.Wants("unary")) {
    MessageLoad lookup{26 * 8 + 64, 26 * 256 + 64, 32, arguments.seconds, arguments.server_threads};
    const auto highest = GrpcUnaryRateMax(lookup);
    report.Add("grpc unary, highest rate", "calls/s", highest, itself);
    if (highest.ok()) {
      const auto half = GrpcUnary(lookup, *highest / 2);
      report.Add("grpc unary at half that rate, p50", "s", half,
                 [](const UnaryLatency& u) { return u.p50_s; });
      report.Add("grpc unary at half that rate, p99", "s", half,
                 [](const UnaryLatency& u) { return u.p99_s; });
    }
  }
  return report.Finish();
}

}  // namespace
}  // namespace hotbed::roofs

int main(int argc, char** argv) {
  hotbed::TuneDataPlaneProcess();
  if (const auto code = hotbed::roofs::ServeIfAsked(argc, argv)) return *code;
  hotbed::roofs::Arguments arguments;
  if (!hotbed::roofs::Parse(argc, argv, &arguments)) return 2;
  return hotbed::roofs::Main(arguments);
}
