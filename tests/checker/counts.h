// How often each row was added to by one client, started and acknowledged, and how the client is
// getting on: in a file that other processes map and read while it works. kill -9 loses nothing of
// it. One writer a file; reading is wait-free from any thread and process.
//
// A count is raised before what it tells of can be seen in a table (started), or after it must be
// (acknowledged): so what a pull finds lies between the acknowledged of before it and the started
// of after it (reference page, I9).
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
  kPushesAcknowledged,  // a step pushes once to each table
  kIndeterminate,       // answers that had to be retried
  kErrors,              // calls that ended with an error, retried or not
  kPulls,
  kRowsRead,
  kPushMaxUs,  // the longest push, since reset
  kPullMaxUs,  // the longest pull, since reset
  kLastAckNs,  // CLOCK_MONOTONIC
  kRetries,    // of segments, by the client library
  kWrongEpoch,
  kReconnects,
  kCount,
};

class Counts {
 public:
  // Of the writer: creates the file if it is not there.
  static absl::StatusOr<std::unique_ptr<Counts>> Open(const std::string& path,
                                                      const Workload& workload);
  // Of a reader. NotFound: that client has not begun.
  static absl::StatusOr<std::unique_ptr<Counts>> Read(const std::string& path,
                                                      const Workload& workload);
  ~Counts();
  Counts(const Counts&) = delete;
  Counts& operator=(const Counts&) = delete;

  uint32_t started(uint32_t table, uint64_t row) const;
  uint32_t acknowledged(uint32_t table, uint64_t row) const;
  // The adds of the batch's rows.
  void CountStarted(const StepBatch& batch);
  void CountAcknowledged(const StepBatch& batch);
  // What a restarted writer knows from its journal; never less than what is there.
  void Restore(const StepBatch& batch, bool acknowledged);
  // Ends a restoration: counts fall to nobody's eyes, so the sums are made aside first.
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
