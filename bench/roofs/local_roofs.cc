// Roofs inside one process: rows and buffers in memory, records and chunks in a file.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "bench/roofs/gather.h"
#include "bench/roofs/plain_loops.h"
#include "bench/roofs/roofs.h"
#include "bench/roofs/stopwatch.h"
#include "common/huge_buffer.h"
#include "common/status_macros.h"

namespace hotbed::roofs {
namespace {

constexpr uint64_t kAppendBytesMax = 2ull << 30;  // of disk per run
constexpr size_t kChunkBytes = 4 << 20;
constexpr size_t kPageBytes = 4096;
constexpr uint64_t kFileBytesMax = 1ull << 30;

absl::Status DiskError(const std::string& what) {
  const int error = errno;
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(error)));
}

// Writes and syncs chunks of noise, which no file system compresses, until `seconds` are over.
absl::StatusOr<uint64_t> WriteChunks(int file, double seconds) {
  std::vector<uint64_t> chunk(kChunkBytes / 8);
  std::mt19937_64 random(1);
  for (uint64_t& word : chunk) word = random();
  uint64_t bytes = 0;
  const double begin = Seconds();
  do {
    const ssize_t wrote = write(file, chunk.data(), kChunkBytes);
    if (wrote != static_cast<ssize_t>(kChunkBytes)) return DiskError("writing the test file");
    bytes += kChunkBytes;
  } while (Seconds() - begin < seconds && bytes < kFileBytesMax);
  if (fdatasync(file) != 0) return DiskError("syncing the test file");
  return bytes;
}

absl::Status ReadChunks(int file, uint64_t bytes) {
  std::vector<char> chunk(kChunkBytes);
  for (uint64_t at = 0; at < bytes; at += kChunkBytes) {
    const ssize_t got = pread(file, chunk.data(), kChunkBytes, static_cast<off_t>(at));
    if (got != static_cast<ssize_t>(kChunkBytes)) return DiskError("reading the test file");
  }
  return absl::OkStatus();
}

// Reads each page at most once: the second time it would come from the page cache.
absl::StatusOr<double> RandomReadNs(int file, uint64_t bytes, double seconds) {
  std::vector<uint32_t> pages(bytes / kPageBytes);
  std::iota(pages.begin(), pages.end(), 0);
  std::mt19937_64 random(2);
  for (size_t i = pages.size() - 1; i > 0; --i) std::swap(pages[i], pages[random() % (i + 1)]);
  char page[kPageBytes];
  size_t reads = 0;
  const double begin = Seconds();
  double now = begin;
  while (reads < pages.size() && (now - begin < seconds || reads == 0)) {
    const off_t at = static_cast<off_t>(pages[reads]) * static_cast<off_t>(kPageBytes);
    if (pread(file, page, kPageBytes, at) != static_cast<ssize_t>(kPageBytes)) {
      return DiskError("reading the test file");
    }
    ++reads;
    now = Seconds();
  }
  return (now - begin) * 1e9 / static_cast<double>(reads);
}

// A new file in `dir` that is gone when it is closed.
absl::StatusOr<int> OpenScratch(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/roof-", getpid());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create ", path, ": ", std::strerror(errno)));
  }
  unlink(path.c_str());
  return file;
}

// Writes one record after the other, each at the place that the shared count gives it, until `end`
// or until a write fails. `pages` is as long as the longest of them.
void WriteRecords(int file, uint64_t record_bytes, const uint8_t* pages, double end,
                  std::atomic<uint64_t>* next, std::atomic<int>* failed) {
  const uint64_t in_file = kAppendBytesMax / record_bytes;
  while (failed->load() == 0 && Seconds() < end) {
    const uint64_t record = next->fetch_add(1) % in_file;
    const uint64_t from = record * record_bytes / kPageBytes * kPageBytes;
    const uint64_t bytes = (record + 1) * record_bytes / kPageBytes * kPageBytes - from;
    if (bytes == 0) continue;
    const ssize_t wrote = pwrite(file, pages, bytes, static_cast<off_t>(from));
    if (wrote < 0 || static_cast<uint64_t>(wrote) != bytes)
      failed->store(wrote < 0 ? errno : ENOSPC);
  }
}

// Calls work(ids) with batches of uniformly random ids: rows/s.
template <typename Work>
double RowsPerSecond(const GatherLoad& load, Work work) {
  // Many batches, so that their ids do not keep the rows in the cache.
  constexpr uint64_t kBatches = 256;
  std::mt19937_64 random(1);
  std::vector<uint64_t> ids(kBatches * load.batch);
  for (uint64_t& id : ids) id = random() % load.rows;
  uint64_t batches = 0;
  const double begin = Seconds();
  double now = begin;
  for (; now - begin < load.seconds; now = Seconds()) {
    for (int i = 0; i < 16; ++i, ++batches) work(&ids[batches % kBatches * load.batch]);
  }
  return static_cast<double>(batches * load.batch) / (now - begin);
}

}  // namespace

absl::StatusOr<double> GatherRows(const GatherLoad& load) {
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer table, HugeBuffer::Allocate(load.rows * load.row_bytes));
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer out, HugeBuffer::Allocate(load.batch * load.row_bytes));
  std::memset(table.data(), 1, table.size());
  return RowsPerSecond(load, [&](const uint64_t* ids) {
    GatherBatch(table.data(), load.row_bytes, ids, load.batch, out.data());
  });
}

