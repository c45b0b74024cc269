// hotbed-serving-checker: compares what serving servers answer with the rows of a table, which
// nobody pushes to.
//
//   hotbed-serving-checker HOST:PORT TABLE FORMAT ROWS SECONDS COPIES
//   hotbed-serving-checker HOST:PORT TABLE watch ROWS
//   hotbed-serving-checker HOST:PORT TABLE deletes ROWS
//
// The rows of the bounded table are listed, written in the format and read back; lookups of all its
// ids, split over many calls, must give the same bits, and must say which rows exist; sums of bags
// of some of them must be those of their rows. A client stays with one copy of the table, so
// clients are made until COPIES were compared. It is tried again for SECONDS, until no copy is
// behind.
//
// `watch` alone pushes to the table, of zeros, sgd and learning rate 1, and looks up meanwhile,
// until its stdin ends: no lookup may fail, no row may go back, whichever server answers, and every
// push that was acknowledged before the answer's age must be in the answer. One of two readers asks
// all copies at once by hedges, so that answers come from one copy and another.
//
// `deletes` alone pushes to the hashed table, of zeros, sgd and learning rate 1: rows that are not
// there get ones, and those that are there are deleted. It looks up meanwhile, until its stdin
// ends: each row is whole or absent. In the end the copies have the rows that are there, within a
// minute.
//
// Stdout: a line of JSON. Exit status: 0, or 1 with what differs on stderr.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "hotbed/changes.h"
#include "hotbed/client.h"
#include "hotbed/serving.h"
#include "row_math/position.h"
#include "serving/rows/row_coder.h"

namespace hotbed {
namespace {

constexpr uint64_t kIdsPerCall = 512;

RowFormatKind KindOf(const std::string& format) {
  if (format == "fp16") return RowFormatKind::kFp16;
  if (format == "bf16") return RowFormatKind::kBf16;
  if (format == "int8") return RowFormatKind::kTbeInt8;
  if (format == "int4") return RowFormatKind::kTbeInt4;
  if (format == "int2") return RowFormatKind::kTbeInt2;
  return RowFormatKind::kFp32;
}

using Rows = std::map<uint64_t, std::vector<float>>;

absl::StatusOr<Rows> ListRows(const std::string& target, const std::string& table) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ChangeStream> scan,
                          Follow(target, table, {.once = true}));
  Rows rows;
  std::map<uint64_t, size_t> columns_of;  // by id, that were listed
  size_t dim = 0;
  while (!scan->ended()) {
    HOTBED_ASSIGN_OR_RETURN(const std::optional<RowChanges> changes, scan->Next(absl::Seconds(1)));
    if (!changes.has_value() || changes->ids.empty()) continue;
    const size_t columns = changes->rows.size() / changes->ids.size();
    for (size_t i = 0; i < changes->ids.size(); ++i) {
      const float* const from = changes->rows.data() + i * columns;
      std::vector<float>& row = rows[changes->ids[i]];  // a part of it, with column slices
      row.resize(std::max<size_t>(row.size(), changes->range.column_limit));
      std::copy_n(from, columns, row.begin() + changes->range.column_first);
      columns_of[changes->ids[i]] += columns;
      dim = std::max<size_t>(dim, changes->range.column_limit);
    }
  }
  // A row that a slice lacks, which a crash may have taken back further than others, is absent.
  std::erase_if(rows, [&](const auto& row) { return columns_of[row.first] < dim; });
  return rows;
}

struct Compared {
  uint64_t rows = 0;
  std::set<std::string> servers;
  int64_t age_ms_max = 0;
  uint64_t disk_rows = 0;  // that were not in memory
};

// Whether `bag` is the sum of rows in order, or of two sums in order: those of two parts, in which
// rows with ids in order lie one behind another.
bool IsSum(const float* rows, size_t count, uint32_t dim, const float* bag) {
  for (size_t cut = 0; cut < count; ++cut) {
    std::vector<float> sums(2 * dim);
    for (size_t i = 0; i < count; ++i) {
      float* const sum = sums.data() + (i < cut ? 0 : dim);
      for (uint32_t d = 0; d < dim; ++d) sum[d] += rows[i * dim + d];
    }
    for (uint32_t d = 0; d < dim && cut > 0; ++d) sums[dim + d] = sums[d] + sums[dim + d];
    if (std::memcmp(sums.data() + dim, bag, dim * sizeof(float)) == 0) return true;
  }
  return false;
}

