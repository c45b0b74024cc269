// hotbed-version-checker: trains two tables in rounds, and reads their versions meanwhile.
//
//   hotbed-version-checker HOST:PORT TABLE=FORMAT TABLE=FORMAT
//
// In round N each row gets from its value at N-1 to that at N in four pushes, at random times, and
// some rows are made. An eighth of the rows of the first table, which is hashed, is deleted, and
// those that were deleted in the round before are made again. So between two rounds the rows are a
// mix; a version that was published when round N was settled has the rows of N and no others, and
// is named vN.
//
// Commands on stdin, a line each, with the answer on stdout:
//   settle   ends the round: "settled N"
//   go       begins the next round, whose pushes go on until it is settled: "going"
//   read     begins the readers of version `current`, of names and of the newest rows: "reading"
//   name vN  readers ask for that version, too: "named"
//   ask V    one lookup of version V: "OK: its name", or the error
//   newest   waits until the newest rows of all copies are those of the settled round: "newest"
//   end      ends all, with a line of JSON
// An answer of a version must have, in both tables, exactly the rows of the round that the answer
// names, to the bit of the format; so must a top-k of all rows. Calls of `current` must not fail.
// Answers of the newest rows are looked at in the same way, and must often be a mix, also of rows
// that were deleted or made again: else no mix could have been found.
//
// Exit status: 0, or 1 with the reason on stderr.
#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "hotbed/client.h"
#include "hotbed/serving.h"
#include "serving/rows/row_coder.h"

namespace hotbed {
namespace {

constexpr uint64_t kRowsAtFirst = 2000;
constexpr uint64_t kRowsPerRound = 100;
constexpr uint32_t kDim = 8;
constexpr uint64_t kDeletedAtATime = 256;  // among ids
constexpr int kRightInTurn = 16;           // answers, each to another client
constexpr int kParts = 4;                  // pushes by which a row gets from one round to the next
constexpr absl::Duration kTimeout = absl::Seconds(20);

struct CheckedTable {
  std::string name;
  RowFormatKind format = RowFormatKind::kFp32;
};

uint64_t RowsOf(uint64_t round) { return kRowsAtFirst + kRowsPerRound * round; }

// Exact in fp32, like each part of a round.
// In that round, of rows that were there before.
bool IsDeleted(size_t table, uint64_t id, uint64_t round) {
  return table == 0 && round > 1 && id % 8 == round % 8 && id < RowsOf(round - 1);
}
bool Exists(size_t table, uint64_t id, uint64_t round) {
  return round > 0 && id < RowsOf(round) && !IsDeleted(table, id, round);
}

float ValueOf(uint64_t id, uint32_t column, uint64_t round) {
  return static_cast<float>(round) + static_cast<float>((id * 31 + column * 17) % 64) / 64;
}

class VersionChecker {
 public:
  VersionChecker(std::string target, std::array<CheckedTable, 2> tables)
      : target_(std::move(target)), tables_(std::move(tables)) {}

  absl::Status Run() {
    HOTBED_ASSIGN_OR_RETURN(const auto client, Client::Connect(target_));
    std::vector<const Table*> tables;
    for (const CheckedTable& table : tables_) {
      HOTBED_ASSIGN_OR_RETURN(const Table* const opened, client->OpenTable(table.name));
      tables.push_back(opened);
    }
    std::thread trainer([&] { Note(Train(client.get(), tables)); });
    std::vector<std::thread> readers;
    for (std::string line; std::getline(std::cin, line) && line != "end";) {
      std::puts(Obey(line, &readers).c_str());
      std::fflush(stdout);
    }
    ends_.store(true);
    Hurry(true);
    trainer.join();
    for (std::thread& reader : readers) reader.join();
    std::printf("{\"current\": %" PRIu64 ", \"named\": %" PRIu64 ", \"refused\": %" PRIu64
                ", \"mixed_newest\": %" PRIu64 ", \"searches\": %" PRIu64 ", \"deleted\": %" PRIu64
                ", \"mixed_deleted\": %" PRIu64 "}\n",
                current_.load(), named_.load(), refused_.load(), mixed_newest_.load(),
                searches_.load(), deleted_.load(), mixed_deleted_.load());
    absl::MutexLock lock(&mu_);
    return ended_;
  }

 private:
  void Note(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    ended_.Update(status);
  }

