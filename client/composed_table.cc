#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/client_impl.h"
#include "client/composed/composed_handle.h"
#include "common/status_macros.h"
#include "hotbed/composed.h"

namespace hotbed {
namespace {

constexpr uint64_t kIdsPerPush = 1 << 20;

// Row id of the index is (rank >> 24, rank mod 2^24).
absl::Status PushRanks(Client* client, const Table* index, absl::Span<const uint32_t> by_rank) {
  std::vector<float> numbers(2 * by_rank.size());
  for (uint64_t rank = 0; rank < by_rank.size(); ++rank) {
    numbers[2ull * by_rank[rank]] = static_cast<float>(rank / kIndexBase);
    numbers[2ull * by_rank[rank] + 1] = static_cast<float>(rank % kIndexBase);
  }
  std::vector<uint64_t> ids;
  PushOptions options;
  options.assign = true;
  uint64_t step = 0;
  for (uint64_t first = 0; first < by_rank.size(); first += kIdsPerPush) {
    ids.resize(std::min<uint64_t>(kIdsPerPush, by_rank.size() - first));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + i;
    const PushFeature push{index, ids, numbers.data() + 2 * first};
    HOTBED_RETURN_IF_ERROR(client->Push(++step, {&push, 1}, options).Wait().status);
  }
  return absl::OkStatus();
}

absl::Status FillIndex(Client* client, const TableOptions& options,
                       absl::Span<const uint32_t> by_rank) {
  HOTBED_ASSIGN_OR_RETURN(const Table* index,
                          client->OpenTable(absl::StrCat(options.name, "/index")));
  return PushRanks(client, index, by_rank);
}

}  // namespace

const ComposedTable* ComposedTable::From(const Table* table) { return AsComposed(table); }

absl::StatusOr<const Table*> CreateTableByFrequency(Client* client, TableOptions options,
                                                    absl::Span<const uint64_t> counts,
                                                    uint32_t blocks, bool if_not_exists) {
  HOTBED_ASSIGN_OR_RETURN(const FrequencyOrder order,
                          OrderByFrequency(counts, options.dim, blocks));
  options.rows = counts.size();
  options.composition.form = ComposeForm::kFrequency;
  options.composition.block_dims = order.block_dims;
  if (if_not_exists && client->OpenTable(options.name).ok()) {
    return client->CreateTable(options, /*if_not_exists=*/true);
  }
  HOTBED_RETURN_IF_ERROR(static_cast<ClientImpl*>(client)->CreateParts(options, false));
  absl::Status filled = FillIndex(client, options, order.ids);
  if (!filled.ok()) {
    const absl::Status dropped = client->DropTable(options.name);
    return absl::Status(
        filled.code(),
        absl::StrCat(
            "table \"", options.name, "\": its index was not written: ", filled.message(),
            dropped.ok() ? "; nothing was created" : "; drop it before you create it again"));
  }
  return client->OpenTable(options.name);
}

}  // namespace hotbed