// Bags of 7 ids, the last one shorter, pooled at servers, have the bits of `rows` pooled here.
absl::Status ComparePooled(const std::string& table, const std::vector<uint64_t>& ids,
                           const ServingRows& rows, ServingClient* client) {
  std::vector<uint32_t> offsets;
  for (size_t i = 0; i < ids.size(); i += 7) offsets.push_back(static_cast<uint32_t>(i));
  HOTBED_ASSIGN_OR_RETURN(
      const std::vector<ServingRows> answer,
      client->Lookup({{table, ids, Pooling::kSum, offsets}}, {.timeout = absl::Seconds(20)}));
  bool same =
      answer[0].values.size() == offsets.size() * rows.dim && answer[0].exists == rows.exists;
  for (size_t bag = 0; same && bag < offsets.size(); ++bag) {
    const size_t first = offsets[bag];
    same = IsSum(rows.values.data() + first * rows.dim, std::min<size_t>(7, ids.size() - first),
                 rows.dim, answer[0].values.data() + bag * rows.dim);
  }
  if (same) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("bags of ids from ", ids[0], " on, pooled by ",
                                          answer[0].server, ", differ from the rows of ",
                                          rows.server));
}

absl::StatusOr<Compared> Compare(const Rows& listed, const std::string& table,
                                 const std::string& format, uint64_t ids_in_all,
                                 ServingClient* client) {
  Compared compared;
  for (uint64_t first = 0; first < ids_in_all; first += kIdsPerCall) {
    std::vector<uint64_t> ids;
    for (uint64_t id = first; id < std::min(ids_in_all, first + kIdsPerCall); ++id) {
      ids.push_back(id);
    }
    HOTBED_ASSIGN_OR_RETURN(
        const std::vector<ServingRows> answer,
        client->Lookup({{table, ids}}, {.timeout = absl::Seconds(20), .with_tiers = true}));
    const ServingRows& rows = answer[0];
    if (rows.tiers.size() != ids.size()) return absl::DataLossError("no tiers are told");
    compared.servers.insert(rows.server);
    compared.age_ms_max = std::max(compared.age_ms_max, absl::ToInt64Milliseconds(rows.age));
    const RowCoder coder(KindOf(format), rows.dim);
    std::vector<uint8_t> coded(coder.row_bytes());
    std::vector<float> expected(rows.dim);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto listed_row = listed.find(ids[i]);
      if ((listed_row != listed.end()) != (rows.exists[i] == 1)) {
        return absl::DataLossError(absl::StrCat("row ", ids[i], " of ", rows.server,
                                                rows.exists[i] == 1 ? " exists" : " is missing"));
      }
      if ((rows.tiers[i] != ServingTier::kNone) != (rows.exists[i] == 1)) {
        return absl::DataLossError(
            absl::StrCat("the tier of row ", ids[i], " is ", static_cast<int>(rows.tiers[i])));
      }
      compared.disk_rows += rows.tiers[i] == ServingTier::kDisk ? 1 : 0;
      if (listed_row == listed.end()) continue;
      coder.Encode(listed_row->second.data(), coded.data());
      coder.Decode(coded.data(), expected.data());
      if (std::memcmp(expected.data(), rows.values.data() + i * rows.dim, rows.dim * 4) != 0) {
        return absl::DataLossError(
            absl::StrCat("row ", ids[i], " of ", rows.server, " differs from the listed one"));
      }
      ++compared.rows;
    }
    if (first / kIdsPerCall % 8 != 0) continue;
    HOTBED_RETURN_IF_ERROR(ComparePooled(table, ids, rows, client));
  }
  return compared;
}

