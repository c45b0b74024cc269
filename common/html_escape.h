// Escapes text for HTML and SVG. A pure function.
#ifndef HOTBED_COMMON_HTML_ESCAPE_H_
#define HOTBED_COMMON_HTML_ESCAPE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace hotbed {

// `text` with & < > " and ' as character references, for content and quoted attributes.
std::string HtmlEscape(absl::string_view text);

}  // namespace hotbed

#endif  // HOTBED_COMMON_HTML_ESCAPE_H_
