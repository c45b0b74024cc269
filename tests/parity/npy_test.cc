#include "tests/parity/npy.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/test_seed.h"

namespace hotbed::parity {
namespace npy_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What numpy 1.24 writes for numpy.save(f, numpy.array([[1.5, -2.0]], dtype='<f4')).
std::string FromNumpy() {
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  bytes += "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }";
  bytes.resize(127, ' ');
  bytes += '\n';
  return bytes + std::string("\x00\x00\xc0\x3f\x00\x00\x00\xc0", 8);
}

std::string Refusal(const std::string& bytes) {
  const auto array = ParseNpy(bytes);
  return array.ok() ? "read" : std::string(array.status().message());
}

std::string Changed(const std::string& what, const std::string& to) {
  std::string bytes = FromNumpy();
  return bytes.replace(bytes.find(what), what.size(), to);
}

TEST(Npy, ReadsAndWritesWhatNumpyWrites) {
  const auto array = ParseNpy(FromNumpy());
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->shape, ElementsAre(1, 2));
  EXPECT_THAT(NpyValues<float>(*array), ElementsAre(1.5f, -2.0f));
  EXPECT_EQ(FormatNpy(*array), FromNumpy());
}

template <typename T>
void RoundTrip(Random* random) {
  std::vector<uint64_t> shape;
  const uint64_t dims = random->Uniform(4);
  for (uint64_t d = 0; d < dims; ++d) shape.push_back(random->Uniform(5));
  NpyArray array;
  array.type = NpyTypeOf<T>();
  array.shape = shape;
  std::vector<T> values(array.size());
  for (T& value : values) value = static_cast<T>(random->Next());
  array = MakeNpy<T>(shape, values);
  const std::string bytes = FormatNpy(array);
  EXPECT_EQ((bytes.size() - array.data.size()) % 64, 0u);
  const auto again = ParseNpy(bytes);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->type, array.type);
  EXPECT_EQ(again->shape, shape);
  EXPECT_EQ(NpyValues<T>(*again), values);
}

TEST(Npy, RandomArraysRoundTrip) {
  const TestSeed seed(7);
  Random random(seed.value());
  for (int i = 0; i < 200; ++i) {
    RoundTrip<float>(&random);
    RoundTrip<double>(&random);
    RoundTrip<int32_t>(&random);
    RoundTrip<int64_t>(&random);
    RoundTrip<uint32_t>(&random);
    RoundTrip<uint64_t>(&random);
  }
}

TEST(Npy, IdsBeyondTheDoublesAreExact) {
  const std::vector<uint64_t> ids = {(uint64_t{1} << 53) + 1, std::numeric_limits<uint64_t>::max(),
                                     16'777'217};
  const auto again = ParseNpy(FormatNpy(MakeNpy<uint64_t>({3}, ids)));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(NpyValues<uint64_t>(*again), ids);
}

TEST(Npy, ReadsLongHeadersOfVersionTwo) {
  std::string bytes = FromNumpy();
  bytes[6] = 2;
  bytes.insert(10, 2, '\0');  // the length takes four bytes
  const auto array = ParseNpy(bytes);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(NpyValues<float>(*array), ElementsAre(1.5f, -2.0f));
}

TEST(Npy, RefusalsSayWhatIsWrong) {
  EXPECT_THAT(Refusal(""), HasSubstr("does not begin"));
  EXPECT_THAT(Refusal("PK\x03\x04 a zip of arrays"), HasSubstr("does not begin"));
  EXPECT_THAT(Refusal(FromNumpy().substr(0, 60)), HasSubstr("within its header"));
  EXPECT_THAT(Refusal(FromNumpy().substr(0, 130)), HasSubstr("takes 8 bytes"));
  EXPECT_THAT(Refusal(FromNumpy() + "x"), HasSubstr("behind the header are 9"));
  EXPECT_THAT(Refusal(Changed("'<f4'", "'>f4'")), HasSubstr("'>f4', allowed: '<f4'"));
  EXPECT_THAT(Refusal(Changed("'<f4'", "'<c8'")), HasSubstr("'<c8'"));
  EXPECT_THAT(Refusal(Changed("False", "True ")), HasSubstr("Fortran"));
  EXPECT_THAT(Refusal(Changed("(1, 2)", "(1, -)")), HasSubstr("shape"));
  EXPECT_THAT(Refusal(Changed("'shape'", "'shaqe'")), HasSubstr("lacks"));
  EXPECT_THAT(Refusal(Changed("\x93NUMPY\x01", "\x93NUMPY\x09")), HasSubstr("version 9"));
  std::string huge = Changed("(1, 2), }  ", "(4294967296, 4294967296), }  ");
  huge.erase(huge.find("  \n") - 17, 18);
  EXPECT_NE(Refusal(huge), "read");
}

}  // namespace npy_test
}  // namespace hotbed::parity
