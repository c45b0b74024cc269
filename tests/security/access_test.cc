#include "security/access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "proto/changes.pb.h"
#include "proto/checkpoint.pb.h"
#include "proto/control.pb.h"
#include "proto/data.pb.h"
#include "proto/health.pb.h"
#include "proto/reflection.pb.h"
#include "proto/replica.pb.h"
#include "proto/serving.pb.h"
#include "proto/softmax.pb.h"
#include "proto/top_k.pb.h"
#include "proto/vocabulary.pb.h"

namespace hotbed {
namespace {

AccessRules Parsed(const std::string& yaml) {
  auto rules = AccessRules::Parse("rules.yaml", yaml);
  EXPECT_TRUE(rules.ok()) << rules.status();
  return rules.ok() ? *rules : AccessRules();
}

bool May(const AccessRules& rules, AccessRole role, absl::string_view method) {
  return rules.Check({.name = "x", .roles = {role}}, method).ok();
}

TEST(AccessRulesTest, DefaultsGiveEachRoleItsWork) {
  const AccessRules rules;
  for (const char* method : {"Lookup", "Pull", "GetClusterMap", "WatchClusterMap"}) {
    EXPECT_TRUE(May(rules, AccessRole::kReader, method)) << method;
    EXPECT_TRUE(May(rules, AccessRole::kTrainer, method)) << method;
    EXPECT_TRUE(May(rules, AccessRole::kOperator, method)) << method;
  }
  for (const char* method : {"Push", "CreateTable", "OpenSession", "Train"}) {
    EXPECT_FALSE(May(rules, AccessRole::kReader, method)) << method;
    EXPECT_TRUE(May(rules, AccessRole::kTrainer, method)) << method;
  }
  for (const char* method : {"DropTable", "MoveShards", "DrainServer", "RebuildMetadata"}) {
    EXPECT_FALSE(May(rules, AccessRole::kTrainer, method)) << method;
    EXPECT_TRUE(May(rules, AccessRole::kOperator, method)) << method;
    EXPECT_FALSE(May(rules, AccessRole::kServer, method)) << method;
  }
  for (const char* method : {"Transfer", "RegisterServer", "Attend", "ActivateShards"}) {
    EXPECT_FALSE(May(rules, AccessRole::kOperator, method)) << method;
    EXPECT_TRUE(May(rules, AccessRole::kServer, method)) << method;
  }
  EXPECT_FALSE(rules.Check({.name = "nobody"}, "Lookup").ok());
}

TEST(AccessRulesTest, KnowsEveryMethodOfTheProtocol) {
  // Each use keeps a file's descriptor in the program.
  for (const google::protobuf::Message* used :
       std::initializer_list<const google::protobuf::Message*>{
           &v1::ClusterMap::default_instance(), &v1::PullHeader::default_instance(),
           &v1::TransferHeader::default_instance(), &v1::BeginSaveRequest::default_instance(),
           &v1::ListRowsRequest::default_instance(), &v1::ServingMap::default_instance(),
           &v1::TopKRequest::default_instance(), &v1::SoftmaxRequest::default_instance(),
           &v1::NumberRequest::default_instance(),
           &grpc::health::v1::HealthCheckRequest::default_instance(),
           &grpc::reflection::v1alpha::ServerReflectionRequest::default_instance()}) {
    ASSERT_NE(used->GetDescriptor(), nullptr);
  }
  int methods = 0;
  for (const char* file : {"proto/control.proto", "proto/data.proto", "proto/replica.proto",
                           "proto/health.proto", "proto/reflection.proto", "proto/checkpoint.proto",
                           "proto/changes.proto", "proto/serving.proto", "proto/softmax.proto",
                           "proto/top_k.proto", "proto/vocabulary.proto"}) {
    const auto* const found =
        google::protobuf::DescriptorPool::generated_pool()->FindFileByName(file);
    ASSERT_NE(found, nullptr) << file;
    for (int s = 0; s < found->service_count(); ++s) {
      for (int m = 0; m < found->service(s)->method_count(); ++m, ++methods) {
        const std::string& name = found->service(s)->method(m)->name();
        EXPECT_TRUE(AccessRules::Knows(name))
            << name << ": who may call it? Add it to a role in security/access.cc";
      }
    }
  }
  EXPECT_GT(methods, 25);
  EXPECT_FALSE(AccessRules::Knows("Steal"));
}

TEST(AccessRulesTest, ARuleReplacesTheDefaultOfItsRoleAndIsNamedByItsRefusal) {
  const AccessRules rules = Parsed("rules:\n  - role: reader\n    methods: [Lookup]\n");
  EXPECT_TRUE(May(rules, AccessRole::kReader, "Lookup"));
  const absl::Status refused = rules.Check({.name = "web", .roles = {AccessRole::kReader}}, "Pull");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(refused.message(),
            "\"web\" may not call Pull: role reader by rules.yaml line 2 does not include it");
  EXPECT_TRUE(May(rules, AccessRole::kTrainer, "Pull"));
}

TEST(AccessRulesTest, RulesOfARoleAddUpAndMayBeLimitedToTables) {
  const AccessRules rules = Parsed(
      "rules:\n"
      "  - {role: trainer, methods: [GetClusterMap, OpenSession]}\n"
      "  - {role: trainer, methods: [Pull, Push], tables: [ads.*, shared]}\n"
      "  - {role: trainer, methods: [Pull], tables: ['news?']}\n"
      "  - {role: reader, methods: [Lookup]}\n");
  EXPECT_TRUE(rules.names_tables());
  const Caller trainer = {.name = "job", .roles = {AccessRole::kTrainer}};
  const auto may = [&](const char* method, const char* table) {
    return rules.CheckTable(trainer, method, table).ok();
  };
  EXPECT_TRUE(rules.Check(trainer, "GetClusterMap").ok());
  EXPECT_TRUE(rules.Check(trainer, "Push").ok()) << "with some tables";
  EXPECT_TRUE(may("Push", "ads.user"));
  EXPECT_TRUE(may("Push", "ads./deep"));
  EXPECT_TRUE(may("Push", "shared"));
  EXPECT_FALSE(may("Push", "shared2"));
  EXPECT_FALSE(may("Push", "ads"));
  EXPECT_FALSE(may("Push", "news1"));
  EXPECT_TRUE(may("Pull", "news1"));
  EXPECT_FALSE(may("Pull", "news12"));
  EXPECT_FALSE(may("DropTable", "shared"));
  EXPECT_FALSE(rules.AllTables(trainer, "Pull"));
  const Caller both = {.name = "b", .roles = {AccessRole::kTrainer, AccessRole::kReader}};
  EXPECT_TRUE(rules.AllTables(both, "Lookup"));
  EXPECT_TRUE(rules.CheckTable(both, "Lookup", "any").ok());
  EXPECT_EQ(rules.CheckTable(trainer, "Push", "billing").message(),
            "\"job\" may not call Push with table billing: role trainer by rules.yaml line 2, line "
            "3, line 4 does not include it");
  EXPECT_EQ(rules.CheckTable(trainer, "Push", "a\nW forged").message(),
            "\"job\" may not call Push with table a\\nW forged: role trainer by rules.yaml line 2, "
            "line 3, line 4 does not include it");
  EXPECT_LT(rules.CheckTable(trainer, "Push", std::string(9999, 'x')).message().size(), 250u);
  EXPECT_EQ(
      rules.RefuseBeyondTables(trainer, "CreateTable", "from a checkpoint").message(),
      "\"job\" may not call CreateTable from a checkpoint, which needs a rule without tables: "
      "role trainer by rules.yaml line 2, line 3, line 4 does not include it");
  EXPECT_FALSE(AccessRules().names_tables());
  EXPECT_TRUE(AccessRules().AllTables(trainer, "Push"));
}

TEST(AccessRulesTest, AllDoesNotIncludeTheCallsBetweenServers) {
  const AccessRules rules = Parsed("rules:\n  - role: trainer\n    methods: ['*']\n");
  EXPECT_TRUE(May(rules, AccessRole::kTrainer, "DropTable"));
  EXPECT_FALSE(May(rules, AccessRole::kTrainer, "Transfer"));
}

TEST(AccessRulesTest, TokensAreKnownByTheirHash) {
  // The hash of "abc" is the example of FIPS 180-4.
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const AccessRules rules = Parsed(absl::StrCat(
      "tokens:\n  - {name: dashboard, role: reader, sha256: ", Sha256Hex("secret"), "}\n"));
  const auto caller = rules.CallerOfToken("secret");
  ASSERT_TRUE(caller.has_value());
  EXPECT_EQ(caller->name, "dashboard");
  EXPECT_TRUE(rules.Check(*caller, "Lookup").ok());
  EXPECT_FALSE(rules.Check(*caller, "Push").ok());
  EXPECT_FALSE(rules.CallerOfToken("secrets").has_value());
  EXPECT_FALSE(rules.CallerOfToken("").has_value());
}

TEST(AccessRulesTest, AnythingUnexpectedIsRefusedWithItsLine) {
  const std::string hash = Sha256Hex("x");
  const struct {
    std::string yaml, line, text;
  } cases[] = {
      {"rule: []\n", "line 1", "unknown key rule"},
      {"rules: reader\n", "line 1", "must be a list"},
      {"rules:\n  - role: king\n    methods: []\n", "line 2", "allowed: reader"},
      {"rules:\n  - role: reader\n    methods: [Steal]\n", "line 3", "unknown method Steal"},
      {"rules:\n  - role: reader\n", "line 2", "role, methods"},
      {"rules:\n  - {role: reader, methods: [], methods: []}\n", "line 2", "a second time"},
      {"rules:\n  - {role: reader, methods: [Pull], tables: }\n", "line 2", "at least one"},
      {"rules:\n  - {role: reader, methods: [Pull], tables: []}\n", "line 2", "at least one"},
      {"rules:\n  - {role: reader, methods: [Pull], tables: a}\n", "line 2", "must be a list"},
      {"rules:\n  - {role: reader, methods: ['*'], tables: [a]}\n", "line 2",
       "method * cannot be limited to tables"},
      {"rules:\n  - {role: operator, methods: [MoveShards], tables: [a]}\n", "line 2",
       "method MoveShards cannot be limited to tables"},
      {"rules:\n  - {role: trainer, methods: [OpenSession], tables: [a]}\n", "line 2",
       "method OpenSession cannot be limited to tables"},
      {"rules:\n  - {role: trainer, methods: [Train], tables: [a]}\n", "line 2",
       "method Train cannot be limited to tables"},
      {"tokens:\n  - {name: a, role: reader, sha256: abc}\n", "line 2", "64 hexadecimal"},
      {absl::StrCat("tokens:\n  - {name: a, role: reader, sha256: ", hash,
                    "}\n  - {name: b, role: trainer, sha256: ", hash, "}\n"),
       "line 3", "a second token"},
      {absl::StrCat("tokens:\n  - {name: a, role: reader, sha256: ", hash, ", colour: red}\n"),
       "line 2", "unknown key colour"},
      {"rules: [\n", "line", ""},
  };
  for (const auto& c : cases) {
    const auto rules = AccessRules::Parse("f.yaml", c.yaml);
    ASSERT_FALSE(rules.ok()) << c.yaml;
    const std::string text(rules.status().message());
    EXPECT_NE(text.find(absl::StrCat("f.yaml ", c.line)), std::string::npos) << text;
    EXPECT_NE(text.find(c.text), std::string::npos) << text;
  }
}

class WatchedRulesTest : public testing::Test {
 protected:
  void Write(const std::string& text) {
    const std::string beside = path_ + ".new";
    std::ofstream(beside) << text;
    ASSERT_EQ(rename(beside.c_str(), path_.c_str()), 0);
  }
  bool ReaderMay(const std::string& method) {
    return May(*rules_->Get(now_ns_ += 2'000'000'000), AccessRole::kReader, method);
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/rules_", getpid(), ".yaml");
  std::unique_ptr<WatchedRules> rules_;
  int64_t now_ns_ = 1;
};

TEST_F(WatchedRulesTest, AChangeHoldsWithinASecondAndABrokenOneDoesNot) {
  Write("rules: [{role: reader, methods: [Lookup]}]\n");
  auto opened = WatchedRules::Open(path_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  rules_ = *std::move(opened);
  EXPECT_FALSE(ReaderMay("Pull"));
  Write("rules: [{role: reader, methods: [Lookup, Pull]}]\n");
  EXPECT_TRUE(ReaderMay("Pull"));
  EXPECT_EQ(rules_->version(), 1);
  Write("rules: [{role: reader, methods: [Lookup, Pul]}]\n");
  EXPECT_TRUE(ReaderMay("Pull"));
  EXPECT_EQ(rules_->version(), 1);
  unlink(path_.c_str());
  EXPECT_TRUE(ReaderMay("Pull"));
  Write("rules: [{role: reader, methods: []}]\n");
  EXPECT_FALSE(ReaderMay("Lookup"));
}

TEST_F(WatchedRulesTest, AMissingOrBrokenFileIsRefusedAtTheStart) {
  EXPECT_FALSE(WatchedRules::Open(path_ + "-none").ok());
  Write("rules: 5\n");
  EXPECT_FALSE(WatchedRules::Open(path_).ok());
  EXPECT_TRUE(WatchedRules::Open("").ok());
}

}  // namespace
}  // namespace hotbed
