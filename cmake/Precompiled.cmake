# Precompiled headers: those that nearly every file reads, parsed once per kind of target. They only save time: sources name
# what they include all the same, and clang-tidy compiles without them (tests/tidy/run_clang_tidy.py).
option(HOTBED_PRECOMPILE "Parse the libraries' headers once (off: every file by itself)" ON)
# protobuf's users get it, and a precompiled header serves sources with the same macros only.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-pthread>)

set(HOTBED_PRECOMPILED_base
  <algorithm> <array> <atomic> <cstdint> <cstring> <deque> <functional> <map> <memory> <optional> <set> <string> <utility>
  <vector> <absl/base/thread_annotations.h> <absl/container/flat_hash_map.h> <absl/container/inlined_vector.h>
  <absl/functional/any_invocable.h> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/strings/str_format.h> <absl/synchronization/mutex.h> <absl/time/time.h> <absl/types/span.h>)
set(HOTBED_PRECOMPILED_grpc ${HOTBED_PRECOMPILED_base} <grpcpp/grpcpp.h>)
set(HOTBED_PRECOMPILED_cli ${HOTBED_PRECOMPILED_base} <CLI/CLI.hpp> <nlohmann/json.hpp>)
set(HOTBED_PRECOMPILED_test ${HOTBED_PRECOMPILED_base} <gmock/gmock.h> <gtest/gtest.h>)
set(HOTBED_LINKED_base absl::status)
set(HOTBED_LINKED_grpc gRPC::grpc++)
set(HOTBED_LINKED_cli CLI11::CLI11 nlohmann_json::nlohmann_json)
set(HOTBED_LINKED_test GTest::gtest GTest::gmock)
# Code that a shared library may need (the Python package, or a trainer's own) is addressed in the way that fits both; a
# precompiled header serves one way only. Calls inside a source stay direct, so it costs nothing.
function(hotbed_position_independent target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC;-fno-semantic-interposition>)
endfunction()

# Compiles `target` with the headers of `kind`: base, grpc, cli, test or none. A source whose own flags differ in what
# the processor can do takes no part in it (SKIP_PRECOMPILE_HEADERS).
function(hotbed_precompile target kind)
  if(NOT kind MATCHES "^(cli|test)$")
    hotbed_position_independent(${target})
  endif()
  if(NOT HOTBED_PRECOMPILE OR kind STREQUAL "none")
    return()
  endif()
  if(NOT TARGET hotbed_precompiled_${kind})
    set(source ${PROJECT_BINARY_DIR}/precompiled_${kind}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(hotbed_precompiled_${kind} OBJECT ${source})
    target_link_libraries(hotbed_precompiled_${kind} PRIVATE hotbed_row_math ${HOTBED_LINKED_${kind}})
    target_precompile_headers(hotbed_precompiled_${kind} PRIVATE ${HOTBED_PRECOMPILED_${kind}})
    if(NOT kind MATCHES "^(cli|test)$")
      hotbed_position_independent(hotbed_precompiled_${kind})
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM hotbed_precompiled_${kind})
endfunction()