// Compares one copy that is none of `seen`. False: the copy of this client has been seen.
absl::StatusOr<bool> CompareAnother(const std::string& target, const Rows& listed,
                                    const std::string& table, const std::string& format,
                                    uint64_t ids, std::set<std::string>* seen, Compared* compared) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ServingClient> client,
                          ServingClient::Connect(target));
  const std::vector<uint64_t> one = {0};
  HOTBED_ASSIGN_OR_RETURN(const std::vector<ServingRows> probe,
                          client->Lookup({{table, one}}, {.timeout = absl::Seconds(20)}));
  if (seen->contains(probe[0].server)) return false;
  HOTBED_ASSIGN_OR_RETURN(*compared, Compare(listed, table, format, ids, client.get()));
  // One that has gone to another copy meanwhile has compared neither of them whole.
  const bool whole = compared->servers.size() == 1;
  if (whole) seen->insert(*compared->servers.begin());
  return whole;
}

absl::Status Run(const std::string& target, const std::string& table, const std::string& format,
                 uint64_t ids, int64_t seconds, size_t copies) {
  HOTBED_ASSIGN_OR_RETURN(const Rows listed, ListRows(target, table));
  const Clock& clock = *Clock::Real();
  const int64_t end_ns = clock.NowNs() + seconds * kSecondNs;
  std::set<std::string> seen;
  Compared compared;
  while (seen.size() < copies) {
    const absl::StatusOr<bool> another =
        CompareAnother(target, listed, table, format, ids, &seen, &compared);
    if (another.ok() && copies == 1) break;  // it may be in parts, on several servers
    if (another.ok() && *another) continue;
    if (clock.NowNs() > end_ns) {
      return another.ok() ? absl::DeadlineExceededError(
                                absl::StrCat("clients found ", seen.size(), " copies of ", copies))
                          : another.status();
    }
    if (!another.ok()) clock.SleepNs(100 * kMillisecondNs);
  }
  std::printf("{\"rows\": %" PRIu64 ", \"disk_rows\": %" PRIu64
              ", \"servers\": %zu, \"age_ms_max\": %" PRId64 "}\n",
              compared.rows, compared.disk_rows, std::max(seen.size(), compared.servers.size()),
              compared.age_ms_max);
  return absl::OkStatus();
}

// --- watch

constexpr uint64_t kWatched = 32;  // rows, spread over the table
constexpr absl::Duration kWatchTimeout = absl::Seconds(10);

class Watch {
 public:
  Watch(std::string target, std::string table, uint64_t rows)
      : target_(std::move(target)), table_(std::move(table)) {
    for (uint64_t i = 0; i < kWatched; ++i) ids_.push_back(rows * i / kWatched);
  }

  absl::Status Run() {
    std::thread pusher([this] { Note(PushUntilEnd()); });
    std::vector<std::thread> readers;
    for (const absl::Duration hedge_after : {absl::InfiniteDuration(), absl::ZeroDuration()}) {
      readers.emplace_back([this, hedge_after] { Note(ReadUntilEnd(hedge_after)); });
    }
    for (int read = 0; read != EOF && read != 'q';) read = std::getchar();
    ends_.store(true);
    pusher.join();
    for (std::thread& reader : readers) reader.join();
    absl::MutexLock lock(&mu_);
    std::printf("{\"pushes\": %zu, \"lookups\": %" PRIu64 ", \"copy_changes\": %" PRIu64
                ", \"older\": %" PRIu64 ", \"age_ms_max\": %" PRId64 "}\n",
                answered_ns_.size(), lookups_.load(), changes_.load(), older_.load(),
                age_ms_max_.load());
    return ended_;
  }

 private:
  void Note(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    ended_.Update(status);
  }

  absl::Status PushUntilEnd() {
    HOTBED_ASSIGN_OR_RETURN(const auto client, Client::Connect(target_));
    HOTBED_ASSIGN_OR_RETURN(const Table* const table, client->OpenTable(table_));
    const std::vector<float> gradients(ids_.size() * table->dim(), -1.0f);
    for (uint64_t step = 1; !ends_.load(); ++step) {
      const PushFeature out{table, ids_, gradients.data()};
      HOTBED_RETURN_IF_ERROR(client->Push(step, {&out, 1}).Wait().status);
      {
        absl::MutexLock lock(&mu_);
        answered_ns_.push_back(clock_.NowNs());
      }
      clock_.SleepNs(2 * kMillisecondNs);
    }
    return absl::OkStatus();
  }

