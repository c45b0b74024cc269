#include "security/certificate.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "security/server_security.h"

namespace hotbed {
namespace {

constexpr int64_t kNow = 1'800'000'000;

class CertificateTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/hotbed_certificates_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    ASSERT_TRUE(CreateAuthority(dir_, "test", 3650, kNow).ok());
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void Make(const std::string& name, AccessRole role, int64_t days = 30) {
    const absl::Status made = CreateCertificate(
        dir_, {.name = name, .role = role, .hosts = {"a.example", "10.0.0.1"}, .days = days}, false,
        kNow);
    ASSERT_TRUE(made.ok()) << made;
  }
  TlsFiles FilesOf(const std::string& name) const {
    return {absl::StrCat(dir_, "/", name, ".crt"), absl::StrCat(dir_, "/", name, ".key"),
            dir_ + "/ca.crt"};
  }

  std::string dir_;
};

TEST_F(CertificateTest, SaysWhatItWasMadeFor) {
  Make("s0", AccessRole::kServer);
  const auto read = ReadCertificates(dir_ + "/s0.crt");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 1);
  const Certificate& certificate = read->front();
  EXPECT_EQ(certificate.name, "s0");
  EXPECT_EQ(certificate.issuer, "test");
  EXPECT_EQ(certificate.roles, std::vector<AccessRole>{AccessRole::kServer});
  EXPECT_EQ(certificate.hosts, (std::vector<std::string>{"a.example", "10.0.0.1"}));
  EXPECT_EQ(certificate.not_after_s, kNow + 30 * kDayS);
  EXPECT_FALSE(certificate.authority);
  EXPECT_TRUE(ReadCertificates(dir_ + "/ca.crt")->front().authority);
  struct stat key = {};
  ASSERT_EQ(stat((dir_ + "/s0.key").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777, 0600);
}

TEST_F(CertificateTest, IsGoodForItsTimeItsKeyAndItsAuthority) {
  Make("s0", AccessRole::kServer);
  Make("s1", AccessRole::kServer);
  EXPECT_TRUE(CheckTlsFiles(FilesOf("s0"), kNow).ok());

  const absl::Status late = CheckTlsFiles(FilesOf("s0"), kNow + 31 * kDayS);
  EXPECT_NE(late.message().find("has expired"), std::string::npos) << late;
  const absl::Status early = CheckTlsFiles(FilesOf("s0"), kNow - kDayS);
  EXPECT_NE(early.message().find("check this machine's clock"), std::string::npos) << early;

  TlsFiles mixed = FilesOf("s0");
  mixed.key = FilesOf("s1").key;
  const absl::Status other_key = CheckTlsFiles(mixed, kNow);
  EXPECT_NE(other_key.message().find("is not the key of"), std::string::npos) << other_key;

  const std::string elsewhere = dir_ + "/other";
  ASSERT_TRUE(CreateAuthority(elsewhere, "other", 3650, kNow).ok());
  mixed = FilesOf("s0");
  mixed.authority = elsewhere + "/ca.crt";
  const absl::Status strange = CheckTlsFiles(mixed, kNow);
  EXPECT_NE(strange.message().find("not signed by"), std::string::npos) << strange;
}

TEST_F(CertificateTest, FilesThatAreMissingOrGarbageAreNamed) {
  Make("s0", AccessRole::kServer);
  TlsFiles files = FilesOf("s0");
  files.key = dir_ + "/none.key";
  EXPECT_EQ(CheckTlsFiles(files, kNow).code(), absl::StatusCode::kNotFound);
  files = FilesOf("s0");
  files.authority.clear();
  EXPECT_NE(CheckTlsFiles(files, kNow).message().find("--tls-ca"), std::string::npos);
  files = FilesOf("s0");
  files.key.clear();
  EXPECT_NE(CheckTlsFiles(files, kNow).message().find("--tls-key"), std::string::npos);
  for (const std::string& garbage : {std::string(), std::string("garbage\n"),
                                     std::string("-----BEGIN CERTIFICATE-----\nAAAA\n"
                                                 "-----END CERTIFICATE-----\n"),
                                     std::string(1 << 20, '-')}) {
    std::ofstream(dir_ + "/garbage.crt") << garbage;
    files = FilesOf("s0");
    files.certificate = dir_ + "/garbage.crt";
    const absl::Status status = CheckTlsFiles(files, kNow);
    EXPECT_NE(status.message().find("garbage.crt"), std::string::npos) << status;
  }
}

TEST_F(CertificateTest, NothingIsOverwrittenUnlessAskedFor) {
  Make("s0", AccessRole::kServer);
  EXPECT_EQ(CreateAuthority(dir_, "test", 10, kNow).code(), absl::StatusCode::kAlreadyExists);
  const CertificateRequest again = {
      .name = "s0", .role = AccessRole::kServer, .hosts = {}, .days = 90};
  EXPECT_EQ(CreateCertificate(dir_, again, false, kNow).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(CreateCertificate(dir_, again, true, kNow).ok());
  EXPECT_EQ(ReadCertificates(dir_ + "/s0.crt")->front().not_after_s, kNow + 90 * kDayS);
  EXPECT_TRUE(CheckTlsFiles(FilesOf("s0"), kNow).ok());
}

TEST_F(CertificateTest, NamesHostsAndDaysAreChecked) {
  for (const char* name : {"", "../s0", "a b", "a,URI:hotbed:role:operator", "ca", ".hidden"}) {
    EXPECT_EQ(CreateCertificate(dir_, {.name = name}, false, kNow).code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  EXPECT_FALSE(
      CreateCertificate(dir_, {.name = "x", .hosts = {"a,URI:hotbed:role:server"}}, false, kNow)
          .ok());
  EXPECT_FALSE(CreateCertificate(dir_, {.name = "x", .days = 0}, false, kNow).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/x.key"));
}

TEST_F(CertificateTest, WhoListensHasTheRoleServer) {
  // Valid now, since OpenServerSecurity asks the real clock.
  const int64_t now_s = Clock::Real()->WallUs() / 1'000'000;
  const std::string dir = dir_ + "/now";
  ASSERT_TRUE(CreateAuthority(dir, "now", 30, now_s).ok());
  for (const AccessRole role : {AccessRole::kServer, AccessRole::kTrainer}) {
    const std::string name = AccessRoleName(role);
    ASSERT_TRUE(CreateCertificate(dir, {.name = name, .role = role}, false, now_s).ok());
    const TlsFiles files = {absl::StrCat(dir, "/", name, ".crt"),
                            absl::StrCat(dir, "/", name, ".key"), dir + "/ca.crt"};
    const auto opened = OpenServerSecurity({.files = files}, "0.0.0.0:7400");
    EXPECT_EQ(opened.ok(), role == AccessRole::kServer) << opened.status();
  }
}

TEST_F(CertificateTest, PlaintextIsForLoopbackUnlessInsistedOn) {
  EXPECT_TRUE(OpenServerSecurity({}, "127.0.0.1:7400").ok());
  EXPECT_TRUE(OpenServerSecurity({.secure = "off"}, "[::1]:7400").ok());
  for (const char* secure : {"auto", "off"}) {
    const auto wide = OpenServerSecurity({.secure = secure}, "0.0.0.0:7400");
    EXPECT_NE(wide.status().message().find("--secure=off-beyond-loopback"), std::string::npos)
        << wide.status();
  }
  EXPECT_TRUE(OpenServerSecurity({.secure = "off-beyond-loopback"}, "0.0.0.0:7400").ok());
  EXPECT_FALSE(OpenServerSecurity({.secure = "on"}, "127.0.0.1:7400").ok());
  EXPECT_FALSE(OpenServerSecurity({.access_rules = "rules.yaml"}, "127.0.0.1:7400").ok());
  EXPECT_FALSE(OpenServerSecurity({.secure = "off", .files = FilesOf("s0")}, "127.0.0.1:1").ok());
}

TEST(ListensWideTest, OnlyLoopbackIsOutOfReach) {
  for (const char* narrow : {"127.0.0.1:0", "127.3.0.1:7", "localhost:7", "[::1]:7"}) {
    EXPECT_FALSE(ListensWide(narrow)) << narrow;
  }
  for (const char* wide : {"0.0.0.0:7", "[::]:7", ":7", "10.0.0.7:7", "s1.example:7"}) {
    EXPECT_TRUE(ListensWide(wide)) << wide;
  }
}

}  // namespace
}  // namespace hotbed
