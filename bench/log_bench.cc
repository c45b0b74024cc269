// The rate at which the shard log takes pushes, as a ratio to plain appends of the same bytes to
// the same disk.
//
//   log_bench [--dir=/tmp/log_bench] [--mib=512] [--rows=512] [--dim=64] [--batch=1]
//
// One round writes `mib` MiB of push records (rows x dim fp32 each) first plainly, then through
// ShardLog, each into fresh files, which are deleted untimed. The roof is an honest best case: one
// write() per record from one contiguous buffer that stays in the cache, without checksums, frames
// or segments. Medians of five interleaved rounds.
//
// Two more runs write four times as much, of which the last 128 MiB are needed, as where rows are
// written back: into new files, and over those of segments that nobody needs. Their figures are of
// the second half; the processor time is that of the thread that appends and deletes.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/ratio_table.h"
#include "bench/roofs/machine.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/files/crc32c.h"
#include "common/files/file_system.h"
#include "common/files/marks.h"
#include "server/shard_log/segment_format.h"
#include "server/shard_log/shard_log.h"

namespace hotbed {
namespace {

constexpr int kRounds = 5;

struct Options {
  std::string dir = "/tmp/log_bench";
  uint64_t mib = 512;
  uint64_t rows = 512;
  uint64_t dim = 64;
  uint64_t batch = 1;  // records appended before each Commit
};

constexpr uint64_t kNeededBytes = 128ull << 20;

double ProcessorSeconds() {
  timespec time;
  HOTBED_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double Seconds(int64_t since_ns) { return (Clock::Real()->NowNs() - since_ns) * 1e-9; }

// One push and its memory, as a shard sees a message: ids and gradient rows, contiguous or
// scattered.
class Push {
 public:
  Push(const Options& options, bool scattered)
      : ids_(options.rows), floats_(2 * options.rows * options.dim) {
    for (size_t i = 0; i < floats_.size(); ++i) floats_[i] = static_cast<float>(i % 977);
    for (size_t i = 0; i < ids_.size(); ++i) {
      ids_[i] = i * 0x9e3779b97f4a7c15ull;
      const size_t row = scattered ? 2 * (ids_.size() - 1 - i) : i;
      rows_.push_back(reinterpret_cast<const uint8_t*>(&floats_[row * options.dim]));
    }
    append_.header.id_count = static_cast<uint32_t>(options.rows);
    append_.header.dim = static_cast<uint32_t>(options.dim);
    append_.header.shard = {1, 0};
  }

  LogAppend* Next(Lsn lsn, uint64_t* failures) {
    append_.header.lsn = lsn;
    append_.ids = ids_.data();
    append_.gradients = rows_.data();
    append_.done = [failures](absl::Status status) { *failures += !status.ok(); };
    return &append_;
  }
  uint64_t bytes() const { return RecordBytes(append_.header); }

 private:
  std::vector<uint64_t> ids_;
  std::vector<float> floats_;
  std::vector<const uint8_t*> rows_;
  LogAppend append_;
};

double PlainAppends(const Options& options, uint64_t record_bytes) {
  const std::string path = absl::StrCat(options.dir, "/plain");
  const int fd = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0644);
  HOTBED_CHECK(fd >= 0) << "cannot create " << path;
  const std::vector<char> bytes(record_bytes, 'x');
  const uint64_t records = (options.mib << 20) / record_bytes;
  const int64_t start = Clock::Real()->NowNs();
  for (uint64_t i = 0; i < records; ++i) {
    HOTBED_CHECK(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  const double seconds = Seconds(start);
  close(fd);
  unlink(path.c_str());
  return records * record_bytes / seconds;
}

double LogAppends(const Options& options, int64_t sync_interval_ms, bool scattered) {
  ShardLogOptions log_options;
  log_options.dir = absl::StrCat(options.dir, "/log");
  log_options.sync_interval_ms = sync_interval_ms;
  FileSystem* const files = FileSystem::Real();
  std::unique_ptr<ShardLog> log = ShardLog::Open(log_options, files, Clock::Real()).value();
  std::vector<std::unique_ptr<Push>> pushes;
  for (uint64_t i = 0; i < options.batch; ++i)
    pushes.push_back(std::make_unique<Push>(options, scattered));
  const uint64_t record_bytes = pushes[0]->bytes();
  const uint64_t records = (options.mib << 20) / record_bytes / options.batch * options.batch;
  uint64_t failures = 0;
  const int64_t start = Clock::Real()->NowNs();
  for (Lsn lsn = 1; lsn <= records;) {
    for (auto& push : pushes) log->Append(push->Next(lsn++, &failures));
    log->Commit();
  }
  const double seconds = Seconds(start);
  HOTBED_CHECK(failures == 0) << failures << " appends failed: " << log->GetUsage().error;
  log.reset();
  const std::vector<std::string> names = files->List(log_options.dir).value();
  for (const std::string& name : names) {
    HOTBED_CHECK(files->Delete(absl::StrCat(log_options.dir, "/", name)).ok());
  }
  return records * record_bytes / seconds;
}

struct SteadyCost {
  double rate = 0;          // bytes per second
  double processor_us = 0;  // per record
};

SteadyCost SteadyAppends(const Options& options, bool written_over) {
  ShardLogOptions log_options;
  log_options.dir = absl::StrCat(options.dir, "/log");
  FileSystem* const files = FileSystem::Real();
  const std::string marks_path = absl::StrCat(options.dir, "/MARKS");
  std::unique_ptr<Marks> marks = Marks::Open(marks_path, files, /*make=*/true).value();
  if (written_over) log_options.marks = marks.get();
  std::unique_ptr<ShardLog> log = ShardLog::Open(log_options, files, Clock::Real()).value();
  Push push(options, false);
  const Lsn needed = kNeededBytes / push.bytes();
  const Lsn records = 4 * (options.mib << 20) / push.bytes();
  uint64_t failures = 0;
  int64_t start = 0;
  double processor = 0;
  for (Lsn lsn = 1; lsn <= records; ++lsn) {
    if (lsn == records / 2) {
      start = Clock::Real()->NowNs();
      processor = ProcessorSeconds();
    }
    log->Append(push.Next(lsn, &failures));
    log->Commit();
    if (lsn > needed && lsn % 64 == 0) log->SetLeastNeeded({1, 0}, lsn - needed);
  }
  const double measured = static_cast<double>(records - records / 2);
  const SteadyCost cost = {measured * push.bytes() / Seconds(start),
                           (ProcessorSeconds() - processor) * 1e6 / measured};
  HOTBED_CHECK(failures == 0) << failures << " appends failed: " << log->GetUsage().error;
  log.reset();
  const std::vector<std::string> names = files->List(log_options.dir).value();
  for (const std::string& name : names) {
    HOTBED_CHECK(files->Delete(absl::StrCat(log_options.dir, "/", name)).ok());
  }
  HOTBED_CHECK(files->Delete(marks_path).ok());
  return cost;
}

void PrintSteady(const Options& options) {
  std::array<std::vector<double>, 2> rates;
  std::array<std::vector<double>, 2> processor;
  for (int round = 0; round < kRounds; ++round) {
    for (const size_t written_over : {0, 1}) {
      const SteadyCost cost = SteadyAppends(options, written_over != 0);
      rates[written_over].push_back(cost.rate);
      processor[written_over].push_back(cost.processor_us);
    }
  }
  const std::array<const char*, 2> names = {"log in steady state, new files",
                                            "the same, over old segments"};
  for (size_t i = 0; i < names.size(); ++i) {
    std::printf("%-32s %7.2f GB/s   %.1f us of processor time per record\n", names[i],
                bench::Median(rates[i]) / 1e9, bench::Median(processor[i]));
  }
}

double Checksums(const Options& options) {
  const std::vector<char> bytes(options.rows * options.dim * 4, 'x');
  uint32_t crc = 0;
  const int64_t start = Clock::Real()->NowNs();
  const uint64_t repeats = (1ull << 30) / bytes.size();
  for (uint64_t i = 0; i < repeats; ++i) crc = Crc32c(bytes.data(), bytes.size(), crc);
  const double seconds = Seconds(start);
  HOTBED_CHECK(crc != 0);  // keeps the loop
  return repeats * bytes.size() / seconds;
}

void Run(const Options& options) {
  HOTBED_CHECK(FileSystem::Real()->MakeDir(options.dir).ok()) << options.dir;
  struct Variant {
    const char* name;
    int64_t sync_interval_ms;
    bool scattered;
  };
  const std::array<Variant, 3> variants = {{{"log, never synced by itself", -1, false},
                                            {"log, synced every 1000 ms", 1000, false},
                                            {"log, rows scattered in memory", -1, true}}};
  const uint64_t record_bytes = Push(options, false).bytes();
  std::vector<double> plain;
  std::array<std::vector<double>, variants.size()> measured;
  for (int round = 0; round < kRounds; ++round) {
    plain.push_back(PlainAppends(options, record_bytes));
    for (size_t v = 0; v < variants.size(); ++v) {
      measured[v].push_back(
          LogAppends(options, variants[v].sync_interval_ms, variants[v].scattered));
    }
  }
  const double roof = bench::Median(plain);
  std::printf("records of %llu bytes (%llu x %llu fp32), %llu MiB a run, median of %d\n",
              static_cast<unsigned long long>(record_bytes),
              static_cast<unsigned long long>(options.rows),
              static_cast<unsigned long long>(options.dim),
              static_cast<unsigned long long>(options.mib), kRounds);
  std::printf("%-32s %7.2f GB/s   1.00\n", "plain write() of the same bytes", roof / 1e9);
  for (size_t v = 0; v < variants.size(); ++v) {
    const double rate = bench::Median(measured[v]);
    std::printf("%-32s %7.2f GB/s   %.2f\n", variants[v].name, rate / 1e9, rate / roof);
  }
  PrintSteady(options);
  std::printf("%-32s %7.2f GB/s\n", "CRC32C alone", Checksums(options) / 1e9);
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  hotbed::Options options;
  CLI::App app;
  app.add_option("--dir", options.dir);
  app.add_option("--mib", options.mib)->check(CLI::PositiveNumber);
  app.add_option("--rows", options.rows)->check(CLI::PositiveNumber);
  app.add_option("--dim", options.dim)->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const hotbed::bench::MachineNote note;
  hotbed::Run(options);
  return 0;
}
