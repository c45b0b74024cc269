// The ComposedTable that callers hold.
#ifndef HOTBED_CLIENT_COMPOSED_COMPOSED_HANDLE_H_
#define HOTBED_CLIENT_COMPOSED_COMPOSED_HANDLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/tables/composition.h"
#include "hotbed/composed.h"

namespace hotbed {

// Immutable. Lives as long as its client.
class ComposedHandle final : public ComposedTable {
 public:
  // `owner` is the client. `ranks`: of kFrequency, by id; otherwise empty.
  ComposedHandle(const void* owner, absl::Span<const TableSpec> specs,
                 std::vector<const Table*> parts, std::vector<uint32_t> ranks)
      : owner_(owner),
        options_(ComposedOf(specs)),
        saved_(ParametersOf(options_, specs).saved()),
        parts_(std::move(parts)),
        ranks_(std::move(ranks)) {}

  const TableOptions& options() const override { return options_; }
  uint32_t shard_count() const override {
    uint32_t shards = 0;
    for (const Table* const part : parts_) shards += part->shard_count();
    return shards;
  }
  absl::Span<const Table* const> parts() const override { return parts_; }
  int64_t saved_parameters() const override { return saved_; }
  const void* owner() const { return owner_; }
  // Where the row of an id of 0..rows-1 stands in the order that blocks are cut from.
  uint64_t RankOf(uint64_t id) const { return ranks_.empty() ? id : ranks_[id]; }

 private:
  const void* const owner_;
  const TableOptions options_;
  const int64_t saved_;
  const std::vector<const Table*> parts_;
  const std::vector<uint32_t> ranks_;
};

// Null: no table, or a plain one.
inline const ComposedHandle* AsComposed(const Table* table) {
  if (table == nullptr || !IsComposed(table->options())) return nullptr;
  return static_cast<const ComposedHandle*>(table);
}

}  // namespace hotbed

#endif  // HOTBED_CLIENT_COMPOSED_COMPOSED_HANDLE_H_
