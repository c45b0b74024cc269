#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>  // NOLINT(build/c++11)
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "client/serving/connect_as.h"
#include "client/serving/cut_lookup.h"
#include "client/serving/seen_copies.h"
#include "common/clock.h"
#include "common/field_error.h"
#include "common/hedge_budget.h"
#include "common/host_port.h"
#include "common/status_macros.h"
#include "common/threads/await_for.h"
#include "common/top_rows.h"
#include "hotbed/serving.h"
#include "leader/serving_calls.h"
#include "proto/convert.h"
#include "proto/grpc_tuning.h"
#include "proto/retry_metadata.h"
#include "proto/served_bags.h"
#include "proto/served_models.h"
#include "proto/served_part.h"
#include "proto/serving.grpc.pb.h"
#include "row_math/quantize.h"
#include "security/channel_credentials.h"

namespace hotbed {
namespace {

constexpr absl::Duration kRefresh = absl::Seconds(1);
constexpr absl::Duration kRefreshMin = absl::Milliseconds(100);
constexpr absl::Duration kMapTimeout = absl::Seconds(2);
constexpr int64_t kRoundNs = 20 * kMillisecondNs;  // between two rounds over the replicas
// For a copy that is not behind, and no longer than half of a call's time.
constexpr int64_t kNewerWaitNs = 500 * kMillisecondNs;
constexpr int64_t kShunNs = kSecondNs;  // a server whose call has failed, or that was behind
constexpr int64_t kRetryMsMax = 10'000;
constexpr int64_t kTryNsMin = 20 * kMillisecondNs;
constexpr int kFarCalls = 8;   // that a near server may have more than one that is far
constexpr int kStayCalls = 4;  // that a client's own copy may have more than another one
constexpr int64_t kQuietNs = 300 * kMillisecondNs;  // then copies have all changes
constexpr int64_t kHedgesMax = 20;                  // at a time, of the budget
constexpr int64_t kStopsNs = 50 * kMillisecondNs;   // between questions whether a call is to end
constexpr int64_t kNeededMsMax = 1LL << 31;         // some 25 days
constexpr int kMessageBytesMax = 128 << 20;
constexpr uint64_t kTopKBytesMax = 12 << 20;  // a server takes 16 MiB, if not told otherwise
constexpr size_t kIdsMax = kMessageBytesMax / sizeof(uint64_t);

constexpr auto kNever = std::chrono::system_clock::time_point::max();

using Outcome = v1::ServingTableReply;

struct Server {
  std::string name;
  std::string failure_domain;
  bool far = false;  // in another failure domain than this client
  // Of equal servers, the one with the least order is asked. Clients have different orders.
  size_t order = 0;
  std::unique_ptr<v1::Serving::Stub> stub;
  std::atomic<int> outstanding{0};
  std::atomic<int64_t> shunned_until_ns{0};
  std::atomic<int64_t> busy_until_ns{0};       // it has refused a call, and said so
  std::atomic<int64_t> behind_until_ns{0};     // newest rows of it were behind
  std::atomic<uint64_t> message_bytes_max{0};  // 0: it is not known
};

// The servers of one part of a table.
struct Part {
  std::vector<std::shared_ptr<Server>> replicas;  // those that were ready first
  size_t ready = 0;
  std::vector<std::vector<uint64_t>> held;  // numbers of versions, of each replica
};

struct Table {
  uint32_t id = 0;
  uint32_t dim = 0;
  ServedPlaces places;
  std::vector<Part> parts;
};

using Version = std::shared_ptr<const v1::ServedVersion>;

struct Map {
  absl::flat_hash_map<std::string, Table> tables;
  std::vector<Version> versions;
  std::vector<uint64_t> current;  // numbers, of each model
  std::vector<uint64_t> kept;     // numbers of versions that servers are to hold
};

// A part of a table of a call, until it is answered.
struct Wanted {
  size_t index = 0;  // of the piece
  ServedPart part;
  RowType wire_type = RowType::kFp32;
  // Whose rows are asked for; without a number: the newest ones.
  Version version;
  SeenCopies::Begin begin;        // when it was asked for
  int64_t newer_until_ns = 0;     // from then on an answer that may be older is taken
  bool behind = false;            // in this round, some copy was
  std::set<const Server*> tried;  // in this round
};

struct OpenCall {
  std::shared_ptr<Server> server;
  std::vector<Wanted*> tables;
  bool others = false;  // another server has one of the tables
  bool hedge = false;
  int64_t asked_ns = 0;
  int64_t answered_ns = 0;
  RowType wire_type = RowType::kFp32;
  v1::ServingLookupRequest request;
  v1::ServingLookupReply reply;
  grpc::Status status;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ServingLookupReply>> reader;
};

// A top-k of one part.
struct TopKCall {
  std::shared_ptr<Server> server;
  int64_t asked_ns = 0;
  int64_t answered_ns = 0;
  v1::ServingTopKRequest request;
  v1::ServingTopKReply reply;
  grpc::Status status;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::ServingTopKReply>> reader;
};

// Less than a millisecond is no absence of a limit.
uint32_t StalenessMs(absl::Duration staleness_max) {
  if (staleness_max <= absl::ZeroDuration()) return 0;
  const int64_t ms = absl::ToInt64Milliseconds(staleness_max);
  return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, std::numeric_limits<uint32_t>::max()));
}

bool Has(const std::vector<uint64_t>& numbers, uint64_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

constexpr char kLatest[] = "latest";

std::string Name(const std::string& table) { return absl::StrCat("table \"", table, "\""); }

std::string NamesOf(const Map& map) {
  std::vector<std::string> names;
  for (const Version& version : map.versions) {
    if (Has(map.kept, version->number())) names.push_back(version->name());
  }
  return names.empty() ? "none is published ('hotbed publish')"
                       : absl::StrCat("there are: ", absl::StrJoin(names, ", "));
}

Version NewestRows() {
  static const auto* const none = new Version(std::make_shared<v1::ServedVersion>());
  return *none;
}

// The current one of `model`, or of the model that the table belongs to. NotFound: it has none.
absl::StatusOr<Version> FindCurrent(const Map& map, const std::string& model,
                                    const std::vector<uint32_t>& tables, const std::string& name) {
  const auto table = map.tables.find(name);
  if (table == map.tables.end()) return NewestRows();  // CheckServed refuses it
  std::vector<Version> current;
  for (const Version& version : map.versions) {
    const bool of_model = model.empty() || version->model() == model;
    if (of_model && Has(map.current, version->number())) current.push_back(version);
  }
  std::vector<Version> found = current;
  HOTBED_RETURN_IF_ERROR(NarrowCurrent(model, table->second.id, name, tables, &found));
  if (!found.empty()) return found[0];
  std::vector<std::string> names;
  for (const Version& version : current) names.push_back(version->name());
  if (names.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("no version", model.empty() ? "" : absl::StrCat(" of model \"", model, "\""),
                     " is current; ", NamesOf(map)));
  }
  return absl::NotFoundError(absl::StrCat(Name(name), " is not in version \"",
                                          absl::StrJoin(names, "\", \""),
                                          names.size() == 1 ? "\"" : "\", which are current"));
}

absl::StatusOr<Version> FindVersion(const Map& map, const std::string& name) {
  for (const Version& version : map.versions) {
    if (version->name() != name) continue;
    if (Has(map.kept, version->number())) return version;
    return absl::FailedPreconditionError(
        absl::StrCat("version \"", name, "\" is not held by servers any more; ", NamesOf(map),
                     "; 'hotbed serve pin ", name, "' lets them take it up again"));
  }
  return WithField(
      absl::NotFoundError(absl::StrCat("there is no version \"", name, "\"; ", NamesOf(map))),
      "version", name, NamesOf(map));
}