absl::StatusOr<double> UpdateRows(const GatherLoad& load) {
  if (load.row_bytes != 4 * bench::kPlainDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows have ", load.row_bytes, " bytes, not 256"));
  }
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer rows, HugeBuffer::Allocate(load.rows * load.row_bytes));
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer state, HugeBuffer::Allocate(load.rows * sizeof(float)));
  std::memset(rows.data(), 0, rows.size());
  std::memset(state.data(), 0, state.size());
  const std::vector<float> gradients(load.batch * bench::kPlainDim, 1e-3f);
  return RowsPerSecond(load, [&](const uint64_t* ids) {
    bench::PlainRowwiseAdagrad(reinterpret_cast<float*>(rows.data()),
                               reinterpret_cast<float*>(state.data()), ids,
                               static_cast<uint32_t>(load.batch), gradients.data(), 0.01f, 1e-8f);
  });
}

absl::StatusOr<double> Memcpy(double seconds) {
  constexpr size_t kBytes = 256 << 20;
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer from, HugeBuffer::Allocate(kBytes));
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer to, HugeBuffer::Allocate(kBytes));
  std::memset(from.data(), 1, kBytes);
  std::memset(to.data(), 2, kBytes);
  uint64_t copies = 0;
  const double begin = Seconds();
  double now = begin;
  for (; now - begin < seconds; now = Seconds(), ++copies) {
    std::memcpy(to.data(), from.data(), kBytes);
    asm volatile("" : : "r"(to.data()) : "memory");
  }
  return copies * static_cast<double>(kBytes) / (now - begin);
}

absl::StatusOr<double> Appends(const std::string& dir, uint64_t record_bytes, double seconds,
                               bool synced) {
  HOTBED_ASSIGN_OR_RETURN(const int file, OpenScratch(dir));
  const absl::Cleanup close_file = [file] { close(file); };
  const std::vector<char> record(record_bytes, 'r');
  uint64_t records = 0;
  int failed = 0;
  const double begin = Seconds();
  double now = begin;
  for (; now - begin < seconds && failed == 0; now = Seconds()) {
    for (int i = 0; i < 16 && failed == 0; ++i) {
      const ssize_t wrote = write(file, record.data(), record.size());
      if (wrote < 0 || static_cast<uint64_t>(wrote) != record_bytes) {
        failed = wrote < 0 ? errno : ENOSPC;
      } else if (++records * record_bytes % kAppendBytesMax < record_bytes) {
        lseek(file, 0, SEEK_SET);
        if (ftruncate(file, 0) != 0) failed = errno;
      }
    }
  }
  if (synced && failed == 0 && fdatasync(file) != 0) failed = errno;
  now = Seconds();
  if (failed != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("appending to a file in ", dir, " after ",
                                                     records, " records of ", record_bytes,
                                                     " bytes: ", std::strerror(failed)));
  }
  return records / (now - begin);
}

absl::StatusOr<double> DirectAppends(const std::string& dir, uint64_t record_bytes, int in_flight,
                                     double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const int file, OpenScratch(dir));
  const absl::Cleanup close_file = [file] { close(file); };
  const bool accepts = fcntl(file, F_SETFL, O_DIRECT) == 0;
  // Ignored: a file system without fallocate sets blocks aside as they are written.
  if (accepts) (void)fallocate(file, 0, 0, static_cast<off_t>(kAppendBytesMax));
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer pages, HugeBuffer::Allocate(record_bytes + kPageBytes));
  std::memset(pages.data(), 'r', pages.size());
  std::atomic<uint64_t> records = 0;
  std::atomic<int> failed = accepts ? 0 : EINVAL;
  const double begin = Seconds();
  std::vector<std::thread> writers;
  for (int i = 0; i < in_flight; ++i) {
    writers.emplace_back(WriteRecords, file, record_bytes, pages.data(), begin + seconds, &records,
                         &failed);
  }
  for (std::thread& writer : writers) writer.join();
  const double taken = Seconds() - begin;
  if (failed.load() == EINVAL || failed.load() == EOPNOTSUPP) {
    return absl::UnimplementedError(
        absl::StrCat("the file system of ", dir, " refuses direct writes (O_DIRECT)"));
  }
  if (failed.load() != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("writing directly to a file in ", dir, ": ", std::strerror(failed.load())));
  }
  return static_cast<double>(records.load()) / taken;
}

absl::StatusOr<DiskRate> WriteAndRead(const std::string& dir, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const int file, OpenScratch(dir));
  const absl::Cleanup close_file = [file] { close(file); };
  const double begin = Seconds();
  HOTBED_ASSIGN_OR_RETURN(const uint64_t bytes, WriteChunks(file, seconds / 4));
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  HOTBED_RETURN_IF_ERROR(ReadChunks(file, bytes));
  DiskRate rate;
  rate.bytes_per_s = 2 * static_cast<double>(bytes) / (Seconds() - begin);
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);  // no reading ahead
  HOTBED_ASSIGN_OR_RETURN(rate.random_read_ns, RandomReadNs(file, bytes, seconds / 4));
  return rate;
}

}  // namespace hotbed::roofs
