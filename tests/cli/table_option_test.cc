#include "cli/tables/table_option.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "proto/types.pb.h"

namespace hotbed {
namespace table_option_test {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using ::testing::HasSubstr;

void AddFields(const Descriptor& type, const std::string& prefix, std::set<std::string>* fields) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const bool group =
        field.name() == "optimizer" || field.name() == "schedule" || field.name() == "life";
    if (group) {
      AddFields(*field.message_type(), absl::StrCat(field.name(), "."), fields);
    } else {
      fields->insert(prefix + field.name());
    }
  }
}

// The list is the only place where an option becomes a flag, a key and a line of describe.
TEST(TableOption, EveryFieldOfATableIsInTheList) {
  std::set<std::string> fields;
  AddFields(*v1::TableSpec::descriptor(), "", &fields);
  for (const char* other : {"id", "name", "changes", "restored_from", "composition"})
    EXPECT_EQ(fields.erase(other), 1u) << other;
  for (const char* of_composition : {"compose", "combine", "pool_first", "buckets", "block_dims"})
    fields.insert(of_composition);
  fields.insert({"optimizer.show_decay", "optimizer.show_period_s"});  // in optimizer.shows
  EXPECT_EQ(fields.erase("staleness"), 1u) << "said as bounded:S";
  std::set<std::string> listed;
  for (const TableOption& option : TableOptionList()) {
    EXPECT_TRUE(listed.insert(option.field).second) << option.field << " is there twice";
  }
  EXPECT_EQ(listed, fields);
}

TEST(TableOption, EveryOptionIsInTheDocumentation) {
  std::ifstream file(HOTBED_SOURCE_DIR "/docs/tables.md");
  std::stringstream text;
  text << file.rdbuf();
  std::string top = text.str();
  top = top.substr(0, top.find("\n## "));
  for (const TableOption& option : TableOptionList()) {
    const std::string row = absl::StrCat("\n| `--", option.name);
    const size_t at = top.find(row);
    ASSERT_NE(at, std::string::npos)
        << "--" << option.name << " is not in the table at the top of docs/tables.md";
    std::string line = top.substr(at + 1, top.find('\n', at + 1) - at - 1);
    const bool at_once =
        absl::StartsWith(option.name, "memory-share-") ||
        (option.fixed_because == nullptr && absl::StartsWith(option.field, "life."));
    EXPECT_THAT(line, HasSubstr(at_once                           ? "| at once |"
                                : option.fixed_because == nullptr ? "| from a step on |"
                                                                  : "| fixed |"))
        << line;
    const std::string initial = option.print(TableSpec());
    if (option.name == std::string("dim") || option.name == std::string("rows")) continue;
    EXPECT_THAT(line, HasSubstr(initial.empty() ? "| none |" : absl::StrCat("| ", initial, " |")))
        << line << ": the default";
    for (const std::string& word :
         option.words == nullptr ? std::vector<std::string>() : *option.words) {
      EXPECT_THAT(line, HasSubstr(word)) << line;
    }
  }
}

TEST(TableOption, FoundByFlagOtherNameAndField) {
  for (const char* name : {"learning-rate", "lr", "learning_rate", "optimizer.learning_rate"}) {
    const TableOption* const option = FindTableOption(name);
    ASSERT_NE(option, nullptr) << name;
    EXPECT_STREQ(option->name, "learning-rate");
  }
  EXPECT_STREQ(FindTableOption("optimizer.kind")->name, "optimizer");
  EXPECT_STREQ(FindTableOption("nan_policy")->name, "nan");
  EXPECT_STREQ(FindTableOption("initializer")->name, "init");
  for (const char* name : {"", "kind", "optimizer.dim", "schedule.beta1", "lrr"}) {
    EXPECT_EQ(FindTableOption(name), nullptr) << name;
  }
}