// As a lookup names it, for each table.
std::vector<absl::StatusOr<Version>> FindVersions(const Map& map,
                                                  const std::vector<ServingIds>& tables,
                                                  const std::string& name) {
  std::vector<absl::StatusOr<Version>> found(tables.size(), NewestRows());
  if (name.empty() || name == kLatest) return found;
  const std::optional<std::string> model = ModelOfCurrent(name);
  if (!model.has_value()) return {tables.size(), FindVersion(map, name)};
  std::vector<uint32_t> ids;
  for (const ServingIds& asked : tables) {
    const auto table = map.tables.find(asked.table);
    if (table != map.tables.end()) ids.push_back(table->second.id);
  }
  for (size_t i = 0; i < tables.size(); ++i) {
    found[i] = FindCurrent(map, *model, ids, tables[i].table);
  }
  return found;
}

// A call that is too large would be refused as an overload is, or end its connection.
absl::Status CheckBytes(const Server& server, uint64_t bytes, const std::string& parts) {
  const uint64_t allowed = server.message_bytes_max.load(std::memory_order_relaxed);
  if (allowed == 0 || bytes <= allowed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      parts, ": the request to serving server ", server.name, " has ", bytes,
      " bytes, allowed: ", allowed, ", its --message-bytes-max; send it as several requests"));
}

absl::Status CheckBytes(const OpenCall& call, const std::vector<ServingIds>& tables) {
  const uint64_t bytes = call.request.ByteSizeLong();
  if (CheckBytes(*call.server, bytes, "").ok()) return absl::OkStatus();
  std::vector<std::string> parts;
  for (const Wanted* const wanted : call.tables) {
    const ServingIds& asked = tables[wanted->index];
    parts.push_back(absl::StrCat(Name(asked.table), " with ", asked.ids.size(), " ids"));
  }
  return CheckBytes(*call.server, bytes, absl::StrJoin(parts, ", "));
}

v1::ServedPooling PoolingOf(Pooling pooling) {
  switch (pooling) {
    case Pooling::kSum:
      return v1::SERVED_SUM;
    case Pooling::kMean:
      return v1::SERVED_MEAN;
    case Pooling::kMax:
      return v1::SERVED_MAX;
    case Pooling::kNone:
      break;
  }
  return v1::SERVED_ROWS;
}

template <typename Value>
const char* BytesOf(absl::Span<const Value> values) {
  return reinterpret_cast<const char*>(values.data());
}

ServedBags BagsOf(const ServingIds& asked) {
  return {.pooling = PoolingOf(asked.pooling),
          .ids = static_cast<uint32_t>(asked.ids.size()),
          .bags = static_cast<uint32_t>(asked.offsets.size()),
          .offsets = BytesOf(asked.offsets),
          .weights = asked.weights.empty() ? nullptr : BytesOf(asked.weights)};
}

absl::Status CheckAsked(const ServingIds& asked) {
  const auto bad = [&asked](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(Name(asked.table), ": ", text...));
  };
  for (const auto& [name, count] :
       {std::pair("ids", asked.ids.size()), std::pair("offsets", asked.offsets.size())}) {
    if (count > kIdsMax) return bad(name, " has ", count, " entries, allowed: 0..", kIdsMax);
  }
  if (!asked.weights.empty() && asked.weights.size() != asked.ids.size()) {
    return bad("weights has ", asked.weights.size(), " entries; allowed: ", asked.ids.size(),
               ", one per id, or none");
  }
  return CheckServedBags(Name(asked.table), BagsOf(asked));
}

// Rows as they have travelled, as floats.
void ReadWire(RowType type, const char* from, uint64_t rows, uint32_t dim, float* out) {
  const auto* row = reinterpret_cast<const uint8_t*>(from);
  const uint64_t row_bytes = RowWireBytes(type, dim);
  if (type == RowType::kFp32) {
    std::memcpy(out, row, rows * row_bytes);
    return;
  }
  for (uint64_t i = 0; i < rows; ++i, row += row_bytes, out += dim) {
    auto* const to = reinterpret_cast<uint8_t*>(out);
    if (type == RowType::kInt8) {
      DequantizeRow(row, dim, out);
    } else if (type == RowType::kFp16) {
      ConvertRow<Fp16Codec, Fp32Codec>(row, dim, to);
    } else {
      ConvertRow<Bf16Codec, Fp32Codec>(row, dim, to);
    }
  }
}

class GrpcServingClient final : public ServingClient {
 public:
  GrpcServingClient(const std::string& coordinators, const ClientIdentity& identity,
                    const ServingClientOptions& options)
      : identity_(identity),
        failure_domain_(options.failure_domain),
        may_go_back_(options.may_go_back),
        calls_(coordinators, identity_),
        budget_(options.hedge_budget, kHedgesMax) {}
  ~GrpcServingClient() override {
    {
      absl::MutexLock lock(&mu_);
      stops_ = true;
    }
    if (refresh_.joinable()) refresh_.join();
  }

  absl::Status Start(absl::Duration timeout) {
    HOTBED_RETURN_IF_ERROR(CheckIdentity(identity_));
    HOTBED_RETURN_IF_ERROR(Refresh(timeout));
    refresh_ = std::thread([this] { Follow(); });
    return absl::OkStatus();
  }

  ServingClientStats stats() const override {
    return {.calls = counters_.calls.load(),
            .hedges = counters_.hedges.load(),
            .hedges_won = counters_.hedges_won.load(),
            .hedges_refused = counters_.hedges_refused.load()};
  }

  uint32_t Dim(const std::string& table) const override {
    const std::shared_ptr<const Map> map = this->map();
    const auto found = map->tables.find(table);
    return found == map->tables.end() ? 0 : found->second.dim;
  }

  absl::StatusOr<std::vector<ServingRows>> Lookup(const std::vector<ServingIds>& tables,
                                                  const ServingLookupOptions& options) override {
    for (const ServingIds& asked : tables) HOTBED_RETURN_IF_ERROR(CheckAsked(asked));
    HOTBED_RETURN_IF_ERROR(CheckStaleness(options));
    const absl::Duration timeout = std::min(options.timeout, absl::Hours(24));
    const int64_t end_ns = clock_.NowNs() + absl::ToInt64Nanoseconds(timeout);
    for (;;) {
      const CutLookup cut(tables, CutsOf(*map(), tables), options.wire_type);
      bool cut_again = false;
      absl::StatusOr<std::vector<ServingRows>> pieces =
          LookupPieces(cut, options, end_ns, &cut_again);
      if (cut_again) continue;
      if (!pieces.ok()) return pieces.status();
      std::vector<ServingRows> rows = cut.Join(*std::move(pieces));
      if (!rows.empty() && std::none_of(rows.begin(), rows.end(), [](const auto& one) {
            return one.status.ok() || !one.known.empty();
          })) {
        return rows[0].status;
      }
      return rows;
    }
  }

