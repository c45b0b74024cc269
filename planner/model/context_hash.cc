#include "planner/model/context_hash.h"

#include <bit>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hotbed {
namespace {

class Fnv {
 public:
  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T> Fnv& Add(T value) {
    const auto bits = static_cast<uint64_t>(value);
    for (int shift = 0; shift < 64; shift += 8) {
      hash_ = (hash_ ^ ((bits >> shift) & 0xff)) * 0x100000001b3ull;
    }
    return *this;
  }
  Fnv& Add(double value) { return Add(std::bit_cast<uint64_t>(value == 0 ? 0.0 : value)); }
  Fnv& Add(absl::string_view text) {
    Add(text.size());
    for (const char c : text) hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
    return *this;
  }
  Fnv& Add(const std::string& text) { return Add(absl::string_view(text)); }
  template <typename T>
  Fnv& Add(const std::optional<T>& value) {
    Add(value.has_value());
    return value ? Add(*value) : *this;
  }
  template <typename T>
  Fnv& Add(const std::vector<T>& values) {
    Add(values.size());
    for (const T& value : values) Add(value);
    return *this;
  }
  Fnv& Add(const HotnessPoint& point) { return Add(point.rows).Add(point.accesses); }
  Fnv& Add(const MeasuredRange& m) {
    return Add(m.row_first).Add(m.column_first).Add(m.bytes).Add(m.reads).Add(m.updates);
  }
  Fnv& Add(const InputTable& t) {
    if (t.state_bf16 || t.row_counters != 0) {
      Add(t.state_bf16).Add(t.row_counters);  // no input in a file has them
    }
    if (!t.measured.empty()) Add(t.measured);  // nor this
    return Add(t.name)
        .Add(t.rows)
        .Add(t.dim)
        .Add(t.weight)
        .Add(t.optimizer)
        .Add(t.combiner)
        .Add(t.hashed)
        .Add(t.row_statistics)
        .Add(t.copies)
        .Add(t.reads_per_step)
        .Add(t.zipf)
        .Add(t.hotness);
  }
  Fnv& Add(const InputFeature& f) {
    return Add(f.name).Add(f.table).Add(f.pooling_factor).Add(f.weighted);
  }
  Fnv& Add(const InputServer& s) {
    if (s.unreachable) Add(s.unreachable);  // no input in a file has it
    return Add(s.name)
        .Add(s.host)
        .Add(s.zone)
        .Add(s.device_bytes)
        .Add(s.host_bytes)
        .Add(s.spill_bytes)
        .Add(s.draining)
        .Add(s.load);
  }
  Fnv& Add(const CostConstants& c) {
    return Add(c.gather_row_ns)
        .Add(c.update_row_ns)
        .Add(c.device_row_ns)
        .Add(c.spill_row_ns)
        .Add(c.segment_ns)
        .Add(c.host_bandwidth)
        .Add(c.network_bandwidth)
        .Add(c.spill_bandwidth)
        .Add(c.device_bandwidth)
        .Add(c.device_host_bandwidth);
  }
  Fnv& Add(const Topology& t) {
    const Bandwidths& b = t.bandwidth;
    return Add(t.servers)
        .Add(t.device)
        .Add(b.device)
        .Add(b.host)
        .Add(b.device_host)
        .Add(b.intra_host)
        .Add(b.inter_host)
        .Add(b.spill);
  }
  Fnv& Add(const TableConstraint& c) {
    if (c.column_slices) Add(c.column_slices);  // no input in a file has it
    return Add(c.table)
        .Add(c.sharding)
        .Add(c.kernels)
        .Add(c.servers)
        .Add(c.columns_min)
        .Add(c.cache_load_factor)
        .Add(c.batch_sizes)
        .Add(c.pooling_factors)
        .Add(c.num_poolings);
  }
  Fnv& Add(const PlannerOptions& o) {
    if (o.copies_as_they_are) Add(o.copies_as_they_are);  // no input in a file has it
    return Add(o.strategy)
        .Add(o.column_slice_threshold)
        .Add(o.row_slice_threshold)
        .Add(o.data_parallel_threshold)
        .Add(o.strict)
        .Add(o.order)
        .Add(o.constraints)
        .Add(o.reserve.kind)
        .Add(o.reserve.fraction)
        .Add(o.reserve.dense_bytes)
        .Add(o.seed)
        .Add(o.evaluations_max)
        .Add(o.move_bytes_max);
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325ull;
};

}  // namespace

std::string ContextHash(const PlannerInput& input) {
  Fnv hash;
  hash.Add(input.tables).Add(input.features).Add(input.topology);
  hash.Add(input.workload.batch_size).Add(input.workload.trainers).Add(input.options);
  if (input.constants) hash.Add(*input.constants);
  return absl::StrCat(absl::Hex(hash.hash(), absl::kZeroPad16));
}

}  // namespace hotbed
