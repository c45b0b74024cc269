#include "server/bidi_stream.h"

#include <utility>

#include "common/check.h"

namespace hotbed {

BidiStream::BidiStream(const Limits& limits)
    : limits_(limits),
      accept_tag_(this, [](void* s, bool ok) { static_cast<BidiStream*>(s)->OnAcceptDone(ok); }),
      read_tag_(this, [](void* s, bool ok) { static_cast<BidiStream*>(s)->OnReadDone(ok); }),
      write_tag_(this, [](void* s, bool ok) { static_cast<BidiStream*>(s)->OnWriteDone(ok); }),
      finish_tag_(this, [](void* s, bool) { static_cast<BidiStream*>(s)->Unref(); }),
      done_tag_(this, [](void* s, bool) { static_cast<BidiStream*>(s)->OnCallDone(); }) {
  context_.AsyncNotifyWhenDone(&done_tag_);
}

BidiStream::~BidiStream() = default;

void BidiStream::Unref() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void BidiStream::OnAcceptDone(bool ok) {
  if (!ok) {  // the server is shutting down; the done tag never comes for a call that never began
    Unref();
    return;
  }
  Ref();  // the done tag; the accept's reference goes on as the read's
  grpc::Status refusal;
  if (OnAccepted(&refusal)) {
    absl::MutexLock lock(&mu_);
    StartRead();
  } else {
    Fail(std::move(refusal));
  }
  Unref();
}

void BidiStream::StartRead() {
  read_wanted_ = false;
  Ref();
  stream_.Read(&incoming_, &read_tag_);
}

void BidiStream::OnReadDone(bool ok) {
  if (ok && !cancelled()) {
    grpc::ByteBuffer message;
    message.Swap(&incoming_);
    OnMessage(&message);
  } else {
    absl::MutexLock lock(&mu_);
    no_more_reads_ = true;
    MaybeFinish();
  }
  Unref();
}

void BidiStream::OpenRequest(uint64_t bytes) {
  Ref();
  absl::MutexLock lock(&mu_);
  ++open_requests_;
  open_bytes_ += bytes;
}

void BidiStream::ReadOn() {
  absl::MutexLock lock(&mu_);
  if (no_more_reads_ || finished_) return;
  if (HasRoom() && !cancelled()) {
    StartRead();
  } else {
    read_wanted_ = true;
  }
}

void BidiStream::Answer(grpc::ByteBuffer* answer, uint64_t bytes, uint64_t reserved, bool greets) {
  Ref();  // the write may end, and with it the request's reference, before this returns
  bool dropped = false;
  {
    absl::MutexLock lock(&mu_);
    if (cancelled() || finished_) {
      EndRequest(bytes);
      dropped = true;
    } else {
      writes_.emplace_back();
      writes_.back().answer.Swap(answer);
      writes_.back().bytes = bytes;
      writes_.back().reserved = reserved;
      if (greets) greeted_.store(true, std::memory_order_release);
      if (!writing_) StartWrite();
    }
  }
  if (dropped) {
    OnReleased(reserved);
    Unref();  // the request's
  }
  Unref();
}

void BidiStream::StartWrite() {
  writing_ = true;
  Ref();
  grpc::WriteOptions options;
  options.set_no_compression();
  stream_.Write(writes_.front().answer, options, &write_tag_);
}

void BidiStream::OnWriteDone(bool ok) {
  uint64_t reserved = 0;
  {
    absl::MutexLock lock(&mu_);
    reserved = writes_.front().reserved;
    EndRequest(writes_.front().bytes);
    writes_.pop_front();
    writing_ = false;
    if (!ok) no_more_reads_ = true;
    if (!writes_.empty() && !cancelled()) StartWrite();
    if (read_wanted_ && !no_more_reads_ && HasRoom() && !cancelled()) StartRead();
    MaybeFinish();
  }
  OnReleased(reserved);
  Unref();  // the request's
  Unref();  // the write's
}

void BidiStream::EndRequest(uint64_t bytes) {
  HOTBED_DCHECK(open_requests_ > 0 && open_bytes_ >= bytes) << "a request ended twice";
  --open_requests_;
  open_bytes_ -= bytes;
}

void BidiStream::Fail(grpc::Status status) {
  absl::MutexLock lock(&mu_);
  no_more_reads_ = true;
  if (end_status_.ok()) end_status_ = std::move(status);
  MaybeFinish();
}

void BidiStream::MaybeFinish() {
  if (!no_more_reads_ || finished_ || writing_ || open_requests_ > 0 || cancelled()) return;
  finished_ = true;
  Ref();
  stream_.Finish(end_status_, &finish_tag_);
}

void BidiStream::OnCallDone() {
  std::deque<Outgoing> dropped;
  {
    absl::MutexLock lock(&mu_);
    no_more_reads_ = true;
    if (!finished_) {
      cancelled_.store(true, std::memory_order_relaxed);
      // The write under way keeps its place: its own completion takes it out.
      while (writes_.size() > (writing_ ? 1 : 0)) {
        dropped.push_back(std::move(writes_.back()));
        writes_.pop_back();
        EndRequest(dropped.back().bytes);
      }
    }
  }
  for (const Outgoing& outgoing : dropped) {
    OnReleased(outgoing.reserved);
    Unref();
  }
  Unref();  // the done tag's
}

}  // namespace hotbed
