#include "server/net/bidi_stream.h"

#include <utility>

#include "common/check.h"
#include "server/net/stream_metrics.h"

namespace hotbed {

BidiStream::BidiStream(const Limits& limits, StreamWatch* watch)
    : limits_(limits),
      watch_(watch),
      accept_tag_(this, [](void* s, bool ok) { static_cast<BidiStream*>(s)->OnAcceptDone(ok); }),
      read_tag_(this, [](void* s, bool ok) { static_cast<BidiStream*>(s)->OnReadDone(ok); }),
      write_tag_(this, [](void* s, bool ok) { static_cast<BidiStream*>(s)->OnWriteDone(ok); }),
      finish_tag_(this, [](void* s, bool) { static_cast<BidiStream*>(s)->Unref(); }),
      done_tag_(this, [](void* s, bool) { static_cast<BidiStream*>(s)->OnCallDone(); }) {
  context_.AsyncNotifyWhenDone(&done_tag_);
}

BidiStream::~BidiStream() = default;

void BidiStream::Unref() {
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  watch_->Remove(this);
  delete this;
}

bool BidiStream::TryWatch() { return TryRef(&refs_); }

void BidiStream::Tick(int64_t now_ns) {
  void* message = nullptr;
  bool stalled = false;
  {
    absl::MutexLock lock(&mu_);
    if (held_.deadline_ns != 0 && now_ns >= held_.deadline_ns) message = TakeHeld(/*forced=*/true);
    const int64_t ticks_max = StreamWatch::TicksOf(limits_.write_timeout_ms);
    if (!(writing_ || finished_) || writes_begun_ != writes_seen_) {
      writes_seen_ = writes_begun_;
      stalled_ticks_ = 0;
    } else {
      stalled = ++stalled_ticks_ == StreamWatch::TicksOf(kStalledMs);
      if (stalled_ticks_ == ticks_max) {
        StreamMetrics::Get().streams_stalled.Add(1);
        context_.TryCancel();
      }
    }
  }
  if (stalled) OnStalled();
  if (message != nullptr) OnRoom(message);
}

void BidiStream::OnAcceptDone(bool ok) {
  if (!ok) {  // the server is shutting down; a call that never began gets no done tag
    Unref();
    return;
  }
  Ref();  // for the done tag; the reference of the accept becomes that of the read
  watch_->Add(this);
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

bool BidiStream::OpenRequest(uint64_t bytes, int64_t deadline_ns, void* message) {
  Ref();
  absl::MutexLock lock(&mu_);
  HOTBED_DCHECK(held_.message == nullptr) << "a second request while one is kept back";
  if (message != nullptr && !HasRoomFor(bytes) && !cancelled()) {
    held_ = {message, bytes, deadline_ns};
    return false;
  }
  ++open_requests_;
  open_bytes_ += bytes;
  return true;
}

void* BidiStream::TakeHeld(bool forced) {
  if (held_.message == nullptr || !(forced || HasRoomFor(held_.bytes))) return nullptr;
  ++open_requests_;
  open_bytes_ += held_.bytes;
  return std::exchange(held_, Held()).message;
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
  Ref();  // the write, and with it the request's reference, may end before this returns
  bool dropped = false;
  void* next = nullptr;
  {
    absl::MutexLock lock(&mu_);
    if (cancelled() || finished_) {
      EndRequest(bytes);
      next = TakeHeld(/*forced=*/true);
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
  if (next != nullptr) OnRoom(next);
  Unref();
}

void BidiStream::StartWrite() {
  writing_ = true;
  ++writes_begun_;
  Ref();
  grpc::WriteOptions options;
  options.set_no_compression();
  stream_.Write(writes_.front().answer, options, &write_tag_);
}

void BidiStream::OnWriteDone(bool ok) {
  uint64_t reserved = 0;
  void* next = nullptr;
  {
    absl::MutexLock lock(&mu_);
    reserved = writes_.front().reserved;
    EndRequest(writes_.front().bytes);
    next = TakeHeld(/*forced=*/false);
    writes_.pop_front();
    writing_ = false;
    if (!ok) no_more_reads_ = true;
    if (!writes_.empty() && !cancelled()) StartWrite();
    if (read_wanted_ && !no_more_reads_ && HasRoom() && !cancelled()) StartRead();
    MaybeFinish();
  }
  OnReleased(reserved);
  if (next != nullptr) OnRoom(next);
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
  ++writes_begun_;
  Ref();
  stream_.Finish(end_status_, &finish_tag_);
}

void BidiStream::OnCallDone() {
  std::deque<Outgoing> dropped;
  void* held = nullptr;
  {
    absl::MutexLock lock(&mu_);
    no_more_reads_ = true;
    if (!finished_) {
      cancelled_.store(true, std::memory_order_relaxed);
      // The write in flight stays in front: its own completion removes it.
      while (writes_.size() > (writing_ ? 1 : 0)) {
        dropped.push_back(std::move(writes_.back()));
        writes_.pop_back();
        EndRequest(dropped.back().bytes);
      }
    }
    held = TakeHeld(/*forced=*/true);
  }
  for (const Outgoing& outgoing : dropped) {
    OnReleased(outgoing.reserved);
    Unref();
  }
  if (held != nullptr) OnRoom(held);
  Unref();  // the done tag's
}

}  // namespace hotbed
