// hotbed::Vocabulary over the local engine, and the tables that are vocabularies.
#include "hotbed/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tables/vocabulary_row.h"
#include "hotbed/client.h"
#include "hotbed/local.h"

namespace hotbed {
namespace vocabulary_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kNone = ~uint64_t{0};

class VocabularyTest : public testing::Test {
 protected:
  void SetUp() override {
    auto client = ConnectLocal("", {.host_bytes = 256 << 20}, {});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  std::unique_ptr<Vocabulary> Make(uint64_t numbers) {
    TableOptions options;
    options.name = "words";
    options.durability = Durability::kCheckpoint;
    MakeVocabulary(numbers, &options);
    const auto table = client_->CreateTable(options, /*if_not_exists=*/true);
    EXPECT_TRUE(table.ok()) << table.status();
    if (!table.ok()) return nullptr;
    EXPECT_EQ((*table)->shard_count(), 1u);
    auto opened = Vocabulary::Open(client_.get(), *table);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *std::move(opened) : nullptr;
  }
  static std::vector<uint32_t> Look(Vocabulary* words, const std::vector<uint64_t>& keys) {
    const auto numbers = words->Lookup(keys);
    EXPECT_TRUE(numbers.ok()) << numbers.status();
    return numbers.ok() ? *numbers : std::vector<uint32_t>();
  }
  std::unique_ptr<Client> client_;
};

TEST_F(VocabularyTest, GivesNumbersInTheOrderOfFirstSight) {
  const auto words = Make(3);
  EXPECT_THAT(Look(words.get(), {7, 9, kNone, 7, 4, 5}), ElementsAre(1, 2, 0, 1, 3, 0));
  EXPECT_THAT(Look(words.get(), {}), ElementsAre());
  const auto another = Make(3);
  EXPECT_THAT(Look(another.get(), {5, 4, 9}), ElementsAre(0, 3, 2));
  const auto found = words->Find({{4, 5, 7, kNone}});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ((*found)[0].number, 3u);
  EXPECT_EQ((*found)[0].count, 2u);
  EXPECT_EQ((*found)[1].number, 0u);
  EXPECT_EQ((*found)[1].count, 0u);
  EXPECT_EQ((*found)[2].count, 2u);
  EXPECT_EQ((*found)[3].number, 0u);
  const auto size = words->Size();
  ASSERT_TRUE(size.ok()) << size.status();
  EXPECT_EQ(size->given, 3u);
  EXPECT_EQ(size->max, 3u);
  EXPECT_EQ(size->full, 2u);
}

// More keys than one message takes.
TEST_F(VocabularyTest, ALargeBatchIsOneOrder) {
  const auto words = Make(200'000);
  std::vector<uint64_t> keys(150'000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = (keys.size() - i) * 0x9e3779b97f4a7c15ull;
  const std::vector<uint32_t> numbers = Look(words.get(), keys);
  ASSERT_EQ(numbers.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(numbers[i], i + 1);
  EXPECT_EQ(Look(words.get(), keys), numbers);
}

TEST_F(VocabularyTest, TablesThatAreNoneAndOptionsThatDoNotFitAreNamed) {
  const auto refusal = [](const std::function<void(TableOptions*)>& change) {
    TableOptions options;
    options.name = "words";
    MakeVocabulary(10, &options);
    EXPECT_TRUE(ValidateTableSpec(options).ok()) << ValidateTableSpec(options);
    change(&options);
    return std::string(ValidateTableSpec(options).message());
  };
  EXPECT_THAT(refusal([](TableOptions* o) { o->dim = 8; }), HasSubstr("dim is 8, allowed: 4"));
  EXPECT_THAT(refusal([](TableOptions* o) { o->optimizer.touches = true; }),
              HasSubstr("numbers stay given"));
  EXPECT_THAT(refusal([](TableOptions* o) { o->vocabulary = uint64_t{1} << 32; }),
              HasSubstr("vocabulary is 4294967296, allowed: 1..4294967295"));
  EXPECT_THAT(refusal([](TableOptions* o) { o->weight_type = WeightType::kBf16; }),
              HasSubstr("weight_type is bf16, allowed: fp32 with vocabulary"));
  EXPECT_THAT(refusal([](TableOptions* o) { o->padding_id = 3; }), HasSubstr("padding_id is 3"));
  EXPECT_THAT(refusal([](TableOptions* o) { o->hashed = false; }), HasSubstr("hashed is false"));
  TableOptions plain;
  plain.name = "plain";
  plain.dim = 4;
  plain.rows = 10;
  plain.durability = Durability::kCheckpoint;
  const auto table = client_->CreateTable(plain);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(std::string(Vocabulary::Open(client_.get(), *table).status().message()),
              HasSubstr("table plain is no vocabulary; make one with 'hotbed table create"));
}

TEST_F(VocabularyTest, RowsHoldWholeNumbersExactly) {
  for (const VocabularyRow row :
       {VocabularyRow{0, 0}, VocabularyRow{1, (1 << 24) - 1}, VocabularyRow{1 << 24, 1 << 24},
        VocabularyRow{kVocabularyMax, (uint64_t{1} << 48) - 1}}) {
    float stored[kVocabularyDim];
    row.Store(stored);
    const VocabularyRow back = VocabularyRow::Load(stored);
    EXPECT_EQ(back.number, row.number);
    EXPECT_EQ(back.count, row.count);
  }
  float stored[kVocabularyDim];
  VocabularyRow{1, uint64_t{1} << 60}.Store(stored);
  EXPECT_EQ(VocabularyRow::Load(stored).count, (uint64_t{1} << 48) - 1);
}

}  // namespace vocabulary_test
}  // namespace hotbed
