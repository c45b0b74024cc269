#include "cli/bench/calibrate.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "bench/roofs/roofs.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr double kNsPerS = 1e9;
constexpr double kNsPerMs = 1e6;
constexpr double kMsPerS = 1e3;
constexpr uint64_t kTableBytes = 512 << 20;  // larger than any cache
constexpr uint64_t kShortRow = 64;
constexpr uint64_t kLongRow = 1024;
constexpr uint64_t kUpdatedRow = 256;
// Of row-wise Adagrad on it: weights read and written, 4 bytes of state too, the gradient read.
constexpr double kUpdatedBytes = 2 * 256 + 2 * 4 + 256;

roofs::GatherLoad Load(uint64_t row_bytes, double seconds) {
  roofs::GatherLoad load;
  load.rows = kTableBytes / row_bytes;
  load.row_bytes = row_bytes;
  load.seconds = seconds;
  return load;
}

// Measures one after the other, each for its share of the time.
class Calibrating {
 public:
  explicit Calibrating(const CalibrateOptions& options)
      : options_(options), seconds_(options.seconds / kSteps) {}

  absl::StatusOr<Calibration> Run() {
    HOTBED_RETURN_IF_ERROR(MeasureMemory());
    HOTBED_RETURN_IF_ERROR(MeasureNetwork());
    HOTBED_RETURN_IF_ERROR(MeasureDisk());
    Begin("");
    const CostConstants defaults;
    Assume("segment_ns", defaults.segment_ns, "needs a running server");
    Assume("device_row_ns", defaults.device_row_ns, "no device is measured");
    Assume("device_bandwidth", defaults.device_bandwidth, "no device is measured");
    Assume("device_host_bandwidth", defaults.device_host_bandwidth, "no device is measured");
    return std::move(found_);
  }

 private:
  static constexpr uint64_t kSteps = 5;

  void Begin(const std::string& what) {
    if (options_.progress) options_.progress(done_, kSteps, what);
    ++done_;
  }

  void Note(const std::string& what, const std::string& figure) {
    found_.measured.emplace_back(what, figure);
  }
  void Assume(const std::string& name, double value, const std::string& why) {
    found_.assumed.emplace_back(name, absl::StrFormat("default %g: %s", value, why));
  }

  absl::Status MeasureMemory() {
    Begin("gather of short rows");
    HOTBED_ASSIGN_OR_RETURN(const double short_rows, roofs::GatherRows(Load(kShortRow, seconds_)));
    Begin("gather of long rows");
    HOTBED_ASSIGN_OR_RETURN(const double long_rows, roofs::GatherRows(Load(kLongRow, seconds_)));
    Begin("row-wise Adagrad");
    HOTBED_ASSIGN_OR_RETURN(const double updates, roofs::UpdateRows(Load(kUpdatedRow, seconds_)));
    Note("gather, rows of 64 bytes", absl::StrFormat("%.3g ns a row", kNsPerS / short_rows));
    Note("gather, rows of 1024 bytes", absl::StrFormat("%.3g ns a row", kNsPerS / long_rows));
    Note("row-wise Adagrad, 64 floats", absl::StrFormat("%.3g ns a row", kNsPerS / updates));
    const RowFit fit = FitRows(kShortRow, kNsPerS / short_rows, kLongRow, kNsPerS / long_rows);
    CostConstants& constants = found_.constants;
    constants.gather_row_ns = fit.row_ns;
    constants.host_bandwidth = fit.bytes_per_ms;
    constants.update_row_ns =
        std::max(0.0, kNsPerS / updates - kUpdatedBytes / fit.bytes_per_ms * kNsPerMs);
    return absl::OkStatus();
  }

  absl::Status MeasureNetwork() {
    Begin("gRPC stream on loopback");
    roofs::MessageLoad load;
    load.seconds = seconds_;
    HOTBED_ASSIGN_OR_RETURN(const roofs::MessageRate rate, roofs::GrpcStream(load));
    Note("gRPC stream on loopback", absl::StrFormat("%.3g MB/s", rate.bytes_per_s / 1e6));
    found_.constants.network_bandwidth = rate.bytes_per_s / kMsPerS;
    return absl::OkStatus();
  }

  absl::Status MeasureDisk() {
    Begin("a file written and read");
    HOTBED_ASSIGN_OR_RETURN(const roofs::DiskRate rate,
                            roofs::WriteAndRead(options_.dir, seconds_));
    Note("file written, synced and read", absl::StrFormat("%.3g MB/s", rate.bytes_per_s / 1e6));
    Note("random reads of 4 KiB", absl::StrFormat("%.4g ns each", rate.random_read_ns));
    found_.constants.spill_bandwidth = rate.bytes_per_s / kMsPerS;
    found_.constants.spill_row_ns = rate.random_read_ns;
    return absl::OkStatus();
  }

  const CalibrateOptions& options_;
  const double seconds_;
  uint64_t done_ = 0;
  Calibration found_;
};

}  // namespace

RowFit FitRows(double short_bytes, double short_ns, double long_bytes, double long_ns) {
  const double ns_a_byte = (long_ns - short_ns) / (long_bytes - short_bytes);
  const double row_ns = short_ns - ns_a_byte * short_bytes;
  if (ns_a_byte <= 0 || row_ns < 0) return {0, long_bytes / long_ns * kNsPerMs};
  return {row_ns, kNsPerMs / ns_a_byte};
}

absl::StatusOr<Calibration> Calibrate(const CalibrateOptions& options) {
  return Calibrating(options).Run();
}

}  // namespace hotbed
