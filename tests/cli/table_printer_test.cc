#include "terminal/table_printer.h"

#include "gtest/gtest.h"

namespace hotbed {
namespace table_printer_test {

TEST(TablePrinter, FiguresStandRightAndWordsLeft) {
  TablePrinter table({"name", "rows", "state"});
  table.AddRow({"user", "1,000", "live"});
  table.AddRow({"a_long_name", "7", "DOWN"});
  table.AddRow({"", "-", ""});
  EXPECT_EQ(table.ToText(),
            "name          rows  state\n"
            "user         1,000  live\n"
            "a_long_name      7  DOWN\n"
            "                 -\n");
}

TEST(TablePrinter, AddressesAreWords) {
  TablePrinter table({"address"});
  table.AddRow({"127.0.0.1:7400"});
  table.AddRow({"[::1]:1"});
  EXPECT_EQ(table.ToText(2), "  address\n  127.0.0.1:7400\n  [::1]:1\n");
}

TEST(TablePrinter, CountsCharactersNotBytesAndDropsControls) {
  TablePrinter table({"n", "x"});
  table.AddRow({"Größe", "a"});
  table.AddRow({"e\x1b[2Jx", "b"});
  EXPECT_EQ(table.ToText(), "n      x\nGröße  a\ne[2Jx  b\n");
}

TEST(Text, Commas) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(18446744073709551615ull), "18,446,744,073,709,551,615");
}

TEST(Text, ShortCountsHaveThreeDigits) {
  EXPECT_EQ(ShortCount(0), "0");
  EXPECT_EQ(ShortCount(812), "812");
  EXPECT_EQ(ShortCount(999.6), "1.00k");
  EXPECT_EQ(ShortCount(45123), "45.1k");
  EXPECT_EQ(ShortCount(6'520'000), "6.52M");
  EXPECT_EQ(ShortCount(1.2e9), "1.20G");
}

TEST(Text, ShortSecondsChooseTheirUnit) {
  EXPECT_EQ(ShortSeconds(431e-6), "431 us");
  EXPECT_EQ(ShortSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(ShortSeconds(4.56), "4.56 s");
  EXPECT_EQ(ShortSeconds(0.99996), "1.00 s");
  EXPECT_EQ(ShortSeconds(59.96), "1m 0s");
  EXPECT_EQ(ShortSeconds(200), "3m 20s");
  EXPECT_EQ(ShortSeconds(7260), "2h 1m");
}

}  // namespace table_printer_test
}  // namespace hotbed
