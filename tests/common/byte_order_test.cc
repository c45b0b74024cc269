#include "common/files/byte_order.h"

#include <gtest/gtest.h>

#include <string>

#include "common/json.h"
#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace byte_order_test {

TEST(ByteOrder, BytesStandAsTheFormatSays) {
  uint8_t bytes[8];
  StoreLittle<uint64_t>(bytes, 0x0102030405060708);
  EXPECT_EQ(bytes[0], 8);
  EXPECT_EQ(bytes[7], 1);
  StoreBig64(bytes, 0x0102030405060708);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(LoadBig64(bytes), 0x0102030405060708u);
  StoreBig32(bytes, 0x01020304);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[3], 4);
  StoreBig16(bytes, 0x0102);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[1], 2);
}

TEST(ByteOrder, BigEndianKeysSortByValue) {
  const TestSeed seed(1);
  Random random(seed.value());
  for (int i = 0; i < 1000; ++i) {
    const uint64_t a = random.Next() >> random.Uniform(64);
    const uint64_t b = random.Next() >> random.Uniform(64);
    std::string key_a(8, '\0');
    std::string key_b(8, '\0');
    StoreBig64(key_a.data(), a);
    StoreBig64(key_b.data(), b);
    ASSERT_EQ(a < b, key_a < key_b) << a << " " << b;
  }
}

TEST(Json, EscapesWhatMustBeEscaped) {
  EXPECT_EQ(JsonString("a\"b\\c\nd\x01"), R"("a\"b\\c\nd\u0001")");
  EXPECT_EQ(JsonString("größe"), "\"größe\"");
}

}  // namespace byte_order_test
}  // namespace hotbed
