// For each row, the number of adds that one client has started and the number that were
// acknowledged; and the client's progress. They are in a file that other processes map and read
// while the client works, and kill -9 loses nothing of it. There is one writer per file; reading is
// wait-free from any thread and process.
//
// `started` is raised before an add can be seen in a table, and `acknowledged` after it must be
// seen. So the number of adds that a pull finds is at least the acknowledged before it began, and
// at most the started after it ended.
#ifndef HOTBED_TESTS_CHECKER_COUNTS_H_
#define HOTBED_TESTS_CHECKER_COUNTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/checker/workload.h"

namespace hotbed::checker {

// Numbers of the client's life, in the order of the file (tests/fault/checker.py reads them).
enum class Progress : uint32_t {
  kStepsAcknowledged = 0,
  kPushesAcknowledged,  // a step is one push per table
  kIndeterminate,       // results that had to be retried
  kErrors,              // calls that ended with an error, retried or not
  kPulls,
  kRowsRead,
  kPushMaxUs,  // the longest push since a reset
  kPullMaxUs,  // the longest pull since a reset
  kLastAckNs,  // CLOCK_MONOTONIC
  kRetries,    // of segments, by the client library
  kWrongEpoch,
  kReconnects,
  kCount,
};

class Counts {
 public:
  // For the writer: creates the file if there is none.
  static absl::StatusOr<std::unique_ptr<Counts>> Open(const std::string& path,
                                                      const Workload& workload);
  // For readers. NotFound: the client has not begun.
  static absl::StatusOr<std::unique_ptr<Counts>> Read(const std::string& path,
                                                      const Workload& workload);
  ~Counts();
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;

  uint32_t started(uint32_t table, uint64_t row) const;
  uint32_t acknowledged(uint32_t table, uint64_t row) const;
  // Count the adds of the batch's rows.
  void CountStarted(const StepBatch& batch);
  void CountAcknowledged(const StepBatch& batch);
  // Counts a step of the journal of a restarted writer. The sums are never less than the file's.
  void Restore(const StepBatch& batch, bool acknowledged);
  // Writes the sums of Restore to the file. They are made in memory first, because no reader may
  // see a count decrease.
  void FinishRestore();

  uint64_t progress(Progress which) const;
  void Add(Progress which, uint64_t n);
  void Set(Progress which, uint64_t n);
  void Raise(Progress which, uint64_t n);  // to n, if it is lower

 private:
  Counts(uint64_t rows, size_t bytes, void* memory);
  static absl::StatusOr<std::unique_ptr<Counts>> Map(const std::string& path,
                                                     const Workload& workload, bool writes);
  uint32_t* StartedAt(uint32_t table, uint64_t row) const;
  uint32_t* AcknowledgedAt(uint32_t table, uint64_t row) const;

  const uint64_t rows_;
  const size_t bytes_;
  void* const memory_;
  std::unique_ptr<uint32_t[]> restored_;
};

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_COUNTS_H_
