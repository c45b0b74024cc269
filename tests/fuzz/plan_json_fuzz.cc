// libFuzzer target: any bytes are read by the planner's JSON readers or refused, and what is read
// plans or is refused.
//
//   CC=clang CXX=clang++ cmake -G Ninja -S . -B build-fuzz -DHOTBED_BUILD_FUZZERS=ON
//   ninja -C build-fuzz plan_json_fuzz
//   build-fuzz/tests/fuzz/plan_json_fuzz -max_total_time=60 CORPUS tests/planner/cases
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "tests/planner/json/mutate_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string found =
      hotbed::ReaderFault(std::string(reinterpret_cast<const char*>(data), size));
  HOTBED_CHECK(found.empty()) << found;
  return 0;
}
