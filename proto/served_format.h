// Row formats of serving replicas, between proto/serving.proto and row_math. Pure functions.
#ifndef HOTBED_PROTO_SERVED_FORMAT_H_
#define HOTBED_PROTO_SERVED_FORMAT_H_

#include "proto/serving.pb.h"
#include "row_math/row_formats.h"

namespace hotbed {

// Formats that this version does not know read as fp32; the coordinator refuses them when a table
// is given to serving servers.
inline RowFormatKind FromProto(v1::ServedFormat format) {
  switch (format) {
    case v1::SERVED_FP16:
      return RowFormatKind::kFp16;
    case v1::SERVED_BF16:
      return RowFormatKind::kBf16;
    case v1::SERVED_INT8:
      return RowFormatKind::kTbeInt8;
    case v1::SERVED_INT4:
      return RowFormatKind::kTbeInt4;
    case v1::SERVED_INT2:
      return RowFormatKind::kTbeInt2;
    default:
      return RowFormatKind::kFp32;
  }
}

}  // namespace hotbed

#endif  // HOTBED_PROTO_SERVED_FORMAT_H_
