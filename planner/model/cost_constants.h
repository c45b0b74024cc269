// The constants of the cost model (planner/cost/cost_model.h): the cost of one row, one byte and
// one message part. A plain value that an input may carry; `hotbed plan calibrate` measures it.
// Safe from any thread.
//
// Units: ns per row, ns per segment, bytes per millisecond. A nonzero bandwidth in the input's
// topology takes precedence over the one here.
//
// The defaults come from docs/measurements.md: two cores of a 2.5 GHz Xeon. Two of its figures
// split the time per row into a fixed part (the cache misses) and a part per byte: the gather of a
// 256-byte row takes 50 ns (30 + 256 / 12.8), row-wise Adagrad on it 85 ns (24.4 + 776 / 12.8, for
// 512 bytes of weights, 8 of state and 256 of gradient). Constants that are not measured say so.
#ifndef HOTBED_PLANNER_MODEL_COST_CONSTANTS_H_
#define HOTBED_PLANNER_MODEL_COST_CONSTANTS_H_

namespace hotbed {

inline constexpr double kNsPerMs = 1e6;
inline constexpr double kIdBytes = 8;  // of one id on the wire

struct CostConstants {
  double gather_row_ns = 30;    // a row read from host memory, in addition to its bytes
  double update_row_ns = 24.4;  // an optimizer step on a row, in addition to its bytes
  double device_row_ns = 0.5;   // gather or update in device memory (estimate, not measured)
  double spill_row_ns = 3000;   // a row read from the spill and one written back (estimate)
  double segment_ns = 1000;     // one part of a message for one shard: 100 tables in 443 us, both
                                // ends and 20 rows each, leave about this for the server
  double host_bandwidth = 12.8e6;          // one core, random rows of some hundred bytes
  double network_bandwidth = 1.3e6;        // gRPC messages, one core: 1.0 to 1.5 GB/s
  double spill_bandwidth = 0.5e6;          // estimate: compressed blocks, checked
  double device_bandwidth = 963.146e6;     // TorchRec's 897 GiB/s (planner/constants.py)
  double device_host_bandwidth = 34.36e6;  // TorchRec's 32 GiB/s
  friend bool operator==(const CostConstants&, const CostConstants&) = default;
};

}  // namespace hotbed

#endif  // HOTBED_PLANNER_MODEL_COST_CONSTANTS_H_