  absl::StatusOr<ServingNearest> TopK(const std::string& table, absl::Span<const float> vectors,
                                      uint32_t k, const ServingTopKOptions& options) override {
    if (const uint64_t bytes = TopKRequestBytes(vectors, options); bytes > kTopKBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(Name(table), ": vectors and only_ids have ",
                                                     bytes, " bytes, allowed: ", kTopKBytesMax));
    }
    const absl::Duration timeout = std::min(options.timeout, absl::Hours(24));
    const int64_t end_ns = clock_.NowNs() + absl::ToInt64Nanoseconds(timeout);
    const ServingLookupOptions as_lookup = {
        .staleness_max = options.staleness_max, .version = options.version, .stop = options.stop};
    HOTBED_RETURN_IF_ERROR(CheckStaleness(as_lookup));
    const std::vector<ServingIds> asked = {{.table = table}};
    const v1::ServingTopKRequest request = TopKRequestOf(vectors, k, options);
    Version version;
    std::vector<Wanted> all;              // the parts
    std::vector<ServingNearest> answers;  // of them
    std::vector<Wanted*> open;            // those without an answer
    absl::Status last;
    for (;;) {
      // Each time: another version may be current by now.
      HOTBED_ASSIGN_OR_RETURN(Version newest, VersionsFor(asked, as_lookup, end_ns)[0]);
      const std::shared_ptr<const Map> map = this->map();
      HOTBED_RETURN_IF_ERROR(CheckServed(*map, table, *newest));
      const Table& found = map->tables.at(table);
      if (version == nullptr || newest->number() != version->number() ||
          all.size() != found.parts.size()) {
        // No answer of another version, or of another cut, may stay.
        version = std::move(newest);
        all = PartsOf(found, version, end_ns);
        answers.assign(all.size(), {});
        open.clear();
        for (Wanted& part : all) open.push_back(&part);
      }
      auto calls = MakeTopKCalls(found, open, request);
      for (const auto& [part, call] : calls) {
        HOTBED_RETURN_IF_ERROR(CheckBytes(*call->server, call->request.ByteSizeLong(),
                                          absl::StrCat(Name(table), " with vectors and only_ids")));
      }
      bool in_time = true;
      if (calls.empty()) {
        in_time = BeginRound(*map, asked, open, options.stop, end_ns);
        HOTBED_RETURN_IF_ERROR(GoesOn(options.stop));
      }
      if (!in_time || clock_.NowNs() >= end_ns) return TimedOut(asked, *open[0], last);
      HOTBED_RETURN_IF_ERROR(RunTopK(found, options.stop, end_ns, &calls));
      for (const auto& [part, call] : calls) {
        bool answered = false;
        HOTBED_RETURN_IF_ERROR(TakeTopK(*call, part, &answers[part->part.part], &answered, &last));
        if (answered) std::erase(open, part);
      }
      if (open.empty()) return Nearest(std::move(answers), *version, k, options.metric);
    }
  }

 private:
  // Rows of all pieces, each as asked. `*cut_again`: a table is cut into other parts by now.
  absl::StatusOr<std::vector<ServingRows>> LookupPieces(const CutLookup& cut,
                                                        const ServingLookupOptions& options,
                                                        int64_t end_ns, bool* cut_again) {
    std::vector<ServingIds> tables;
    std::vector<Wanted> all;
    for (const CutLookup::Piece& piece : cut.pieces()) {
      tables.push_back(piece.asked);
      all.push_back({.part = piece.part, .wire_type = piece.wire_type});
      SetTimes(end_ns, &all.back());
    }
    std::vector<ServingRows> rows(tables.size());
    std::vector<Wanted*> open;
    absl::Status last;  // why the newest try of some table has failed
    HOTBED_RETURN_IF_ERROR(
        SetVersions(VersionsFor(tables, options, end_ns), options.partial, &all, &open, &rows));
    while (!open.empty()) {
      const std::shared_ptr<const Map> map = this->map();
      HOTBED_RETURN_IF_ERROR(GiveUpUnserved(*map, tables, options.partial, &open, &rows));
      if (open.empty()) break;
      *cut_again = std::any_of(open.begin(), open.end(), [&](const Wanted* wanted) {
        const Table& table = map->tables.at(tables[wanted->index].table);
        return table.parts.size() != wanted->part.parts;
      });
      if (*cut_again) return absl::AbortedError("a table is cut into other parts by now");
      auto calls = MakeCalls(*map, tables, open, options);
      for (const auto& call : calls) HOTBED_RETURN_IF_ERROR(CheckBytes(*call, tables));
      bool in_time = true;
      if (calls.empty()) {
        in_time = BeginRound(*map, tables, open, options.stop, end_ns);
        HOTBED_RETURN_IF_ERROR(GoesOn(options.stop));
      }
      if (!in_time || clock_.NowNs() >= end_ns) {
        while (!open.empty()) {
          const absl::Status late = TimedOut(tables, *open[0], last);
          HOTBED_RETURN_IF_ERROR(GiveUp(late, options.partial, open.begin(), &open, &rows));
        }
        break;
      }
      HOTBED_RETURN_IF_ERROR(Run(*map, tables, options, end_ns, &calls, &open, &rows, &last));
      if (open.empty()) continue;
      // A table may be cut into other parts.
      if (Says(calls, Outcome::NOT_SERVED)) AskForMap();
      if (!Says(calls, Outcome::NO_VERSION)) continue;
      AskForMap();
      HOTBED_RETURN_IF_ERROR(
          SetVersions(VersionsFor(tables, options, end_ns), options.partial, &all, &open, &rows));
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].status.ok()) rows[i].version = all[i].version->name();
    }
    return rows;
  }

  void SetTimes(int64_t end_ns, Wanted* wanted) const {
    wanted->begin = seen_.BeginAt(clock_.NowNs());
    wanted->newer_until_ns =
        wanted->begin.ns + std::min(kNewerWaitNs, (end_ns - wanted->begin.ns) / 2);
  }

  std::shared_ptr<const Map> map() const ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    return map_;
  }

  // A table that is not served is not cut: LookupPieces says so.
  static std::vector<TableCut> CutsOf(const Map& map, const std::vector<ServingIds>& tables) {
    std::vector<TableCut> cuts;
    for (const ServingIds& asked : tables) {
      const auto table = map.tables.find(asked.table);
      TableCut& cut = cuts.emplace_back();
      if (table == map.tables.end()) continue;
      cut = {table->second.places, static_cast<uint32_t>(table->second.parts.size())};
    }
    return cuts;
  }

  static absl::Status GoesOn(const std::function<bool()>& stop) {
    return stop && stop() ? absl::CancelledError("the caller broke the call off")
                          : absl::OkStatus();
  }

  static absl::Status CheckStaleness(const ServingLookupOptions& options) {
    if (options.version.empty() || options.version == kLatest ||
        options.staleness_max <= absl::ZeroDuration()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "staleness_max is ", absl::FormatDuration(options.staleness_max), ", and version \"",
        options.version, "\": rows of a version do not change; leave one of the two out"));
  }

  // A version that this client has not heard of may be new.
  std::vector<absl::StatusOr<Version>> VersionsFor(const std::vector<ServingIds>& tables,
                                                   const ServingLookupOptions& options,
                                                   int64_t end_ns) ABSL_LOCKS_EXCLUDED(mu_) {
    std::shared_ptr<const Map> map = this->map();
    auto found = FindVersions(*map, tables, options.version);
    const auto unknown = [&found] {
      return std::any_of(found.begin(), found.end(), [](const auto& one) { return !one.ok(); });
    };
    // The second one was asked for after this call has begun.
    for (int maps = 0; maps < 2 && unknown(); ++maps) {
      map = AwaitMapAfter(map, options.stop, end_ns);
      found = FindVersions(*map, tables, options.version);
      const absl::Status stopped = GoesOn(options.stop);
      if (!stopped.ok()) return {tables.size(), stopped};
    }
    return found;
  }

  // Opens the tables whose version is another one than before: no row of that may stay. All were
  // found in one map, so tables of one model are asked for one version.
  static absl::Status SetVersions(const std::vector<absl::StatusOr<Version>>& found, bool partial,
                                  std::vector<Wanted>* all, std::vector<Wanted*>* open,
                                  std::vector<ServingRows>* rows) {
    for (size_t i = 0; i < found.size(); ++i) {
      Wanted& wanted = (*all)[i];
      wanted.index = i;
      const bool same = found[i].ok() && wanted.version != nullptr &&
                        wanted.version->number() == (*found[i])->number();
      if (same) continue;
      std::erase(*open, &wanted);
      (*rows)[i] = ServingRows();
      wanted.tried.clear();
      wanted.version = found[i].ok() ? *found[i] : nullptr;
      open->push_back(&wanted);
      if (!found[i].ok()) {
        HOTBED_RETURN_IF_ERROR(GiveUp(found[i].status(), partial, open->end() - 1, open, rows));
      }
    }
    return absl::OkStatus();
  }

  static bool Says(const std::vector<std::unique_ptr<OpenCall>>& calls, Outcome::Outcome outcome) {
    return std::any_of(calls.begin(), calls.end(), [outcome](const auto& call) {
      const auto& tables = call->reply.tables();
      return std::any_of(tables.begin(), tables.end(),
                         [outcome](const auto& said) { return said.outcome() == outcome; });
    });
  }

  void AskForMap() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    map_wanted_ = true;
  }

  // The same one after some time, if no coordinator answers, or the call is to end.
  std::shared_ptr<const Map> AwaitMapAfter(const std::shared_ptr<const Map>& known,
                                           const std::function<bool()>& stop, int64_t end_ns)
      ABSL_LOCKS_EXCLUDED(mu_) {
    const int64_t until_ns =
        std::min(end_ns, clock_.NowNs() + absl::ToInt64Nanoseconds(kMapTimeout));
    for (;;) {
      const int64_t left_ns = std::max<int64_t>(until_ns - clock_.NowNs(), 0);
      {
        absl::MutexLock lock(&mu_);
        map_wanted_ = true;
        const auto newer = [this, &known]()
                               ABSL_SHARED_LOCKS_REQUIRED(mu_) { return map_ != known || stops_; };
        const bool told = AwaitFor(&mu_, absl::Condition(&newer),
                                   absl::Nanoseconds(stop ? std::min(left_ns, kStopsNs) : left_ns));
        if (told || left_ns == 0) return map_;
      }
      if (!GoesOn(stop).ok()) return known;
    }
  }

  static absl::Status TimedOut(const std::vector<ServingIds>& tables, const Wanted& open,
                               const absl::Status& last) {
    const std::string name = Name(tables[open.index].table);
    if (last.ok()) {
      return absl::DeadlineExceededError(
          absl::StrCat(name, ": no serving server has it now ('hotbed serve status')"));
    }
    return absl::Status(last.code(), absl::StrCat(name, ": ", last.message()));
  }

  static absl::Status CheckServed(const Map& map, const std::string& name,
                                  const v1::ServedVersion& version) {
    const auto table = map.tables.find(name);
    if (table == map.tables.end()) {
      return WithField(absl::NotFoundError(absl::StrCat(
                           Name(name), " is not served; 'hotbed serve add' begins that")),
                       "table", name, "a served table");
    }
    if (version.number() == 0 || HasServedTable(version, table->second.id)) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(Name(name), " is not in version \"", version.name(), "\""));
  }

  // A table that is not answered: the end of the lookup, or of that table.
  static absl::Status GiveUp(const absl::Status& why, bool partial,
                             std::vector<Wanted*>::iterator wanted, std::vector<Wanted*>* open,
                             std::vector<ServingRows>* rows) {
    if (!partial) return why;
    (*rows)[(*wanted)->index].status = why;
    open->erase(wanted);
    return absl::OkStatus();
  }

  static absl::Status GiveUpUnserved(const Map& map, const std::vector<ServingIds>& tables,
                                     bool partial, std::vector<Wanted*>* open,
                                     std::vector<ServingRows>* rows) {
    for (size_t i = 0; i < open->size();) {
      const std::string& name = tables[(*open)[i]->index].table;
      const absl::Status served = CheckServed(map, name, *(*open)[i]->version);
      if (served.ok()) {
        ++i;
        continue;
      }
      const auto wanted = open->begin() + static_cast<int64_t>(i);
      HOTBED_RETURN_IF_ERROR(GiveUp(served, partial, wanted, open, rows));
    }
    return absl::OkStatus();
  }

  // All replicas of the tables have been tried, and are to be tried again: not before one of each
  // may take a call. False: that is after the end.
  bool BeginRound(const Map& map, const std::vector<ServingIds>& tables,
                  const std::vector<Wanted*>& open, const std::function<bool()>& stop,
                  int64_t end_ns) const {
    const int64_t now_ns = clock_.NowNs();
    int64_t until_ns = now_ns + kRoundNs;
    int64_t newer_until_ns = end_ns;
    for (Wanted* const wanted : open) {
      if (wanted->behind) newer_until_ns = std::min(newer_until_ns, wanted->newer_until_ns);
      wanted->behind = false;
      wanted->tried.clear();
      int64_t free_ns = std::numeric_limits<int64_t>::max();
      const Table& table = map.tables.at(tables[wanted->index].table);
      const Part& part = table.parts[wanted->part.part];
      for (const auto& server : part.replicas) {
        free_ns = std::min(free_ns, server->busy_until_ns.load());
      }
      if (part.replicas.empty()) continue;
      if (free_ns >= end_ns) return false;
      until_ns = std::max(until_ns, free_ns);
    }
    until_ns = std::min({until_ns, end_ns, newer_until_ns});
    for (int64_t left_ns = until_ns - now_ns; left_ns > 0 && GoesOn(stop).ok();
         left_ns = until_ns - clock_.NowNs()) {
      clock_.SleepNs(stop ? std::min(left_ns, kStopsNs) : left_ns);
    }
    return true;
  }

  // The copy of `part` that this client stays with, or another one if that would be quicker by far,
  // and not be behind. Null: all have been tried.
  std::shared_ptr<Server> Choose(uint32_t table, const Part& part, const Wanted& wanted) const {
    const uint64_t version = wanted.version->number();
    const int64_t now_ns = clock_.NowNs();
    std::shared_ptr<Server> own, best;
    using Rank = std::tuple<int, int, size_t>;
    Rank own_rank, best_rank;
    for (size_t i = 0; i < part.replicas.size(); ++i) {
      const std::shared_ptr<Server>& server = part.replicas[i];
      if (wanted.tried.contains(server.get())) continue;
      const bool has = version == 0 ? i < part.ready : Has(part.held[i], version);
      const bool shunned =
          server->shunned_until_ns.load() > now_ns || server->busy_until_ns.load() > now_ns;
      // Else each lookup would ask it first, and another one second.
      const bool behind = version == 0 && !may_go_back_ && server->behind_until_ns.load() > now_ns;
      const int doubts = (has ? 0 : 4) + (shunned ? 2 : 0) + (behind ? 1 : 0);
      const int far_calls = server->far ? kFarCalls : 0;
      const Rank by_order = {doubts, far_calls, server->order};
      if (own == nullptr || by_order < own_rank) {
        own = server;
        own_rank = by_order;
      }
      const Rank by_calls = {doubts, server->outstanding.load() + far_calls, server->order};
      if (best == nullptr || by_calls < best_rank) {
        best = server;
        best_rank = by_calls;
      }
    }
    if (own == nullptr) return nullptr;
    const int own_calls = own->outstanding.load() + std::get<1>(own_rank);
    if (own_calls <= std::get<1>(best_rank) + kStayCalls) return own;
    return MayBeBehind(table, wanted, *best, now_ns - kQuietNs) ? own : best;
  }

  // Whether rows of the server may be too old if they are as of `as_of_ns`.
  bool MayBeBehind(uint32_t table, const Wanted& wanted, const Server& server,
                   int64_t as_of_ns) const {
    if (may_go_back_ || wanted.version->number() != 0) return false;
    return seen_.NeededOf(table, wanted.part, &server, wanted.begin.ns).as_of_ns > as_of_ns;
  }

  // How old rows of the server may be, so that it refuses at once if it is behind; 0: they are
  // taken in any case.
  uint32_t AgeMsMax(uint32_t table, const Wanted& wanted, const Server& server) const {
    if (may_go_back_ || wanted.version->number() != 0) return 0;
    const int64_t now_ns = clock_.NowNs();
    const auto needed = seen_.NeededOf(table, wanted.part, &server, wanted.begin.ns);
    if (needed.known || needed.as_of_ns <= 0 || now_ns >= wanted.newer_until_ns) return 0;
    const int64_t ms = (now_ns - needed.as_of_ns) / kMillisecondNs;
    return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, kNeededMsMax));
  }

  // Whether an answer of the newest rows is taken. `*older`: it may be older than one before.
  bool IsNewEnough(Server* server, uint32_t table, Wanted* wanted, const Outcome& said,
                   int64_t asked_ns, int64_t answered_ns, bool* older, absl::Status* last) const {
    *older = false;
    if (may_go_back_ || wanted->version->number() != 0) return true;
    const auto before = [](int64_t ns, uint64_t ms) {
      return ns - static_cast<int64_t>(std::min<uint64_t>(ms, kNeededMsMax)) * kMillisecondNs;
    };
    const SeenCopies::Answer answer = {.server = server,
                                       .life = said.life(),
                                       .as_of_ns = before(asked_ns, said.age_ms()),
                                       .changed_ns = before(answered_ns, said.unchanged_ms())};
    const SeenCopies::Verdict verdict = seen_.Take(table, wanted->part, answer, wanted->begin,
                                                   answered_ns >= wanted->newer_until_ns);
    *older = verdict == SeenCopies::Verdict::kOlder;
    if (verdict != SeenCopies::Verdict::kRefused) return true;
    NoteBehind(wanted, server);
    *last = absl::UnavailableError(
        absl::StrCat("serving server ", server->name, " is behind an answer before"));
    return false;
  }

  // A call per server, version and wire type, for all tables that have them.
  std::vector<std::unique_ptr<OpenCall>> MakeCalls(const Map& map,
                                                   const std::vector<ServingIds>& tables,
                                                   const std::vector<Wanted*>& open,
                                                   const ServingLookupOptions& options) const {
    std::vector<std::unique_ptr<OpenCall>> calls;
    for (Wanted* const wanted : open) {
      const ServingIds& asked = tables[wanted->index];
      const Table& table = map.tables.at(asked.table);
      const Part& part = table.parts[wanted->part.part];
      const std::shared_ptr<Server> server = Choose(table.id, part, *wanted);
      if (server == nullptr) continue;
      wanted->tried.insert(server.get());
      const uint64_t version = wanted->version->number();
      auto call = std::find_if(calls.begin(), calls.end(), [&](const auto& one) {
        return one->server == server && one->request.version() == version &&
               one->wire_type == wanted->wire_type;
      });
      if (call == calls.end()) {
        calls.push_back(std::make_unique<OpenCall>());
        call = calls.end() - 1;
        (*call)->server = server;
        (*call)->request.set_staleness_ms_max(StalenessMs(options.staleness_max));
        (*call)->wire_type = wanted->wire_type;
        (*call)->request.set_row_type(ToProto(wanted->wire_type));
        (*call)->request.set_version(version);
        (*call)->request.set_with_tiers(options.with_tiers);
        (*call)->request.set_batch(options.priority == ServingPriority::kBatch);
      }
      AddTable(table.id, wanted->part, asked, &(*call)->request);
      if (const uint32_t age_ms_max = AgeMsMax(table.id, *wanted, *server); age_ms_max != 0) {
        (*call)->request.mutable_tables()->rbegin()->set_age_ms_max(age_ms_max);
      }
      (*call)->others |= part.replicas.size() > 1;
      (*call)->tables.push_back(wanted);
    }
    return calls;
  }

  static void AddTable(uint32_t table, const ServedPart& of, const ServingIds& asked,
                       v1::ServingLookupRequest* request) {
    v1::ServingLookupTable& part = *request->add_tables();
    part.set_table(table);
    part.set_part(of.part);
    part.set_parts(of.parts);
    part.set_ids(static_cast<uint32_t>(asked.ids.size()));
    part.set_pooling(PoolingOf(asked.pooling));
    part.set_bags(static_cast<uint32_t>(asked.offsets.size()));
    part.set_weighted(!asked.weights.empty());
    request->mutable_ids()->append(BytesOf(asked.ids), asked.ids.size() * sizeof(uint64_t));
    request->mutable_offsets()->append(BytesOf(asked.offsets),
                                       asked.offsets.size() * sizeof(uint32_t));
    request->mutable_weights()->append(BytesOf(asked.weights),
                                       asked.weights.size() * sizeof(float));
  }

  // A server that is silent must leave time for another one, where there is one.
  std::chrono::system_clock::time_point TryUntil(int64_t end_ns, bool others) const {
    const int64_t left_ns = end_ns - clock_.NowNs();
    return std::chrono::system_clock::now() +
           std::chrono::nanoseconds(others && left_ns > kTryNsMin ? left_ns / 2 : left_ns);
  }

  void Begin(OpenCall* call, int64_t end_ns, grpc::CompletionQueue* queue) const {
    (call->hedge ? counters_.hedges : counters_.calls).fetch_add(1, std::memory_order_relaxed);
    call->context.set_deadline(TryUntil(end_ns, call->others));
    call->server->outstanding.fetch_add(1);
    call->asked_ns = clock_.NowNs();
    call->reader = call->server->stub->AsyncLookup(&call->context, call->request, queue);
    call->reader->Finish(&call->reply, &call->status, call);
  }

  void NoteEnd(OpenCall* call) const {
    call->answered_ns = clock_.NowNs();
    call->server->outstanding.fetch_sub(1);
    NoteOutcome(call->context, call->status, call->server.get());
  }

  void NoteOutcome(const grpc::ClientContext& context, const grpc::Status& status,
                   Server* server) const {
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      server->busy_until_ns.store(clock_.NowNs() + RetryNs(context));
    }
    // Cancelled: another replica was sooner by far.
    const bool broken = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
                        status.error_code() == grpc::StatusCode::CANCELLED;
    server->shunned_until_ns.store(broken ? clock_.NowNs() + kShunNs : 0);
  }

  // As the server has told.
  static int64_t RetryNs(const grpc::ClientContext& context) {
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto told = metadata.find(kRetryMetadata);
    int64_t ms = 0;
    if (told == metadata.end() ||
        !absl::SimpleAtoi(absl::string_view(told->second.data(), told->second.size()), &ms)) {
      return 0;
    }
    return std::clamp<int64_t>(ms, 0, kRetryMsMax) * kMillisecondNs;
  }

  static absl::Status ErrorOf(const Server& server, const grpc::Status& status) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("serving server ", server.name, ": ", status.error_message()));
  }
  static bool OtherMayAnswer(const absl::Status& error) {
    return absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) ||
           absl::IsResourceExhausted(error);
  }
  void NoteBehind(Wanted* wanted, Server* server) const {
    wanted->behind = true;
    server->behind_until_ns.store(clock_.NowNs() + kShunNs);
  }
  // Not OK: every server refuses.
  absl::Status NoteRefusal(const Outcome& said, Wanted* wanted, Server* server,
                           absl::Status* last) const {
    if (said.outcome() == Outcome::BEHIND) NoteBehind(wanted, server);
    if (said.outcome() == Outcome::DENIED) return absl::PermissionDeniedError(said.detail());
    *last = said.outcome() == Outcome::TOO_OLD ? absl::FailedPreconditionError(said.detail())
                                               : absl::UnavailableError(said.detail());
    return absl::OkStatus();
  }

  // Begins the calls, asks other replicas too after options.hedge_after, and takes answers as they
  // come until all tables have theirs or all calls have ended. Calls that are not needed any more
  // are cancelled.
  absl::Status Run(const Map& map, const std::vector<ServingIds>& tables,
                   const ServingLookupOptions& options, int64_t end_ns,
                   std::vector<std::unique_ptr<OpenCall>>* calls, std::vector<Wanted*>* open,
                   std::vector<ServingRows>* rows, absl::Status* last) const {
    grpc::CompletionQueue queue;
    for (const auto& call : *calls) {
      budget_.Sent();
      Begin(call.get(), end_ns, &queue);
    }
    size_t running = calls->size();
    const int64_t hedge_ns = absl::ToInt64Nanoseconds(options.hedge_after);  // may be infinite
    bool may_hedge = hedge_ns < end_ns - clock_.NowNs();
    const auto hedge_at =
        std::chrono::system_clock::now() + std::chrono::nanoseconds(may_hedge ? hedge_ns : 0);
    absl::Status error;
    void* tag = nullptr;
    while (running > 0 && !open->empty() && error.ok()) {
      if (!NextBy(may_hedge ? hedge_at : kNever, options.stop, &queue, &tag)) {
        error = GoesOn(options.stop);
        if (!std::exchange(may_hedge, false) || !error.ok()) continue;
        for (auto& call : MakeHedges(map, tables, *open, options)) {
          Begin(call.get(), end_ns, &queue);
          calls->push_back(std::move(call));
          ++running;
        }
        continue;
      }
      --running;
      auto* const call = static_cast<OpenCall*>(tag);
      NoteEnd(call);
      const size_t open_before = open->size();
      error = Take(*call, tables, options, open, rows, last);
      if (call->hedge && open->size() < open_before) counters_.hedges_won.fetch_add(1);
    }
    if (running > 0) {
      for (const auto& call : *calls) call->context.TryCancel();
    }
    queue.Shutdown();
    bool ok = false;
    while (queue.Next(&tag, &ok)) NoteEnd(static_cast<OpenCall*>(tag));
    return error;
  }

  // Calls to other replicas of the tables, which are late; none if the budget does not suffice.
  std::vector<std::unique_ptr<OpenCall>> MakeHedges(const Map& map,
                                                    const std::vector<ServingIds>& tables,
                                                    const std::vector<Wanted*>& open,
                                                    const ServingLookupOptions& options) const {
    auto calls = MakeCalls(map, tables, open, options);
    std::erase_if(calls, [&](const auto& call) { return !CheckBytes(*call, tables).ok(); });
    const bool may = budget_.Take(static_cast<int64_t>(calls.size()));
    if (!may) counters_.hedges_refused.fetch_add(1);
    for (const auto& call : calls) {
      call->hedge = true;
      call->request.set_hedged(true);
      for (Wanted* const wanted : call->tables) {
        if (!may) wanted->tried.erase(call->server.get());
      }
    }
    if (!may) calls.clear();
    return calls;
  }

  // The next call that has ended. False: none has by `until`, or `stop` may say more.
  static bool NextBy(std::chrono::system_clock::time_point until, const std::function<bool()>& stop,
                     grpc::CompletionQueue* queue, void** tag) {
    bool ok = false;
    while (stop) {
      const auto slice = std::chrono::system_clock::now() + std::chrono::nanoseconds(kStopsNs);
      if (queue->AsyncNext(tag, &ok, std::min(slice, until)) != grpc::CompletionQueue::TIMEOUT) {
        return true;
      }
      if (slice >= until || stop()) return false;
    }
    return queue->AsyncNext(tag, &ok, until) != grpc::CompletionQueue::TIMEOUT;
  }

  // Takes the rows of the tables that were answered out of `open`. Not OK: the lookup fails.
  absl::Status Take(const OpenCall& call, const std::vector<ServingIds>& tables,
                    const ServingLookupOptions& options, std::vector<Wanted*>* open,
                    std::vector<ServingRows>* rows, absl::Status* last) const {
    const RowType wire_type = call.wire_type;
    if (!call.status.ok()) {
      *last = ErrorOf(*call.server, call.status);
      return OtherMayAnswer(*last) ? absl::OkStatus() : *last;
    }
    if (call.reply.version() != call.request.version()) {
      *last = absl::UnavailableError(absl::StrCat("serving server ", call.server->name,
                                                  " is of a release that has no versions"));
      return absl::OkStatus();
    }
    const char* values = call.reply.rows().data();
    const char* exists = call.reply.exists().data();
    uint64_t values_left = call.reply.rows().size(), exists_left = call.reply.exists().size();
    for (size_t i = 0; i < call.tables.size(); ++i) {
      const size_t index = call.tables[i]->index;
      const uint64_t ids = tables[index].ids.size();
      const uint64_t rows_of_table = BagsOf(tables[index]).rows();
      if (call.reply.tables_size() <= static_cast<int>(i)) return Contradiction(call);
      const auto wanted = std::find(open->begin(), open->end(), call.tables[i]);
      const Outcome& said = call.reply.tables(static_cast<int>(i));
      if (said.outcome() != Outcome::OK) {
        const absl::Status refused = NoteRefusal(said, call.tables[i], call.server.get(), last);
        if (!refused.ok() && wanted != open->end()) {
          HOTBED_RETURN_IF_ERROR(GiveUp(refused, options.partial, wanted, open, rows));
        }
        continue;
      }
      if (said.dim() > kDimLimit) return Contradiction(call);
      const uint64_t bytes = rows_of_table * RowWireBytes(wire_type, said.dim());
      if (values_left < bytes || exists_left < ids) return Contradiction(call);
      // A server of an earlier release does not say them.
      const size_t tiers_at = call.reply.exists().size() - exists_left;
      const bool tiers = call.reply.tiers().size() == call.reply.exists().size();
      // Else another replica was sooner.
      bool older = false;
      if (wanted != open->end() && IsNewEnough(call, static_cast<int>(i), &older, last)) {
        open->erase(wanted);
        (*rows)[index].older = older;
        TakeRows(call, said, {values, rows_of_table, wire_type}, exists, ids, &(*rows)[index]);
        for (uint64_t id = 0; tiers && id < ids; ++id) {
          (*rows)[index].tiers.push_back(
              static_cast<ServingTier>(call.reply.tiers()[tiers_at + id]));
        }
      }
      values += bytes;
      exists += ids;
      values_left -= bytes;
      exists_left -= ids;
    }
    return absl::OkStatus();
  }

  bool IsNewEnough(const OpenCall& call, int i, bool* older, absl::Status* last) const {
    return IsNewEnough(call.server.get(), call.request.tables(i).table(),
                       call.tables[static_cast<size_t>(i)], call.reply.tables(i), call.asked_ns,
                       call.answered_ns, older, last);
  }

  struct WireRows {
    const char* bytes;
    uint64_t count;
    RowType type;
  };
  static void TakeRows(const OpenCall& call, const Outcome& said, const WireRows& rows,
                       const char* exists, uint64_t ids, ServingRows* one) {
    one->dim = said.dim();
    one->values.resize(rows.count * said.dim());
    ReadWire(rows.type, rows.bytes, rows.count, said.dim(), one->values.data());
    one->exists.assign(exists, exists + ids);
    one->age = absl::ZeroDuration();
    if (call.request.version() == 0) {
      // The server counts to the time of its answer, which may have been long under way.
      one->age =
          absl::Milliseconds(said.age_ms()) + absl::Nanoseconds(call.answered_ns - call.asked_ns);
    }
    one->server = call.server->name;
  }

  static uint64_t TopKRequestBytes(absl::Span<const float> vectors,
                                   const ServingTopKOptions& options) {
    const uint64_t ids = options.only_ids.has_value() ? options.only_ids->size() : 0;
    return vectors.size() * sizeof(float) + ids * sizeof(uint64_t);
  }

  static v1::ServingTopKRequest TopKRequestOf(absl::Span<const float> vectors, uint32_t k,
                                              const ServingTopKOptions& options) {
    v1::ServingTopKRequest request;
    request.set_staleness_ms_max(StalenessMs(options.staleness_max));
    request.set_metric(static_cast<v1::TopKMetric>(options.metric));
    request.set_k(k);
    request.set_vectors(BytesOf(vectors), vectors.size() * sizeof(float));
    request.set_first_id(options.first_id);
    request.set_last_id(options.last_id);
    request.set_only_ids(options.only_ids.has_value());
    if (options.only_ids.has_value()) {
      request.set_ids(BytesOf(*options.only_ids), options.only_ids->size() * sizeof(uint64_t));
    }
    return request;
  }

  std::vector<Wanted> PartsOf(const Table& table, const Version& version, int64_t end_ns) const {
    std::vector<Wanted> parts(table.parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].index = 0;  // of the one table
      parts[i].part = {static_cast<uint32_t>(i), static_cast<uint32_t>(parts.size())};
      parts[i].version = version;
      SetTimes(end_ns, &parts[i]);
    }
    return parts;
  }

  using TopKCalls = std::vector<std::pair<Wanted*, std::unique_ptr<TopKCall>>>;

  // One for each part of which a server was not tried yet.
  TopKCalls MakeTopKCalls(const Table& table, const std::vector<Wanted*>& open,
                          const v1::ServingTopKRequest& request) const {
    TopKCalls calls;
    for (Wanted* const wanted : open) {
      const std::shared_ptr<Server> server =
          Choose(table.id, table.parts[wanted->part.part], *wanted);
      if (server == nullptr) continue;
      wanted->tried.insert(server.get());
      auto call = std::make_unique<TopKCall>();
      call->server = server;
      call->request = request;
      call->request.set_table(table.id);
      call->request.set_part(wanted->part.part);
      call->request.set_parts(wanted->part.parts);
      call->request.set_version(wanted->version->number());
      calls.emplace_back(wanted, std::move(call));
    }
    return calls;
  }

  // Until all calls have ended. Not OK: the caller broke them off.
  absl::Status RunTopK(const Table& table, const std::function<bool()>& stop, int64_t end_ns,
                       TopKCalls* calls) const {
    grpc::CompletionQueue queue;
    for (auto& [part, call] : *calls) {
      counters_.calls.fetch_add(1, std::memory_order_relaxed);
      const bool others = table.parts[part->part.part].replicas.size() > 1;
      call->context.set_deadline(TryUntil(end_ns, others));
      call->server->outstanding.fetch_add(1);
      call->asked_ns = clock_.NowNs();
      call->reader = call->server->stub->AsyncTopK(&call->context, call->request, &queue);
      call->reader->Finish(&call->reply, &call->status, call.get());
    }
    bool broken_off = false;
    for (size_t running = calls->size(); running > 0;) {
      void* tag = nullptr;
      if (!NextBy(kNever, broken_off ? std::function<bool()>() : stop, &queue, &tag)) {
        broken_off = true;
        for (auto& [part, call] : *calls) call->context.TryCancel();
        continue;
      }
      --running;
      auto* const call = static_cast<TopKCall*>(tag);
      call->answered_ns = clock_.NowNs();
      call->server->outstanding.fetch_sub(1);
      if (!broken_off) NoteOutcome(call->context, call->status, call->server.get());
    }
    queue.Shutdown();
    return broken_off ? absl::CancelledError("the caller broke the call off") : absl::OkStatus();
  }

  // Not OK: no server would answer. Not `answered`: `last` says why, and another server may.
  absl::Status TakeTopK(const TopKCall& call, Wanted* part, ServingNearest* nearest, bool* answered,
                        absl::Status* last) const {
    if (!call.status.ok()) {
      *last = ErrorOf(*call.server, call.status);
      if (call.status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
        *last = absl::UnavailableError(
            absl::StrCat("serving server ", call.server->name, " is of a release without top-k"));
      }
      return OtherMayAnswer(*last) ? absl::OkStatus() : *last;
    }
    const Outcome& said = call.reply.table();
    if (said.outcome() != Outcome::OK) return NoteRefusal(said, part, call.server.get(), last);
    if (!IsNewEnough(call.server.get(), call.request.table(), part, said, call.asked_ns,
                     call.answered_ns, &nearest->older, last)) {
      return absl::OkStatus();
    }
    HOTBED_RETURN_IF_ERROR(ReadNearest(*call.server, call.request, call.reply, &nearest->rows));
    if (call.request.version() == 0) {
      nearest->age =
          absl::Milliseconds(said.age_ms()) + absl::Nanoseconds(call.answered_ns - call.asked_ns);
    }
    nearest->server = call.server->name;
    *answered = true;
    return absl::OkStatus();
  }

  // The nearest rows of all parts.
  static ServingNearest Nearest(std::vector<ServingNearest> parts, const v1::ServedVersion& version,
                                uint32_t k, RowMetric metric) {
    ServingNearest nearest = std::move(parts[0]);
    nearest.version = version.name();
    if (parts.size() == 1) return nearest;
    for (size_t p = 1; p < parts.size(); ++p) {
      nearest.age = std::max(nearest.age, parts[p].age);
      nearest.older |= parts[p].older;
      absl::StrAppend(&nearest.server, ",", parts[p].server);
    }
    for (size_t v = 0; v < nearest.rows.size(); ++v) {
      TopRows top(k, SmallerIsNearer(metric));
      for (const ScoredRow& row : nearest.rows[v]) top.Offer(row);
      for (size_t p = 1; p < parts.size(); ++p) {
        for (const ScoredRow& row : parts[p].rows[v]) top.Offer(row);
      }
      nearest.rows[v] = top.Take();
    }
    return nearest;
  }

  static absl::Status ReadNearest(const Server& server, const v1::ServingTopKRequest& request,
                                  const v1::ServingTopKReply& reply,
                                  std::vector<std::vector<ScoredRow>>* nearest) {
    uint64_t rows = 0;
    for (const uint32_t count : reply.counts()) rows += count;
    const uint64_t vectors = reply.table().dim() == 0
                                 ? 0
                                 : request.vectors().size() / sizeof(float) / reply.table().dim();
    if (static_cast<uint64_t>(reply.counts_size()) != vectors ||
        reply.ids().size() != rows * sizeof(uint64_t) ||
        reply.scores().size() != rows * sizeof(double) || reply.version() != request.version()) {
      return absl::InternalError(absl::StrCat("serving server ", server.name, " answers with ",
                                              reply.counts_size(), " counts, ", reply.ids().size(),
                                              " bytes of ids and ", reply.scores().size(),
                                              " of scores, for ", vectors, " vectors"));
    }
    size_t at = 0;
    for (const uint32_t count : reply.counts()) {
      std::vector<ScoredRow>& top = nearest->emplace_back(count);
      for (ScoredRow& row : top) {
        std::memcpy(&row.id, reply.ids().data() + at * sizeof(row.id), sizeof(row.id));
        std::memcpy(&row.score, reply.scores().data() + at * sizeof(row.score), sizeof(row.score));
        ++at;
      }
    }
    return absl::OkStatus();
  }

  static absl::Status Contradiction(const OpenCall& call) {
    return absl::InternalError(
        absl::StrCat("serving server ", call.server->name, " answers with ",
                     call.reply.tables_size(), " tables and ", call.reply.rows().size(),
                     " bytes of rows, which do not fit ", call.tables.size(), " tables"));
  }

  absl::Status Refresh(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    HOTBED_ASSIGN_OR_RETURN(const v1::ServingMap said, calls_.Get(timeout));
    LearnServers(said);
    std::map<std::string, std::shared_ptr<Server>> servers;
    for (const auto& [name, info] : infos_) {
      std::shared_ptr<Server>& server = servers_[info.address()];
      if (server == nullptr || server->failure_domain != info.failure_domain()) {
        server = Dial(info);
      }
      server->message_bytes_max.store(info.message_bytes_max(), std::memory_order_relaxed);
      servers[name] = server;
    }
    auto map = std::make_shared<Map>();
    for (const v1::ServedVersion& version : said.versions()) {
      map->versions.push_back(std::make_shared<v1::ServedVersion>(version));
    }
    if (said.choices().empty()) map->current = {said.choice().current()};  // an earlier release
    for (const v1::VersionChoice& choice : said.choices()) {
      map->current.push_back(choice.current());
    }
    map->kept.assign(said.kept().begin(), said.kept().end());
    for (int i = 0; i < std::min(said.tables_size(), said.specs_size()); ++i) {
      Table& table = map->tables[said.specs(i).name()];
      table.id = said.tables(i).table();
      table.dim = said.specs(i).dim();
      table.places = ServedPlaces::Of(said.specs(i));
      table.parts.resize(std::max<uint32_t>(said.tables(i).parts(), 1));
      for (const bool ready : {true, false}) {
        for (const auto& [name, info] : infos_) {
          const std::optional<ServedPart> part = ServedPartOn(said.tables(i), name);
          if (!part.has_value() || part->part >= table.parts.size() ||
              IsReady(table.id, *part, info) != ready) {
            continue;
          }
          Part& servers_of = table.parts[part->part];
          servers_of.replicas.push_back(servers[name]);
          servers_of.held.push_back(HeldVersions(table.id, *part, info));
          if (ready) servers_of.ready = servers_of.replicas.size();
        }
      }
    }
    std::erase_if(servers_, [&](const auto& known) {
      return std::none_of(servers.begin(), servers.end(),
                          [&](const auto& one) { return one.second == known.second; });
    });
    absl::MutexLock lock(&mu_);
    map_ = std::move(map);
    return absl::OkStatus();
  }

  // A coordinator that has just begun does not know the servers of its tables until they report:
  // those that an earlier one has told are good until then.
  void LearnServers(const v1::ServingMap& said) {
    std::map<std::string, v1::ServingServerInfo> infos;
    for (const v1::ServingServerInfo& info : said.servers()) infos[info.name()] = info;
    for (const v1::ServedTable& table : said.tables()) {
      for (const std::string& name : table.servers()) {
        const auto known = infos_.find(name);
        if (known != infos_.end()) infos.insert(*known);
      }
    }
    infos_ = std::move(infos);
  }

  static std::vector<uint64_t> HeldVersions(uint32_t table, const ServedPart& part,
                                            const v1::ServingServerInfo& server) {
    std::vector<uint64_t> held;
    for (const v1::ReplicaReport& replica : server.replicas()) {
      if (replica.table() != table || ServedPartOf(replica) != part || !server.alive()) continue;
      for (const v1::VersionReport& version : replica.versions()) {
        if (version.held()) held.push_back(version.number());
      }
    }
    return held;
  }
  static bool IsReady(uint32_t table, const ServedPart& part, const v1::ServingServerInfo& server) {
    return server.alive() && std::any_of(server.replicas().begin(), server.replicas().end(),
                                         [&](const v1::ReplicaReport& replica) {
                                           // One without room for changes grows old.
                                           return replica.table() == table && replica.ready() &&
                                                  replica.full_bytes() == 0 &&
                                                  ServedPartOf(replica) == part;
                                         });
  }

  std::shared_ptr<Server> Dial(const v1::ServingServerInfo& info) const {
    auto server = std::make_shared<Server>();
    server->name = info.name();
    server->failure_domain = info.failure_domain();
    server->order = absl::HashOf(number_, info.name());
    server->far = !failure_domain_.empty() && failure_domain_ != info.failure_domain();
    grpc::ChannelArguments args =
        DataPlaneChannelArguments(kMessageBytesMax, identity_.files.any());
    SetKeepalive(kClientKeepalive, &args);
    server->stub = v1::Serving::NewStub(
        grpc::CreateCustomChannel(info.address(), ChannelCredentialsOf(identity_), args));
    return server;
  }

  void Follow() {
    for (;;) {
      {
        absl::MutexLock lock(&mu_);
        // Many callers that look for a version do not ask more often than this.
        if (AwaitFor(&mu_, absl::Condition(&stops_), kRefreshMin)) return;
        const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stops_ || map_wanted_; };
        AwaitFor(&mu_, absl::Condition(&due), kRefresh - kRefreshMin);
        if (stops_) return;
        map_wanted_ = false;
      }
      (void)Refresh(kMapTimeout);  // what is known holds on
    }
  }

  const ClientIdentity identity_;
  const std::string failure_domain_;
  const bool may_go_back_;
  const uint64_t number_ = std::random_device()();  // orders the servers for this client
  const Clock& clock_ = *Clock::Real();
  ServingCalls calls_;
  mutable SeenCopies seen_;
  struct Counters {
    std::atomic<uint64_t> calls{0}, hedges{0}, hedges_won{0}, hedges_refused{0};
  };
  mutable Counters counters_;
  mutable HedgeBudget budget_;
  // The thread's, after Start.
  std::map<std::string, v1::ServingServerInfo> infos_;  // by name
  // By address.
  std::map<std::string, std::shared_ptr<Server>> servers_;
  mutable absl::Mutex mu_;
  std::shared_ptr<const Map> map_ ABSL_GUARDED_BY(mu_);
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  bool map_wanted_ ABSL_GUARDED_BY(mu_) = false;  // sooner than after kRefresh
  std::thread refresh_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServingClient>> ConnectServingAs(
    const std::string& coordinators, const ClientIdentity& identity,
    const ServingClientOptions& options) {
  if (!(options.hedge_budget >= 0 && options.hedge_budget <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("hedge_budget is ", options.hedge_budget, "; allowed: 0..1"));
  }
  auto client = std::make_unique<GrpcServingClient>(coordinators, identity, options);
  HOTBED_RETURN_IF_ERROR(client->Start(options.connect_timeout));
  return client;
}

absl::StatusOr<std::unique_ptr<ServingClient>> ServingClient::Connect(
    const std::string& target, const ServingClientOptions& options) {
  absl::string_view address = target;
  if (!absl::ConsumePrefix(&address, "hotbed://") || !CheckHostPorts(address, 1).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("target \"", target, "\" is not of the form hotbed://HOST:PORT,..."));
  }
  return ConnectServingAs(std::string(address), IdentityOfEnvironment(), options);
}

}  // namespace hotbed
