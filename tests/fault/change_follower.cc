// hotbed-change-follower: follows a bounded table and keeps its rows in a map, until it is told on
// stdin that nobody pushes any more; then the map is compared with what pulls return, to the bit.
//
//   hotbed-change-follower HOST:PORT TABLE
//
// The stream is closed and opened at its last positions again every second. Stdout: a line of JSON:
// rows in the map, rows told, how often the stream was opened, and how often all rows of a shard
// came again because changes were lost. Exit status: 0, or 1 with what went wrong on stderr.
#include <poll.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "hotbed/changes.h"
#include "hotbed/client.h"

namespace hotbed {
namespace {

constexpr int64_t kOpenNs = kSecondNs;
constexpr int64_t kSettleNs = 60 * kSecondNs;
constexpr absl::Duration kWait = absl::Milliseconds(100);

bool StdinEnded() {
  pollfd in = {0, POLLIN, 0};
  return ::poll(&in, 1, 0) > 0;
}

class MapOfRows {
 public:
  // Changes of a part come in order; after `again` the part is told from its beginning.
  absl::Status Take(const RowChanges& changes) {
    uint64_t& lsn = lsns_[{changes.range.first, changes.range.limit}];
    if (changes.again) {
      ++again_;
      lsn = 0;
      rows_.erase(rows_.lower_bound(changes.range.first), rows_.lower_bound(changes.range.limit));
      return absl::OkStatus();
    }
    if (changes.lsn < lsn) {
      return absl::InternalError(
          absl::StrCat("shard ", changes.shard, " is told at LSN ", changes.lsn, " after ", lsn));
    }
    lsn = changes.lsn;
    const size_t columns = changes.ids.empty() ? 0 : changes.rows.size() / changes.ids.size();
    for (size_t i = 0; i < changes.ids.size(); ++i) {
      const float* const row = changes.rows.data() + i * columns;
      rows_[changes.ids[i]].assign(row, row + columns);
    }
    told_ += changes.ids.size();
    return absl::OkStatus();
  }

  // The first id whose row differs from the table's; -1: none.
  absl::StatusOr<int64_t> FirstDifference(Client* client, const Table& table) const {
    const uint64_t rows = table.options().rows;
    const uint32_t dim = table.options().dim;
    std::vector<uint64_t> ids(rows);
    for (uint64_t id = 0; id < rows; ++id) ids[id] = id;
    std::vector<float> pulled(rows * dim);
    PullFeature feature;
    feature.table = &table;
    feature.ids = ids;
    feature.rows = pulled.data();
    HOTBED_RETURN_IF_ERROR(client->Pull({&feature, 1}, {}).Wait());
    const std::vector<float> zeros(dim);  // the first value of every row
    for (uint64_t id = 0; id < rows; ++id) {
      const auto known = rows_.find(id);
      const std::vector<float>& row = known == rows_.end() ? zeros : known->second;
      if (row.size() != dim || std::memcmp(row.data(), pulled.data() + id * dim, dim * 4) != 0) {
        return static_cast<int64_t>(id);
      }
    }
    return -1;
  }

  void Print(int opened) const {
    std::printf("{\"rows\": %zu, \"told\": %" PRIu64 ", \"opened\": %d, \"again\": %d}\n",
                rows_.size(), told_, opened, again_);
  }

 private:
  std::map<uint64_t, std::vector<float>> rows_;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> lsns_;  // by range
  uint64_t told_ = 0;
  int again_ = 0;
};

absl::Status Run(const std::string& coordinator, const std::string& name) {
  const std::string target = absl::StrCat("hotbed://", coordinator);
  HOTBED_ASSIGN_OR_RETURN(const auto client, Client::Connect(target));
  HOTBED_ASSIGN_OR_RETURN(const Table* const table, client->OpenTable(name));
  FollowOptions options;
  MapOfRows rows;
  int opened = 0;
  int64_t ended_ns = 0;
  for (;;) {
    auto stream = Follow(target, name, options);
    HOTBED_RETURN_IF_ERROR(stream.status());
    ++opened;
    const int64_t until_ns = Clock::Real()->NowNs() + kOpenNs;
    while (Clock::Real()->NowNs() < until_ns) {
      HOTBED_ASSIGN_OR_RETURN(const auto changes, (*stream)->Next(kWait));
      if (changes.has_value()) {
        HOTBED_RETURN_IF_ERROR(rows.Take(*changes));
        continue;
      }
      if (ended_ns == 0 && !StdinEnded()) continue;
      if (ended_ns == 0) ended_ns = Clock::Real()->NowNs();
      HOTBED_ASSIGN_OR_RETURN(const int64_t differs, rows.FirstDifference(client.get(), *table));
      if (differs < 0) {
        rows.Print(opened);
        return absl::OkStatus();
      }
      if (Clock::Real()->NowNs() - ended_ns > kSettleNs) {
        return absl::InternalError(absl::StrCat("row ", differs, " differs from the table's"));
      }
    }
    options.from = (*stream)->Positions();
  }
}

}  // namespace
}  // namespace hotbed

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: hotbed-change-follower HOST:PORT TABLE\n");
    return 2;
  }
  const absl::Status status = hotbed::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "hotbed-change-follower: %s\n", std::string(status.message()).c_str());
  return 1;
}
