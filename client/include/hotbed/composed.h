// hotbed::ComposedTable: a table whose rows are made of rows of several smaller tables, its parts
// (docs/composed.md). Client::CreateTable makes one where TableOptions::composition names a form;
// OpenTable opens it by its name. Pull, Push, Lookup and Embeddings take it as any table: the
// client pulls the rows of the parts that a call needs, makes the rows of them, and pushes to the
// parts what a gradient means for each, as one push of one step.
//
//   TableOptions user;
//   user.name = "user"; user.rows = 1'000'000; user.dim = 64;
//   user.composition.form = ComposeForm::kQuotientRemainder;
//   auto table = client->CreateTable(user);       // creates user/quotient and user/remainder
//
// A gradient of a product, or of a block with a map, depends on the rows of the parts. Push reads
// them for it, as they are then, and blocks for that one pull. Refused for composed tables:
// PullFeature::missing, row types other than kFp32, PushOptions::assign, LookAhead and TopK.
// PullFeature::arg_max is kArgMaxOfNothing where bags are pooled before rows are made.
#ifndef HOTBED_COMPOSED_H_
#define HOTBED_COMPOSED_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "hotbed/client.h"

namespace hotbed {

// Thread-safe; owned by its client.
class ComposedTable : public Table {
 public:
  // Null: a plain table.
  static const ComposedTable* From(const Table* table);
  // In the order in which docs/composed.md names them. Each is a table like any other.
  virtual absl::Span<const Table* const> parts() const = 0;
  // rows x dim less the parameters of the parts that are trained.
  virtual int64_t saved_parameters() const = 0;
};

// Creates a table of frequency blocks: counts[id] says how often each id occurs. Ids are ordered by
// it and cut into `blocks` of equal numbers of ids; a block with the part 1/k of all occurrences
// gets rows of max(2, dim / 2^floor(log2 k)) elements. `options` has name, dim and the options of
// the parts; rows and composition follow from the counts. On an error nothing is left.
// `if_not_exists` as in Client::CreateTable; an order that exists stays as it is.
absl::StatusOr<const Table*> CreateTableByFrequency(Client* client, TableOptions options,
                                                    absl::Span<const uint64_t> counts,
                                                    uint32_t blocks, bool if_not_exists = false);

}  // namespace hotbed

#endif  // HOTBED_COMPOSED_H_
