// Checks the rows that a pull finds while pushes are in flight. Thread-compatible.
//
// For each row and client, the number of adds found is at least the number acknowledged before the
// pull began (this client's own; the other clients', too, where the pull is strict), at most the
// number started before it ended, and never less than this client has seen before. And no row is
// torn: the tags agree with the number. Transfers are not checked here, because rows of one pull
// may be of different states (server/tiers/api/tiered_store.h); the comparison at the end checks
// them.
#ifndef HOTBED_TESTS_CHECKER_READ_CHECK_H_
#define HOTBED_TESTS_CHECKER_READ_CHECK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/random.h"
#include "tests/checker/counts.h"
#include "tests/checker/workload.h"

namespace hotbed::checker {

class ReadCheck {
 public:
  // `own` are the counts of client `client`; the counts of the other clients are in `dir`.
  ReadCheck(const Workload* workload, uint32_t client, const Counts* own, std::string dir);

  // Draws the rows of the next pull and notes the numbers that it must find at least.
  void Begin(Random& random, bool strict);
  const std::vector<uint64_t>& rows(uint32_t table) const { return rows_[table]; }
  // `weights[t]` are rows(t) x dim floats, as pulled. `exact` is not null where no push of this
  // client was in flight: its columns are those of this ledger. DataLoss names table, row, client
  // and numbers.
  absl::Status End(const std::vector<std::vector<float>>& weights, const Ledger* exact);

 private:
  const Counts* CountsOf(uint32_t client);
  absl::Status CheckRow(uint32_t table, size_t i, const float* weights, const Ledger* exact);
  uint32_t& Seen(uint32_t table, uint64_t row, uint32_t client);
  std::string Where(uint32_t table, uint64_t row, uint32_t client) const;

  const Workload* workload_;
  const uint32_t client_;
  const Counts* own_;
  const std::string dir_;
  std::vector<std::unique_ptr<Counts>> others_;  // by client; null: it has not begun
  std::vector<uint32_t> seen_;                   // by table, row and client
  std::vector<std::vector<uint64_t>> rows_;      // of the current pull, by table
  std::vector<std::vector<uint32_t>> least_;     // by table: rows x clients
};

std::string CountsPath(const std::string& dir, uint32_t client);

}  // namespace hotbed::checker

#endif  // HOTBED_TESTS_CHECKER_READ_CHECK_H_
