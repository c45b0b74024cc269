// The data plane's service with raw methods: messages are ByteBuffers.
#ifndef HOTBED_SERVER_STREAMS_RAW_DATA_SERVICE_H_
#define HOTBED_SERVER_STREAMS_RAW_DATA_SERVICE_H_

#include "proto/data.grpc.pb.h"

namespace hotbed {

using RawDataService = v1::Data::WithRawMethod_Pull<
    v1::Data::WithRawMethod_Push<v1::Data::WithRawMethod_Lookup<v1::Data::Service>>>;

}  // namespace hotbed

#endif  // HOTBED_SERVER_STREAMS_RAW_DATA_SERVICE_H_
