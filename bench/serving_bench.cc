// serving_bench HOST:PORT: what readers of serving replicas get, beside a trainer that pushes, in a
// cluster with serving servers and nothing else to do:
//
//   hotbed up --data-dir D --servers 1 --serving 1 --host-bytes 2GiB --port 7400
//
// With 128MiB, most rows of the fp32 table lie on the serving server's disk.
//
// It makes a table of its own per format, which it drops in the end, and prints the memory of a
// row, rows per second and times of lookups alone and beside pushes, and the time from the answer
// to a push until a lookup shows it. Then lookups at fixed rates of half of, once and three times
// the highest rate, each within a deadline; and the same lookups by HTTP. Other measures instead:
//
//   --unary         lookups of 26 rows at fixed rates against bare unary calls of gRPC
//   --pooled        bags of eight tables, one lookup at a time and at the fixed rate of their bar
//   --on-demand     the highest rate alone, once per line of standard input, so that another
//                   program can be measured in turns with it (bench/redis_bench.py)
//
// With --versions DIR also times of lookups of `current` while one version after another is taken
// up.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/rated_lookups.h"
#include "bench/roofs/machine.h"
#include "bench/roofs/roofs.h"
#include "common/clock.h"
#include "common/process_tuning.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "hotbed/checkpoint.h"
#include "hotbed/client.h"
#include "hotbed/serving.h"
#include "leader/serving_calls.h"
#include "proto/grpc_tuning.h"
#include "proto/serving.grpc.pb.h"
#include "security/channel_credentials.h"
#include "security/identity.h"

