// hotbed-serving-checker: compares what serving servers answer with the rows of a table, which
// nobody pushes to.
//
//   hotbed-serving-checker HOST:PORT TABLE FORMAT ROWS SECONDS
//
// The rows of the bounded table are listed, written in the format and read back; lookups of all its
// ids, split over many calls, must give the same bits, and must say which rows exist. It is tried
// again for SECONDS, until no replica is behind. Stdout: a line of JSON. Exit status: 0, or 1 with
// what differs on stderr.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "hotbed/changes.h"
#include "hotbed/serving.h"
#include "serving/rows/row_coder.h"

namespace hotbed {
namespace {

constexpr uint64_t kIdsPerCall = 512;

RowFormatKind KindOf(const std::string& format) {
  if (format == "fp16") return RowFormatKind::kFp16;
  if (format == "bf16") return RowFormatKind::kBf16;
  if (format == "int8") return RowFormatKind::kTbeInt8;
  if (format == "int4") return RowFormatKind::kTbeInt4;
  if (format == "int2") return RowFormatKind::kTbeInt2;
  return RowFormatKind::kFp32;
}

using Rows = std::map<uint64_t, std::vector<float>>;

absl::StatusOr<Rows> ListRows(const std::string& target, const std::string& table) {
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ChangeStream> scan,
                          Follow(target, table, {.once = true}));
  Rows rows;
  while (!scan->ended()) {
    HOTBED_ASSIGN_OR_RETURN(const std::optional<RowChanges> changes, scan->Next(absl::Seconds(1)));
    if (!changes.has_value() || changes->ids.empty()) continue;
    const size_t dim = changes->rows.size() / changes->ids.size();
    for (size_t i = 0; i < changes->ids.size(); ++i) {
      const float* const row = changes->rows.data() + i * dim;
      rows[changes->ids[i]].assign(row, row + dim);
    }
  }
  return rows;
}

struct Compared {
  uint64_t rows = 0;
  std::set<std::string> servers;
  int64_t age_ms_max = 0;
};

absl::StatusOr<Compared> Compare(const Rows& listed, const std::string& table,
                                 const std::string& format, uint64_t ids_in_all,
                                 ServingClient* client) {
  Compared compared;
  for (uint64_t first = 0; first < ids_in_all; first += kIdsPerCall) {
    std::vector<uint64_t> ids;
    for (uint64_t id = first; id < std::min(ids_in_all, first + kIdsPerCall); ++id) {
      ids.push_back(id);
    }
    HOTBED_ASSIGN_OR_RETURN(const std::vector<ServingRows> answer,
                            client->Lookup({{table, ids}}, {.timeout = absl::Seconds(20)}));
    const ServingRows& rows = answer[0];
    compared.servers.insert(rows.server);
    compared.age_ms_max = std::max(compared.age_ms_max, absl::ToInt64Milliseconds(rows.age));
    const RowCoder coder(KindOf(format), rows.dim);
    std::vector<uint8_t> coded(coder.row_bytes());
    std::vector<float> expected(rows.dim);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto listed_row = listed.find(ids[i]);
      if ((listed_row != listed.end()) != (rows.exists[i] == 1)) {
        return absl::DataLossError(absl::StrCat("row ", ids[i], " of ", rows.server,
                                                rows.exists[i] == 1 ? " exists" : " is missing"));
      }
      if (listed_row == listed.end()) continue;
      coder.Encode(listed_row->second.data(), coded.data());
      coder.Decode(coded.data(), expected.data());
      if (std::memcmp(expected.data(), rows.values.data() + i * rows.dim, rows.dim * 4) != 0) {
        return absl::DataLossError(
            absl::StrCat("row ", ids[i], " of ", rows.server, " differs from the listed one"));
      }
      ++compared.rows;
    }
  }
  return compared;
}

absl::Status Run(const std::string& target, const std::string& table, const std::string& format,
                 uint64_t ids, int64_t seconds) {
  HOTBED_ASSIGN_OR_RETURN(const Rows listed, ListRows(target, table));
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<ServingClient> client,
                          ServingClient::Connect(target));
  const Clock& clock = *Clock::Real();
  const int64_t end_ns = clock.NowNs() + seconds * kSecondNs;
  // Lookups take turns among replicas: two good rounds have seen each of them.
  int good = 0;
  for (;;) {
    const absl::StatusOr<Compared> compared = Compare(listed, table, format, ids, client.get());
    good = compared.ok() ? good + 1 : 0;
    if (good == 2) {
      std::printf("{\"rows\": %" PRIu64 ", \"servers\": %zu, \"age_ms_max\": %" PRId64 "}\n",
                  compared->rows, compared->servers.size(), compared->age_ms_max);
      return absl::OkStatus();
    }
    if (!compared.ok() && clock.NowNs() > end_ns) return compared.status();
    clock.SleepNs(100 * kMillisecondNs);
  }
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s HOST:PORT TABLE FORMAT ROWS SECONDS\n", argv[0]);
    return 2;
  }
  const absl::Status ran =
      hotbed::Run(absl::StrCat("hotbed://", argv[1]), argv[2], argv[3],
                  std::strtoull(argv[4], nullptr, 10), std::strtoll(argv[5], nullptr, 10));
  if (ran.ok()) return 0;
  std::fprintf(stderr, "%s\n", ran.ToString().c_str());
  return 1;
}
