#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/clock.h"
#include "security/channel_credentials.h"
#include "security/server_credentials.h"

namespace hotbed {
namespace {

// Tells the caller of a method whether it may use the table "ads".
class TableService : public grpc::CallbackGenericService {
 public:
  TableAccessOf tables_of;

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Answer : public grpc::ServerGenericBidiReactor {
     public:
      explicit Answer(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };
    const std::string method = context->method().substr(context->method().rfind('/') + 1);
    const std::unique_ptr<TableAccess> tables = tables_of(*context, method);
    const absl::Status may = tables == nullptr ? absl::OkStatus() : tables->Check("ads");
    if (may.ok()) return new Answer({grpc::StatusCode::UNIMPLEMENTED, "may"});
    return new Answer({grpc::StatusCode::PERMISSION_DENIED, std::string(may.message())});
  }
};

// A server that knows no method: who passes the gate is told UNIMPLEMENTED.
class CredentialsTest : public testing::Test {
 protected:
  static constexpr grpc::StatusCode kPassed = grpc::StatusCode::UNIMPLEMENTED;

  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hotbed_credentials_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    now_s_ = Clock::Real()->WallUs() / 1'000'000;
    ASSERT_TRUE(CreateAuthority(dir_, "test", 30, now_s_).ok());
    Make("s0", AccessRole::kServer);
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown();
    std::filesystem::remove_all(dir_);
  }

  void Make(const std::string& name, AccessRole role, bool replace = false) {
    const absl::Status made =
        CreateCertificate(dir_, {.name = name, .role = role, .days = 2}, replace, now_s_);
    ASSERT_TRUE(made.ok()) << made;
  }
  TlsFiles FilesOf(const std::string& name) const {
    return {absl::StrCat(dir_, "/", name, ".crt"), absl::StrCat(dir_, "/", name, ".key"),
            dir_ + "/ca.crt"};
  }

  void Serve(const std::string& certificate, const std::string& rules = "") {
    auto opened = WatchedRules::Open(rules);
    ASSERT_TRUE(opened.ok()) << opened.status();
    ServerSecurity security = {.files = FilesOf(certificate), .rules = *std::move(opened)};
    grpc::ServerBuilder builder;
    const std::shared_ptr<CallAccess> access = CallAccess::Of(security, "test");
    service_.tables_of = TableAccessBy(access);
    builder.AddListeningPort("127.0.0.1:0", ServerCredentialsOf(security, access), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  grpc::Status Call(const ClientIdentity& identity, const std::string& method) const {
    return Call(ChannelCredentialsOf(identity), method);
  }
  grpc::Status Call(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                    const std::string& method) const {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    grpc::GenericStub stub(
        grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port_), credentials, args));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    const grpc::Slice nothing("");
    grpc::ByteBuffer request(&nothing, 1);
    grpc::ByteBuffer reply;
    grpc::Status status;
    absl::Notification done;
    stub.UnaryCall(&context, absl::StrCat("/hotbed.v1.Any/", method), {}, &request, &reply,
                   [&](grpc::Status answered) {
                     status = std::move(answered);
                     done.Notify();
                   });
    done.WaitForNotification();
    return status;
  }

