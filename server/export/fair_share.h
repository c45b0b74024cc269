// Shares a limited number of places among callers: a caller gets another one while it has fewer
// than are free. So one alone gets half of the places, and always leaves room for another.
// Thread-compatible.
#ifndef HOTBED_SERVER_EXPORT_FAIR_SHARE_H_
#define HOTBED_SERVER_EXPORT_FAIR_SHARE_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hotbed {

class FairShare {
 public:
  // `used_for`: the places, in the plural, for errors.
  FairShare(size_t places, absl::string_view used_for) : places_(places), used_for_(used_for) {}

  // ResourceExhausted names what the caller has, what is free, and the limit.
  absl::Status Take(const std::string& caller) {
    const size_t free = places_ - taken_;
    const auto has = has_.find(caller);
    const size_t own = has == has_.end() ? 0 : has->second;
    if (own >= free) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "this connection has ", own, " ", used_for_, " on this server, and ", free, " of ",
          places_, " are free; allowed: fewer than are free. Ask again later"));
    }
    ++has_[caller];
    ++taken_;
    return absl::OkStatus();
  }
  // Gives back a place that was taken.
  void Give(const std::string& caller) {
    const auto has = has_.find(caller);
    if (--has->second == 0) has_.erase(has);
    --taken_;
  }

 private:
  const size_t places_;
  const std::string used_for_;
  size_t taken_ = 0;
  std::map<std::string, size_t> has_;
};

}  // namespace hotbed

#endif  // HOTBED_SERVER_EXPORT_FAIR_SHARE_H_