  std::string Obey(const std::string& line, std::vector<std::thread>* readers) {
    if (line == "settle") {
      Hurry(true);
      absl::MutexLock lock(&mu_);
      const auto settled = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return settled_ == asked_ || !ended_.ok();
      };
      mu_.Await(absl::Condition(&settled));
      return ended_.ok() ? absl::StrCat("settled ", settled_) : ended_.ToString();
    }
    if (line == "go") {
      absl::MutexLock lock(&mu_);
      ++asked_;
      hurries_ = false;
      return "going";
    }
    absl::string_view name = line;
    if (absl::ConsumePrefix(&name, "name ")) {
      absl::MutexLock lock(&mu_);
      names_.emplace_back(name);
      return "named";
    }
    if (line == "newest") return AwaitNewest();
    if (absl::ConsumePrefix(&name, "ask ")) return Ask(std::string(name));
    readers->emplace_back([this] { Note(Read("current")); });
    readers->emplace_back([this] { Note(Read("")); });
    readers->emplace_back([this] { Note(Read("names")); });
    return "reading";
  }

  std::string Ask(const std::string& version) const {
    const auto client = ServingClient::Connect(target_);
    if (!client.ok()) return client.status().ToString();
    const std::vector<uint64_t> ids = {1};
    const auto rows = (*client)->Lookup({{tables_[0].name, ids}, {tables_[1].name, ids}},
                                        {.timeout = kTimeout, .version = version});
    return rows.ok() ? absl::StrCat("OK: ", (*rows)[1].version) : rows.status().ToString();
  }

  // A client stays with one copy, so many clients are asked for all copies to be seen.
  std::string AwaitNewest() const {
    uint64_t round = 0;
    {
      absl::MutexLock lock(&mu_);
      round = settled_;
    }
    std::vector<uint64_t> ids(RowsOf(round + 1));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
    const Clock& clock = *Clock::Real();
    const int64_t end_ns = clock.NowNs() + absl::ToInt64Nanoseconds(kTimeout);
    for (int right = 0; right < kRightInTurn;) {
      const auto client = ServingClient::Connect(target_);
      if (!client.ok()) return client.status().ToString();
      const auto rows = (*client)->Lookup({{tables_[0].name, ids}, {tables_[1].name, ids}},
                                          {.timeout = kTimeout});
      const absl::Status found =
          rows.ok() ? Check(*rows, ids, "", absl::StrCat("v", round)) : rows.status();
      right = found.ok() ? right + 1 : 0;
      if (!found.ok() && clock.NowNs() > end_ns) return found.ToString();
      if (!found.ok()) clock.SleepNs(50 * kMillisecondNs);
    }
    return "newest";
  }

  // Whether the trainer goes on without pauses.
  void Hurry(bool hurries) {
    absl::MutexLock lock(&mu_);
    hurries_ = hurries;
  }

  absl::Status Train(Client* client, const std::vector<const Table*>& tables) {
    Random random(17);
    uint64_t step = 0;
    for (uint64_t round = 1; !ends_.load(); ++round) {
      {
        absl::MutexLock lock(&mu_);
        const auto asked = [this, round]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
          return asked_ >= round || ends_.load();
        };
        mu_.Await(absl::Condition(&asked));
      }
      if (ends_.load()) return absl::OkStatus();
      HOTBED_RETURN_IF_ERROR(TrainRound(client, tables, round, &random, &step));
      absl::MutexLock lock(&mu_);
      settled_ = round;
    }
    return absl::OkStatus();
  }

