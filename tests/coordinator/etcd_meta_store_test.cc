// The metadata store in a real etcd: the contract of every store, users, TLS, and members that are
// away.
#include "planner/coordinator/etcd/etcd_meta_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "planner/coordinator/etcd/history_compaction.h"
#include "planner/coordinator/state/keys.h"
#include "planner/coordinator/state/metadata_backup.h"
#include "tests/coordinator/control_client.h"
#include "tests/coordinator/etcd_process.h"
#include "tests/coordinator/meta_store_conformance.h"

namespace hotbed {
namespace etcd_meta_store_test {

using ::testing::HasSubstr;

// One for all tests that need nothing special; each has a prefix of its own.
EtcdProcess& SharedEtcd() {
  static EtcdProcess etcd;
  return etcd;
}

std::string NewPrefix() {
  static int number = 0;
  return absl::StrCat("/", ++number);
}

class EtcdRig : public MetaStoreRig {
 public:
  explicit EtcdRig(int64_t page_keys = EtcdMetaStore::kPageKeys)
      : client_(SharedEtcd().Options(NewPrefix())), store_(&client_, page_keys) {}
  MetaStore* store() override { return &store_; }
  bool Restart() override { return SharedEtcd().Start(); }

 private:
  EtcdClient client_;
  EtcdMetaStore store_;
};
class SmallPages : public EtcdRig {
 public:
  SmallPages() : EtcdRig(2) {}
  bool Restart() override { return false; }  // pages are not kept
};

template <typename Rig>
std::unique_ptr<MetaStoreRig> Make() {
  return std::make_unique<Rig>();
}
INSTANTIATE_TEST_SUITE_P(Etcd, MetaStoreConformance, ::testing::Values(&Make<EtcdRig>));
INSTANTIATE_TEST_SUITE_P(EtcdSmallPages, MetaStoreConformance,
                         ::testing::Values(&Make<SmallPages>));

Op Put(const std::string& key, const std::string& value) { return {Op::Kind::kPut, key, value}; }

TEST(EtcdMetaStore, PrefixesSeparateClusters) {
  EtcdClient one(SharedEtcd().Options("/clusters/a"));
  EtcdClient other(SharedEtcd().Options("/clusters/b"));
  EtcdMetaStore a(&one);
  EtcdMetaStore b(&other);
  ASSERT_TRUE(a.Txn({}, {Put("/hotbed/x", "a")}).ok());
  ASSERT_TRUE(b.Txn({}, {Put("/hotbed/x", "b")}).ok());
  const auto read = a.Range("/hotbed/", PrefixLimit("/hotbed/"));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->kvs.size(), 1u);
  EXPECT_EQ(read->kvs[0].key, "/hotbed/x");
  EXPECT_EQ(read->kvs[0].value, "a");
}

TEST(EtcdMetaStore, TheLargestTransactionFits) {
  EtcdRig rig;
  std::vector<Compare> compares;
  std::vector<Op> ops;
  size_t bytes = 0;
  for (size_t i = 0; i < MetaStore::kTxnOpsMax; ++i) {
    const std::string key = absl::StrCat("/", i);
    compares.push_back({key, 0});
    ops.push_back(Put(key, "x"));
    bytes += TransactionBytes(compares.back()) + TransactionBytes(ops.back());
  }
  ops[0].value += std::string(MetaStore::kTxnBytesMax - bytes, 'x');
  ops[1].value += std::string(MetaStore::kTxnBytesMax / 2, 'x');
  ops[0].value.resize(ops[0].value.size() - MetaStore::kTxnBytesMax / 2);
  const auto done = rig.store()->Txn(compares, ops);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->succeeded);
  ops[0].value += 'x';
  EXPECT_EQ(rig.store()->Txn({}, ops).status().code(), absl::StatusCode::kOk)
      << "without the compares it is smaller";
  EXPECT_THAT(std::string(rig.store()->Txn(compares, ops).status().message()),
              HasSubstr("1400001 bytes"));
}

