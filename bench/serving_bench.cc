// serving_bench HOST:PORT: what readers of serving replicas get, beside a trainer that pushes, in a
// cluster with serving servers and nothing else to do:
//
//   hotbed up --data-dir D --servers 1 --serving 1 --host-bytes 2GiB --port 7400
//
// It makes a table of its own per format, which it drops in the end, and prints the memory of a
// row, rows per second and times of lookups alone and beside pushes, and the time from the answer
// to a push until a lookup shows it.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "hotbed/client.h"
#include "hotbed/serving.h"
#include "leader/serving_calls.h"
#include "security/identity.h"

namespace hotbed {
namespace {

struct Flags {
  std::string coordinator;
  std::string formats = "fp32,int8,int4";
  uint64_t rows = 1'000'000;
  uint32_t dim = 64;
  uint32_t ids = 1024;      // of a lookup
  uint32_t pushed = 1000;   // rows of a push
  uint64_t rate = 200'000;  // pushed rows per second
  double seconds = 5;
  int threads = 4;  // that look up when the highest rate is measured
};

double SecondsSince(int64_t ns) {
  return static_cast<double>(Clock::Real()->NowNs() - ns) / kSecondNs;
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1,
                         static_cast<size_t>(q * static_cast<double>(values.size())))];
}

absl::StatusOr<v1::ServedFormat> FormatOf(const std::string& name) {
  for (const auto& [known, format] :
       {std::pair("fp32", v1::SERVED_FP32), std::pair("fp16", v1::SERVED_FP16),
        std::pair("bf16", v1::SERVED_BF16), std::pair("int8", v1::SERVED_INT8),
        std::pair("int4", v1::SERVED_INT4), std::pair("int2", v1::SERVED_INT2)}) {
    if (name == known) return format;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--formats has \"", name, "\", allowed: fp32, fp16, bf16, int8, int4, int2"));
}

class Bench {
 public:
  Bench(const Flags& flags, std::string format)
      : flags_(flags),
        format_(std::move(format)),
        name_(absl::StrCat("serving_bench_", format_)),
        calls_(flags.coordinator, IdentityOfEnvironment()) {}

  absl::Status Run() {
    HOTBED_RETURN_IF_ERROR(Prepare());
    const absl::Status measured = Measure();
    (void)Serve(v1::ServeTablesRequest::REMOVE);
    (void)trainer_->DropTable(name_);
    return measured;
  }

 private:
  absl::Status Serve(v1::ServeTablesRequest::Action action) {
    v1::ServeTablesRequest request;
    request.set_action(action);
    request.add_tables(name_);
    HOTBED_ASSIGN_OR_RETURN(const v1::ServedFormat format, FormatOf(format_));
    request.set_format(format);
    request.set_replicas(1);
    return calls_.Serve(request, absl::Seconds(10)).status();
  }

