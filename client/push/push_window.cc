#include "client/push/push_window.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr double kNewestShare = 1.0 / 8;
// Of a push's time, what may be expected to pass before its answer: the rest is for what is not
// expected.
constexpr int64_t kSlack = 4;  // a quarter is left

}  // namespace

bool PushWindow::Has(uint64_t bytes, int64_t left_ns) const {
  if (pushes_ == 0) return true;
  return pushes_ < pushes_max_ && bytes_ + bytes <= bytes_max_ &&
         ExpectedNs() <= left_ns - left_ns / kSlack;
}

PushWindow::Place PushWindow::Enter(uint64_t bytes, int64_t now_ns) {
  bytes_ += bytes;
  return {bytes, now_ns, pushes_++};
}

void PushWindow::Leave(const Place& place, int64_t now_ns) {
  bytes_ -= place.bytes;
  --pushes_;
  const double ns =
      static_cast<double>(now_ns - place.begun_ns) / static_cast<double>(place.before + 1);
  ns_per_push_ = ns_per_push_ == 0 ? ns : ns_per_push_ + (ns - ns_per_push_) * kNewestShare;
}

std::string PushWindow::ToString() const {
  return absl::StrCat(pushes_, " pushes of ", bytes_,
                      " bytes are still unanswered (limits: ", pushes_max_, " pushes, ", bytes_max_,
                      " bytes); one more would be answered in about ", ExpectedNs() / 1'000'000,
                      " ms");
}

}  // namespace hotbed