TEST(EtcdMetaStore, ABackupLargerThanATransactionIsRestored) {
  EtcdRig rig;
  std::vector<KeyValue> records = {{keys::kFormatKey, keys::kFormat, 1},
                                   {keys::kClusterKey, "c", 1}};
  for (int i = 0; i < 5; ++i) {
    v1::GroupCommit commit;
    commit.set_group(absl::StrCat("g", i));
    for (int trainer = 0; trainer < 110'000; ++trainer) commit.add_sessions(1);
    records.push_back({keys::Group(commit.group()), commit.SerializeAsString(), 1});
  }
  const auto restored = RestoreBackup(records, rig.store());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(*restored);
  EXPECT_EQ(rig.store()->Range(keys::kGroups, PrefixLimit(keys::kGroups))->kvs.size(), 5u);
}

TEST(EtcdMetaStore, MembersThatAreAwayArePassedOver) {
  EtcdOptions options = SharedEtcd().Options(NewPrefix());
  const std::string away = absl::StrCat("127.0.0.1:", PortThatWasFree());
  options.address.members = {away, SharedEtcd().address()};
  EtcdClient client(options);
  EtcdMetaStore store(&client);
  const auto put = store.Txn({}, {Put("k", "v")});
  EXPECT_TRUE(put.ok()) << put.status();

  options.address.members = {away};
  options.timeout = absl::Milliseconds(200);
  EtcdClient nobody(options);
  const absl::Status none = EtcdMetaStore(&nobody).Range("k", "").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kUnavailable) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr(away));
}

// Certificates of an authority of the test's own, and files with a user's password.
class SecureEtcd : public ::testing::Test {
 protected:
  SecureEtcd() {
    dir_ = absl::StrCat(::testing::TempDir(), "/secure_etcd_", getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    const int64_t now_s = absl::ToUnixSeconds(absl::Now());
    EXPECT_TRUE(CreateAuthority(dir_, "test", 2, now_s).ok());
    for (const std::string name : {"etcd", "elsewhere"}) {
      const std::string host = name == "etcd" ? "127.0.0.1" : "127.0.0.9";
      EXPECT_TRUE(CreateCertificate(dir_, {.name = name, .hosts = {host}}, false, now_s).ok());
    }
    Write("password", "secret\n");
  }
  ~SecureEtcd() override {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }

  void Write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(FileSystem::Real()->WriteAtomically(dir_ + "/" + name, text).ok());
  }
  TlsFiles Files(const std::string& name) const {
    return {.certificate = dir_ + "/" + name + ".crt",
            .key = dir_ + "/" + name + ".key",
            .authority = dir_ + "/ca.crt"};
  }
  std::vector<std::string> Flags(const std::string& name) const {
    const TlsFiles files = Files(name);
    return {"--cert-file=" + files.certificate, "--key-file=" + files.key};
  }
  // Makes a user "root" by etcd's own HTTP port, and wants users from now on.
  void WantUsers(const EtcdProcess& etcd) const {
    const auto post = [&](const std::string& path, const std::string& body) {
      const std::string command =
          absl::StrCat("curl -sSf --noproxy '*' --cacert ", dir_, "/ca.crt -d '", body,
                       "' https://", etcd.address(), "/v3/auth/", path, " >/dev/null");
      EXPECT_EQ(system(command.c_str()), 0) << command;
    };
    post("user/add", R"({"name":"root","password":"secret"})");
    post("role/add", R"({"name":"root"})");
    post("user/grant", R"({"user":"root","role":"root"})");
    post("enable", "{}");
  }
  std::string dir_;
};

TEST_F(SecureEtcd, AUserLogsInOverTlsAndAgainAfterARestart) {
  EtcdProcess etcd(Flags("etcd"), {.authority = dir_ + "/ca.crt"});
  WantUsers(etcd);
  EtcdOptions options = etcd.Options();
  EtcdClient stranger(options);
  EXPECT_THAT(std::string(EtcdMetaStore(&stranger).Range("k", "").status().message()),
              HasSubstr("--etcd-user"));
  options.user = "root";
  options.password_file = dir_ + "/password";
  EtcdClient client(options);
  EtcdMetaStore store(&client);
  ASSERT_TRUE(store.Txn({}, {Put("k", "v")}).ok());
  ASSERT_TRUE(etcd.Start()) << "it forgets all tokens";
  const auto again = store.Txn({{"k", 0}}, {Put("k", "w")});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->succeeded);
  Write("password", "wrong");
  EtcdClient liar(options);
  EXPECT_THAT(std::string(EtcdMetaStore(&liar).Range("k", "").status().message()),
              HasSubstr("authentication failed"));
}

TEST_F(SecureEtcd, ACertificateOfAnotherHostIsRefused) {
  EtcdProcess etcd(Flags("etcd"), {.authority = dir_ + "/ca.crt"});
  EtcdOptions options = etcd.Options();
  options.timeout = absl::Milliseconds(500);
  options.address.members = {absl::StrCat("localhost", etcd.address().substr(9))};
  EtcdClient client(options);
  EXPECT_EQ(EtcdMetaStore(&client).Range("k", "").status().code(), absl::StatusCode::kUnavailable);
}

