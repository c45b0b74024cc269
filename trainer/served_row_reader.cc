#include "trainer/served_row_reader.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);  // scoring is no online request

}  // namespace

absl::StatusOr<std::unique_ptr<RowReader>> ServedRowReader::Open(const std::string& target,
                                                                 std::vector<std::string> tables) {
  auto reader = std::make_unique<ServedRowReader>();
  reader->tables_ = std::move(tables);
  HOTBED_ASSIGN_OR_RETURN(reader->client_, ServingClient::Connect(target));
  std::vector<ServingIds> all;
  for (const std::string& table : reader->tables_) all.push_back({table, {}});
  HOTBED_RETURN_IF_ERROR(reader->client_->Lookup(all, {.timeout = kTimeout}).status());
  return reader;
}

Future<absl::Status> ServedRowReader::Lookup(const std::vector<RowColumn>& columns) {
  return Future<absl::Status>::Ready(LookupNow(columns));
}

absl::Status ServedRowReader::LookupNow(const std::vector<RowColumn>& columns) {
  std::vector<ServingIds> wanted;
  wanted.reserve(columns.size());
  for (const RowColumn& column : columns) wanted.push_back({tables_[column.table], column.ids});
  HOTBED_ASSIGN_OR_RETURN(const std::vector<ServingRows> found,
                          client_->Lookup(wanted, {.timeout = kTimeout}));
  for (size_t i = 0; i < columns.size(); ++i) {
    std::copy(found[i].values.begin(), found[i].values.end(), columns[i].rows);
  }
  return absl::OkStatus();
}

}  // namespace hotbed
