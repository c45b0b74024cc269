// libFuzzer target: any bytes, as the body of a lookup by HTTP or as the head of a request, are
// read or refused. `./dev fuzz serving_json_fuzz`.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "tests/serving/mutate_lookup.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string found =
      hotbed::LookupFault(std::string(reinterpret_cast<const char*>(data), size));
  HOTBED_CHECK(found.empty()) << found;
  return 0;
}
