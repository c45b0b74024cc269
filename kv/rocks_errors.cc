#include "kv/rocks_errors.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/clock.h"
#include "common/log.h"

namespace hotbed {
namespace {

constexpr int64_t kToldNsMin = 100'000'000;

}  // namespace

absl::Status ToStatus(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  // It reports a missing table under a name that it has not used since 2013.
  const std::string text =
      absl::StrCat(what, ": ", absl::StrReplaceAll(status.ToString(), {{".ldb", ".sst"}}));
  if (status.IsNotFound()) return absl::NotFoundError(text);
  if (status.IsCorruption()) return absl::DataLossError(text);
  if (status.IsNoSpace() || status.IsMemoryLimit() ||
      status.subcode() == rocksdb::Status::kSpaceLimit) {
    return absl::ResourceExhaustedError(text);
  }
  if (status.IsInvalidArgument() || status.IsNotSupported()) {
    return absl::InvalidArgumentError(text);
  }
  return absl::UnavailableError(text);
}

void RocksErrors::OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                                    rocksdb::Status* status) {
  using Reason = rocksdb::BackgroundErrorReason;
  using rocksdb::Status;
  const bool of_file = reason != Reason::kWriteCallback && reason != Reason::kMemTable;
  if (of_file && status->IsIOError() && status->severity() > Status::kHardError) {
    *status = Status(*status, Status::kHardError);
  }
  Tell(*status);
}

void RocksErrors::OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo& info) {
  absl::MutexLock lock(&mu_);
  if (info.new_bg_error.ok() && !error_.IsCorruption()) error_ = rocksdb::Status::OK();
}

void RocksErrors::Tell(const rocksdb::Status& status) {
  absl::MutexLock lock(&mu_);
  if (!error_.IsCorruption()) error_ = status;
  told_ns_ = Clock::Real()->NowNs();
  HOTBED_LOG(Error) << "key-value store: background error: " << status.ToString();
}

absl::Status RocksErrors::MayResume() const {
  absl::MutexLock lock(&mu_);
  if (error_.IsCorruption()) return ToStatus(error_, "only a new store helps");
  if (!error_.ok() && Clock::Real()->NowNs() - told_ns_ < kToldNsMin) {
    return ToStatus(error_, "just now");
  }
  return ToStatus(room_.error(), "it goes on by itself");
}

rocksdb::Status RocksErrors::error() const {
  absl::MutexLock lock(&mu_);
  return error_.ok() ? room_.error() : error_;
}

void RocksErrors::Clear() {
  absl::MutexLock lock(&mu_);
  error_ = rocksdb::Status::OK();
}

}  // namespace hotbed
