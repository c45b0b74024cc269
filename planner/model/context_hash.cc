#include "planner/model/context_hash.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hotbed {
namespace {

// The numbers of optimizers in a hash, by kind; kinds that are not here count by their own.
uint64_t HashedNumber(PlannerOptimizer optimizer) {
  constexpr uint8_t kNumbers[] = {1, 3, 4, 5, 2, 6, 7, 8, 9, 10, 11, 12, 0};
  const auto kind = static_cast<size_t>(optimizer);
  return kind < std::size(kNumbers) ? kNumbers[kind] : kind;
}

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
  template <typename... Values>
  Fnv& AddAll(const Values&... values) {
    return (Add(values), ...);
  }
  Fnv& Add(const HotnessPoint& point) { return AddAll(point.rows, point.accesses); }
  Fnv& Add(const MeasuredRange& m) {
    return AddAll(m.row_first, m.column_first, m.bytes, m.reads, m.updates);
  }
  Fnv& Add(const InputTable& t) {
    if (t.state_bf16 || t.row_counters != 0) {
      Add(t.state_bf16).Add(t.row_counters);  // no input in a file has them
    }
    if (!t.measured.empty()) Add(t.measured);  // nor this
    return AddAll(t.name, t.rows, t.dim, t.weight, HashedNumber(t.optimizer), t.combiner, t.hashed,
                  t.row_statistics, t.replicas, t.reads_per_step, t.zipf, t.hotness);
  }
  Fnv& Add(const InputFeature& f) { return AddAll(f.name, f.table, f.pooling_factor, f.weighted); }
  Fnv& Add(const InputServer& s) {
    if (s.unreachable) Add(s.unreachable);  // no input in a file has it
    return AddAll(s.name, s.host, s.zone, s.device_bytes, s.host_bytes, s.spill_bytes, s.draining,
                  s.load);
  }
  Fnv& Add(const CostConstants& c) {
    return AddAll(c.gather_row_ns, c.update_row_ns, c.device_row_ns, c.spill_row_ns, c.segment_ns,
                  c.host_bandwidth, c.network_bandwidth, c.spill_bandwidth, c.device_bandwidth,
                  c.device_host_bandwidth);
  }
  Fnv& Add(const Topology& t) {
    const Bandwidths& b = t.bandwidth;
    return AddAll(t.servers, t.device, b.device, b.host, b.device_host, b.intra_host, b.inter_host,
                  b.spill);
  }
  Fnv& Add(const TableConstraint& c) {
    if (c.column_slices) Add(c.column_slices);  // no input in a file has it
    if (c.prefetch_passes != 1) Add(c.prefetch_passes);
    return AddAll(c.table, c.sharding, c.kernels, c.servers, c.columns_min, c.cache_load_factor,
                  c.batch_sizes, c.pooling_factors, c.num_poolings);
  }
  Fnv& Add(const PlannerOptions& o) {
    if (o.replicas_as_they_are) Add(o.replicas_as_they_are);  // no input in a file has it
    const TorchrecOptions& t = o.torchrec;
    if (!(t == TorchrecOptions())) {
      AddAll(t.partitioner, t.proposers, t.pipeline, t.forward_wire, t.backward_wire);
      if (t.run_embedding_at_peak_memory) Add(t.run_embedding_at_peak_memory);
    }
    return AddAll(o.strategy, o.column_slice_threshold, o.row_slice_threshold,
                  o.data_parallel_threshold, o.strict, o.order, o.constraints, o.reserve.kind,
                  o.reserve.fraction, o.reserve.dense_bytes, o.seed, o.evaluations_max,
                  o.move_bytes_max);
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
