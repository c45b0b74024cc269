#include "cli/bench/roof_lines.h"

#include <functional>

#include "bench/roofs/roofs.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kLogRecordHeaderBytes = 96;
constexpr int kDirectWritesInFlight = 4;

uint64_t LogRecordBytes(const MessageShape& shape) {
  return (8 + shape.row_bytes) * shape.rows + kLogRecordHeaderBytes;
}

absl::StatusOr<double> Rows(const MessageShape& shape,
                            const absl::StatusOr<roofs::MessageRate>& rate) {
  if (!rate.ok()) return rate.status();
  return rate->messages_per_s * static_cast<double>(shape.rows);
}

roofs::MessageLoad PullLoad(const MessageShape& shape, double seconds) {
  roofs::MessageLoad load;
  load.request_bytes = 8 * shape.rows + kMessageHeaderBytes;
  load.reply_bytes = shape.row_bytes * shape.rows + kMessageHeaderBytes;
  load.in_flight = shape.in_flight;
  load.seconds = seconds;
  return load;
}

roofs::MessageLoad PushLoad(const MessageShape& shape, double seconds) {
  roofs::MessageLoad load;
  load.request_bytes = (8 + shape.row_bytes) * shape.rows + kMessageHeaderBytes;
  load.reply_bytes = kMessageHeaderBytes;
  load.in_flight = shape.in_flight;
  load.seconds = seconds;
  return load;
}

roofs::GatherLoad Gather(const MessageShape& shape, double seconds) {
  roofs::GatherLoad load;
  load.rows = shape.table_rows;
  load.row_bytes = shape.row_bytes;
  load.batch = shape.rows;
  load.seconds = seconds;
  return load;
}

}  // namespace

absl::StatusOr<double> GrpcPullRoof(const MessageShape& shape, double seconds) {
  return Rows(shape, roofs::GrpcStream(PullLoad(shape, seconds)));
}

absl::StatusOr<double> GrpcPushRoof(const MessageShape& shape, double seconds) {
  return Rows(shape, roofs::GrpcStream(PushLoad(shape, seconds)));
}

absl::StatusOr<double> TcpGatherRoof(const MessageShape& shape, double seconds) {
  return Rows(shape, roofs::TcpGather(Gather(shape, seconds), shape.in_flight));
}

absl::StatusOr<double> AppendRoof(const MessageShape& shape, double seconds, bool synced) {
  HOTBED_ASSIGN_OR_RETURN(const double records,
                          roofs::Appends(shape.dir, LogRecordBytes(shape), seconds, synced));
  return records * static_cast<double>(shape.rows);
}

absl::StatusOr<double> DirectAppendRoof(const MessageShape& shape, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(
      const double records,
      roofs::DirectAppends(shape.dir, LogRecordBytes(shape), kDirectWritesInFlight, seconds));
  return records * static_cast<double>(shape.rows);
}

absl::StatusOr<std::vector<RoofLine>> MeasureRoofs(BenchKind kind, const MessageShape& shape,
                                                   double seconds) {
  const bool pulls = kind != BenchKind::kPush;
  const bool pushes = kind == BenchKind::kPush || kind == BenchKind::kMixed;
  struct Roof {
    bool wanted;
    const char* name;
    std::function<absl::StatusOr<double>()> rows_per_s;
  };
  const Roof measured[] = {
      {pulls, "bare gRPC, same bytes", [&] { return GrpcPullRoof(shape, seconds); }},
      {pulls, "TCP loop, same bytes",
       [&] { return Rows(shape, roofs::TcpLoop(PullLoad(shape, seconds))); }},
      {pulls, "TCP loop with gather", [&] { return TcpGatherRoof(shape, seconds); }},
      {pulls, "gather loop in memory", [&] { return roofs::GatherRows(Gather(shape, seconds)); }},
      {pushes, "bare gRPC upload, same bytes", [&] { return GrpcPushRoof(shape, seconds); }},
      {pushes, "TCP upload, same bytes",
       [&] { return Rows(shape, roofs::TcpLoop(PushLoad(shape, seconds))); }},
      {pushes && shape.log, "plain appends, same bytes",
       [&] { return AppendRoof(shape, seconds, false); }},
      {pushes && shape.log, "plain appends and a sync",
       [&] { return AppendRoof(shape, seconds, true); }},
      {pushes && shape.log, "direct appends, same bytes, 4 in flight",
       [&] { return DirectAppendRoof(shape, seconds); }}};
  std::vector<RoofLine> lines;
  for (const Roof& roof : measured) {
    if (!roof.wanted) continue;
    const absl::StatusOr<double> rows_per_s = roof.rows_per_s();
    if (absl::IsUnimplemented(rows_per_s.status())) {
      lines.push_back({roof.name, 0, std::string(rows_per_s.status().message())});
      continue;
    }
    HOTBED_RETURN_IF_ERROR(rows_per_s.status());
    lines.push_back({roof.name, *rows_per_s, ""});
  }
  HOTBED_ASSIGN_OR_RETURN(const double bytes, roofs::Memcpy(seconds));
  lines.push_back({"memcpy", bytes / static_cast<double>(shape.row_bytes), ""});
  return lines;
}

}  // namespace hotbed
