// The missing-files nemesis: takes one file or folder of a stopped server away, or puts an older
// one, a part of it, or that of a copy of the directory in its place. Then either all rows are
// exact, or the server refuses with a text that names the file.
//
//   hotbed-missing-files [--cases=N] [--seed=S] [--case=K] [--must-fail=1]
//
// Each world is a server with a history of pushes, kills and stops; ten cases begin with copies of
// what it left. Exit status: 0 all well; 1 a case failed, and a line says how to run it again. With
// --must-fail, for HOTBED_PLANTED_BUG=missing_passes_for_new, 0 and 1 change places.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/random.h"
#include "tests/shard/host_fixture.h"

namespace hotbed {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kDim = 8;
constexpr uint64_t kRows = 200;
constexpr uint64_t kCasesPerWorld = 10;
constexpr TableId kLogTable = 1, kHashedTable = 2, kCheckpointTable = 3, kTables = 3;

std::vector<TableSpec> Tables() {
  std::vector<TableSpec> tables;
  for (const TableId id : {kLogTable, kHashedTable, kCheckpointTable}) {
    TableSpec table = TestTable(id, absl::StrCat("table", id), kRows, kDim, OptimizerKind::kSgd);
    table.optimizer.learning_rate = 1.0f;
    table.initializer = {InitializerKind::kZero, 0, 0};
    table.hashed = id == kHashedTable;
    if (id == kCheckpointTable) table.durability = Durability::kCheckpoint;
    tables.push_back(table);
  }
  return tables;
}

ShardHostOptions OptionsFor(const std::string& dir) {
  ShardHostOptions options;
  options.data_dir = dir;
  options.host_bytes = 64ull << 20;
  options.log_segment_bytes = 4096;
  options.checkpoint_interval_ms = 0;
  options.log_sync_interval_ms = -1;
  return options;
}

void CopyDir(const std::string& from, const std::string& to) {
  fs::copy(from, to, fs::copy_options::recursive);
}

// Rows of one server, and what each of them must be: how often it was pushed to.
class Life {
 public:
  Life(const std::string& dir, uint64_t session)
      : server_(OptionsFor(dir), Tables(), 2), client_(&server_, session) {}
  Life(const std::string& dir, uint64_t session, const Life& before) : Life(dir, session) {
    server_.ContinueFrom(before.server_);
    counts_ = before.counts_;
    checkpoint_ = before.checkpoint_;
    step_ = before.step_;
  }

  void Start() {
    server_.Start();
    client_.Restart();  // rows that go back to a checkpoint take its sessions along
  }
  void PushSome(Random* random, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const TableId table = static_cast<TableId>(1 + random->Uniform(kTables));
      std::set<uint64_t> ids;
      for (uint64_t k = 1 + random->Uniform(8); k > 0; --k) ids.insert(random->Uniform(kRows));
      client_.Push(table, ++step_, {ids.begin(), ids.end()},
                   std::vector<float>(ids.size() * kDim, 1.0f));
      for (const uint64_t id : ids) counts_[table][id] += 1;
    }
  }
  void End(bool clean) {
    if (clean) {
      HOTBED_CHECK(server_.Stop().ok());
      checkpoint_ = counts_[kCheckpointTable];
    } else {
      server_.Kill();
      counts_[kCheckpointTable] = checkpoint_;
    }
  }

  // Empty: all rows are exact, or refused with a text that names `file`.
  std::string Check(const std::string& file, bool* refused) {
    const absl::Status opened = server_.TryOpen();
    if (!opened.ok()) {
      *refused = true;
      if (Names(std::string(opened.message()), file)) return "";
      return absl::StrCat("the refusal does not name it: ", opened.message());
    }
    server_.Assign();
    std::string wrong;
    for (TableId table = 1; table <= kTables && wrong.empty(); ++table) {
      wrong = CheckTable(table, file, refused);
    }
    server_.Kill();
    return wrong;
  }

 private:
  std::string CheckTable(TableId table, const std::string& file, bool* refused) {
    for (uint64_t id = 0; id < kRows; ++id) {
      auto pull = server_.MakePull(table, {id});
      server_.Run(pull.get());
      const SegmentResult& result = pull->segments[0].result;
      if (result.code == SegmentCode::kCorrupt) {
        *refused = true;
        if (!Names(result.detail, file)) {
          return absl::StrCat("the refusal does not name it: ", result.detail);
        }
        continue;
      }
      if (result.code != SegmentCode::kOk) {
        return absl::StrCat("row ", id, " of table ", table, ": ", result.detail);
      }
      float value = 0;
      std::memcpy(&value, pull->rows[0].data(), sizeof(value));
      const float expected = -static_cast<float>(counts_[table][id]);
      if (value != expected) {
        return absl::StrCat("row ", id, " of table ", table, " is ", value, " and must be ",
                            expected);
      }
    }
    return "";
  }
  // RocksDB names some of its files by their number alone.
  static bool Names(const std::string& text, const std::string& file) {
    const std::string name = fs::path(file).filename();
    uint64_t number = 0;
    if (absl::SimpleAtoi(absl::StripSuffix(name, ".sst"), &number) &&
        (absl::StrContains(text, absl::StrCat("umber: ", number)) ||
         absl::StrContains(text, absl::StrCat("table file ", number, " ")) ||
         absl::StrContains(text, absl::StrCat("table file ", number, ".")))) {
      return true;
    }
    return absl::StrContains(text, "/" + name) || absl::StrContains(text, " " + name);
  }