namespace hotbed {
namespace {

constexpr int kAnswerBytesMax = 64 << 20;
constexpr int kUnaryRounds = 3;
constexpr double kPooledRowsPerS = 50'000;
constexpr size_t kPooledTables = 8;

struct Flags {
  std::string coordinator;
  std::string formats = "fp32,int8,int4";
  uint64_t rows = 1'000'000;
  uint32_t dim = 64;
  uint32_t ids = 1024;      // of a lookup
  uint32_t pushed = 1000;   // rows of a push
  uint64_t rate = 200'000;  // pushed rows per second
  double seconds = 5;
  int threads = 4;           // that look up when the highest rate is measured
  double deadline_ms = 100;  // of lookups at a fixed rate
  bool unary = false;
  bool pooled = false;
  std::string versions;    // directory of published versions; empty: none are published
  bool on_demand = false;  // the highest rate alone, whenever standard input says so
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

// Lookups on one connection of its own. Only the HTTP that a serving server speaks.
class HttpLookups {
 public:
  HttpLookups(const std::string& address, std::string table) : table_(std::move(table)) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(address, ':');
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(parts.second)));
    inet_pton(AF_INET, parts.first.c_str(), &to.sin_addr);
    socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) socket_ = -1;
  }
  ~HttpLookups() {
    if (socket_ >= 0) close(socket_);
  }

  // The milliseconds of each.
  absl::StatusOr<std::vector<double>> Run(uint32_t ids, uint64_t rows, double seconds,
                                          uint64_t seed) {
    Random random(seed + 17);
    std::vector<double> ms;
    const int64_t since_ns = Clock::Real()->NowNs();
    while (SecondsSince(since_ns) < seconds) {
      std::vector<uint64_t> asked(ids);
      for (uint64_t& id : asked) id = random.Uniform(rows);
      const int64_t begin_ns = Clock::Real()->NowNs();
      HOTBED_RETURN_IF_ERROR(Ask(asked));
      ms.push_back(SecondsSince(begin_ns) * 1e3);
    }
    return ms;
  }

 private:
  absl::Status Ask(const std::vector<uint64_t>& ids) {
    const std::string packed(reinterpret_cast<const char*>(ids.data()), 8 * ids.size());
    const std::string body = absl::StrCat("{\"ids\":\"", absl::Base64Escape(packed), "\"}");
    const std::string request = absl::StrCat(
        "POST /v1/tables/", table_, ":lookup HTTP/1.1\r\nHost: bench\r\n",
        "Accept: application/octet-stream\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
    if (send(socket_, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
      return absl::UnavailableError("the HTTP port takes no request");
    }
    std::string answer;
    size_t wanted = 0;
    while (wanted == 0 || answer.size() < wanted) {
      char bytes[64 << 10];
      const ssize_t got = recv(socket_, bytes, sizeof(bytes), 0);
      if (got <= 0) return absl::UnavailableError("the HTTP port has closed the connection");
      answer.append(bytes, static_cast<size_t>(got));
      const size_t head = answer.find("\r\n\r\n");
      if (wanted != 0 || head == std::string::npos) continue;
      if (!absl::StartsWith(answer, "HTTP/1.1 200")) return absl::InternalError(answer);
      const size_t at = answer.find("Content-Length: ");
      wanted = head + 4 + std::stoul(answer.substr(at + 16));
    }
    return absl::OkStatus();
  }

  const std::string table_;
  int socket_ = -1;
};

// Bags of 20 ids for 64 samples, of each of eight tables.
class Bags {
 public:
  static constexpr double kPooledRows = kPooledTables * 64;  // of an answer

  Bags() : ids_(kPooledTables, std::vector<uint64_t>(64 * 20)), offsets_(64) {
    for (uint32_t bag = 0; bag < 64; ++bag) offsets_[bag] = bag * 20;
  }
  void Choose(uint64_t rows, Random* random) {
    for (auto& ids : ids_) {
      for (uint64_t& id : ids) id = random->Uniform(rows);
    }
  }
  std::vector<ServingIds> Asked(const std::vector<std::string>& tables) const {
    std::vector<ServingIds> asked;
    for (size_t t = 0; t < kPooledTables; ++t) {
      asked.push_back({tables[t], ids_[t], Pooling::kSum, offsets_});
    }
    return asked;
  }
  v1::ServingLookupRequest Request(const std::vector<uint32_t>& tables, bool pooled) const {
    v1::ServingLookupRequest request;
    for (size_t t = 0; t < kPooledTables; ++t) {
      v1::ServingLookupTable& asked = *request.add_tables();
      asked.set_table(tables[t]);
      asked.set_ids(static_cast<uint32_t>(ids_[t].size()));
      request.mutable_ids()->append(reinterpret_cast<const char*>(ids_[t].data()),
                                    ids_[t].size() * sizeof(uint64_t));
      if (!pooled) continue;
      asked.set_pooling(v1::SERVED_SUM);
      asked.set_bags(static_cast<uint32_t>(offsets_.size()));
      request.mutable_offsets()->append(reinterpret_cast<const char*>(offsets_.data()),
                                        offsets_.size() * sizeof(uint32_t));
    }
    return request;
  }

 private:
  std::vector<std::vector<uint64_t>> ids_;  // per table
  std::vector<uint32_t> offsets_;
};

class Bench {
 public:
  Bench(const Flags& flags, std::string format)
      : flags_(flags),
        format_(std::move(format)),
        name_(absl::StrCat("serving_bench_", format_)),
        names_({name_}),
        calls_(flags.coordinator, IdentityOfEnvironment()) {
    while (flags.pooled && names_.size() < kPooledTables) {
      names_.push_back(absl::StrCat(name_, "_", names_.size() + 1));
    }
  }

  absl::Status Run() {
    HOTBED_RETURN_IF_ERROR(Prepare());
    const absl::Status measured = flags_.on_demand ? OnDemand() : Measure();
    (void)Serve(v1::ServeTablesRequest::REMOVE);
    for (const std::string& name : names_) (void)trainer_->DropTable(name);
    return measured;
  }

 private:
  absl::Status Serve(v1::ServeTablesRequest::Action action) {
    v1::ServeTablesRequest request;
    request.set_action(action);
    for (const std::string& name : names_) request.add_tables(name);
    HOTBED_ASSIGN_OR_RETURN(const v1::ServedFormat format, FormatOf(format_));
    request.set_format(format);
    request.set_replicas(1);
    return calls_.Serve(request, absl::Seconds(10)).status();
  }

  absl::Status Prepare() {
    const std::string target = "hotbed://" + flags_.coordinator;
    HOTBED_ASSIGN_OR_RETURN(trainer_, Client::Connect(target));
    for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
      HOTBED_RETURN_IF_ERROR(Load(*name));  // `name_` last
    }
    HOTBED_RETURN_IF_ERROR(Serve(v1::ServeTablesRequest::ADD));
    HOTBED_ASSIGN_OR_RETURN(reader_, ServingClient::Connect(target));
    return WaitUntilReady();
  }

  absl::Status Load(const std::string& name) {
    TableOptions options;
    options.name = name;
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
    return absl::OkStatus();
  }

  absl::Status WaitUntilReady() {
    const int64_t since_ns = Clock::Real()->NowNs();
    for (;;) {
      HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
      const std::vector<uint32_t> ids = IdsIn(map);
      size_t ready = 0;
      for (const v1::ServingServerInfo& server : map.servers()) {
        for (const v1::ReplicaReport& replica : server.replicas()) {
          const bool ours = std::find(ids.begin(), ids.end(), replica.table()) != ids.end();
          ready += ours && replica.ready() ? 1 : 0;
          if (!ours || ready < names_.size()) continue;
          std::printf("%s: %" PRIu64 " rows of dim %u loaded in %.1f s, %.1f bytes a row\n",
                      format_.c_str(), names_.size() * replica.rows(), flags_.dim,
                      SecondsSince(since_ns),
                      static_cast<double>(replica.bytes()) / static_cast<double>(replica.rows()));
          return absl::OkStatus();
        }
      }
      if (SecondsSince(since_ns) > 300) return absl::DeadlineExceededError("no replica is ready");
      Clock::Real()->SleepNs(100 * kMillisecondNs);
    }
  }

  std::vector<uint32_t> IdsIn(const v1::ServingMap& map) const {
    std::vector<uint32_t> ids;
    for (const std::string& name : names_) {
      for (const v1::TableSpec& spec : map.specs()) {
        if (spec.name() == name) ids.push_back(spec.id());
      }
    }
    return ids;
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
    return reader_->Lookup({{name_, *ids}}, {.timeout = absl::Seconds(10), .version = version_})
        .status();
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
    const double per_s = static_cast<double>(rows.load()) / SecondsSince(since_ns);
    peak_ = per_s / flags_.ids;
    std::printf("%s: lookups of %u from %d threads: %.2fM rows/s\n", format_.c_str(), flags_.ids,
                flags_.threads, per_s / 1e6);
    return absl::OkStatus();
  }

  absl::Status OnDemand() {
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
      HOTBED_RETURN_IF_ERROR(Rate());
      std::fflush(stdout);
    }
    return absl::OkStatus();
  }

  static absl::StatusOr<std::unique_ptr<v1::Serving::Stub>> StubOf(const v1::ServingMap& map) {
    if (map.servers().empty()) return absl::UnavailableError("there is no serving server");
    const ClientIdentity identity = IdentityOfEnvironment();
    return v1::Serving::NewStub(grpc::CreateCustomChannel(
        map.servers(0).address(), ChannelCredentialsOf(identity),
        DataPlaneChannelArguments(kAnswerBytesMax, identity.files.any())));
  }

  // Requests of `count` random rows each.
  std::vector<v1::ServingLookupRequest> Requests(uint32_t table, uint32_t count) const {
    Random random(100);
    std::vector<v1::ServingLookupRequest> requests(64);
    std::vector<uint64_t> ids(count);
    for (v1::ServingLookupRequest& request : requests) {
      for (uint64_t& id : ids) id = random.Uniform(flags_.rows);
      v1::ServingLookupTable& asked = *request.add_tables();
      asked.set_table(table);
      asked.set_ids(count);
      request.set_ids(ids.data(), ids.size() * sizeof(uint64_t));
    }
    return requests;
  }

  bench::RatedLoad LoadOf(const std::vector<v1::ServingLookupRequest>& requests,
                          double per_s) const {
    return {requests, per_s, flags_.seconds,
            static_cast<int64_t>(flags_.deadline_ms * kMillisecondNs)};
  }

  absl::Status AtRate(double per_s) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
    HOTBED_ASSIGN_OR_RETURN(const auto stub, StubOf(map));
    const auto requests = Requests(IdIn(map), flags_.ids);
    const bench::RatedResult result = LookUpAtRate(stub.get(), LoadOf(requests, per_s));
    std::printf(
        "%s: lookups of %u at %.0f/s, %.2f of the highest rate: %.2f of it answered within %.0f "
        "ms, "
        "p50 %.2f ms, p99 %.2f ms; %.0f/s refused, %.0f/s late\n",
        format_.c_str(), flags_.ids, per_s, per_s / peak_,
        static_cast<double>(result.ms.size()) / flags_.seconds / peak_, flags_.deadline_ms,
        Quantile(result.ms, 0.5), Quantile(result.ms, 0.99),
        static_cast<double>(result.refused) / flags_.seconds,
        static_cast<double>(result.late) / flags_.seconds);
    return absl::OkStatus();
  }

  // Lookups of 26 rows at parts of the highest rate of bare unary calls of as many bytes, to these
  // calls at the same rate, in turns. Those without an answer in time count as the deadline.
  absl::Status Unary() {
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
    HOTBED_ASSIGN_OR_RETURN(const auto stub, StubOf(map));
    const auto requests = Requests(IdIn(map), 26);
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingLookupReply reply, Answer(stub.get(), requests[0]));
    roofs::MessageLoad bare;
    bare.request_bytes = requests[0].ByteSizeLong();
    bare.reply_bytes = reply.ByteSizeLong();
    bare.seconds = flags_.seconds;
    HOTBED_ASSIGN_OR_RETURN(const roofs::MessageRate most, roofs::GrpcUnary(bare));
    for (const auto& [part, bar] : {std::pair(0.3, 2), std::pair(0.5, 2), std::pair(0.7, 3)}) {
      const double per_s = part * most.messages_per_s;
      std::vector<double> ours, roof, ratios;
      size_t missed = 0;
      for (int round = 0; round < kUnaryRounds; ++round) {
        HOTBED_ASSIGN_OR_RETURN(const double p99_s, roofs::GrpcUnaryP99(bare, per_s));
        bench::RatedResult result = LookUpAtRate(stub.get(), LoadOf(requests, per_s));
        missed += result.refused + result.late;
        result.ms.resize(result.ms.size() + result.refused + result.late, flags_.deadline_ms);
        roof.push_back(p99_s * 1e3);
        ours.push_back(Quantile(result.ms, 0.99));
        ratios.push_back(ours.back() / roof.back());
      }
      std::printf(
          "%s: lookups of 26 at %.0f/s, %.1f of the highest rate of bare gRPC: p99 %.2f ms, bare "
          "%.2f ms, ratio %.2f, bar %d; %zu not answered in time\n",
          format_.c_str(), per_s, part, Quantile(ours, 0.5), Quantile(roof, 0.5),
          Quantile(ratios, 0.5), bar, missed);
    }
    return absl::OkStatus();
  }

  // Bags that come at the rate of the bar, whether others are answered or not.
  absl::Status PooledAtRate() {
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
    HOTBED_ASSIGN_OR_RETURN(const auto stub, StubOf(map));
    Random random(14);
    std::vector<v1::ServingLookupRequest> requests;
    for (int i = 0; i < 64; ++i) {
      Bags bags;
      bags.Choose(flags_.rows, &random);
      requests.push_back(bags.Request(IdsIn(map), /*pooled=*/true));
    }
    const double per_s = kPooledRowsPerS / Bags::kPooledRows;
    const bench::RatedResult result = LookUpAtRate(stub.get(), LoadOf(requests, per_s));
    std::printf(
        "%s: 8 tables, bags of 20, 64 samples at %.0f pooled rows/s: p50 %.2f ms, p99 %.2f ms, "
        "bar 2 ms; %" PRIu64 " not answered in time\n",
        format_.c_str(), kPooledRowsPerS, Quantile(result.ms, 0.5), Quantile(result.ms, 0.99),
        result.refused + result.late);
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
    if (flags_.unary) return Unary();
    if (flags_.pooled) {
      HOTBED_RETURN_IF_ERROR(Pooled());
      return PooledAtRate();
    }
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
    HOTBED_RETURN_IF_ERROR(trained);
    for (const double factor : {0.5, 1.0, 3.0}) {
      // A noisy machine: the highest rate is measured again beside each.
      HOTBED_RETURN_IF_ERROR(Rate());
      HOTBED_RETURN_IF_ERROR(AtRate(factor * peak_));
    }
    HOTBED_RETURN_IF_ERROR(ByHttp());
    return flags_.versions.empty() ? absl::OkStatus() : BesideVersions();
  }

  // One lookup of bags after another, so that one core of the server is used at most.
  absl::Status Pooled() {
    Random random(13);
    Bags bags;
    std::vector<double> ms;
    const int64_t since_ns = Clock::Real()->NowNs();
    while (SecondsSince(since_ns) < flags_.seconds) {
      bags.Choose(flags_.rows, &random);
      const int64_t begun_ns = Clock::Real()->NowNs();
      HOTBED_RETURN_IF_ERROR(
          reader_->Lookup(bags.Asked(names_), {.timeout = absl::Seconds(10)}).status());
      ms.push_back(SecondsSince(begun_ns) * 1e3);
    }
    const double per_s = static_cast<double>(ms.size()) / SecondsSince(since_ns);
    HOTBED_ASSIGN_OR_RETURN(const double pooled, WireBytes(bags, /*pooled=*/true));
    HOTBED_ASSIGN_OR_RETURN(const double unpooled, WireBytes(bags, /*pooled=*/false));
    std::printf(
        "%s: 8 tables, bags of 20, 64 samples, one lookup at a time: %.0f pooled rows/s of %.2fM "
        "rows/s, p50 %.2f ms, p99 %.2f ms; %.0f bytes on the wire, %.3f of the unpooled rows\n",
        format_.c_str(), per_s * Bags::kPooledRows, per_s * Bags::kPooledRows * 20 / 1e6,
        Quantile(ms, 0.5), Quantile(ms, 0.99), pooled, pooled / unpooled);
    return absl::OkStatus();
  }

  static absl::StatusOr<v1::ServingLookupReply> Answer(v1::Serving::Stub* stub,
                                                       const v1::ServingLookupRequest& request) {
    grpc::ClientContext context;
    v1::ServingLookupReply reply;
    const grpc::Status status = stub->Lookup(&context, request, &reply);
    if (!status.ok()) return absl::UnavailableError(status.error_message());
    return reply;
  }

  // The bytes of the request and the answer of one lookup, of sums of bags or of each row.
  absl::StatusOr<double> WireBytes(const Bags& bags, bool pooled) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
    HOTBED_ASSIGN_OR_RETURN(const auto stub, StubOf(map));
    const v1::ServingLookupRequest request = bags.Request(IdsIn(map), pooled);
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingLookupReply reply, Answer(stub.get(), request));
    return static_cast<double>(request.ByteSizeLong() + reply.ByteSizeLong());
  }

  // Lookups of octets, one after another on each of two connections.
  absl::Status ByHttp() {
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
    std::string address;
    for (const v1::ServingServerInfo& server : map.servers()) address = server.http_address();
    if (address.empty()) {
      std::printf("%s: no serving server answers by HTTP\n", format_.c_str());
      return absl::OkStatus();
    }
    for (const uint32_t ids : {26u, flags_.ids}) {
      std::vector<absl::StatusOr<std::vector<double>>> ms(2, std::vector<double>());
      std::vector<std::thread> threads;
      for (size_t k = 0; k < ms.size(); ++k) {
        threads.emplace_back([&, k] {
          HttpLookups lookups(address, name_);
          ms[k] = lookups.Run(ids, flags_.rows, flags_.seconds, k);
        });
      }
      for (std::thread& thread : threads) thread.join();
      std::vector<double> all;
      for (const auto& some : ms) {
        HOTBED_RETURN_IF_ERROR(some.status());
        all.insert(all.end(), some->begin(), some->end());
      }
      std::printf(
          "%s: lookups of %u by HTTP from 2 connections: %.0f/s, p50 %.2f ms, p99 %.2f ms\n",
          format_.c_str(), ids, static_cast<double>(all.size()) / flags_.seconds,
          Quantile(all, 0.5), Quantile(all, 0.99));
    }
    return absl::OkStatus();
  }

  absl::Status Publish(uint64_t number) {
    v1::PublishVersionRequest request;
    request.set_name(absl::StrCat(name_, "_", number));
    request.add_tables(name_);
    SaveOptions options;
    options.directory = flags_.versions;
    options.name = request.name();
    options.tables = {name_};
    HOTBED_ASSIGN_OR_RETURN(const SavedCheckpoint saved, SaveCheckpoint(trainer_.get(), options));
    request.set_folder(saved.path);
    HOTBED_ASSIGN_OR_RETURN(const v1::PublishVersionReply reply,
                            calls_.Publish(request, absl::Seconds(10)));
    const int64_t since_ns = Clock::Real()->NowNs();
    for (;;) {
      HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap map, calls_.Get(absl::Seconds(5)));
      for (const v1::VersionChoice& choice : map.choices()) {
        if (choice.current() == reply.version().number()) return absl::OkStatus();
      }
      if (SecondsSince(since_ns) > 120) return absl::DeadlineExceededError("it is not current");
      Clock::Real()->SleepNs(50 * kMillisecondNs);
    }
  }

  // Rows change between two versions, but not while times are taken, so that the publication and
  // the take-up are all that lookups notice.
  absl::Status BesideVersions() {
    std::vector<uint64_t> ids(10'000);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = i * 7 % flags_.rows;
    HOTBED_RETURN_IF_ERROR(Publish(1));
    version_ = "current";
    HOTBED_RETURN_IF_ERROR(Times("of a version, idle"));
    std::atomic<bool> ends{false};
    uint64_t published = 0;
    absl::Status ended;
    std::thread publisher([&] {
      for (uint64_t number = 2; !ends.load() && ended.ok(); ++number) {
        ended = Push(ids);
        if (ended.ok()) ended = Publish(number);
        ++published;
      }
    });
    const absl::Status timed = Times("of `current` while versions are taken up");
    ends.store(true);
    publisher.join();
    std::printf("%s: %" PRIu64 " versions became current meanwhile\n", format_.c_str(), published);
    HOTBED_RETURN_IF_ERROR(timed);
    return ended;
  }

  const Flags& flags_;
  const std::string format_;
  const std::string name_;
  std::vector<std::string> names_;  // `name_`, and further tables where bags are looked up
  ServingCalls calls_;
  std::unique_ptr<Client> trainer_;
  std::unique_ptr<ServingClient> reader_;
  const Table* table_ = nullptr;
  uint64_t step_ = 0;
  double peak_ = 0;      // lookups per second
  std::string version_;  // of lookups
};

int Main(int argc, char** argv) {
  TuneDataPlaneProcess();
  if (const std::optional<int> served = roofs::ServeIfAsked(argc, argv)) return *served;
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
  app.add_option("--deadline-ms", flags.deadline_ms, "of lookups at a fixed rate")
      ->capture_default_str();
  app.add_flag("--on-demand", flags.on_demand,
               "Measure the highest rate alone, once per line of standard input");
  app.add_flag("--unary", flags.unary,
               "Only lookups of 26 rows against bare gRPC calls of as many bytes");
  app.add_flag("--pooled", flags.pooled,
               "Only bags of eight tables, one lookup at a time and at 50,000 pooled rows/s");
  app.add_option("--versions", flags.versions, "Directory: publish versions there, too");
  CLI11_PARSE(app, argc, argv);
  const bench::MachineNote note;
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
