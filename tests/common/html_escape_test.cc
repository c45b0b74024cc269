#include "common/html_escape.h"

#include <gtest/gtest.h>

namespace hotbed {
namespace html_escape_test {

TEST(HtmlEscape, LeavesNothingThatMarkupCouldTakeForItsOwn) {
  EXPECT_EQ(HtmlEscape("a<b & \"c\" 'd'>"), "a&lt;b &amp; &quot;c&quot; &#39;d&#39;&gt;");
  EXPECT_EQ(HtmlEscape("plain"), "plain");
}

}  // namespace html_escape_test
}  // namespace hotbed
