#include "checkpoint/array_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/byte_order.h"
#include "common/files/file_system.h"
#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace array_file_test {

using testing::HasSubstr;

class ArrayFileTest : public testing::Test {
 protected:
  ArrayFileTest() : npy_(testing::TempDir() + "/array_file_test.npy") { Remove(); }
  ~ArrayFileTest() override { Remove(); }

  void Remove() const {
    std::remove(npy_.c_str());
    std::remove(tensors_.c_str());
  }
  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string NpyError(const std::string& header, const std::string& elements) const {
    Write(npy_, std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' +
                    header + elements);
    return std::string(FindArrays(npy_).status().message());
  }
  std::string TensorsError(const std::string& header, const std::string& elements) const {
    std::string bytes(8, '\0');
    StoreLittle<uint64_t>(bytes.data(), header.size());
    Write(tensors_, bytes + header + elements);
    return std::string(FindArrays(tensors_).status().message());
  }
  static ArrayInfo Array(const char* name, const char* type, ElementType element, uint64_t rows,
                         uint64_t columns) {
    ArrayInfo array;
    array.name = name;
    array.type = type;
    array.element = element;
    array.rows = rows;
    array.columns = columns;
    return array;
  }

  const std::string npy_;
  const std::string tensors_ = testing::TempDir() + "/array_file_test.safetensors";
};

TEST_F(ArrayFileTest, GivesBackWhatWasWritten) {
  const ArrayInfo arrays[] = {
      Array("", "<f4", ElementType::kFp32, 3, 5), Array("", "<f2", ElementType::kFp16, 7, 1),
      Array("", "<u8", ElementType::kId, 9, 0), Array("", "<f4", ElementType::kFp32, 0, 4)};
  for (const ArrayInfo& array : arrays) {
    std::vector<ArrayInfo> made = {array};
    ASSERT_TRUE(MakeArrays(npy_, &made).ok());
    EXPECT_EQ(MakeArrays(npy_, &made).code(), absl::StatusCode::kAlreadyExists);
    const std::string bytes(array.rows * array.row_bytes(), 'x');
    {
      const auto file = ArrayFile::Open(npy_, /*writes=*/true);
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_TRUE((*file)->Write(made[0].offset, bytes.data(), bytes.size()).ok());
      EXPECT_TRUE((*file)->Sync().ok());
    }
    const auto found = FindArrays(npy_);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->size(), 1u);
    EXPECT_EQ((*found)[0].type, array.type);
    EXPECT_EQ((*found)[0].element, array.element);
    EXPECT_EQ((*found)[0].rows, array.rows);
    EXPECT_EQ((*found)[0].columns, array.columns);
    EXPECT_EQ((*found)[0].offset, made[0].offset);
    EXPECT_EQ(FileSystem::Real()->ReadAll(npy_)->substr(made[0].offset), bytes);
    std::remove(npy_.c_str());
  }
}

TEST_F(ArrayFileTest, SafetensorsHoldSeveralArrays) {
  std::vector<ArrayInfo> made = {Array("weight", "BF16", ElementType::kBf16, 3, 5),
                                 Array("ids", "U64", ElementType::kId, 3, 0),
                                 Array("state", "F32", ElementType::kFp32, 3, 2)};
  ASSERT_TRUE(MakeArrays(tensors_, &made).ok());
  const auto found = FindArrays(tensors_);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 3u);
  EXPECT_EQ((*found)[0].name, "ids");
  EXPECT_EQ((*found)[1].name, "state");
  EXPECT_EQ((*found)[2].name, "weight");
  EXPECT_EQ((*found)[2].offset, made[0].offset);
  EXPECT_EQ((*found)[0].offset, made[0].offset + 30);
  EXPECT_EQ((*found)[1].offset, made[0].offset + 30 + 24);
  EXPECT_EQ((*found)[2].element, ElementType::kBf16);
  EXPECT_EQ((*found)[2].shape, "(3, 5)");
  EXPECT_EQ(made[0].offset % 64, 0u);
}