// A coordinator as a real process.
class Coordinator {
 public:
  explicit Coordinator(const std::string& metadata, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {HOTBED_COORDINATOR_BINARY, "--listen=127.0.0.1:0",
                                     "--admin-listen=127.0.0.1:0", "--metadata=" + metadata};
    args.insert(args.end(), more.begin(), more.end());
    process_ = std::make_unique<Process>(std::move(args));
  }
  std::string Address() {
    const std::vector<std::string> words =
        absl::StrSplit(process_->AwaitLine("hotbed-coordinator serving: "), ' ');
    EXPECT_EQ(words.size(), 7u);
    return words.size() == 7 ? words[2] : "";
  }
  Process& process() { return *process_; }

 private:
  std::unique_ptr<Process> process_;
};

TEST(CoordinatorOnEtcd, AnotherOneTakesOverWhatItLeft) {
  const std::string metadata =
      absl::StrCat("etcd://", SharedEtcd().address(), NewPrefix(), "/cluster");
  std::string cluster;
  {
    Coordinator first(metadata);
    ControlClient client(first.Address());
    FakeServer server("s", &client);
    ASSERT_TRUE(server.Register().ok());
    const auto table = client.CreateTable("t", 100'000, 500);
    ASSERT_TRUE(table.ok()) << table.status();
    cluster = client.Map()->cluster_id();
    first.process().Signal(SIGKILL);
  }
  Coordinator second(metadata);
  ControlClient client(second.Address());
  const auto map = client.Map();
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_EQ(map->cluster_id(), cluster);
  ASSERT_EQ(map->tables_size(), 1);
  EXPECT_EQ(map->shards_size(), 500);
  EXPECT_TRUE(client.DropTable("t").ok());
}

TEST(CoordinatorOnEtcd, BadFlagsAreNamed) {
  const auto said = [](const std::string& metadata, const std::vector<std::string>& more = {}) {
    Coordinator coordinator(metadata, more);
    std::string out = coordinator.process().ReadAll();
    EXPECT_EQ(coordinator.process().Wait(), 1) << out;
    return out;
  };
  EXPECT_THAT(said("zookeeper"), HasSubstr("--metadata=\"zookeeper\""));
  EXPECT_THAT(said("etcd://h1"), HasSubstr("'h1' is not HOST:PORT"));
  EXPECT_THAT(said("etcd://127.0.0.1:1/a b"), HasSubstr("the prefix"));
  EXPECT_THAT(said("etcd://10.1.2.3:2379"), HasSubstr("10.1.2.3:2379, which is beyond loopback"));
  EXPECT_THAT(said("etcd://127.0.0.1:1", {"--etcd-user=u"}), HasSubstr("--etcd-password-file"));
  EXPECT_THAT(said("etcd://127.0.0.1:1", {"--etcd-key=k", "--etcd-ca=c"}),
              HasSubstr("--etcd-cert"));
}

TEST(HistoryCompactionTest, TheLeaderDropsWhatKeysWereBefore) {
  EtcdProcess etcd;
  EtcdClient client(etcd.Options());
  EtcdMetaStore store(&client);
  const auto put = [&](const std::string& value) {
    return store.Txn({}, {{Op::Kind::kPut, "k", value}})->revision;
  };
  const auto value_at = [&](uint64_t revision) {
    etcdserverpb::RangeRequest request;
    request.set_key("k");
    request.set_revision(static_cast<int64_t>(revision));
    const auto found = client.Range(request);
    return found.ok() ? absl::StatusOr<std::string>(found->kvs(0).value()) : found.status();
  };
  const uint64_t first = put("a");
  put("b");
  std::atomic<bool> leads = false;
  const HistoryCompaction compaction(&client, absl::Milliseconds(20), [&] { return leads.load(); });
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(*value_at(first), "a") << "it does not lead";
  leads = true;
  absl::Status gone;
  for (int tries = 0; gone.ok() && tries < 500; ++tries) {
    absl::SleepFor(absl::Milliseconds(20));
    gone = value_at(first).status();
  }
  EXPECT_EQ(gone.code(), absl::StatusCode::kOutOfRange) << gone;
  EXPECT_EQ(*value_at(0), "b") << "what they are stays";
}

}  // namespace etcd_meta_store_test
}  // namespace hotbed