  // Pushes in random order; a push has no row twice.
  absl::Status TrainRound(Client* client, const std::vector<const Table*>& tables, uint64_t round,
                          Random* random, uint64_t* step) {
    const uint64_t rows_before = round == 1 ? 0 : RowsOf(round - 1);
    std::vector<std::vector<uint64_t>> batches;
    for (int part = 0; part < kParts; ++part) {
      std::vector<uint64_t> ids;
      const uint64_t rows = part == 0 ? RowsOf(round) : rows_before;
      for (uint64_t id = 0; id < rows; ++id) ids.push_back(id);
      for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[random->Uniform(i)]);
      for (size_t at = 0; at < ids.size(); at += 128) {
        batches.emplace_back(ids.begin() + at, ids.begin() + std::min(ids.size(), at + 128));
      }
    }
    std::vector<bool> first(RowsOf(round), true);  // pushes of the row
    size_t batch = 0;
    for (const std::vector<uint64_t>& ids : batches) {
      for (size_t table = 0; table < tables.size(); ++table) {
        HOTBED_RETURN_IF_ERROR(PushBatch(client, tables[table], table, ids, round, first, ++*step));
      }
      for (const uint64_t id : ids) first[id] = false;
      // One batch of rows is deleted after each of the first pushes.
      HOTBED_RETURN_IF_ERROR(DeleteBatch(client, tables[0], round, batch++, ++*step));
      // Until the round is to be settled, its pushes are spread over some seconds.
      absl::MutexLock lock(&mu_);
      mu_.AwaitWithTimeout(absl::Condition(&hurries_), absl::Milliseconds(60));
    }
    return absl::OkStatus();
  }

  // The part of the round that the rows get to the next one by, or all of it of rows that are made.
  static absl::Status PushBatch(Client* client, const Table* to, size_t table,
                                const std::vector<uint64_t>& ids, uint64_t round,
                                const std::vector<bool>& first, uint64_t step) {
    std::vector<uint64_t> pushed;
    std::vector<float> gradients;
    for (const uint64_t id : ids) {
      const bool made = !Exists(table, id, round - 1);
      if (IsDeleted(table, id, round) || (made && !first[id])) continue;
      pushed.push_back(id);
      for (uint32_t column = 0; column < to->dim(); ++column) {
        gradients.push_back(made ? -ValueOf(id, column, round) : -1.0f / kParts);
      }
    }
    const PushFeature out{to, pushed, gradients.data()};
    return client->Push(step, {&out, 1}).Wait().status;
  }

  static absl::Status DeleteBatch(Client* client, const Table* table, uint64_t round, size_t batch,
                                  uint64_t step) {
    std::vector<uint64_t> ids;
    for (uint64_t id = batch * kDeletedAtATime; id < (batch + 1) * kDeletedAtATime; ++id) {
      if (IsDeleted(0, id, round)) ids.push_back(id);
    }
    return ids.empty() ? absl::OkStatus() : client->Delete(step, table, ids).Wait().status;
  }

  absl::Status Read(const std::string& what) {
    HOTBED_ASSIGN_OR_RETURN(const auto client, ServingClient::Connect(target_));
    Random random(what.size() + 18);
    while (!ends_.load()) {
      std::string version = what;
      if (what == "names") {
        absl::MutexLock lock(&mu_);
        version = names_[random.Uniform(names_.size())];
      }
      std::vector<uint64_t> ids;
      for (int i = 0; i < 64; ++i) ids.push_back(random.Uniform(RowsOf(12)));
      const auto rows = client->Lookup({{tables_[0].name, ids}, {tables_[1].name, ids}},
                                       {.timeout = kTimeout, .version = version});
      if (!rows.ok() && what == "names") {  // it is no more, or not taken up in time
        refused_.fetch_add(1);
        continue;
      }
      if (!rows.ok()) return rows.status();
      const absl::Status right = Check(*rows, ids, version, RoundSeen((*rows)[1]));
      if (what.empty()) {
        mixed_newest_.fetch_add(right.ok() ? 0 : 1);
        continue;
      }
      HOTBED_RETURN_IF_ERROR(right);
      (what == "current" ? current_ : named_).fetch_add(1);
      if (!random.OneIn(8)) continue;
      const absl::Status searched = Search(client.get(), version, random.Uniform(2));
      if (absl::IsDataLoss(searched) || what == "current") HOTBED_RETURN_IF_ERROR(searched);
      searches_.fetch_add(searched.ok() ? 1 : 0);
    }
    return absl::OkStatus();
  }

  // A top-k of all rows, whose scores are their first elements.
  absl::Status Search(ServingClient* client, const std::string& version, size_t table) const {
    std::vector<float> vector(kDim);
    vector[0] = 1;
    HOTBED_ASSIGN_OR_RETURN(const ServingNearest nearest,
                            client->TopK(tables_[table].name, vector, 16'384,
                                         {.timeout = kTimeout, .version = version}));
    HOTBED_ASSIGN_OR_RETURN(const uint64_t round, RoundOf(nearest.version, version));
    const RowCoder coder(tables_[table].format, kDim);
    std::vector<uint8_t> coded(coder.row_bytes());
    std::vector<float> row(kDim);
    for (const ScoredRow& found : nearest.rows[0]) {
      for (uint32_t c = 0; c < kDim; ++c) row[c] = ValueOf(found.id, c, round);
      coder.Encode(row.data(), coded.data());
      coder.Decode(coded.data(), row.data());
      if (Exists(table, found.id, round) && found.score == row[0]) continue;
      return absl::DataLossError(absl::StrCat("a top-k of ", nearest.server, " of version ",
                                              nearest.version, " has row ", found.id, " of ",
                                              tables_[table].name, " with score ", found.score));
    }
    uint64_t rows = 0;
    for (uint64_t id = 0; id < RowsOf(round); ++id) rows += Exists(table, id, round) ? 1 : 0;
    if (nearest.rows[0].size() == rows) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(
        "a top-k of ", nearest.server, " of version ", nearest.version, " finds ",
        nearest.rows[0].size(), " rows of ", tables_[table].name, ", there are ", rows));
  }

  static absl::StatusOr<uint64_t> RoundOf(const std::string& name, const std::string& asked) {
    uint64_t round = 0;
    if (name.empty() || name[0] != 'v' || !absl::SimpleAtoi(name.substr(1), &round) ||
        (asked != "current" && !asked.empty() && name != asked)) {
      return absl::DataLossError(absl::StrCat("asked for ", asked, ", the answer is of ", name));
    }
    return round;
  }

  // `newest`: the version that the newest rows should be of.
  absl::Status Check(const std::vector<ServingRows>& rows, const std::vector<uint64_t>& ids,
                     const std::string& asked, const std::string& newest) const {
    const std::string name = asked.empty() ? newest : rows[0].version;
    HOTBED_ASSIGN_OR_RETURN(const uint64_t round, RoundOf(name, asked));
    for (size_t table = 0; table < rows.size(); ++table) {
      const ServingRows& one = rows[table];
      if (one.version != rows[0].version) return absl::DataLossError("two versions in one answer");
      const RowCoder coder(tables_[table].format, one.dim);
      std::vector<uint8_t> coded(coder.row_bytes());
      std::vector<float> row(one.dim), expected(one.dim);
      for (size_t i = 0; i < ids.size(); ++i) {
        const bool exists = Exists(table, ids[i], round);
        deleted_.fetch_add(IsDeleted(table, ids[i], round) ? 1 : 0);
        for (uint32_t column = 0; column < one.dim; ++column) {
          row[column] = ValueOf(ids[i], column, round);
        }
        coder.Encode(row.data(), coded.data());
        coder.Decode(coded.data(), expected.data());
        if (!exists) std::fill(expected.begin(), expected.end(), 0.0f);
        const float* const found = one.values.data() + i * one.dim;
        if ((one.exists[i] == 1) == exists &&
            std::memcmp(found, expected.data(), one.dim * sizeof(float)) == 0) {
          continue;
        }
        if (asked.empty() && (one.exists[i] == 1) != exists) mixed_deleted_.fetch_add(1);
        return absl::DataLossError(absl::StrCat(
            "row ", ids[i], " of ", tables_[table].name, " begins with ", found[0], " (exists ",
            one.exists[i], ") in an answer of ", one.server, " of version ", name, ", which has ",
            expected[0], " (exists ", exists, ")"));
      }
    }
    return absl::OkStatus();
  }

  // The version that the first of the newest rows seems to be of.
  static std::string RoundSeen(const ServingRows& rows) {
    return absl::StrCat("v", static_cast<uint64_t>(rows.values[0]));
  }

  const std::string target_;
  const std::array<CheckedTable, 2> tables_;
  std::atomic<bool> ends_{false};
  std::atomic<uint64_t> current_{0}, named_{0}, refused_{0}, mixed_newest_{0}, searches_{0};
  mutable std::atomic<uint64_t> deleted_{0};  // rows that were looked up, and rightly not there
  mutable std::atomic<uint64_t> mixed_deleted_{0};  // newest answers with a deletion too many
  mutable absl::Mutex mu_;
  uint64_t asked_ ABSL_GUARDED_BY(mu_) = 0;  // round
  uint64_t settled_ ABSL_GUARDED_BY(mu_) = 0;
  bool hurries_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mu_) = {"v1"};
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
};

CheckedTable TableOf(const std::string& word) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(word, '=');
  const std::map<std::string, RowFormatKind> formats = {{"fp16", RowFormatKind::kFp16},
                                                        {"int8", RowFormatKind::kTbeInt8}};
  const auto format = formats.find(parts.second);
  return {parts.first, format == formats.end() ? RowFormatKind::kFp32 : format->second};
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s HOST:PORT TABLE=FORMAT TABLE=FORMAT\n", argv[0]);
    return 2;
  }
  const absl::Status ran =
      hotbed::VersionChecker(absl::StrCat("hotbed://", argv[1]),
                             {hotbed::TableOf(argv[2]), hotbed::TableOf(argv[3])})
          .Run();
  if (ran.ok()) return 0;
  std::fprintf(stderr, "%s\n", ran.ToString().c_str());
  return 1;
}
