#include "places/s3_files.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "places/s3_answers.h"

namespace hotbed {

std::string S3Path::text() const { return absl::StrCat("s3://", bucket, "/", key); }

// --- writing

absl::StatusOr<std::unique_ptr<S3Writer>> S3Writer::Begin(S3Path path, S3Requests* requests) {
  HOTBED_ASSIGN_OR_RETURN(const S3Answer answer, requests->Send({"POST", path.bucket, path.key,
                                                                 QueryOf({{"uploads", ""}})}));
  HOTBED_ASSIGN_OR_RETURN(std::string upload, UploadIdIn(answer.body));
  return std::unique_ptr<S3Writer>(new S3Writer(std::move(path), std::move(upload), requests));
}

S3Writer::~S3Writer() {
  EndUploads();
  if (finished_) return;
  (void)requests_.Send({"DELETE", path_.bucket, path_.key, QueryOf({{"uploadId", upload_}})});
}

absl::Status S3Writer::Append(absl::Span<const absl::string_view> pieces) {
  for (absl::string_view piece : pieces) {
    bytes_ += piece.size();
    while (!piece.empty()) {
      const size_t taken = std::min<size_t>(piece.size(), kS3PartBytes - part_.size());
      if (part_.empty() && parts_ > 0) part_.reserve(kS3PartBytes);
      part_.append(piece.data(), taken);
      piece.remove_prefix(taken);
      if (part_.size() == kS3PartBytes) HOTBED_RETURN_IF_ERROR(HandOver());
    }
  }
  return absl::OkStatus();
}

absl::Status S3Writer::HandOver() {
  if (parts_ == kS3PartsMax) {
    return absl::ResourceExhaustedError(absl::StrCat(path_.text(), " would have more than ",
                                                     kS3PartsMax, " parts of ", kS3PartBytes,
                                                     " bytes; cut the table into more shards"));
  }
  while (threads_.size() < kS3PartsInFlight) threads_.emplace_back([this] { UploadParts(); });
  absl::MutexLock lock(&mu_);
  const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return waiting_.size() + in_flight_ < kS3PartsInFlight || !error_.ok();
  };
  mu_.Await(absl::Condition(&has_room));
  HOTBED_RETURN_IF_ERROR(error_);
  waiting_.push_back({++parts_, std::move(part_)});
  part_.clear();
  return absl::OkStatus();
}

void S3Writer::UploadParts() {
  for (;;) {
    Part part;
    {
      absl::MutexLock lock(&mu_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return ends_ || !waiting_.empty();
      };
      mu_.Await(absl::Condition(&has_work));
      if (ends_) return;
      part = std::move(waiting_.front());
      waiting_.pop_front();
      ++in_flight_;
    }
    absl::StatusOr<std::string> etag = Upload(part);
    part.bytes = std::string();  // before another part may take its room
    absl::MutexLock lock(&mu_);
    --in_flight_;
    if (etag.ok()) {
      etags_[part.number] = *std::move(etag);
    } else if (error_.ok()) {
      error_ = etag.status();
    }
  }
}

absl::StatusOr<std::string> S3Writer::Upload(const Part& part) {
  HOTBED_ASSIGN_OR_RETURN(
      S3Answer answer,
      requests_.Send({"PUT", path_.bucket, path_.key,
                      QueryOf({{"partNumber", absl::StrCat(part.number)}, {"uploadId", upload_}}),
                      part.bytes}));
  return std::move(answer.etag);
}

absl::Status S3Writer::Finish() {
  std::vector<std::string> etags;
  if (parts_ == 0) {  // a small file needs no threads
    HOTBED_ASSIGN_OR_RETURN(etags.emplace_back(), Upload({1, std::move(part_)}));
    return MakeWhole(etags);
  }
  if (!part_.empty()) HOTBED_RETURN_IF_ERROR(HandOver());
  {
    absl::MutexLock lock(&mu_);
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return waiting_.empty() && in_flight_ == 0;
    };
    mu_.Await(absl::Condition(&done));
    HOTBED_RETURN_IF_ERROR(error_);
    for (auto& [number, etag] : etags_) etags.push_back(std::move(etag));
  }
  return MakeWhole(etags);
}

absl::Status S3Writer::MakeWhole(const std::vector<std::string>& etags) {
  const std::string body = CompletionOf(etags);
  S3Request request = {"POST", path_.bucket, path_.key, QueryOf({{"uploadId", upload_}}), body};
  request.completes = true;
  const absl::StatusOr<S3Answer> answer = requests_.Send(request);
  const absl::Status made = answer.ok() ? CompletedBy(answer->body) : answer.status();
  // It may be made already, where an answer was lost.
  if (absl::IsNotFound(made) || absl::IsUnavailable(made)) {
    const auto there = requests_.Send({"HEAD", path_.bucket, path_.key});
    if (!there.ok() || there->length != bytes_) return absl::AbortedError(made.message());
  } else {
    HOTBED_RETURN_IF_ERROR(made);
  }
  finished_ = true;
  return absl::OkStatus();
}

void S3Writer::EndUploads() {
  {
    absl::MutexLock lock(&mu_);
    ends_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

// --- reading

absl::StatusOr<std::unique_ptr<S3Reader>> S3Reader::Open(S3Path path, S3Requests* requests) {
  HOTBED_ASSIGN_OR_RETURN(const S3Answer answer, requests->Send({"HEAD", path.bucket, path.key}));
  return std::unique_ptr<S3Reader>(new S3Reader(std::move(path), answer.length, requests));
}

absl::StatusOr<uint64_t> S3Reader::ReadAt(uint64_t offset, uint64_t bytes, char* out) {
  bytes = std::min(bytes, size_ - std::min(offset, size_));
  const bool goes_on = offset == next_ && offset > 0;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done;
    if (at < window_at_ || at >= window_at_ + window_.size()) {
      const uint64_t ahead = goes_on ? kS3AheadBytes : 0;
      HOTBED_RETURN_IF_ERROR(Fetch(at, std::min(std::max(bytes - done, ahead), size_ - at)));
    }
    const uint64_t from = at - window_at_;
    const uint64_t taken = std::min(bytes - done, window_.size() - from);
    std::memcpy(out + done, window_.data() + from, taken);
    done += taken;
  }
  next_ = offset + bytes;
  return bytes;
}

absl::Status S3Reader::Fetch(uint64_t offset, uint64_t bytes) {
  S3Request request = {"GET", path_.bucket, path_.key};
  request.range = {offset, offset + bytes - 1};
  window_ = std::string();  // frees it before the next one comes in
  HOTBED_ASSIGN_OR_RETURN(S3Answer answer, requests_.Send(request));
  if (answer.body.size() != bytes) {
    return absl::DataLossError(absl::StrCat(path_.text(), ": ", bytes, " bytes from ", offset,
                                            " on were asked for, and ", answer.body.size(),
                                            " came"));
  }
  window_ = std::move(answer.body);
  window_at_ = offset;
  return absl::OkStatus();
}

}  // namespace hotbed
