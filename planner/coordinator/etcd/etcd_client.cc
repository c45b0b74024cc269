#include "planner/coordinator/etcd/etcd_client.h"

#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/files/file_system.h"
#include "common/status_macros.h"
#include "security/channel_credentials.h"

namespace hotbed {
namespace {

// How long one member may take to connect before the next is looked at.
constexpr absl::Duration kConnectSlice = absl::Milliseconds(50);

grpc::ChannelArguments ChannelArgumentsOfMember() {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // etcd closes connections that ping more often than once in 5 s.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000);
  args.SetMaxReceiveMessageSize(-1);  // of pages of a range
  args.SetMaxSendMessageSize(-1);     // limited by the transaction
  return args;
}

bool MemberFailed(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

bool TokenUnknown(const grpc::Status& status) {
  return absl::StrContains(status.error_message(), "invalid auth token") ||
         absl::StrContains(status.error_message(), "revision of auth store is old");
}

void SetDeadline(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

}  // namespace

EtcdClient::EtcdClient(EtcdOptions options) : options_(std::move(options)) {
  const auto credentials = NamedHostCredentialsOf(options_.files);
  for (const std::string& address : options_.address.members) {
    Member member;
    member.address = address;
    member.channel = grpc::CreateCustomChannel(address, credentials, ChannelArgumentsOfMember());
    member.kv = etcdserverpb::KV::NewStub(member.channel);
    member.lease = etcdserverpb::Lease::NewStub(member.channel);
    member.auth = etcdserverpb::Auth::NewStub(member.channel);
    members_.push_back(std::move(member));
  }
}

size_t EtcdClient::Choose() {
  size_t first = 0;
  {
    absl::MutexLock lock(&mu_);
    first = current_;
  }
  const absl::Time deadline = absl::Now() + options_.timeout;
  for (size_t i = 0; absl::Now() < deadline; ++i) {
    const size_t candidate = (first + i) % members_.size();
    if (members_[candidate].channel->WaitForConnected(
            absl::ToChronoTime(absl::Now() + kConnectSlice))) {
      absl::MutexLock lock(&mu_);
      current_ = candidate;
      return candidate;
    }
  }
  return first;
}

void EtcdClient::Leave(size_t failed) {
  absl::MutexLock lock(&mu_);
  if (current_ == failed) current_ = (failed + 1) % members_.size();
}

grpc::Status EtcdClient::LogIn(Member& member, std::string* token) {
  const absl::StatusOr<std::string> password = FileSystem::Real()->ReadAll(options_.password_file);
  if (!password.ok()) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            absl::StrCat("the file of the password: ", password.status().message())};
  }
  etcdserverpb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(std::string(absl::StripTrailingAsciiWhitespace(*password)));
  etcdserverpb::AuthenticateResponse response;
  grpc::ClientContext context;
  SetDeadline(options_.timeout, &context);
  grpc::Status status = member.auth->Authenticate(&context, request, &response);
  if (!status.ok()) return status;
  *token = response.token();
  absl::MutexLock lock(&mu_);
  token_ = *token;
  return status;
}

grpc::Status EtcdClient::CallOne(Member& member, const Method& method) {
  std::string token;
  {
    absl::MutexLock lock(&mu_);
    token = token_;
  }
  for (bool again = true;; again = false) {
    if (!options_.user.empty() && token.empty()) {
      if (grpc::Status status = LogIn(member, &token); !status.ok()) return status;
    }
    grpc::ClientContext context;
    SetDeadline(options_.timeout, &context);
    context.AddMetadata("hasleader", "true");  // a member that is cut off shall say so at once
    if (!token.empty()) context.AddMetadata("token", token);
    grpc::Status status = method(member, &context);
    if (!again || options_.user.empty() || !TokenUnknown(status)) return status;
    token.clear();
  }
}

absl::Status EtcdClient::Call(bool repeat, const Method& method) {
  for (size_t tried = 1;; ++tried) {
    const size_t chosen = Choose();
    const grpc::Status status = CallOne(members_[chosen], method);
    if (status.ok()) return absl::OkStatus();
    if (MemberFailed(status)) Leave(chosen);
    if (!MemberFailed(status) || !repeat || tried >= members_.size()) {
      return Explain(members_[chosen], status);
    }
  }
}

absl::Status EtcdClient::Explain(const Member& member, const grpc::Status& status) const {
  std::string text = absl::StrCat("etcd at ", member.address, ": ", status.error_message());
  if (absl::StrContains(text, "database space exceeded")) {
    absl::StrAppend(&text, ". Compact and defragment it ('etcdctl compact', 'etcdctl defrag', ",
                    "'etcdctl alarm disarm'), or raise its --quota-backend-bytes");
  } else if (absl::StrContains(text, "permission denied")) {
    absl::StrAppend(&text, ". The user \"", options_.user, "\" needs to read and write the keys ",
                    "that begin with \"", options_.address.prefix, "/hotbed\"");
  } else if (absl::StrContains(text, "user name is empty")) {
    absl::StrAppend(&text, ". It wants a user: give --etcd-user and --etcd-password-file");
  } else if (MemberFailed(status)) {
    absl::StrAppend(&text, " (of ", absl::StrJoin(options_.address.members, ","), ")");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), text);
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request) {
  etcdserverpb::RangeResponse response;
  HOTBED_RETURN_IF_ERROR(Call(/*repeat=*/true, [&](Member& member, grpc::ClientContext* context) {
    return member.kv->Range(context, request, &response);
  }));
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request) {
  etcdserverpb::TxnResponse response;
  HOTBED_RETURN_IF_ERROR(Call(/*repeat=*/false, [&](Member& member, grpc::ClientContext* context) {
    return member.kv->Txn(context, request, &response);
  }));
  return response;
}

absl::Status EtcdClient::Compact(int64_t revision) {
  etcdserverpb::CompactionRequest request;
  request.set_revision(revision);
  etcdserverpb::CompactionResponse response;
  return Call(/*repeat=*/true, [&](Member& member, grpc::ClientContext* context) {
    return member.kv->Compact(context, request, &response);
  });
}

absl::StatusOr<int64_t> EtcdClient::GrantLease(int64_t ttl_s) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(ttl_s);
  etcdserverpb::LeaseGrantResponse response;
  HOTBED_RETURN_IF_ERROR(Call(/*repeat=*/true, [&](Member& member, grpc::ClientContext* context) {
    return member.lease->LeaseGrant(context, request, &response);
  }));
  return response.id();
}

absl::StatusOr<int64_t> EtcdClient::KeepLease(int64_t lease) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  HOTBED_RETURN_IF_ERROR(Call(/*repeat=*/true, [&](Member& member, grpc::ClientContext* context) {
    const auto stream = member.lease->LeaseKeepAlive(context);
    const bool answered = stream->Write(request) && stream->Read(&response);
    // etcd does not end the stream by itself once it has read all.
    if (answered) context->TryCancel();
    const grpc::Status status = stream->Finish();
    return answered ? grpc::Status::OK : status;
  }));
  return response.ttl();
}

absl::Status EtcdClient::RevokeLease(int64_t lease) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseRevokeResponse response;
  return Call(/*repeat=*/true, [&](Member& member, grpc::ClientContext* context) {
    return member.lease->LeaseRevoke(context, request, &response);
  });
}

}  // namespace hotbed