  absl::Status ReadUntilEnd(absl::Duration hedge_after) {
    HOTBED_ASSIGN_OR_RETURN(const auto client,
                            ServingClient::Connect(target_, {.hedge_budget = 1}));
    std::vector<float> before(ids_.size(), 0.0f);  // the rows of the answer before
    std::string server;                            // that gave it
    while (!ends_.load()) {
      const int64_t begun_ns = clock_.NowNs();
      HOTBED_ASSIGN_OR_RETURN(
          const auto answer,
          client->Lookup({{table_, ids_}}, {.timeout = kWatchTimeout, .hedge_after = hedge_after}));
      const ServingRows& rows = answer[0];
      lookups_.fetch_add(1);
      changes_.fetch_add(rows.server != server ? 1 : 0);
      server = rows.server;
      older_.fetch_add(rows.older ? 1 : 0);
      const float least = AnsweredBefore(begun_ns - absl::ToInt64Nanoseconds(rows.age));
      const int64_t age_ms = absl::ToInt64Milliseconds(rows.age);
      if (age_ms > age_ms_max_.load()) age_ms_max_.store(age_ms);
      for (size_t i = 0; i < ids_.size(); ++i) {
        const float value = rows.values[i * rows.dim];
        if ((value < before[i] && !rows.older) || value < least) {
          return absl::DataLossError(absl::StrCat(
              "row ", ids_[i], " of ", rows.server, " is ", value, ", was ", before[i], " before; ",
              least, " pushes were acknowledged ", age_ms, " ms ago, the age of the answer"));
        }
        before[i] = value;
      }
    }
    return absl::OkStatus();
  }

  // How many pushes had been answered by then.
  float AnsweredBefore(int64_t ns) const {
    absl::MutexLock lock(&mu_);
    return static_cast<float>(std::lower_bound(answered_ns_.begin(), answered_ns_.end(), ns) -
                              answered_ns_.begin());
  }

  const std::string target_;
  const std::string table_;
  const Clock& clock_ = *Clock::Real();
  std::vector<uint64_t> ids_;
  std::atomic<bool> ends_{false};
  std::atomic<uint64_t> lookups_{0}, changes_{0}, older_{0};
  std::atomic<int64_t> age_ms_max_{0};
  mutable absl::Mutex mu_;
  std::vector<int64_t> answered_ns_ ABSL_GUARDED_BY(mu_);
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
};

// --- deletes

class Deletes {
 public:
  Deletes(std::string target, std::string table, uint64_t rows)
      : target_(std::move(target)), table_(std::move(table)), there_(rows, false) {
    for (uint64_t id = 0; id < rows; ++id) ids_.push_back(id);
  }

  absl::Status Run() {
    absl::Status read;
    std::thread reader([&] { read = ReadUntilEnd(); });
    std::thread ender([this] {
      while (std::getchar() != EOF) continue;
      ends_.store(true);
    });
    const absl::Status pushed = PushUntilEnd();
    ender.join();
    ends_.store(true);
    reader.join();
    HOTBED_RETURN_IF_ERROR(pushed);
    HOTBED_RETURN_IF_ERROR(read);
    HOTBED_RETURN_IF_ERROR(AwaitAll());
    std::printf("{\"turns\": %" PRIu64 ", \"lookups\": %" PRIu64 ", \"rows\": %zd}\n", turns_,
                lookups_, std::count(there_.begin(), there_.end(), true));
    return absl::OkStatus();
  }

 private:
  absl::Status PushUntilEnd() {
    HOTBED_ASSIGN_OR_RETURN(const auto client, Client::Connect(target_));
    HOTBED_ASSIGN_OR_RETURN(const Table* const table, client->OpenTable(table_));
    for (uint64_t step = 1; !ends_.load(); ++step, ++turns_) {
      std::vector<uint64_t> come, go;
      for (uint64_t i = 0; i < ids_.size() / 4; ++i) {
        const uint64_t id = Mix64(step * ids_.size() + i) % ids_.size();
        std::vector<uint64_t>& ids = there_[id] ? go : come;
        if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
      }
      const std::vector<float> gradients(come.size() * table->dim(), -1.0f);
      const PushFeature out{table, come, gradients.data()};
      HOTBED_RETURN_IF_ERROR(Applied(client.get(), client->Push(2 * step, {&out, 1}).Wait()));
      HOTBED_RETURN_IF_ERROR(Applied(client.get(), client->Delete(2 * step + 1, table, go).Wait()));
      for (const uint64_t id : come) there_[id] = true;
      for (const uint64_t id : go) there_[id] = false;
      Clock::Real()->SleepNs(5 * kMillisecondNs);
    }
    return absl::OkStatus();
  }