  std::string dir_;
  int64_t now_s_ = 0;
  int port_ = 0;
  TableService service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(CredentialsTest, RolesOfCertificatesDecideEachCall) {
  Make("web", AccessRole::kReader);
  Make("job", AccessRole::kTrainer);
  Serve("s0");
  EXPECT_EQ(Call({.files = FilesOf("web")}, "Lookup").error_code(), kPassed);
  EXPECT_EQ(Call({.files = FilesOf("job")}, "Push").error_code(), kPassed);
  EXPECT_EQ(Call({.files = FilesOf("s0")}, "Transfer").error_code(), kPassed);
  const grpc::Status refused = Call({.files = FilesOf("web")}, "Push");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(refused.error_message(),
            "\"web\" may not call Push: role reader by default does not include it");
  EXPECT_EQ(Call({.files = FilesOf("job")}, "Transfer").error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
}

TEST_F(CredentialsTest, ATokenStandsForACertificate) {
  std::ofstream(dir_ + "/rules.yaml")
      << "tokens: [{name: dashboard, role: reader, sha256: " << Sha256Hex("secret") << "}]\n";
  std::ofstream(dir_ + "/token") << "secret\n";
  std::ofstream(dir_ + "/wrong") << "other\n";
  Serve("s0", dir_ + "/rules.yaml");
  const TlsFiles authority = {.authority = dir_ + "/ca.crt"};
  ClientIdentity dashboard = {.files = authority, .token_file = dir_ + "/token"};
  EXPECT_TRUE(CheckIdentity(dashboard).ok());
  EXPECT_EQ(Call(dashboard, "Lookup").error_code(), kPassed);
  EXPECT_EQ(Call(dashboard, "Push").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  dashboard.token_file = dir_ + "/wrong";
  EXPECT_EQ(Call(dashboard, "Lookup").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Call({.files = authority}, "Lookup").error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_FALSE(CheckIdentity({.token_file = dir_ + "/token"}).ok());  // in plaintext
}

TEST_F(CredentialsTest, StrangersGetNoConnection) {
  Make("web", AccessRole::kReader);
  Serve("s0");
  EXPECT_EQ(Call(grpc::InsecureChannelCredentials(), "Lookup").error_code(),
            grpc::StatusCode::UNAVAILABLE);
  // Signed by somebody else.
  const std::string elsewhere = dir_ + "/other";
  ASSERT_TRUE(CreateAuthority(elsewhere, "other", 30, now_s_).ok());
  ASSERT_TRUE(
      CreateCertificate(elsewhere, {.name = "web", .role = AccessRole::kOperator}, false, now_s_)
          .ok());
  const TlsFiles forged = {elsewhere + "/web.crt", elsewhere + "/web.key", dir_ + "/ca.crt"};
  EXPECT_EQ(Call({.files = forged}, "Lookup").error_code(), grpc::StatusCode::UNAVAILABLE);
  // Expired yesterday.
  ASSERT_TRUE(CreateCertificate(dir_, {.name = "old", .role = AccessRole::kReader, .days = 1},
                                false, now_s_ - 2 * kDayS)
                  .ok());
  EXPECT_EQ(Call({.files = FilesOf("old")}, "Lookup").error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(CredentialsTest, ATrainersCertificateDoesNotPassForAServers) {
  Make("job", AccessRole::kTrainer);
  Serve("job");
  const grpc::Status status = Call({.files = FilesOf("job")}, "Lookup");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
}

TEST_F(CredentialsTest, NewCertificatesAreTakenWhileTheServerRuns) {
  Make("web", AccessRole::kReader);
  Serve("s0");
  ASSERT_EQ(Call({.files = FilesOf("web")}, "Lookup").error_code(), kPassed);
  // Everything under another authority, in the same files.
  std::filesystem::remove(dir_ + "/ca.key");
  std::filesystem::remove(dir_ + "/ca.crt");
  ASSERT_TRUE(CreateAuthority(dir_, "second", 30, now_s_).ok());
  Make("s0", AccessRole::kServer, /*replace=*/true);
  Make("web", AccessRole::kReader, /*replace=*/true);
  Make("fresh", AccessRole::kReader);
  // `fresh` knows the second authority alone: it gets through once the server has read its files
  // again. `web` does once its own side has, too.
  for (const char* name : {"fresh", "web"}) {
    grpc::Status status;
    for (int i = 0; i < 100; ++i) {
      status = Call({.files = FilesOf(name)}, "Lookup");
      if (status.error_code() == kPassed) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    EXPECT_EQ(status.error_code(), kPassed) << name << ": " << status.error_message();
  }
}

TEST_F(CredentialsTest, TablesAreDecidedForCertificatesAndTokens) {
  const std::string rules = dir_ + "/tables.yaml";
  std::ofstream(rules) << "rules:\n"
                          "  - {role: reader, methods: [Lookup], tables: [news]}\n"
                          "  - {role: trainer, methods: [Push], tables: [a*]}\n"
                          "tokens:\n  - {name: page, role: reader, sha256: "
                       << Sha256Hex("secret") << "}\n";
  std::ofstream(dir_ + "/token") << "secret\n";
  Serve("s0", rules);
  Make("job", AccessRole::kTrainer);
  Make("web", AccessRole::kReader);
  Make("admin", AccessRole::kOperator);
  EXPECT_EQ(Call({.files = FilesOf("job")}, "Push").error_code(), kPassed);
  EXPECT_EQ(Call({.files = FilesOf("admin")}, "Push").error_code(), kPassed) << "by default";
  const grpc::Status refused = Call({.files = FilesOf("web")}, "Lookup");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_NE(refused.error_message().find("\"web\" may not call Lookup with table ads"),
            std::string::npos)
      << refused.error_message();
  ClientIdentity page = {.token_file = dir_ + "/token"};
  page.files.authority = dir_ + "/ca.crt";
  EXPECT_NE(Call(page, "Lookup").error_message().find("\"page\" may not call Lookup with table"),
            std::string::npos);
}

}  // namespace
}  // namespace hotbed