TEST(TableOption, WhatItPrintsItReads) {
  TableSpec spec;
  spec.optimizer.learning_rate = 1.0f / 3;
  spec.consistency = Consistency::kBounded;
  spec.staleness = 12;
  spec.padding_id = ~uint64_t{0};
  spec.has_padding_id = true;
  spec.durability = Durability::kReplicated;
  spec.replicas = 3;
  spec.data_parallel = true;
  for (const TableOption& option : TableOptionList()) {
    TableSpec back;
    ASSERT_TRUE(SetTableOption(option, option.print(spec), &back).ok()) << option.name;
    EXPECT_EQ(option.print(back), option.print(spec)) << option.name;
  }
}

TEST(TableOption, RefusalsSayWhatWouldDo) {
  TableSpec spec;
  const auto error = [&spec](const char* name, const char* text) {
    const absl::Status status = SetTableOption(*FindTableOption(name), text, &spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << "=" << text;
    return std::string(status.message());
  };
  EXPECT_THAT(error("optimizer", "rowwise-adagard"), HasSubstr("did you mean 'rowwise-adagrad'?"));
  EXPECT_THAT(error("bounds", "clamp"), HasSubstr("not one of error, zero, modulo"));
  EXPECT_THAT(error("dim", "-1"), HasSubstr("a whole number from 1 to 8192"));
  EXPECT_THAT(error("dim", "4294967296"), HasSubstr("a whole number from 1 to 8192"));
  EXPECT_THAT(error("column-slices", "-1"), HasSubstr("a whole number from 1 to 256"));
  EXPECT_THAT(error("lr", "fast"), HasSubstr("'fast' is not a number"));
  EXPECT_THAT(error("consistency", "bounded:x"), HasSubstr("'x' is not a whole number"));
  EXPECT_THAT(error("padding-id", "none"), HasSubstr("'none' is not a number"));
  EXPECT_THAT(error("lazy-decay", "perhaps"), HasSubstr("true or false"));
  EXPECT_TRUE(SetTableOption(*FindTableOption("optimizer"), "rowwise_adagrad", &spec).ok());
  EXPECT_TRUE(SetTableOption(*FindTableOption("consistency"), "bounded:0", &spec).ok());
  EXPECT_EQ(spec.consistency, Consistency::kSync);
}

TEST(TableOption, ReplicasAreSaidWithTheDurabilityOrBesideIt) {
  const TableOption& durability = *FindTableOption("durability");
  const TableOption& replicas = *FindTableOption("replicas");
  TableSpec spec;
  ASSERT_TRUE(SetTableOption(durability, "replicated=2", &spec).ok());
  EXPECT_EQ(spec.durability, Durability::kReplicated);
  EXPECT_EQ(spec.replicas, 2u);
  EXPECT_EQ(durability.print(spec), "replicated=2");
  EXPECT_TRUE(SetTableOption(replicas, "2", &spec).ok()) << "said twice, alike";
  EXPECT_THAT(std::string(SetTableOption(replicas, "3", &spec).message()),
              HasSubstr("durability replicated=2: say one of the two"));
  EXPECT_EQ(spec.replicas, 2u);
  TableSpec beside;
  ASSERT_TRUE(SetTableOption(replicas, "3", &beside).ok());
  ASSERT_TRUE(SetTableOption(durability, "replicated", &beside).ok());
  EXPECT_EQ(durability.print(beside), "replicated=3");
  EXPECT_THAT(std::string(SetTableOption(durability, "replicated=2", &beside).message()),
              HasSubstr("replicas 3"));
  for (const char* text : {"replicated=1", "replicated=4", "replicated=", "replicated=two"}) {
    TableSpec fresh;
    const absl::Status status = SetTableOption(durability, text, &fresh);
    EXPECT_THAT(std::string(status.message()), HasSubstr("N from 2 to 3")) << text;
    EXPECT_EQ(fresh.durability, Durability::kLog) << text;
  }
}

TEST(TableOption, FloatsAreAsShortAsTheyCanBe) {
  EXPECT_EQ(FloatText(0.1f), "0.1");
  EXPECT_EQ(FloatText(1e-8f), "1e-08");
  EXPECT_EQ(FloatText(0), "0");
  EXPECT_EQ(std::stof(FloatText(1.0f / 3)), 1.0f / 3);
  EXPECT_EQ(std::stof(FloatText(16777217.0f)), 16777217.0f);
}

}  // namespace table_option_test
}  // namespace hotbed
