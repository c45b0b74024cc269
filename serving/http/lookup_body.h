// The JSON bodies of POST /v1/tables/{name}:lookup and POST /v1/lookup. Pure functions.
#ifndef HOTBED_SERVING_HTTP_LOOKUP_BODY_H_
#define HOTBED_SERVING_HTTP_LOOKUP_BODY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/serving.pb.h"
#include "row_math/types.h"
#include "serving/http/body_field.h"

namespace hotbed {

struct LookupBody {
  std::string table;  // of /v1/lookup alone: the other one has it in its path
  std::vector<uint64_t> ids;
  v1::ServedPooling pooling = v1::SERVED_ROWS;
  std::vector<uint32_t> offsets;
  std::vector<float> weights;
  RowType type = RowType::kFp32;
  bool base64 = false;  // else arrays of numbers
  uint32_t timeout_ms = 1000;
  uint32_t staleness_ms_max = 0;  // 0: as the table has it
  std::string version;            // empty: the newest rows
  bool batch = false;             // else inference
  bool tiers = false;             // of each id, are wanted
};

// A lookup of several tables.
struct LookupsBody {
  std::vector<LookupBody> tables;  // with the options of the body in each
  LookupBody options;
  bool partial = false;
};

absl::Span<const BodyField> LookupFields();
absl::Span<const BodyField> LookupsFields();
absl::Span<const BodyField> LookupsTableFields();  // of each entry of its field `tables`

// InvalidArgument names the field, its position, its value and what is allowed, or the place where
// the text is no JSON. `entries_max` is the most of `ids`, `offsets` and `weights` each.
absl::StatusOr<LookupBody> ParseLookupBody(absl::string_view json, uint64_t entries_max);
// Likewise; `entries_max` is that of all tables together.
absl::StatusOr<LookupsBody> ParseLookupsBody(absl::string_view json, uint64_t entries_max);

// The request for one table; InvalidArgument as CheckServedBags, with `name`.
absl::StatusOr<v1::ServingLookupRequest> RequestOf(const LookupBody& body, uint32_t table,
                                                   absl::string_view name);

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_LOOKUP_BODY_H_
