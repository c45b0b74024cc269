#include "cli/bench/roof_lines.h"

#include <functional>

#include "bench/roofs/roofs.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr uint64_t kLogRecordHeaderBytes = 96;

double Rows(const MessageShape& shape, double messages_per_s) {
  return messages_per_s * static_cast<double>(shape.rows);
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

absl::StatusOr<RoofLine> TcpRoof(const std::string& name, const MessageShape& shape,
                                 const roofs::MessageLoad& load) {
  HOTBED_ASSIGN_OR_RETURN(const roofs::MessageRate rate, roofs::TcpLoop(load));
  return RoofLine{name, Rows(shape, rate.messages_per_s)};
}

absl::StatusOr<RoofLine> GatherRoof(const MessageShape& shape, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const double rows, roofs::GatherRows(Gather(shape, seconds)));
  return RoofLine{"gather loop in memory", rows};
}

absl::StatusOr<RoofLine> MemcpyRoof(const MessageShape& shape, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const double bytes, roofs::Memcpy(seconds));
  return RoofLine{"memcpy", bytes / static_cast<double>(shape.row_bytes)};
}

}  // namespace

absl::StatusOr<RoofLine> GrpcPullRoof(const MessageShape& shape, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const roofs::MessageRate rate,
                          roofs::GrpcStream(PullLoad(shape, seconds)));
  return RoofLine{"bare gRPC, same bytes", Rows(shape, rate.messages_per_s)};
}

absl::StatusOr<RoofLine> GrpcPushRoof(const MessageShape& shape, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const roofs::MessageRate rate,
                          roofs::GrpcStream(PushLoad(shape, seconds)));
  return RoofLine{"bare gRPC upload, same bytes", Rows(shape, rate.messages_per_s)};
}

absl::StatusOr<RoofLine> TcpGatherRoof(const MessageShape& shape, double seconds) {
  HOTBED_ASSIGN_OR_RETURN(const roofs::MessageRate rate,
                          roofs::TcpGather(Gather(shape, seconds), shape.in_flight));
  return RoofLine{"TCP loop with gather", Rows(shape, rate.messages_per_s)};
}

absl::StatusOr<RoofLine> AppendRoof(const MessageShape& shape, double seconds, bool synced) {
  const uint64_t record_bytes = (8 + shape.row_bytes) * shape.rows + kLogRecordHeaderBytes;
  HOTBED_ASSIGN_OR_RETURN(const double records,
                          roofs::Appends(shape.dir, record_bytes, seconds, synced));
  return RoofLine{synced ? "plain appends and a sync" : "plain appends, same bytes",
                  Rows(shape, records)};
}

absl::StatusOr<std::vector<RoofLine>> MeasureRoofs(BenchKind kind, const MessageShape& shape,
                                                   double seconds) {
  using Measure = std::function<absl::StatusOr<RoofLine>()>;
  std::vector<Measure> measures;
  if (kind != BenchKind::kPush) {
    measures.push_back([&] { return GrpcPullRoof(shape, seconds); });
    measures.push_back(
        [&] { return TcpRoof("TCP loop, same bytes", shape, PullLoad(shape, seconds)); });
    measures.push_back([&] { return TcpGatherRoof(shape, seconds); });
    measures.push_back([&] { return GatherRoof(shape, seconds); });
  }
  if (kind == BenchKind::kPush || kind == BenchKind::kMixed) {
    measures.push_back([&] { return GrpcPushRoof(shape, seconds); });
    measures.push_back(
        [&] { return TcpRoof("TCP upload, same bytes", shape, PushLoad(shape, seconds)); });
    if (shape.log) {
      measures.push_back([&] { return AppendRoof(shape, seconds, false); });
      measures.push_back([&] { return AppendRoof(shape, seconds, true); });
    }
  }
  measures.push_back([&] { return MemcpyRoof(shape, seconds); });
  std::vector<RoofLine> lines;
  for (const Measure& measure : measures) {
    HOTBED_ASSIGN_OR_RETURN(RoofLine line, measure());
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace hotbed
