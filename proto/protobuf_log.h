// protobuf prints a line for each error in a message, for example a string that is not UTF-8.
#ifndef HOTBED_PROTO_PROTOBUF_LOG_H_
#define HOTBED_PROTO_PROTOBUF_LOG_H_

namespace hotbed {

// From now on such lines go to our log, at most one per 10 s: a bad peer must not fill it.
void LimitProtobufLog();

}  // namespace hotbed

#endif  // HOTBED_PROTO_PROTOBUF_LOG_H_