TEST_F(ArrayFileTest, NamesTheFaultOfAnNpyFile) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
  EXPECT_EQ(NpyError(good, "12345678"), "");
  EXPECT_THAT(NpyError(good, "1234567"), HasSubstr("7 bytes of elements, its header says 8"));
  EXPECT_THAT(NpyError("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }\n", "12345678"),
              HasSubstr("Fortran order"));
  EXPECT_THAT(NpyError("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 1), }\n", "12345678"),
              HasSubstr("'>f4', which is big-endian"));
  // A product that would wrap around to a small number.
  EXPECT_THAT(NpyError("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, "
                       "4294967296), }\n",
                       "1234"),
              HasSubstr("cut off"));
  EXPECT_THAT(NpyError("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2), }\n", "1234"),
              HasSubstr("its shape is (-1, 2)"));
  EXPECT_THAT(NpyError("{'descr': '<f4', 'shape': (1, 1), }\n", "1234"),
              HasSubstr("it has no 'fortran_order'"));
}

TEST_F(ArrayFileTest, NamesTheFaultOfASafetensorsFile) {
  const auto tensor = [](const char* type, const char* shape, const char* offsets) {
    return absl::StrCat("\"dtype\":\"", type, "\",\"shape\":", shape,
                        ",\"data_offsets\":", offsets);
  };
  const std::string good = absl::StrCat("{\"__metadata__\":{\"a\":\"b\"},\"t\":{",
                                        tensor("F32", "[2,1]", "[0,8]"), "}}  ");
  EXPECT_EQ(TensorsError(good, "12345678"), "");
  EXPECT_THAT(TensorsError(good, "1234567"), HasSubstr("7 bytes of tensors, its header says 8"));
  EXPECT_THAT(TensorsError(good, "123456789"), HasSubstr("behind its last tensor"));
  EXPECT_THAT(TensorsError("[1]", ""), HasSubstr("no JSON object"));
  EXPECT_THAT(TensorsError("{\"t\":1}", ""), HasSubstr("is of the type \"\""));
  const auto one = [&](const std::string& text) { return absl::StrCat("{\"t\":{", text, "}}"); };
  EXPECT_THAT(TensorsError(one(tensor("F33", "[2]", "[0,8]")), "12345678"), HasSubstr("\"F33\""));
  EXPECT_THAT(TensorsError(one(tensor("F32", "[-2]", "[0,8]")), "12345678"),
              HasSubstr("\"shape\" has -2"));
  EXPECT_THAT(TensorsError(one(tensor("F32", "[1.5]", "[0,8]")), "12345678"), HasSubstr("has 1.5"));
  EXPECT_THAT(TensorsError(one(tensor("F32", "[3]", "[0,8]")), "12345678"),
              HasSubstr("of 12 bytes has the offsets [0, 8]"));
  EXPECT_THAT(TensorsError(one(tensor("F32", "[2]", "[8,0]")), "12345678"),
              HasSubstr("has the offsets [8, 0]"));
  EXPECT_THAT(TensorsError(one(tensor("F32", "[1]", "[4,8]")), "12345678"), HasSubstr("gaps"));
  EXPECT_THAT(TensorsError(absl::StrCat("{\"a\":{", tensor("F32", "[1]", "[0,4]"), "},\"b\":{",
                                        tensor("F32", "[1]", "[0,4]"), "}}"),
                           "1234"),
              HasSubstr("overlap"));
  Write(tensors_, std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  EXPECT_THAT(std::string(FindArrays(tensors_).status().message()), HasSubstr("no safetensors"));
}

// A damaged file is refused, or read within its bounds; the sanitizers watch this.
TEST_F(ArrayFileTest, DamagedFilesAreReadWithinTheirBounds) {
  const TestSeed seed(5);
  Random random(seed.value());
  for (const std::string& path : {npy_, tensors_}) {
    std::vector<ArrayInfo> made = {
        Array("weight", IsSafetensors(path) ? "F32" : "<f4", ElementType::kFp32, 3, 2)};
    ASSERT_TRUE(MakeArrays(path, &made).ok());
    const std::string whole = *FileSystem::Real()->ReadAll(path);
    for (int i = 0; i < 500; ++i) {
      std::string bytes =
          whole.substr(0, whole.size() - (random.OneIn(2) ? random.Uniform(99) : 0));
      for (uint64_t n = random.Uniform(3); n > 0; --n) {
        bytes[random.Uniform(bytes.size())] = static_cast<char>(random.Uniform(256));
      }
      Write(path, bytes);
      const auto found = FindArrays(path);
      if (!found.ok()) continue;
      for (const ArrayInfo& array : *found) {
        ASSERT_LE(array.offset + array.rows * array.row_bytes(), bytes.size());
      }
    }
  }
}

}  // namespace array_file_test
}  // namespace hotbed
