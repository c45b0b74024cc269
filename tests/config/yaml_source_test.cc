#include "config/yaml_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotbed {
namespace yaml_source_test {

TEST(YamlSource, ReadsSettingsWithTheirLines) {
  const auto settings =
      ParseYamlSettings("a.yaml", "# head\nlisten: 0.0.0.0:7070\n\nname: \"x: y\"\n");
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->size(), 2u);
  EXPECT_EQ((*settings)[0].key, "listen");
  EXPECT_EQ((*settings)[0].value, "0.0.0.0:7070");
  EXPECT_EQ((*settings)[0].line, 2);
  EXPECT_EQ((*settings)[1].value, "x: y");
  EXPECT_EQ((*settings)[1].line, 4);
  EXPECT_TRUE(ParseYamlSettings("a.yaml", "")->empty());
  EXPECT_TRUE(ParseYamlSettings("a.yaml", "# only a comment\n")->empty());
}

TEST(YamlSource, RefusalsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a: 1\nb: [1, 2]\n", "a.yaml line 2: b has a list, expected one value"},
      {"a:\n  b: 1\n", "a.yaml line 1: a has a map, expected one value"},
      {"a: 1\nb:\n", "a.yaml line 2: b has no value, expected one value"},
      {"a: 1\nb: 2\na: 3\n", "a.yaml line 3: a occurs twice, first in line 1"},
      {"- a\n- b\n", "a.yaml line 1: expected lines of the form `key: value`"},
      {"a: 1\n\tb: 2\n", "a.yaml line 2"},
      {"a: 1\nb: [1\n", "a.yaml line"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseYamlSettings("a.yaml", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(message)) << text;
  }
}

TEST(YamlSource, ASecondDocumentIsRefused) {
  EXPECT_EQ(ParseYamlSettings("a.yaml", "---\na: 1\n")->size(), 1u);
  const absl::Status status = ParseYamlSettings("a.yaml", "a: 1\n---\na: 2\n").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("a.yaml line 3: a second document begins"));
}

}  // namespace yaml_source_test
}  // namespace hotbed
