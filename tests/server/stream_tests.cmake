hotbed_test(byte_budget_test SRCS byte_budget_test.cc DEPS hotbed_server)
hotbed_test(resident_bound_test SRCS resident_bound_test.cc DEPS hotbed_server)
hotbed_test(answer_pool_test SRCS answer_pool_test.cc DEPS hotbed_server hotbed_host)
hotbed_test(data_plane_test
  SRCS bad_input_test.cc data_server_test.cc fake_shard_host.cc pooled_pull_test.cc pull_stream_test.cc
       push_stream_test.cc
  DEPS hotbed_server)
hotbed_test(replica_link_test
  SRCS fake_shard_host.cc replica_inbox_test.cc replica_link_test.cc transfer_budget_test.cc transfer_stream_test.cc
       transfer_wire_test.cc
  DEPS hotbed_server)
hotbed_test(coordinator_link_test
  SRCS coordinator_attend_test.cc coordinator_link_test.cc fake_shard_host.cc load_report_test.cc
  DEPS hotbed_server)
hotbed_test(bag_check_test SRCS bag_check_test.cc DEPS hotbed_common hotbed_row_math)
hotbed_test(server_options_test
  SRCS server_options_test.cc server_status_test.cc ${PROJECT_SOURCE_DIR}/server/server_options.cc
       ${PROJECT_SOURCE_DIR}/server/server_status.cc
  DEPS hotbed_server hotbed_host hotbed_config hotbed_admin nlohmann_json::nlohmann_json)
hotbed_test(device_choice_test SRCS device_choice_test.cc ${PROJECT_SOURCE_DIR}/server/device_choice.cc
  DEPS hotbed_tiers hotbed_config)
hotbed_test(real_host_test SRCS real_host_test.cc DEPS hotbed_server hotbed_host)
hotbed_test(server_process_test SRCS server_process_test.cc DEPS hotbed_proto)
if(TARGET server_process_test)
  target_compile_definitions(server_process_test PRIVATE HOTBED_SERVER_BINARY="$<TARGET_FILE:hotbed-server>")
  add_dependencies(server_process_test hotbed-server)
endif()
