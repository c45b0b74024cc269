#include "common/files/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace crc32c_test {

uint32_t Bitwise(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78 : 0);
  }
  return ~crc;
}

void ExpectCrc(const std::string& bytes, uint32_t expected) {
  EXPECT_EQ(Crc32c(bytes.data(), bytes.size()), expected);
  EXPECT_EQ(Crc32cPortable(bytes.data(), bytes.size()), expected);
}

// RFC 3720, appendix B.4.
TEST(Crc32c, VectorsOfTheStandard) {
  ExpectCrc(std::string(32, '\0'), 0x8a9136aa);
  ExpectCrc(std::string(32, '\xff'), 0x62a8ab43);
  std::string rising(32, '\0');
  for (int i = 0; i < 32; ++i) rising[i] = static_cast<char>(i);
  ExpectCrc(rising, 0x46dd794e);
  std::reverse(rising.begin(), rising.end());
  ExpectCrc(rising, 0x113fdb5c);
  ExpectCrc("123456789", 0xe3069283);
  ExpectCrc("", 0);
}

TEST(Crc32c, EqualsItsTwinsAtEveryLengthAlignmentAndCut) {
  const TestSeed seed(2);
  Random random(seed.value());
  std::string bytes(40000, '\0');
  for (char& c : bytes) c = static_cast<char>(random.Next());
  for (int i = 0; i < 300; ++i) {
    const size_t begin = random.Uniform(64);
    const size_t length = random.Uniform((bytes.size() - begin) >> random.Uniform(8));
    const std::string part = bytes.substr(begin, length);
    const uint32_t expected = Bitwise(part);
    ASSERT_EQ(Crc32c(bytes.data() + begin, length), expected) << begin << " " << length;
    ASSERT_EQ(Crc32cPortable(bytes.data() + begin, length), expected) << begin << " " << length;
    const size_t cut = random.Uniform(length + 1);
    const uint32_t head = Crc32c(part.data(), cut);
    ASSERT_EQ(Crc32c(part.data() + cut, length - cut, head), expected) << length << " at " << cut;
  }
}

}  // namespace crc32c_test
}  // namespace hotbed
