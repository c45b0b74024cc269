// Converts between the messages of proto/types.proto and the plain values of common/. FromProto
// checks its input: an unknown enum value or an impossible range gives InvalidArgument naming field
// and value. Pure functions.
#ifndef HOTBED_PROTO_CONVERT_H_
#define HOTBED_PROTO_CONVERT_H_

#include "absl/status/statusor.h"
#include "common/tables/shard_record.h"
#include "common/tables/table_spec.h"
#include "proto/types.pb.h"

namespace hotbed {

// The content is not validated beyond enums: see ValidateTableSpec.
v1::TableSpec ToProto(const TableSpec& spec);
absl::StatusOr<TableSpec> FromProto(const v1::TableSpec& message);
v1::TableChange ToProto(const TableChange& change);
absl::StatusOr<TableChange> FromProto(const v1::TableChange& message);

void LogEndToProto(const LogEnd& end, v1::LogEnd* message);
LogEnd FromProto(const v1::LogEnd& message);
v1::RowLife ToProto(const LifeParams& life);
absl::StatusOr<LifeParams> FromProto(const v1::RowLife& message);

v1::ShardRecord ToProto(const ShardRecord& record);
void ToProto(const ShardRecord& record, v1::ShardRecord* message);
absl::StatusOr<ShardRecord> FromProto(const v1::ShardRecord& message);

v1::RowType ToProto(RowType type);
absl::StatusOr<RowType> FromProto(v1::RowType type);
// Only fp32, fp16 and bf16: gradients have no int8 form.
absl::StatusOr<RowType> GradientTypeFromProto(v1::RowType type);

}  // namespace hotbed

#endif  // HOTBED_PROTO_CONVERT_H_
