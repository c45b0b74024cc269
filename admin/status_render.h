// A StatusPage as HTML, as text and as JSON. Pure functions.
#ifndef HOTBED_ADMIN_STATUS_RENDER_H_
#define HOTBED_ADMIN_STATUS_RENDER_H_

#include <string>
#include <vector>

#include "admin/admin_server.h"
#include "common/metrics.h"

namespace hotbed {

// Self-contained: no script and no outside resource; light or dark by the reader's setting. All
// text is escaped. Latencies and counters of `samples` follow the page's own tables.
std::string StatusAsHtml(const StatusPage& page, const std::vector<MetricSample>& samples);

// For a terminal: facts aligned, tables in columns. Control characters are dropped.
std::string StatusAsText(const StatusPage& page, const std::vector<MetricSample>& samples);

// `page.json` unchanged, or, where it is empty, the facts and tables as a document.
std::string StatusAsJson(const StatusPage& page);

// Whether a client with these request headers (null: not sent) prefers text to HTML:
// browsers ask for text/html by name, curl and wget do not.
bool PrefersText(const char* accept, const char* user_agent);

}  // namespace hotbed

#endif  // HOTBED_ADMIN_STATUS_RENDER_H_
