// Bodies of lookups by HTTP and heads of requests, mutated: for a test and a fuzzer.
#ifndef HOTBED_TESTS_SERVING_MUTATE_LOOKUP_H_
#define HOTBED_TESTS_SERVING_MUTATE_LOOKUP_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "admin/http_request.h"
#include "common/random.h"
#include "nlohmann/json.hpp"
#include "serving/http/lookup_body.h"
#include "serving/http/lookup_reply.h"
#include "serving/http/top_k_body.h"

namespace hotbed {

// A body that is right, of random fields, and then a few bytes of it changed.
inline std::string MutatedLookup(Random* random) {
  std::string json = "{";
  const absl::Span<const BodyField> bodies[] = {LookupFields(), LookupsFields(), TopKFields()};
  for (const BodyField& field : bodies[random->Uniform(3)]) {
    if (random->OneIn(3)) continue;
    absl::StrAppend(&json, json.size() > 1 ? ", \"" : "\"", field.name, "\": ", field.example);
  }
  json.push_back('}');
  static constexpr char kBytes[] = "{}[]\",:-+.eE0123456789truefalsn\\u \n";
  for (uint64_t changes = random->Uniform(4); changes > 0; --changes) {
    const size_t at = random->Uniform(json.size());
    const char byte = random->OneIn(8) ? static_cast<char>(random->Uniform(256))
                                       : kBytes[random->Uniform(sizeof(kBytes) - 1)];
    if (random->OneIn(3)) {
      json.erase(at, 1);
    } else if (random->OneIn(2)) {
      json.insert(at, 1, byte);
    } else {
      json[at] = byte;
    }
    if (json.empty()) json = "{";
  }
  return json;
}

// Empty, or the promise that `bytes`, taken as a body and as a head, break: a body is refused with
// a document that is JSON, or gives a request within its limits.
inline std::string LookupFault(const std::string& bytes) {
  constexpr uint64_t kEntriesMax = 1000;
  (void)ParseHttpHead(bytes);
  (void)UnescapePath(bytes);
  const absl::StatusOr<TopKBody> top_k = ParseTopKBody(bytes, kEntriesMax);
  if (top_k.ok() && (top_k->vectors.size() > kEntriesMax || top_k->only_ids.size() > kEntriesMax)) {
    return "more entries than allowed";
  }
  if (!top_k.ok() && !absl::IsInvalidArgument(top_k.status())) return top_k.status().ToString();
  const absl::StatusOr<LookupsBody> several = ParseLookupsBody(bytes, kEntriesMax);
  uint64_t entries = 0;
  if (several.ok()) {
    for (const LookupBody& table : several->tables) entries += table.ids.size();
    if (several->tables.empty() || entries > kEntriesMax) return "more entries than allowed";
  } else if (!absl::IsInvalidArgument(several.status())) {
    return several.status().ToString();
  }
  const absl::StatusOr<LookupBody> body = ParseLookupBody(bytes, kEntriesMax);
  absl::Status refused = body.status();
  if (body.ok()) {
    if (body->ids.size() > kEntriesMax || body->offsets.size() > kEntriesMax ||
        body->weights.size() > kEntriesMax) {
      return "more entries than allowed";
    }
    const absl::StatusOr<v1::ServingLookupRequest> request = RequestOf(*body, 1, "t");
    if (request.ok() && request->ids().size() != body->ids.size() * 8) return "ids are lost";
    refused = request.status();
  }
  if (refused.ok()) return "";
  if (!absl::IsInvalidArgument(refused)) return absl::StrCat("refused with ", refused.ToString());
  const HttpResponse response = ErrorResponse(400, refused);
  return nlohmann::json::accept(response.body) ? "" : "the error is no JSON: " + response.body;
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_SERVING_MUTATE_LOOKUP_H_
