#include "checkpoint/npy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "common/files/file_system.h"
#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace npy_file_test {

using testing::HasSubstr;

class NpyFileTest : public testing::Test {
 protected:
  NpyFileTest() : path_(testing::TempDir() + "/npy_file_test.npy") { std::remove(path_.c_str()); }
  ~NpyFileTest() override { std::remove(path_.c_str()); }

  void Write(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string ErrorOf(const std::string& header, const std::string& elements) {
    Write(std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header +
          elements);
    return std::string(NpyFile::Open(path_).status().message());
  }

  const std::string path_;
};

TEST_F(NpyFileTest, GivesBackWhatWasWritten) {
  const NpyArray arrays[] = {{"<f4", 3, 5}, {"<f2", 7, 1}, {"<u8", 9, 0}, {"<f4", 0, 4}};
  for (const NpyArray& array : arrays) {
    const uint64_t bytes = array.rows * std::max<uint64_t>(array.columns, 1) *
                           static_cast<uint64_t>(array.type[2] - '0');
    {
      const auto file = NpyFile::Create(path_, array);
      ASSERT_TRUE(file.ok()) << file.status();
      for (uint64_t i = 0; i < bytes; ++i) (*file)->data()[i] = static_cast<uint8_t>(i);
      EXPECT_TRUE((*file)->Sync().ok());
      EXPECT_EQ(NpyFile::Create(path_, array).status().code(), absl::StatusCode::kAlreadyExists);
    }
    const auto file = NpyFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->array().type, array.type);
    EXPECT_EQ((*file)->array().rows, array.rows);
    EXPECT_EQ((*file)->array().columns, array.columns);
    for (uint64_t i = 0; i < bytes; ++i) {
      ASSERT_EQ((*file)->data()[i], static_cast<uint8_t>(i));
    }
    std::remove(path_.c_str());
  }
}

TEST_F(NpyFileTest, NamesItsFault) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
  EXPECT_EQ(ErrorOf(good, "12345678"), "");
  EXPECT_THAT(ErrorOf(good, "1234567"), HasSubstr("7 bytes of elements, its header says 8"));
  EXPECT_THAT(ErrorOf("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }\n", "12345678"),
              HasSubstr("Fortran order"));
  EXPECT_THAT(ErrorOf("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 1), }\n", "12345678"),
              HasSubstr("'>f4', which is big-endian"));
  // A product that would wrap around to a small number.
  EXPECT_THAT(ErrorOf("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, "
                      "4294967296), }\n",
                      "1234"),
              HasSubstr("cut off"));
  EXPECT_THAT(ErrorOf("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2), }\n", "1234"),
              HasSubstr("its shape is (-1, 2)"));
  EXPECT_THAT(ErrorOf("{'descr': '<f4', 'shape': (1, 1), }\n", "1234"),
              HasSubstr("it has no 'fortran_order'"));
}

// A damaged file is refused, or read within its bounds; the sanitizers watch this.
TEST_F(NpyFileTest, DamagedFilesAreReadWithinTheirBounds) {
  const TestSeed seed(5);
  Random random(seed.value());
  std::string whole;
  {
    const auto file = NpyFile::Create(path_, {"<f4", 3, 2});
    ASSERT_TRUE(file.ok());
    whole = *FileSystem::Real()->ReadAll(path_);
  }
  for (int i = 0; i < 500; ++i) {
    std::string bytes = whole.substr(0, whole.size() - (random.OneIn(2) ? random.Uniform(99) : 0));
    for (uint64_t n = random.Uniform(3); n > 0; --n) {
      bytes[random.Uniform(bytes.size())] = static_cast<char>(random.Uniform(256));
    }
    Write(bytes);
    const auto file = NpyFile::Open(path_);
    if (!file.ok()) continue;
    const NpyArray& array = (*file)->array();
    ASSERT_LE(array.rows * std::max<uint64_t>(array.columns, 1) * (*file)->item_bytes(),
              bytes.size());
  }
}

}  // namespace npy_file_test
}  // namespace hotbed