  TestServer server_;
  TestClient client_;
  std::map<TableId, std::map<uint64_t, uint64_t>> counts_;
  std::map<uint64_t, uint64_t> checkpoint_;
  uint64_t step_ = 0;
};

// A server with a history, stopped; earlier states of its directory; and a copy that went on alone.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed), life_(Dir("data"), /*session=*/7) {
    const uint64_t lives = 3 + random_.Uniform(3);
    const uint64_t copied_in = random_.Uniform(lives);
    for (uint64_t i = 0; i < lives; ++i) {
      life_.Start();
      life_.PushSome(&random_, 10 + random_.Uniform(60));
      life_.End(/*clean=*/random_.OneIn(i + 1 < lives ? 2 : 5));
      if (i == copied_in) MakeClone();
      if (i + 1 == lives) break;
      olders_.push_back(Dir(absl::StrCat("older", i)));
      CopyDir(Dir("data"), olders_.back());
    }
  }

  // Empty, or what is wrong.
  std::string RunCase(uint64_t seed, std::string* what, bool* refused) {
    Random random(seed);
    const std::string dir = Dir("case");
    CopyDir(Dir("data"), dir);
    const std::string file = Strike(&random, dir, what);
    Life life(dir, 8, life_);
    const std::string wrong = life.Check(file, refused);
    fs::remove_all(dir);
    return wrong;
  }

 private:
  std::string Dir(const std::string& name) const { return temp_.path() + "/" + name; }

  void MakeClone() {
    CopyDir(Dir("data"), Dir("clone"));
    Life clone(Dir("clone"), /*session=*/9, life_);
    for (uint64_t i = 1 + random_.Uniform(2); i > 0; --i) {
      clone.Start();
      clone.PushSome(&random_, 5 + random_.Uniform(60));
      clone.End(random_.OneIn(2));
    }
  }

  // Breaks one file or folder, and returns its path in the directory.
  std::string Strike(Random* random, const std::string& dir, std::string* what) {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      files.push_back(fs::relative(entry.path(), dir));
    }
    std::sort(files.begin(), files.end());
    // Half of the strikes hit the files of which there is one each, and the log.
    std::vector<std::string> vital;
    for (const std::string& file : files) {
      if (!absl::StartsWith(file, "spill/")) vital.push_back(file);
    }
    const auto& from = random->OneIn(2) ? vital : files;
    const std::string file = from[random->Uniform(from.size())];
    const std::string path = dir + "/" + file;
    const uint64_t kind = random->Uniform(4);
    if (kind == 0 && !fs::is_directory(path)) {
      const uint64_t size = fs::file_size(path);
      const uint64_t left = size == 0 || random->OneIn(2) ? 0 : random->Uniform(size);
      fs::resize_file(path, left);
      *what = absl::StrCat(file, " cut from ", size, " to ", left, " bytes");
      return file;
    }
    const std::string other = kind == 1 ? olders_[random->Uniform(olders_.size())] : Dir("clone");
    fs::remove_all(path);
    *what = file + " gone";
    if (kind != 3 && fs::exists(other + "/" + file)) {
      CopyDir(other + "/" + file, path);
      *what = absl::StrCat(file, " from ", fs::path(other).filename().string());
    }
    return file;
  }

  TempDir temp_;
  Random random_;
  Life life_;
  std::vector<std::string> olders_;
};

bool Flag(const char* arg, const char* name, uint64_t* value) {
  absl::string_view text = arg;
  return absl::ConsumePrefix(&text, name) && absl::SimpleAtoi(text, value);
}

int Main(int argc, char** argv) {
  uint64_t cases = 40;
  uint64_t seed = static_cast<uint64_t>(Clock::Real()->NowNs()) % 1'000'000'000;
  uint64_t only = UINT64_MAX;
  uint64_t must_fail = 0;
  for (int i = 1; i < argc; ++i) {
    if (Flag(argv[i], "--cases=", &cases) || Flag(argv[i], "--seed=", &seed) ||
        Flag(argv[i], "--case=", &only) || Flag(argv[i], "--must-fail=", &must_fail)) {
      continue;
    }
    std::fprintf(stderr, "%s: unknown; there are --cases=N --seed=N --case=N --must-fail=1\n",
                 argv[i]);
    return 2;
  }
  std::printf("seed %llu, %llu cases\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(cases));
  uint64_t failed = 0, refusals = 0, run = 0;
  std::unique_ptr<World> world;
  for (uint64_t i = only == UINT64_MAX ? 0 : only; i < cases || i == only; ++i) {
    if (world == nullptr || i % kCasesPerWorld == 0) {
      world = std::make_unique<World>(Random(seed + i / kCasesPerWorld).Next());
    }
    std::string what;
    bool refused = false;
    const std::string wrong = world->RunCase(Random(seed ^ (i << 32)).Next(), &what, &refused);
    ++run;
    refusals += refused ? 1 : 0;
    if (!wrong.empty()) {
      ++failed;
      std::printf(
          "case %llu: %s: %s\nrun it again with: hotbed-missing-files --seed=%llu --case=%llu\n",
          static_cast<unsigned long long>(i), what.c_str(), wrong.c_str(),
          static_cast<unsigned long long>(seed), static_cast<unsigned long long>(i));
    }
    if (i == only) break;
  }
  std::printf("%llu cases: %llu refused, %llu exact, %llu failed\n",
              static_cast<unsigned long long>(run), static_cast<unsigned long long>(refusals),
              static_cast<unsigned long long>(run - refusals - failed),
              static_cast<unsigned long long>(failed));
  return (failed == 0) == (must_fail == 0) ? 0 : 1;
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) { return hotbed::Main(argc, argv); }
