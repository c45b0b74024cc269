// libFuzzer target: any bytes, in any fragments, must be read as the generated classes read them.
// `./dev fuzz wire_fuzz`.
#include <cstddef>
#include <cstdint>
#include <string>

#include "common/check.h"
#include "tests/proto/wire_twin.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  hotbed::Random random(data[0]);
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const hotbed::FragmentedMessage message(bytes, 1 + data[0] % 64, &random);
  const std::string found = hotbed::AnyDisagreement(bytes, message.fragments());
  HOTBED_CHECK(found.empty()) << found;
  return 0;
}
