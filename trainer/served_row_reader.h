// Rows of serving servers, which may be rounded to fewer bits (docs/serving.md).
#ifndef HOTBED_TRAINER_SERVED_ROW_READER_H_
#define HOTBED_TRAINER_SERVED_ROW_READER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hotbed/serving.h"
#include "trainer/row_source.h"

namespace hotbed {

class ServedRowReader : public RowReader {
 public:
  // NotFound: a table is not served.
  static absl::StatusOr<std::unique_ptr<RowReader>> Open(const std::string& target,
                                                         std::vector<std::string> tables);
  // A row that does not exist is zeros.
  Future<absl::Status> Lookup(const std::vector<RowColumn>& columns) override;

 private:
  absl::Status LookupNow(const std::vector<RowColumn>& columns);

  std::unique_ptr<ServingClient> client_;
  std::vector<std::string> tables_;
};

}  // namespace hotbed

#endif  // HOTBED_TRAINER_SERVED_ROW_READER_H_
