#include "client/push/push_window.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

constexpr double kNewestShare = 1.0 / 8;
// A push is admitted if its expected time leaves this part of its deadline for the unexpected.
constexpr int64_t kSlackDivisor = 4;

}  // namespace

bool PushWindow::Admits(uint64_t bytes, int64_t left_ns) const {
  if (pushes_ == 0) return true;
  return pushes_ < pushes_max_ && bytes_ + bytes <= bytes_max_ &&
         ExpectedNs() <= left_ns - left_ns / kSlackDivisor;
}

PushWindow::Entry PushWindow::Enter(uint64_t bytes, int64_t now_ns) {
  bytes_ += bytes;
  return {bytes, now_ns, pushes_++};
}

void PushWindow::Leave(const Entry& entry, int64_t now_ns) {
  bytes_ -= entry.bytes;
  --pushes_;
  const double ns =
      static_cast<double>(now_ns - entry.begun_ns) / static_cast<double>(entry.before + 1);
  ns_per_push_ = ns_per_push_ == 0 ? ns : ns_per_push_ + (ns - ns_per_push_) * kNewestShare;
}

std::string PushWindow::ToString() const {
  return absl::StrCat(pushes_, " pushes of ", bytes_,
                      " bytes are still unanswered (limits: ", pushes_max_, " pushes, ", bytes_max_,
                      " bytes); one more would be answered in about ", ExpectedNs() / 1'000'000,
                      " ms");
}

}  // namespace hotbed
