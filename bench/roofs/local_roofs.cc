// Roofs inside one process: gather, memcpy, appends.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/roofs/gather.h"
#include "bench/roofs/roofs.h"
#include "bench/roofs/stopwatch.h"
#include "common/huge_buffer.h"
#include "common/status_macros.h"

namespace hotbed::roofs {
namespace {

constexpr uint64_t kAppendBytesMax = 2ull << 30;  // of disk per run

}  // namespace

absl::StatusOr<double> GatherRows(const GatherLoad& load) {
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer table, HugeBuffer::Allocate(load.rows * load.row_bytes));
  HOTBED_ASSIGN_OR_RETURN(const HugeBuffer out, HugeBuffer::Allocate(load.batch * load.row_bytes));
  std::memset(table.data(), 1, table.size());
  // Many batches, so that their ids do not keep the rows in the cache.
  constexpr uint64_t kBatches = 256;
  std::mt19937_64 random(1);
  std::vector<uint64_t> ids(kBatches * load.batch);
  for (uint64_t& id : ids) id = random() % load.rows;
  uint64_t batches = 0;
  const double begin = Seconds();
  double now = begin;
  for (; now - begin < load.seconds; now = Seconds()) {
    for (int i = 0; i < 16; ++i, ++batches) {
      GatherBatch(table.data(), load.row_bytes, &ids[batches % kBatches * load.batch], load.batch,
                  out.data());
    }
  }
  return batches * load.batch / (now - begin);
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
  const std::string path = absl::StrCat(dir, "/roof-append-", getpid());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create ", path, ": ", std::strerror(errno)));
  }
  unlink(path.c_str());
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
  close(file);
  if (failed != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("appending to ", path, " after ", records,
                                                     " records of ", record_bytes,
                                                     " bytes: ", std::strerror(failed)));
  }
  return records / (now - begin);
}

}  // namespace hotbed::roofs
