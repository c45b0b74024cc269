# The gRPC side of the server: streams over the shard host, the link to the coordinator, the executable.
hotbed_library(server
  SRCS answer_pool.cc bidi_stream.cc byte_budget.cc data_server.cc lookup_service.cc
       pull_stream.cc push_stream.cc stream_metrics.cc wire_reply.cc
  DEPS hotbed_common hotbed_row_math hotbed_proto absl::inlined_vector gRPC::grpc++)
