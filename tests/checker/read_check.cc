#include "tests/checker/read_check.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed::checker {
namespace {

constexpr uint64_t kRowsRead = 64;  // of each table and pull

}  // namespace

std::string CountsPath(const std::string& dir, uint32_t client) {
  return absl::StrCat(dir, "/client-", client, ".counts");
}

ReadCheck::ReadCheck(const Workload* workload, uint32_t client, const Counts* own, std::string dir)
    : workload_(workload),
      client_(client),
      own_(own),
      dir_(std::move(dir)),
      others_(workload->options().clients),
      seen_(workload->tables() * workload->options().rows * workload->options().clients),
      rows_(workload->tables()),
      least_(workload->tables()) {}

const Counts* ReadCheck::CountsOf(uint32_t client) {
  if (client == client_) return own_;
  if (others_[client] == nullptr) {
    auto counts = Counts::Read(CountsPath(dir_, client), *workload_);
    if (counts.ok()) others_[client] = *std::move(counts);
  }
  return others_[client].get();
}

void ReadCheck::Begin(Random& random, bool strict) {
  const WorkloadOptions& o = workload_->options();
  for (uint32_t t = 0; t < workload_->tables(); ++t) {
    rows_[t].clear();
    for (uint64_t i = 0; i < kRowsRead; ++i) {
      rows_[t].push_back(random.Uniform(i % 2 == 0 ? o.rows : o.rows / 64 + 1));
    }
    least_[t].assign(rows_[t].size() * o.clients, 0);
    for (uint32_t c = 0; c < o.clients; ++c) {
      const Counts* const counts = c == client_ || strict ? CountsOf(c) : nullptr;
      if (counts == nullptr) continue;
      for (size_t i = 0; i < rows_[t].size(); ++i) {
        least_[t][i * o.clients + c] = counts->acknowledged(t, rows_[t][i]);
      }
    }
  }
}

absl::Status ReadCheck::End(const std::vector<std::vector<float>>& weights, const Ledger* exact) {
  const uint32_t dim = workload_->options().dim;
  for (uint32_t t = 0; t < workload_->tables(); ++t) {
    for (size_t i = 0; i < rows_[t].size(); ++i) {
      HOTBED_RETURN_IF_ERROR(CheckRow(t, i, &weights[t][i * dim], exact));
    }
  }
  return absl::OkStatus();
}

std::string ReadCheck::Where(uint32_t table, uint64_t row, uint32_t client) const {
  return absl::StrCat(workload_->Table(table).name, " row ", row, ", columns of client ", client,
                      ", read by client ", client_, ": ");
}

absl::Status ReadCheck::CheckRow(uint32_t table, size_t i, const float* weights,
                                 const Ledger* exact) {
  const uint64_t row = rows_[table][i];
  const WorkloadOptions& o = workload_->options();
  const int64_t tag = Contribution(table, row, 1)[3];
  for (uint32_t c = 0; c < o.clients; ++c) {
    const float* const columns = weights + kColumns * c;
    const int64_t found = -static_cast<int64_t>(columns[0]);
    if (-columns[3] != static_cast<float>(found * tag)) {
      return absl::DataLossError(absl::StrCat(Where(table, row, c), found, " adds, but tags of ",
                                              -columns[3], " where each adds ", tag,
                                              ": torn or misrouted"));
    }
    const int64_t least = least_[table][i * o.clients + c];
    const Counts* const counts = CountsOf(c);
    const int64_t most = counts == nullptr ? 0 : counts->started(table, row);
    uint32_t& seen = Seen(table, row, c);
    if (found < least || found > most || found < int64_t{seen}) {
      return absl::DataLossError(absl::StrCat(
          Where(table, row, c), found, " adds found; acknowledged before the pull ", least,
          ", started before its end ", most, ", found by an earlier pull ", seen));
    }
    seen = static_cast<uint32_t>(found);
  }
  if (exact == nullptr) return absl::OkStatus();
  const absl::Span<const int64_t> want = exact->Of(table, row, client_);
  for (uint32_t k = 0; k < kColumns; ++k) {
    const float found = -weights[kColumns * client_ + k];
    if (found == static_cast<float>(want[k])) continue;
    return absl::DataLossError(absl::StrCat(Where(table, row, client_), found, " in column ", k,
                                            " after acknowledgements of ", want[k]));
  }
  return absl::OkStatus();
}

uint32_t& ReadCheck::Seen(uint32_t table, uint64_t row, uint32_t client) {
  const WorkloadOptions& o = workload_->options();
  return seen_[(table * o.rows + row) * o.clients + client];
}

}  // namespace hotbed::checker