  // Its server may be down for a while.
  static absl::Status Applied(Client* client, PushResult result) {
    const int64_t end_ns = Clock::Real()->NowNs() + 60 * kSecondNs;
    while (result.outcome == PushResult::Outcome::kIndeterminate &&
           Clock::Real()->NowNs() < end_ns) {
      result = client->Retry(result).Wait();
    }
    return result.status;
  }

  // An error if a row has a part of its columns.
  absl::StatusOr<ServingRows> Look(ServingClient* client) const {
    HOTBED_ASSIGN_OR_RETURN(auto answer,
                            client->Lookup({{table_, ids_}}, {.timeout = kWatchTimeout}));
    const ServingRows& rows = answer[0];
    for (size_t i = 0; i < ids_.size(); ++i) {
      const float whole = rows.exists[i] == 1 ? 1 : 0;
      const float* const row = rows.values.data() + i * rows.dim;
      for (uint32_t d = 0; d < rows.dim; ++d) {
        if (row[d] == whole) continue;
        return absl::DataLossError(absl::StrCat("row ", ids_[i], " of ", rows.server, " is ",
                                                row[d], " in column ", d, ", and should be ",
                                                whole));
      }
    }
    return std::move(answer[0]);
  }

  absl::Status ReadUntilEnd() {
    HOTBED_ASSIGN_OR_RETURN(const auto client, ServingClient::Connect(target_));
    for (; !ends_.load(); ++lookups_) HOTBED_RETURN_IF_ERROR(Look(client.get()).status());
    return absl::OkStatus();
  }

  // Every client stays with one copy; several find both.
  absl::Status AwaitAll() const {
    const int64_t end_ns = Clock::Real()->NowNs() + 60 * kSecondNs;
    for (int same = 0; same < 8;) {
      HOTBED_ASSIGN_OR_RETURN(const auto client, ServingClient::Connect(target_));
      HOTBED_ASSIGN_OR_RETURN(const ServingRows rows, Look(client.get()));
      size_t differ = 0;
      for (size_t i = 0; i < ids_.size(); ++i) differ += (rows.exists[i] == 1) != there_[i] ? 1 : 0;
      same = differ == 0 ? same + 1 : 0;
      if (differ > 0 && Clock::Real()->NowNs() > end_ns) {
        return absl::DataLossError(absl::StrCat(differ, " rows of ", rows.server,
                                                " are there and should not be, or lack"));
      }
      if (differ > 0) Clock::Real()->SleepNs(50 * kMillisecondNs);
    }
    return absl::OkStatus();
  }

  const std::string target_;
  const std::string table_;
  std::vector<uint64_t> ids_;
  std::vector<bool> there_;  // the pusher's, by id
  std::atomic<bool> ends_{false};
  uint64_t turns_ = 0;
  uint64_t lookups_ = 0;  // the reader's
};

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  const bool watches = argc == 5 && std::strcmp(argv[3], "watch") == 0;
  const bool deletes = argc == 5 && std::strcmp(argv[3], "deletes") == 0;
  if (argc != 7 && !watches && !deletes) {
    std::fprintf(
        stderr,
        "usage: %s HOST:PORT TABLE FORMAT ROWS SECONDS COPIES | watch ROWS | deletes ROWS\n",
        argv[0]);
    return 2;
  }
  const std::string target = absl::StrCat("hotbed://", argv[1]);
  const uint64_t rows = std::strtoull(argv[4], nullptr, 10);
  const absl::Status ran =
      deletes   ? hotbed::Deletes(target, argv[2], rows).Run()
      : watches ? hotbed::Watch(target, argv[2], rows).Run()
                : hotbed::Run(target, argv[2], argv[3], rows, std::strtoll(argv[5], nullptr, 10),
                              std::strtoull(argv[6], nullptr, 10));
  if (ran.ok()) return 0;
  std::fprintf(stderr, "%s\n", ran.ToString().c_str());
  return 1;
}
