#include "tests/checker/counts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace hotbed::checker {
namespace {

constexpr size_t kHeaderBytes = 256;  // of 64-bit numbers
static_assert(static_cast<size_t>(Progress::kCount) * 8 <= kHeaderBytes);

size_t CellsOf(const Workload& workload) {
  return size_t{2} * workload.tables() * workload.options().rows;
}

std::atomic_ref<uint64_t> Slot(void* memory, Progress which) {
  return std::atomic_ref<uint64_t>(static_cast<uint64_t*>(memory)[static_cast<uint32_t>(which)]);
}

}  // namespace

Counts::Counts(uint64_t rows, size_t bytes, void* memory)
    : rows_(rows), bytes_(bytes), memory_(memory) {}

Counts::~Counts() { munmap(memory_, bytes_); }

absl::StatusOr<std::unique_ptr<Counts>> Counts::Map(const std::string& path,
                                                    const Workload& workload, bool writes) {
  const size_t bytes = kHeaderBytes + CellsOf(workload) * sizeof(uint32_t);
  const int fd =
      open(path.c_str(), writes ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDWR | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::Status(errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kUnknown,
                        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  // A reader sets the size, too: the writer may just have created the file, and both set the same
  // size.
  const bool sized = ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  void* const memory =
      sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) {
    return absl::UnknownError(absl::StrCat(path, ": ", std::strerror(error)));
  }
  return std::unique_ptr<Counts>(new Counts(workload.options().rows, bytes, memory));
}

absl::StatusOr<std::unique_ptr<Counts>> Counts::Open(const std::string& path,
                                                     const Workload& workload) {
  auto counts = Map(path, workload, /*writes=*/true);
  if (counts.ok()) {
    (*counts)->restored_ = std::make_unique<uint32_t[]>(CellsOf(workload));
  }
  return counts;
}

absl::StatusOr<std::unique_ptr<Counts>> Counts::Read(const std::string& path,
                                                     const Workload& workload) {
  return Map(path, workload, /*writes=*/false);
}

uint32_t* Counts::StartedAt(uint32_t table, uint64_t row) const {
  uint32_t* const cells = reinterpret_cast<uint32_t*>(static_cast<char*>(memory_) + kHeaderBytes);
  return cells + 2 * (table * rows_ + row);
}

uint32_t* Counts::AcknowledgedAt(uint32_t table, uint64_t row) const {
  return StartedAt(table, row) + 1;
}

uint32_t Counts::started(uint32_t table, uint64_t row) const {
  return std::atomic_ref<uint32_t>(*StartedAt(table, row)).load();
}

uint32_t Counts::acknowledged(uint32_t table, uint64_t row) const {
  return std::atomic_ref<uint32_t>(*AcknowledgedAt(table, row)).load();
}

void Counts::CountStarted(const StepBatch& batch) {
  for (uint32_t t = 0; t < batch.parts.size(); ++t) {
    const StepBatch::Part& part = batch.parts[t];
    for (size_t i = 0; i < part.adds; ++i) {
      std::atomic_ref<uint32_t>(*StartedAt(t, part.rows[i])).fetch_add(1);
    }
  }
}

void Counts::CountAcknowledged(const StepBatch& batch) {
  for (uint32_t t = 0; t < batch.parts.size(); ++t) {
    const StepBatch::Part& part = batch.parts[t];
    for (size_t i = 0; i < part.adds; ++i) {
      std::atomic_ref<uint32_t>(*AcknowledgedAt(t, part.rows[i])).fetch_add(1);
    }
  }
}

void Counts::Restore(const StepBatch& batch, bool acknowledged) {
  for (uint32_t t = 0; t < batch.parts.size(); ++t) {
    const StepBatch::Part& part = batch.parts[t];
    for (size_t i = 0; i < part.adds; ++i) {
      uint32_t* const cell = &restored_[2 * (t * rows_ + part.rows[i])];
      ++cell[0];
      if (acknowledged) ++cell[1];
    }
  }
}

void Counts::FinishRestore() {
  uint32_t* const cells = StartedAt(0, 0);
  const size_t count = (bytes_ - kHeaderBytes) / sizeof(uint32_t);
  for (size_t i = 0; i < count; ++i) {
    std::atomic_ref<uint32_t> cell(cells[i]);
    HOTBED_CHECK(cell.load() <= restored_[i])
        << "a count of " << cell.load() << " and a journal that knows of " << restored_[i];
    cell.store(restored_[i]);
  }
  restored_.reset();
}

uint64_t Counts::progress(Progress which) const { return Slot(memory_, which).load(); }
void Counts::Add(Progress which, uint64_t n) { Slot(memory_, which).fetch_add(n); }
void Counts::Set(Progress which, uint64_t n) { Slot(memory_, which).store(n); }
void Counts::Raise(Progress which, uint64_t n) {
  std::atomic_ref<uint64_t> slot = Slot(memory_, which);
  uint64_t now = slot.load();
  while (now < n && !slot.compare_exchange_weak(now, n)) {
  }
}

}  // namespace hotbed::checker
