# HOTBED_SANITIZE=address builds with ASan and UBSan, =thread with TSan (targets free of gRPC only), =fuzzer for libFuzzer
# with ASan and UBSan (clang).
# Built for finding faults, not for speed: the compiler takes half as long.
set(HOTBED_LOOPS -O3)  # of sources whose loops are written for it
if(NOT HOTBED_SANITIZE STREQUAL "")
  add_compile_options(-O1)
  set(HOTBED_LOOPS -O1)
endif()
if(HOTBED_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(HOTBED_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  # The packaged Abseil has no instrumentation: tsan_absl.cc says what its locks mean. The wrapped symbols are read from that
  # file; the inline namespace in them is the packager's choice.
  find_file(absl_options absl/base/options.h REQUIRED)
  file(STRINGS ${absl_options} namespace REGEX "^#define ABSL_OPTION_INLINE_NAMESPACE_NAME")
  string(REGEX REPLACE ".* ([A-Za-z0-9_]+)$" "\\1" namespace "${namespace}")
  string(LENGTH "${namespace}" namespace_length)
  set(prefix "4absl${namespace_length}${namespace}")
  file(READ ${CMAKE_CURRENT_LIST_DIR}/tsan_absl.cc source)
  string(REGEX MATCHALL "\"NK?\", [A-Za-z]+,[ \n]+\"[^\"]+\"" wrapped "${source}")
  foreach(wrap ${wrapped})
    string(REGEX REPLACE "^\"(NK?)\", [A-Za-z]+,[ \n]+\"([^\"]+)\"$" "_Z\\1${prefix}\\2" symbol "${wrap}")
    add_link_options(LINKER:--wrap=${symbol})
  endforeach()
  add_library(hotbed_tsan_absl OBJECT ${CMAKE_CURRENT_LIST_DIR}/tsan_absl.cc)
  target_compile_definitions(hotbed_tsan_absl PRIVATE HOTBED_ABSL_PREFIX="${prefix}")
  # Into programs only: installed libraries stay as they are.
  link_libraries(
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:hotbed_tsan_absl>>)
elseif(HOTBED_SANITIZE STREQUAL "fuzzer")
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(NOT HOTBED_SANITIZE STREQUAL "")
  message(FATAL_ERROR "HOTBED_SANITIZE=${HOTBED_SANITIZE}: use address, thread, fuzzer or nothing")
endif()
