#include "tests/fault/load_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hotbed {
namespace {

std::string Quantiles(const char* name, std::vector<int64_t>* ns) {
  std::sort(ns->begin(), ns->end());
  std::string out;
  for (const double q : {50.0, 99.0, 99.9, 100.0}) {
    const size_t at = static_cast<size_t>(q / 100 * static_cast<double>(ns->size() - 1));
    absl::StrAppend(&out, "\"", name, "_us_p", q, "\": ", ns->empty() ? 0 : (*ns)[at] / 1000, ", ");
  }
  return out;
}

}  // namespace

LoadRecord::Bucket& LoadRecord::BucketOf(int64_t now_ns) {
  const auto at = static_cast<size_t>(static_cast<double>(now_ns - begin_ns_) / bucket_ms_ / 1e6);
  if (buckets_.size() <= at) buckets_.resize(at + 1);
  return buckets_[at];
}

void LoadRecord::NoteError(const absl::Status& status) {
  if (!first_error_.empty()) return;
  first_error_ = status.ToString();
  for (char& c : first_error_) c = c == '"' || c == '\\' || c == '\n' ? '\'' : c;
}

void LoadRecord::Pushed(uint32_t shard, int64_t sent_ns, int64_t now_ns, uint64_t ids) {
  absl::MutexLock lock(&mu_);
  ids_acknowledged_ += ids;
  push_ns_.push_back(now_ns - sent_ns);
  Bucket& bucket = BucketOf(now_ns);
  ++bucket.pushes;
  bucket.push_max_ns = std::max(bucket.push_max_ns, now_ns - sent_ns);
  if (now_ns - sent_ns > slow_ns_) slow_.push_back({shard, sent_ns, now_ns});
}

void LoadRecord::Pulled(int64_t sent_ns, int64_t now_ns) {
  absl::MutexLock lock(&mu_);
  pull_ns_.push_back(now_ns - sent_ns);
  Bucket& bucket = BucketOf(now_ns);
  ++bucket.pulls;
  bucket.pull_max_ns = std::max(bucket.pull_max_ns, now_ns - sent_ns);
}

void LoadRecord::Failed(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  ++errors_;
  NoteError(status);
}

void LoadRecord::Indeterminate(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  ++indeterminate_;
  NoteError(status);
}

void LoadRecord::Shed(uint64_t count) {
  absl::MutexLock lock(&mu_);
  shed_ += count;
}

void LoadRecord::Resolved(uint64_t ids) {
  absl::MutexLock lock(&mu_);
  ids_acknowledged_ += ids;
}

std::string LoadRecord::Json(size_t shards) {
  absl::MutexLock lock(&mu_);
  const auto over_time = [this](const char* name, auto value) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto append = [value](std::string* out, const Bucket& b) {
      absl::StrAppend(out, value(b));
    };
    return absl::StrCat("\"", name, "\": [", absl::StrJoin(buckets_, ",", append), "], ");
  };
  const auto append_slow = [](std::string* out, const Slow& s) {
    absl::StrAppend(out, "[", s.shard, ",", s.sent_ns, ",", s.acked_ns, "]");
  };
  return absl::StrCat(
      "{\"begin_ns\": ", begin_ns_, ", \"bucket_ms\": ", bucket_ms_, ", \"shards\": ", shards,
      ", \"pushes\": ", push_ns_.size(), ", \"pulls\": ", pull_ns_.size(),
      ", \"ids_acknowledged\": ", ids_acknowledged_, ", \"errors\": ", errors_,
      ", \"indeterminate\": ", indeterminate_, ", \"shed\": ", shed_, ", ",
      Quantiles("push", &push_ns_), Quantiles("pull", &pull_ns_),
      over_time("pushes_over_time", [](const Bucket& b) { return b.pushes; }),
      over_time("pulls_over_time", [](const Bucket& b) { return b.pulls; }),
      over_time("push_max_us_over_time", [](const Bucket& b) { return b.push_max_ns / 1000; }),
      over_time("pull_max_us_over_time", [](const Bucket& b) { return b.pull_max_ns / 1000; }),
      "\"first_error\": \"", first_error_, "\", \"slow\": [",
      absl::StrJoin(slow_, ",", append_slow), "]}");
}

}  // namespace hotbed
