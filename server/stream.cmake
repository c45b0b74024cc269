# The gRPC side of the server: streams over the shard host, the link to the coordinator, the executable. The library knows
# the host's interface only, so that tests can put another one behind it.
hotbed_library(server
  SRCS answer_pool.cc attend_stream.cc bidi_stream.cc byte_budget.cc coordinator_attend.cc coordinator_link.cc
       data_server.cc data_stream.cc load_report.cc lookup_service.cc map_intake.cc pull_segments.cc pull_stream.cc
       push_stream.cc replica_inbox.cc replica_lane.cc replica_link.cc resident_bound.cc stream_metrics.cc
       transfer_budget.cc transfer_stream.cc transfer_wire.cc wire_reply.cc
  DEPS hotbed_common hotbed_row_math hotbed_proto absl::inlined_vector gRPC::grpc++
  PRECOMPILED grpc)

hotbed_executable(hotbed-server
  SRCS device_choice.cc main.cc server_options.cc server_status.cc
  DEPS hotbed_server hotbed_shard hotbed_admin hotbed_config
  PRECOMPILED grpc)
if(TARGET hotbed_device_cuda)
  target_link_libraries(hotbed-server PRIVATE hotbed_device_cuda)
  set_source_files_properties(device_choice.cc PROPERTIES COMPILE_DEFINITIONS HOTBED_HAVE_CUDA)
endif()
install(TARGETS hotbed-server RUNTIME)
