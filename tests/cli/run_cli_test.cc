#include "cli/run_cli.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/cli_fixture.h"

namespace hotbed {
namespace run_cli_test {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RunCli, VersionSaysProgramAndWire) {
  const Answer text = Ask({"version"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("hotbed 0."));
  EXPECT_EQ(Ask({"version", "-o", "json"}).json()["wire_version"], 2);
}

TEST(RunCli, HelpDocumentsExitCodes) {
  const Answer help = Ask({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("Exit codes: 0 done"));
  EXPECT_EQ(Ask({"table", "create", "--help"}).code, 0);
}

struct Wrong {
  std::vector<std::string> args;
  std::string said;
};

TEST(RunCli, WrongCommandLinesExitWithTwoAndNameTheNearest) {
  const std::vector<Wrong> cases = {
      {{"stauts"}, "unknown command 'stauts' after 'hotbed'; did you mean 'status'?"},
      {{"table", "lst"}, "unknown command 'lst' after 'hotbed table'; did you mean 'list'?"},
      {{"status", "--coordinatr=x:1"},
       "unknown flag '--coordinatr=x:1' after 'hotbed status'; did you mean '--coordinator'?"},
      {{"table", "create", "t", "--dmi", "4", "--rows", "5"}, "'--dmi'"},
      {{"table", "create", "t", "--dmi", "4", "--rows", "5"}, "did you mean '--dim'?"},
      {{"table", "create", "t", "--rows", "5"}, "--dim"},
      {{"table", "create", "t", "--dim", "4"}, "--rows N (a bounded table) or --hashed"},
      {{"table", "create", "t", "--dim", "0", "--rows", "5"}, "--dim"},
      {{"table", "create", "t", "--dim", "9000", "--rows", "5"}, "8192"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--init", "unifrm:1,2"},
       "'unifrm:1,2' is not one of"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--optimizer", "adamm"},
       "did you mean 'adam'?"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--lr=-1"},
       "--learning-rate: table \"t\": optimizer.learning_rate is -1, allowed: finite and >= 0"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--beta1", "1"}, "[0, 1)"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--consistency", "bounded"},
       "bounded:S"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--padding-id", "5"}, "0..4"},
      {{"table", "create", "t", "--dim", "four", "--rows", "5"}, "'four' is not a whole number"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--lazy-decay"},
       "optimizer.lazy_decay"},
      {{"table", "alter", "t", "--lr", "1"}, "--at-step"},
      {{"table", "create", "t", "--dim", "10", "--rows", "9", "--optimizer", "sgd",
        "--column-slices", "4", "--even-slices"},
       "--even-slices: table t: dim is 10 and column_slices is 4"},
      {{"row", "get", "user", "12x"}, "id '12x' is not a number"},
      {{"row", "get", "user"}, "ID"},
      {{"status", "-o", "xml"}, "xml"},
      {{"status", "--timeout", "5parsecs"}, "5parsecs"},
      {{"up"}, "--data-dir"},
      {{"up", "--data-dir", "/tmp/x", "--host-bytes", "12XiB"}, "12XiB"},
      {{"up", "--data-dir", "/tmp/x", "--servers", "1000"}, "1000"},
      {{"table", "drop", "user"}, "--yes"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--init", "normal:0,-1"}, "--init: "},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--shards", "1025"}, "1024"},
      {{"table", "create", "t", "--dim", "4", "--rows", "5", "--shards=-1"}, "1024"},
      {{"status", "--coordinator", "here"}, "'here' is not HOST:PORT"},
      {{"status", "--coordinator", "127.0.0.1:99999"}, "a port of 1 to 65535"},
  };
  for (const Wrong& wrong : cases) {
    const Answer answer = Ask(wrong.args);
    EXPECT_EQ(answer.code, 2) << wrong.said;
    EXPECT_EQ(answer.out, "") << wrong.said;
    EXPECT_THAT(answer.err, HasSubstr(wrong.said));
  }
}

TEST(RunCli, BenchOfEveryKindTakesItsTablesOptions) {
  for (const char* kind : {"pull", "push", "mixed", "lookup"}) {
    const Answer help = Ask({"bench", kind, "--help"});
    EXPECT_EQ(help.code, 0) << kind;
    for (const char* flag : {"--optimizer", "--wire", "--column-slices", "--weight-type"}) {
      EXPECT_THAT(help.out, HasSubstr(flag)) << kind;
    }
  }
  const std::vector<Wrong> cases = {
      {{"bench", "pull", "--column-slices", "65", "--dim", "64"},
       "--column-slices is 65; allowed: 1..64"},
      {{"bench", "pull", "--column-slices", "257", "--dim", "1024"}, "allowed: 1..256"},
      {{"bench", "push", "--column-slices", "0"}, "--column-slices is 0"},
      {{"bench", "push", "--optimizer", "adamax"}, "partial-rowwise-adam"},
      {{"bench", "mixed", "--weight-type", "int8"}, "bf16"},
      {{"bench", "push", "--wire", "int8"}, "gradients travel as fp32, fp16 or bf16"},
      {{"bench", "pull", "--read-from", "nearest"}, "any"},
      {{"bench", "pull", "--read-from", "any", "--strict"}, "exclude each other"},
      {{"bench", "push", "--strict"}, "pull, lookup and mixed"},
      {{"bench", "pull", "--consistency", "bounded"}, "write bounded:S"},
      {{"bench", "push", "--optimizer", "none"}, "take no gradients"},
      {{"bench", "pull", "--durability", "replicated=9"}, "N from 2 to 3"},
  };
  for (const Wrong& wrong : cases) {
    const Answer answer = Ask(wrong.args);
    EXPECT_EQ(answer.code, 2) << answer.err;
    EXPECT_THAT(answer.err, HasSubstr(wrong.said));
  }
}

TEST(RunCli, NoCommandPrintsHelpAndExitsWithTwo) {
  const Answer nothing = Ask({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("Usage: hotbed ["));
  const Answer table = Ask({"table"});
  EXPECT_EQ(table.code, 2);
  EXPECT_THAT(table.err, HasSubstr("describe"));
}

TEST(RunCli, UnreachableCoordinatorIsNamedAndExitsWithOne) {
  const Answer load =
      Ask({"bench", "pull", "--coordinator", "127.0.0.1:1", "--timeout", "200ms", "-o", "json"});
  EXPECT_EQ(load.code, 1);
  EXPECT_EQ(nlohmann::json::parse(load.err)["error"]["code"], "DEADLINE_EXCEEDED") << load.err;
  EXPECT_THAT(load.err, HasSubstr("coordinator 127.0.0.1:1"));
  const Answer answer = Ask({"status", "--coordinator", "127.0.0.1:1", "--timeout", "2s"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("coordinator at 127.0.0.1:1"));
  EXPECT_THAT(answer.err, HasSubstr("hotbed up"));
  const Answer json =
      Ask({"-o", "json", "status", "--coordinator", "127.0.0.1:1", "--timeout", "2s"});
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(nlohmann::json::parse(json.err)["error"]["code"], "UNAVAILABLE");
}

TEST_F(RunCliTest, StatusShowsServersAndTables) {
  const Answer text = RunAt({"status"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("1 of 2 servers live, 3 of 4 shards active"));
  EXPECT_THAT(text.out, HasSubstr("DOWN"));
  const nlohmann::json json = RunAt({"status", "-o", "json"}).json();
  EXPECT_EQ(json["cluster_id"], "c-1");
  EXPECT_EQ(json["servers"][1]["live"], false);
  EXPECT_EQ(json["tables"][0]["shards_active"], 3);
  EXPECT_EQ(json["tables"][0]["seed"].get<uint64_t>(), ~uint64_t{0});
}

TEST_F(RunCliTest, TableListAndDescribe) {
  EXPECT_EQ(RunAt({"table", "list", "-o", "json"}).json()[0]["name"], "user");
  const nlohmann::json json = RunAt({"table", "describe", "user", "-o", "json"}).json();
  EXPECT_EQ(json["shards"].size(), 4u);
  EXPECT_EQ(json["shards"][3]["primary"], "s1");
  const Answer missing = RunAt({"table", "describe", "usr"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.err, HasSubstr("did you mean 'user'?"));
}

TEST_F(RunCliTest, TableCreateSendsWhatTheFlagsSay) {
  const Answer answer = RunAt({"table",
                               "create",
                               "item",
                               "--dim",
                               "16",
                               "--hashed",
                               "--optimizer",
                               "rowwise_adagrad",
                               "--lr",
                               "0.5",
                               "--eps",
                               "0.25",
                               "--init",
                               "uniform:-0.01,0.01",
                               "--weight-type",
                               "bf16",
                               "--durability",
                               "checkpoint",
                               "--nan",
                               "skip",
                               "--seed",
                               "18446744073709551615",
                               "--if-not-exists",
                               "--dry-run"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("would create table 'item'"));
  const v1::TableSpec& spec = fake_.created.spec();
  EXPECT_TRUE(fake_.created.dry_run());
  EXPECT_TRUE(fake_.created.if_not_exists());
  EXPECT_TRUE(spec.hashed());
  EXPECT_EQ(spec.dim(), 16u);
  EXPECT_EQ(spec.optimizer().kind(), v1::OPTIMIZER_ROWWISE_ADAGRAD);
  EXPECT_EQ(spec.optimizer().learning_rate(), 0.5f);
  EXPECT_EQ(spec.optimizer().epsilon(), 0.25f);
  EXPECT_EQ(spec.initializer().kind(), v1::INITIALIZER_UNIFORM);
  EXPECT_EQ(spec.initializer().a(), -0.01f);
  EXPECT_EQ(spec.weight_type(), v1::WEIGHT_BF16);
  EXPECT_EQ(spec.durability(), v1::DURABILITY_CHECKPOINT);
  EXPECT_EQ(spec.nan_policy(), v1::NAN_SKIP);
  EXPECT_EQ(spec.seed(), ~uint64_t{0});
}

TEST_F(RunCliTest, RefusalsOfTheCoordinatorAreHandedOn) {
  const Answer answer = RunAt({"table", "create", "user", "--dim", "8", "--rows", "10"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_EQ(answer.err, "hotbed: table 'user' exists with dim 4, not 8\n");
}

TEST_F(RunCliTest, DropNeedsYesAndDryRunDropsNothing) {
  const Answer dry = RunAt({"table", "drop", "user", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_TRUE(fake_.dropped.dry_run());
  EXPECT_THAT(dry.out, HasSubstr("would drop table 'user' with its 4 shards"));
  const Answer yes = RunAt({"table", "drop", "user", "--yes", "-o", "json"});
  EXPECT_EQ(yes.json()["dropped"], true);
  EXPECT_FALSE(fake_.dropped.dry_run());
  const Answer unknown = RunAt({"table", "drop", "usr", "--yes"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_EQ(fake_.drops, 2);
}

TEST_F(RunCliTest, ShardListAndPlanShow) {
  EXPECT_EQ(RunAt({"shard", "list", "-o", "json"}).json().size(), 4u);
  const nlohmann::json plan = RunAt({"plan", "show", "-o", "json"}).json();
  ASSERT_EQ(plan["tables"].size(), 1u);
  ASSERT_EQ(plan["tables"][0]["shards"].size(), 4u);
  EXPECT_EQ(plan["tables"][0]["shards"][3]["server"], "s1");
  EXPECT_EQ(plan["tables"][0]["shards"][3]["rows"], nlohmann::json({75, 100}));
  const Answer text = RunAt({"plan", "show"});
  EXPECT_THAT(text.out, HasSubstr("plan revision 7"));
  EXPECT_THAT(text.out, HasSubstr("1 table in 4 shards on 2 servers"));
  EXPECT_THAT(text.out, HasSubstr("s1 is down: its 1 shard stays its own"));
  EXPECT_THAT(RunAt({"plan", "show", "-o", "svg"}).out, HasSubstr("<svg"));
}

TEST_F(RunCliTest, PlanShowOfAClusterWithoutTables) {
  fake_.map.clear_tables();
  fake_.map.clear_shards();
  const Answer text = RunAt({"plan", "show"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("0 tables in 0 shards on 2 servers"));
  const Answer apply = RunAt({"plan", "apply", "--dry-run"});
  EXPECT_EQ(apply.code, 1);
  EXPECT_THAT(apply.err, HasSubstr("no tables"));
}

TEST_F(RunCliTest, PlanApplyWithoutMoves) {
  const Answer real = RunAt({"plan", "apply"});
  EXPECT_EQ(real.code, 0) << real.err;
  EXPECT_THAT(real.out, HasSubstr("No moves"));
  EXPECT_EQ(fake_.moved.moves_size(), 0);
  const Answer text = RunAt({"plan", "apply", "--dry-run"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("nothing is changed"));
  EXPECT_THAT(text.out, HasSubstr("s1 is down"));
  EXPECT_THAT(text.out, HasSubstr("No moves"));
}

TEST_F(RunCliTest, PlanApplyDrains) {
  fake_.map.mutable_servers(1)->set_live(true);
  const nlohmann::json drained =
      RunAt({"plan", "apply", "--dry-run", "--drain", "s0", "-o", "json"}).json();
  EXPECT_EQ(drained["plan_revision"], 7);
  ASSERT_EQ(drained["moves"].size(), 3u);
  uint64_t bytes = 0;
  for (const nlohmann::json& move : drained["moves"]) {
    EXPECT_EQ(move["from"], "s0");
    EXPECT_EQ(move["to"], "s1");
    EXPECT_EQ(move["reason"], "s0 is draining");
    bytes += move["bytes"].get<uint64_t>();
  }
  EXPECT_EQ(drained["move_bytes"], bytes);
  for (const nlohmann::json& shard : drained["plan"]["tables"][0]["shards"]) {
    EXPECT_EQ(shard["server"], "s1");
  }
  const Answer text = RunAt({"plan", "apply", "--dry-run", "--drain", "s0"});
  EXPECT_THAT(text.out, HasSubstr("3 moves of "));
  EXPECT_THAT(text.out, HasSubstr("drained"));
  const Answer little =
      RunAt({"plan", "apply", "--dry-run", "--drain", "s0", "--move-bytes-max", "1", "-o", "json"});
  EXPECT_EQ(little.code, 1);
  EXPECT_EQ(little.json()["error"]["limit"], 1);
  EXPECT_EQ(RunAt({"plan", "apply", "--dry-run", "--move-bytes-max", "much"}).code, 2);
  EXPECT_THAT(RunAt({"plan", "apply", "--dry-run", "--drain", "s00"}).err,
              HasSubstr("did you mean 's0'?"));
  fake_.map.mutable_servers(1)->set_live(false);
  const Answer down = RunAt({"plan", "apply", "--dry-run", "--drain", "s1"});
  EXPECT_EQ(down.code, 1);
  EXPECT_THAT(down.err, HasSubstr("s1: it is down"));
}

TEST_F(RunCliTest, DoctorFailsWhenAServerIsDown) {
  const Answer answer = RunAt({"doctor", "-o", "json"});
  EXPECT_EQ(answer.code, 1);
  const nlohmann::json json = answer.json();
  EXPECT_EQ(json[0]["verdict"], "ok");
  EXPECT_EQ(json[1]["verdict"], "FAILED");
  EXPECT_THAT(std::string(json[1]["found"]), HasSubstr("s1"));
  EXPECT_THAT(std::string(json[3]["found"]), HasSubstr("1 of 4 not active, the first is user/3"));
}

TEST(RunCli, DatagenWritesRowsToStdoutAndTheTruthToStderr) {
  const Answer answer = Ask({"datagen", "criteo", "--rows", "200", "--seed", "5", "-o", "json"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(std::count(answer.out.begin(), answer.out.end(), '\n'), 200);
  EXPECT_EQ(std::count(answer.out.begin(), answer.out.end(), '\t'), 200 * 39);
  const std::string last = answer.err.substr(answer.err.find('{'));
  EXPECT_GT(nlohmann::json::parse(last)["auc_best"], 0.7);
  EXPECT_EQ(Ask({"datagen", "criteo", "--rows", "200", "--seed", "5"}).out, answer.out);
  EXPECT_EQ(Ask({"datagen", "criteo", "--rows", "0"}).code, 2);
}

TEST(RunCli, CompletionKnowsEveryCommandAndItsFlags) {
  const Answer answer = Ask({"completion", "bash"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const std::string path = ::testing::TempDir() + "hotbed_completion";
  std::ofstream(path) << answer.out;
  // What is offered after `words`, the last of which is not complete.
  const auto offered = [&](const std::string& words, int count) {
    const std::string script =
        absl::StrCat("source ", path, "; COMP_WORDS=(", words, "); COMP_CWORD=", count,
                     "; _hotbed; printf '%s\\n' \"${COMPREPLY[@]}\" > ", path, ".out");
    EXPECT_EQ(
        std::system(
            absl::StrCat("bash -c '", absl::StrReplaceAll(script, {{"'", "'\\''"}}), "'").c_str()),
        0);
    std::ifstream in(path + ".out");
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(offered("hotbed ta", 1), "table\n");
  EXPECT_EQ(offered("hotbed table dr", 2), "drop\n");
  EXPECT_EQ(offered("hotbed server retire --dr", 3), "--drain\n");
  EXPECT_EQ(offered("hotbed --coordinator h:1 server retire --wa", 5), "--wait\n--wait-min\n");
}

}  // namespace run_cli_test
}  // namespace hotbed
