#include "examples/words/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace text_source_test {

using testing::HasSubstr;

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/words_text_source_", name);
  std::ofstream(path) << text;
  chmod(path.c_str(), 0755);
  return path;
}

TEST(TextSourceTest, AFileIsReadAsItIs) {
  const auto text = ReadText(Write("plain", "a b\nc\n"), "/no/program", testing::TempDir());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "a b\nc\n");
  EXPECT_THAT(std::string(ReadText("/no/such/file", "", "").status().message()),
              HasSubstr("/no/such/file"));
}

TEST(TextSourceTest, TheProgramIsAskedForTheWholeBookOneVerseALine) {
  const std::string program = Write("echo", "#!/bin/sh\necho \"$@\"\n");
  const auto text = ReadText("", program, testing::TempDir());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "-f gen1:1-rev22:21\n");
}

TEST(TextSourceTest, AMissingProgramNamesItsPackage) {
  const auto text = ReadText("", "/no/such/bible", testing::TempDir());
  EXPECT_EQ(text.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("bible-kjv"));
}

TEST(TextSourceTest, AFailingProgramIsQuoted) {
  const std::string program = Write("fails", "#!/bin/sh\necho no data file >&2\nexit 3\n");
  const auto text = ReadText("", program, testing::TempDir());
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("no data file"));
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("exit code 3"));
}

}  // namespace text_source_test
}  // namespace hotbed
