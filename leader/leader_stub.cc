#include "leader/leader_stub.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <chrono>  // NOLINT(build/c++11): gRPC's deadlines
#include <utility>

#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "common/host_port.h"
#include "common/threads/await_for.h"
#include "security/channel_credentials.h"

namespace hotbed {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(5);
// The one that is taken for the leader gets so much more time to connect than the others.
constexpr absl::Duration kHeadStart = absl::Milliseconds(50);
// Between two calls while nobody leads.
constexpr absl::Duration kCallAgain = absl::Milliseconds(50);
// After a call whose end nobody has told.
constexpr absl::Duration kLostAgain = absl::Milliseconds(100);
// gRPC's deadlines cannot be infinite.
constexpr absl::Duration kTimeoutMax = absl::Hours(24);

absl::Duration Now() { return absl::Nanoseconds(Clock::Real()->NowNs()); }

}  // namespace

LeaderStub::LeaderStub(absl::string_view addresses, const ClientIdentity& identity,
                       grpc::ChannelArguments args)
    : identity_(identity), args_([&] {
        // A name may have the addresses of several coordinators: calls then take turns among those
        // that are connected.
        args.SetLoadBalancingPolicyName("round_robin");
        return args;
      }()) {
  absl::MutexLock lock(&mu_);
  for (const absl::string_view address : absl::StrSplit(addresses, ',')) {
    places_.push_back(MakePlace(std::string(address)));
  }
  named_ = places_.size();
}

std::shared_ptr<const LeaderStub::Place> LeaderStub::MakePlace(const std::string& address) const {
  auto place = std::make_shared<Place>();
  place->address = address;
  place->channel = grpc::CreateCustomChannel(address, ChannelCredentialsOf(identity_), args_);
  place->stub = v1::Coordinator::NewStub(place->channel);
  return place;
}

LeaderStub::Places LeaderStub::CurrentFirst() const {
  absl::MutexLock lock(&mu_);
  Places places = places_;
  std::rotate(places.begin(), places.begin() + static_cast<int64_t>(current_), places.end());
  return places;
}

std::string LeaderStub::current() const {
  absl::MutexLock lock(&mu_);
  return places_[current_]->address;
}

void LeaderStub::Choose(const std::string& address) {
  for (current_ = 0; current_ < places_.size(); ++current_) {
    if (places_[current_]->address == address) return;
  }
  places_.resize(named_);  // an earlier one that nobody has named is forgotten
  current_ = named_;
  places_.push_back(MakePlace(address));
}

bool LeaderStub::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  return !AwaitFor(&mu_, absl::Condition(&stopped_), duration);
}

void LeaderStub::Stop() {
  absl::MutexLock lock(&mu_);
  stopped_ = true;
}

std::shared_ptr<const LeaderStub::Place> LeaderStub::Find(absl::Duration timeout, bool patient) {
  const absl::Duration begin = Now();
  while (true) {
    const Places places = CurrentFirst();
    if (places.size() == 1) return places[0];  // gRPC waits by itself
    const bool head_start = places[0]->channel->GetState(true) != GRPC_CHANNEL_TRANSIENT_FAILURE &&
                            Now() < begin + kHeadStart;
    bool hopeless = true;
    for (size_t i = 0; i < places.size(); ++i) {
      const grpc_connectivity_state state = places[i]->channel->GetState(true);
      if (state != GRPC_CHANNEL_TRANSIENT_FAILURE) hopeless = false;
      if (state != GRPC_CHANNEL_READY || (i > 0 && head_start)) continue;
      absl::MutexLock lock(&mu_);
      const auto at = std::find(places_.begin(), places_.end(), places[i]);
      if (at != places_.end()) current_ = static_cast<size_t>(at - places_.begin());
      return places[i];
    }
    const bool over = Now() >= begin + timeout || (hopeless && !patient);
    if (over || !Pause(absl::ZeroDuration())) return places[0];
    // gRPC connects while somebody waits for it, and else looks at its connections now and then.
    for (const auto& place : places) {
      place->channel->WaitForConnected(std::chrono::system_clock::now() +
                                       absl::ToChronoNanoseconds(kLook));
    }
  }
}

bool LeaderStub::Learn(const Place& place, const grpc::Status& status,
                       const grpc::ClientContext& context) {
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE &&
      status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) {
    return false;
  }
  const auto& trailing = context.GetServerTrailingMetadata();
  const auto told = trailing.find(kStandsBy);
  const bool stands_by = told != trailing.end();
  const std::string leader =
      stands_by ? std::string(told->second.data(), told->second.size()) : std::string();
  absl::MutexLock lock(&mu_);
  if (leader != place.address && CheckHostPort(leader, 1).ok()) {
    Choose(leader);
  } else if (places_[current_]->address == place.address) {
    current_ = (current_ + 1) % places_.size();
  }
  return stands_by;
}

grpc::Status LeaderStub::Call(absl::Duration timeout, bool patient, Attempt attempt, Again again) {
  const absl::Duration end = Now() + std::min(timeout, kTimeoutMax);
  for (size_t tries = 1;; ++tries) {
    const std::shared_ptr<const Place> place = Find(end - Now(), patient);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(end - Now()));
    // One of several that breaks now is no reason to wait: another may lead.
    context.set_wait_for_ready(patient && CurrentFirst().size() == 1);
    const grpc::Status status = attempt(place->stub.get(), &context);
    if (status.ok()) return status;
    const bool stood_by = Learn(*place, status, context);
    const bool lost =
        again == Again::kUnavailable && status.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (!stood_by && !lost) return status;
    const absl::Duration pause = !stood_by         ? kLostAgain
                                 : tries <= named_ ? absl::ZeroDuration()
                                                   : kCallAgain;
    if (Now() + pause >= end || !Pause(pause)) return status;
  }
}

}  // namespace hotbed
