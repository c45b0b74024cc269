#include "security/refusals.h"

#include "common/log.h"

namespace hotbed {

Refusals::Refusals(const std::string& port)
    : port_(port),
      refused_("hotbed_access_refused_total",
               "Handshakes, calls, uses of tables, and pages of the admin port, refused for lack "
               "of a certificate, role or token.",
               {{"port", port}}) {}

void Refusals::Note(absl::string_view text) {
  refused_.Add(1);
  HOTBED_LOG_EVERY_S(Warning, 1) << "access refused on the " << port_ << " port: " << text;
}

}  // namespace hotbed