  absl::Status Prepare() {
    const std::string target = "hotbed://" + flags_.coordinator;
    HOTBED_ASSIGN_OR_RETURN(trainer_, Client::Connect(target));
    TableOptions options;
    options.name = name_;
    options.rows = flags_.rows;
    options.dim = flags_.dim;
    options.optimizer.kind = OptimizerKind::kSgd;
    options.optimizer.learning_rate = 1.0f;
    options.initializer = {InitializerKind::kZero, 0.0f, 0.0f};
    HOTBED_ASSIGN_OR_RETURN(table_, trainer_->CreateTable(options));
    std::vector<uint64_t> ids;
    for (uint64_t first = 0; first < flags_.rows; first += 10'000) {
      ids.clear();
      for (uint64_t id = first; id < std::min(flags_.rows, first + 10'000); ++id) ids.push_back(id);
      HOTBED_RETURN_IF_ERROR(Push(ids));
    }
    HOTBED_RETURN_IF_ERROR(Serve(v1::ServeTablesRequest::ADD));
    HOTBED_ASSIGN_OR_RETURN(reader_, ServingClient::Connect(target));
    const int64_t since_ns = Clock::Real()->NowNs();
    for (;;) {
      HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
      for (const v1::ServingServerInfo& server : map.servers()) {
        for (const v1::ReplicaReport& replica : server.replicas()) {
          if (replica.table() != IdIn(map) || !replica.ready()) continue;
          std::printf("%s: %" PRIu64 " rows of dim %u loaded in %.1f s, %.1f bytes a row\n",
                      format_.c_str(), replica.rows(), flags_.dim, SecondsSince(since_ns),
                      static_cast<double>(replica.bytes()) / static_cast<double>(replica.rows()));
          return absl::OkStatus();
        }
      }
      if (SecondsSince(since_ns) > 300) return absl::DeadlineExceededError("no replica is ready");
      Clock::Real()->SleepNs(100 * kMillisecondNs);
    }
  }

  uint32_t IdIn(const v1::ServingMap& map) const {
    for (const v1::TableSpec& spec : map.specs()) {
      if (spec.name() == name_) return spec.id();
    }
    return 0;
  }

  // Row 0 is the marker: its first element counts the pushes that name it.
  absl::Status Push(const std::vector<uint64_t>& ids) {
    std::vector<float> gradients(ids.size() * flags_.dim, -1.0f);
    PushFeature out{table_, ids, gradients.data()};
    return trainer_->Push(++step_, {&out, 1}).Wait().status;
  }

  absl::Status LookUp(Random* random, std::vector<uint64_t>* ids) const {
    for (uint64_t& id : *ids) id = random->Uniform(flags_.rows);
    return reader_->Lookup({{name_, *ids}}, {.timeout = absl::Seconds(10)}).status();
  }

  absl::Status Rate() {
    std::atomic<uint64_t> rows{0};
    std::vector<absl::Status> ended(static_cast<size_t>(flags_.threads));
    std::vector<std::thread> threads;
    const int64_t since_ns = Clock::Real()->NowNs();
    for (int k = 0; k < flags_.threads; ++k) {
      threads.emplace_back([&, k] {
        Random random(static_cast<uint64_t>(k) + 1);
        std::vector<uint64_t> ids(flags_.ids);
        while (SecondsSince(since_ns) < flags_.seconds && ended[k].ok()) {
          ended[k] = LookUp(&random, &ids);
          rows.fetch_add(ids.size());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : ended) HOTBED_RETURN_IF_ERROR(status);
    std::printf("%s: lookups of %u from %d threads: %.2fM rows/s\n", format_.c_str(), flags_.ids,
                flags_.threads, static_cast<double>(rows.load()) / SecondsSince(since_ns) / 1e6);
    return absl::OkStatus();
  }

  // One lookup after another, beside pushes if they are told to go on.
  absl::Status Times(const char* when) {
    Random random(7);
    std::vector<uint64_t> ids(flags_.ids);
    std::vector<double> ms;
    const int64_t since_ns = Clock::Real()->NowNs();
    while (SecondsSince(since_ns) < flags_.seconds) {
      const int64_t begun_ns = Clock::Real()->NowNs();
      HOTBED_RETURN_IF_ERROR(LookUp(&random, &ids));
      ms.push_back(SecondsSince(begun_ns) * 1e3);
    }
    std::printf("%s: lookups of %u, one at a time, %s: p50 %.2f ms, p99 %.2f ms (%zu)\n",
                format_.c_str(), flags_.ids, when, Quantile(ms, 0.5), Quantile(ms, 0.99),
                ms.size());
    return absl::OkStatus();
  }

  // Pushes at the rate until `ends`; notes when each was answered, by the marker's value.
  absl::Status Train(const std::atomic<bool>* ends, std::vector<int64_t>* answered_ns,
                     std::atomic<size_t>* answered) {
    Random random(11);
    std::vector<uint64_t> ids(flags_.pushed);
    const int64_t pause_ns = kSecondNs * static_cast<int64_t>(flags_.pushed) /
                             static_cast<int64_t>(std::max<uint64_t>(flags_.rate, 1));
    int64_t next_ns = Clock::Real()->NowNs();
    while (!ends->load() && answered->load() < answered_ns->size()) {
      for (uint64_t& id : ids) id = 1 + random.Uniform(flags_.rows - 1);
      ids[0] = 0;
      HOTBED_RETURN_IF_ERROR(Push(ids));
      (*answered_ns)[answered->load()] = Clock::Real()->NowNs();
      answered->fetch_add(1);
      next_ns += pause_ns;
      const int64_t left_ns = next_ns - Clock::Real()->NowNs();
      if (left_ns > 0) Clock::Real()->SleepNs(left_ns);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<float> Marker() const {
    const std::vector<uint64_t> ids = {0};
    HOTBED_ASSIGN_OR_RETURN(const auto rows,
                            reader_->Lookup({{name_, ids}}, {.timeout = absl::Seconds(10)}));
    return rows[0].values[0];
  }

  // The marker as the reader sees it first, from push to push. Only fp32 holds its count exactly.
  absl::Status Freshness(float marker_before, const std::vector<int64_t>& answered_ns,
                         const std::atomic<size_t>& answered) {
    std::vector<double> ms;
    size_t seen = 0;
    const int64_t since_ns = Clock::Real()->NowNs();
    while (SecondsSince(since_ns) < flags_.seconds) {
      HOTBED_ASSIGN_OR_RETURN(const float marker, Marker());
      const int64_t now_ns = Clock::Real()->NowNs();
      const auto shown = static_cast<size_t>(marker - marker_before);
      for (; seen < std::min(shown, answered.load()); ++seen) {
        ms.push_back(std::max(0.0, static_cast<double>(now_ns - answered_ns[seen]) / 1e6));
      }
    }
    std::printf(
        "%s: %.0f pushed rows/s; answered until a lookup shows it: p50 %.1f ms, p99 %.1f ms "
        "(%zu)\n",
        format_.c_str(),
        static_cast<double>(answered.load() * flags_.pushed) / SecondsSince(since_ns),
        Quantile(ms, 0.5), Quantile(ms, 0.99), ms.size());
    return absl::OkStatus();
  }

  absl::Status Measure() {
    HOTBED_RETURN_IF_ERROR(Rate());
    HOTBED_RETURN_IF_ERROR(Times("idle"));
    HOTBED_ASSIGN_OR_RETURN(const float marker, Marker());
    std::atomic<bool> ends{false};
    std::vector<int64_t> answered_ns(1'000'000);
    std::atomic<size_t> answered{0};
    absl::Status trained;
    std::thread training([&] { trained = Train(&ends, &answered_ns, &answered); });
    absl::Status measured = absl::OkStatus();
    if (format_ == "fp32") measured = Freshness(marker, answered_ns, answered);
    if (measured.ok()) measured = Times("beside pushes");
    ends.store(true);
    training.join();
    HOTBED_RETURN_IF_ERROR(measured);
    return trained;
  }

  const Flags& flags_;
  const std::string format_;
  const std::string name_;
  ServingCalls calls_;
  std::unique_ptr<Client> trainer_;
  std::unique_ptr<ServingClient> reader_;
  const Table* table_ = nullptr;
  uint64_t step_ = 0;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("What readers of serving replicas get, beside a trainer that pushes");
  app.add_option("COORDINATOR", flags.coordinator, "HOST:PORT")->required();
  app.add_option("--formats", flags.formats, "of the tables")->capture_default_str();
  app.add_option("--rows", flags.rows, "of a table")->check(CLI::Range(2, 1 << 30));
  app.add_option("--dim", flags.dim, "of a table")->check(CLI::Range(1, 4096));
  app.add_option("--ids", flags.ids, "of a lookup")->check(CLI::Range(1, 65536));
  app.add_option("--rate", flags.rate, "pushed rows per second")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "of each measure")->capture_default_str();
  app.add_option("--threads", flags.threads, "that look up")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  for (const std::string& format : std::vector<std::string>(absl::StrSplit(flags.formats, ','))) {
    const absl::Status ran = Bench(flags, format).Run();
    if (ran.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", format.c_str(), ran.ToString().c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
