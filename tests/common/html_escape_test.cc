#include "common/html_escape.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace {

TEST(HtmlEscape, LeavesNothingThatMarkupCouldTakeForItsOwn) {
  EXPECT_EQ(HtmlEscape("a<b & \"c\" 'd'>"), "a&lt;b &amp; &quot;c&quot; &#39;d&#39;&gt;");
  EXPECT_EQ(HtmlEscape("plain"), "plain");
}

}  // namespace
}  // namespace hotbed
