#include "cli/bench/calibrate.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "bench/roofs/roofs.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr double kNsPerS = 1e9;
constexpr double kMsPerS = 1e3;
constexpr uint64_t kTableBytes = 512 << 20;  // larger than any cache
constexpr uint64_t kRowBytes = 256;
// Bytes of row-wise Adagrad on it: weights and 4 bytes of state read and written, gradient read.
constexpr double kUpdatedBytes = 2 * 256 + 2 * 4 + 256;

roofs::GatherLoad RowLoad(double seconds) {
  roofs::GatherLoad load;
  load.rows = kTableBytes / kRowBytes;
  load.row_bytes = kRowBytes;
  load.seconds = seconds;
  return load;
}

// Measures one constant after another, each for its share of the time.
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
    Begin("copies in memory");
    HOTBED_ASSIGN_OR_RETURN(const double copied, roofs::Memcpy(seconds_));
    Begin("gather of rows");
    HOTBED_ASSIGN_OR_RETURN(const double gathers, roofs::GatherRows(RowLoad(seconds_)));
    Begin("row-wise Adagrad");
    HOTBED_ASSIGN_OR_RETURN(const double updates, roofs::UpdateRows(RowLoad(seconds_)));
    Note("copies in memory", absl::StrFormat("%.4g MB/s", copied / 1e6));
    Note("gather, 256 bytes", absl::StrFormat("%.3g ns a row", kNsPerS / gathers));
    Note("row-wise Adagrad, 64 floats", absl::StrFormat("%.3g ns a row", kNsPerS / updates));
    CostConstants& constants = found_.constants;
    constants.host_bandwidth = copied / kMsPerS;
    constants.gather_row_ns = OwnPart("gather_row_ns", kNsPerS / gathers, kRowBytes);
    constants.update_row_ns = OwnPart("update_row_ns", kNsPerS / updates, kUpdatedBytes);
    return absl::OkStatus();
  }

  double OwnPart(const std::string& name, double ns, double bytes) {
    const double own = RowPartNs(ns, bytes, found_.constants.host_bandwidth);
    if (own == 0) Note(name, "0: at the rate of a copy its bytes alone would take longer");
    return own;
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

double RowPartNs(double ns, double bytes, double bytes_per_ms) {
  return std::max(0.0, ns - bytes / bytes_per_ms * kNsPerMs);
}

absl::StatusOr<Calibration> Calibrate(const CalibrateOptions& options) {
  return Calibrating(options).Run();
}

}  // namespace hotbed
