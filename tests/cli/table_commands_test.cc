// hotbed table create, alter and describe, over a fake coordinator.
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/convert.h"
#include "tests/cli/cli_fixture.h"

namespace hotbed {
namespace table_commands_test {

using ::testing::HasSubstr;
using ::testing::Not;

using TableCommandsTest = RunCliTest;

TEST_F(TableCommandsTest, TableCreateTakesEveryOption) {
  std::vector<std::string> args = {"table",
                                   "create",
                                   "all",
                                   "--dim",
                                   "8",
                                   "--rows",
                                   "100",
                                   "--optimizer",
                                   "adamw",
                                   "--lazy-decay",
                                   "--consistency",
                                   "bounded:3",
                                   "--padding-id",
                                   "7",
                                   "--bounds",
                                   "zero",
                                   "--schedule",
                                   "inverse_sqrt",
                                   "--warmup-steps",
                                   "10",
                                   "--state-type",
                                   "bf16",
                                   "--column-slices",
                                   "2",
                                   "--clip-slice-norm",
                                   "4",
                                   "--reduction",
                                   "mean",
                                   "--row-statistics",
                                   "slice"};
  const Answer answer = RunAt(args);
  EXPECT_EQ(answer.code, 0) << answer.err;
  const v1::TableSpec& spec = fake_.created.spec();
  EXPECT_EQ(spec.optimizer().kind(), v1::OPTIMIZER_ADAMW);
  EXPECT_TRUE(spec.optimizer().lazy_decay());
  EXPECT_EQ(spec.optimizer().state_type(), v1::STATE_BF16);
  EXPECT_EQ(spec.consistency(), v1::CONSISTENCY_BOUNDED);
  EXPECT_EQ(spec.staleness(), 3u);
  EXPECT_EQ(spec.padding_id(), 7u);
  EXPECT_EQ(spec.bounds_mode(), v1::BOUNDS_ZERO);
  EXPECT_EQ(spec.schedule().kind(), v1::SCHEDULE_INVERSE_SQRT);
  EXPECT_EQ(spec.schedule().warmup_steps(), 10u);
  EXPECT_EQ(spec.column_slices(), 2u);
  EXPECT_EQ(spec.row_statistics(), v1::STATISTICS_SLICE);
  EXPECT_EQ(spec.clip_slice_norm(), 4.0f);
  EXPECT_EQ(spec.gradient_reduction(), v1::REDUCTION_MEAN);
  EXPECT_EQ(
      RunAt({"table", "create", "z", "--dim", "8", "--rows", "9", "--consistency", "bounded:0"})
          .code,
      0);
  EXPECT_EQ(fake_.created.spec().consistency(), v1::CONSISTENCY_SYNC);
}

TEST_F(TableCommandsTest, HelpGroupsTheOptions) {
  const std::string help = Ask({"table", "create", "--help"}).out;
  for (const char* words :
       {"Rows and ids:", "Optimizer:", "Clipping and limits:", "Learning rate over the steps:",
        "Batches and consistency:", "Precision and storage:", "--trust-coefficient",
        "{error,zero,modulo}", "--trust-coefficient X=0.001", "momentum-sgd, adamw"}) {
    EXPECT_THAT(help, HasSubstr(words));
  }
  const std::string alter = Ask({"table", "alter", "--help"}).out;
  EXPECT_THAT(alter, HasSubstr("--clip-row-norm"));
  EXPECT_THAT(alter, HasSubstr("--gamma"));
  EXPECT_THAT(alter, Not(HasSubstr("--beta1"))) << "what cannot change is not offered";
}

TEST_F(TableCommandsTest, TableAlterSendsTheChange) {
  const Answer answer =
      RunAt({"table", "alter", "user", "--lr", "0.5", "--clip-value=0", "--at-step", "100"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("altered table 'user', from step 100 on learning_rate=0.5 "
                                    "clip_value=off"));
  EXPECT_EQ(fake_.altered.name(), "user");
  const v1::TableChange& change = fake_.altered.change();
  EXPECT_EQ(change.at_step(), 100u);
  EXPECT_EQ(change.learning_rate(), 0.5f);
  EXPECT_TRUE(change.has_clip_value());
  EXPECT_FALSE(change.has_clip_row_norm());
  EXPECT_FALSE(change.has_schedule());
  const Answer dry = RunAt(
      {"table", "alter", "user", "--lr", "0.5", "--at-step", "100", "--dry-run", "-o", "json"});
  EXPECT_TRUE(fake_.altered.dry_run());
  EXPECT_EQ(dry.json()["dry_run"], true);
  EXPECT_EQ(dry.json()["altered"], false);
  EXPECT_EQ(dry.json()["changes"][0]["learning_rate"], 0.5);
}

// Another command alters the table between the two calls of this one.
TEST_F(TableCommandsTest, TableAlterReadsAgainWhatAnotherCommandHasChanged) {
  int asked = 0;
  fake_.on_alter = [&](const v1::AlterTableRequest& request) -> grpc::Status {
    EXPECT_EQ(request.read().changes_size(), asked);
    if (++asked > 1) return grpc::Status::OK;
    v1::TableChange* const change = fake_.map.mutable_tables(0)->add_changes();
    change->set_at_step(50);
    change->mutable_schedule()->set_kind(v1::SCHEDULE_STEP);
    change->mutable_schedule()->set_step_size(7);
    change->mutable_schedule()->set_gamma(0.5f);
    return {grpc::StatusCode::ABORTED, "changed"};
  };
  const Answer answer = RunAt({"table", "alter", "user", "--gamma", "0.25", "--at-step", "60"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(fake_.altered.change().schedule().step_size(), 7u);
  EXPECT_EQ(fake_.altered.change().schedule().gamma(), 0.25f);
}

TEST_F(TableCommandsTest, SharesOfMemoryNeedNoStep) {
  const Answer answer = RunAt({"table", "alter", "user", "--memory-share-max", "0.5"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("altered table 'user', memory_share_max=0.5\n"));
  EXPECT_EQ(fake_.altered.change().at_step(), 1u);
  EXPECT_EQ(fake_.altered.change().memory_share_max(), 0.5f);
  EXPECT_FALSE(fake_.altered.change().has_memory_share_min());
  fake_.map.mutable_tables(0)->add_changes()->set_at_step(50);
  ASSERT_EQ(RunAt({"table", "alter", "user", "--memory-share-min", "0.25"}).code, 0);
  EXPECT_EQ(fake_.altered.change().at_step(), 50u) << "with the last change";
  EXPECT_EQ(fake_.altered.change().memory_share_min(), 0.25f);
}

TEST_F(TableCommandsTest, DescribeAddsUpTheMemoryOfAllServers) {
  const uint32_t table = fake_.map.tables(0).id();
  uint64_t servers = 0;
  for (v1::ServerInfo& server : *fake_.map.mutable_servers()) {
    v1::TableLoad& load = *server.mutable_load()->add_tables();
    load.set_table(table);
    load.set_rows_resident(10);
    load.set_hot_bytes(2048);
    load.set_hits(++servers);
    load.set_misses(servers == 1 ? 1 : 0);
    server.mutable_load()->add_tables()->set_table(table + 1);
  }
  const Answer told = RunAt({"table", "describe", "user", "-o", "json"});
  ASSERT_EQ(told.code, 0) << told.err;
  EXPECT_EQ(told.json()["memory"]["rows"], 10 * servers);
  EXPECT_EQ(told.json()["memory"]["hot_bytes"], 2048 * servers);
  const double hits = 0.5 * static_cast<double>(servers * (servers + 1));
  EXPECT_EQ(told.json()["memory"]["hit_ratio"], hits / (hits + 1));
  EXPECT_THAT(RunAt({"table", "describe", "user"}).out, HasSubstr("50.0 %"));
}

TEST_F(TableCommandsTest, TableAlterKeepsWhatItsScheduleFlagsDoNotName) {
  v1::TableSpec& user = *fake_.map.mutable_tables(0);
  user.mutable_schedule()->set_kind(v1::SCHEDULE_STEP);
  user.mutable_schedule()->set_step_size(10);
  user.mutable_schedule()->set_gamma(0.5f);
  v1::TableChange& earlier = *user.add_changes();
  earlier.set_at_step(50);
  *earlier.mutable_schedule() = user.schedule();
  earlier.mutable_schedule()->set_gamma(0.25f);
  ASSERT_EQ(RunAt({"table", "alter", "user", "--step-size", "7", "--at-step", "100"}).code, 0);
  EXPECT_EQ(fake_.altered.change().schedule().kind(), v1::SCHEDULE_STEP);
  EXPECT_EQ(fake_.altered.change().schedule().step_size(), 7u);
  EXPECT_EQ(fake_.altered.change().schedule().gamma(), 0.25f) << "as of the change before";
}

TEST_F(TableCommandsTest, TableAlterRefusesWhatIsFixed) {
  const Answer fixed = RunAt({"table", "alter", "user", "--dim", "8", "--at-step", "100"});
  EXPECT_EQ(fixed.code, 1);
  EXPECT_THAT(fixed.err, HasSubstr("--dim: dim of table 'user' is fixed since its creation"));
  EXPECT_THAT(fixed.err, HasSubstr("make a new table"));
  EXPECT_EQ(RunAt({"table", "alter", "user", "--lr", "1", "--lazy-decay", "--at-step", "9"}).code,
            1);
  EXPECT_THAT(RunAt({"table", "alter", "user", "--at-step", "9"}).err,
              HasSubstr("nothing to change"));
  EXPECT_EQ(fake_.altered.name(), "") << "nothing was asked of the coordinator";
  EXPECT_THAT(RunAt({"table", "alter", "usr", "--lr", "1", "--at-step", "9"}).err,
              HasSubstr("'user'"));
}

TEST_F(TableCommandsTest, WhatDescribeWritesCreatesTheSameTable) {
  TableSpec spec;
  spec.id = 1;
  spec.name = "user";
  spec.dim = 4;
  spec.rows = 100;
  spec.optimizer.kind = OptimizerKind::kAdamW;
  spec.optimizer.learning_rate = 0.1f;
  spec.schedule = {.kind = ScheduleKind::kCosine, .warmup_steps = 5, .total_steps = 50};
  spec.seed = ~uint64_t{0};
  spec.changes = {{.at_step = 9, .has_clip_value = true, .clip_value = 0.3f}};
  *fake_.map.mutable_tables(0) = ToProto(spec);
  const Answer told = RunAt({"table", "describe", "user", "-o", "json"});
  ASSERT_EQ(told.code, 0) << told.err;
  EXPECT_EQ(told.json()["optimizer"]["learning_rate"], 0.1) << "not 0.10000000149";
  const std::string path = testing::TempDir() + "/run_cli_test_described.json";
  std::ofstream(path) << told.out;
  const Answer made = RunAt({"table", "create", "--file", path});
  ASSERT_EQ(made.code, 0) << made.err;
  spec.id = 0;
  ASSERT_EQ(fake_.created_together.tables_size(), 1);
  EXPECT_EQ(fake_.created_together.tables(0).spec().DebugString(), ToProto(spec).DebugString());
  EXPECT_THAT(RunAt({"table", "describe", "user"}).out,
              ::testing::ContainsRegex("from step 9 +clip_value=0.3"));
}

TEST_F(TableCommandsTest, TableCreateFromAFile) {
  const std::string path = testing::TempDir() + "/run_cli_test_tables.json";
  std::ofstream(path) << R"([{"name": "b", "dim": 4, "rows": 5, "shards": 2},
                             {"name": "a", "dim": 8, "hashed": true}])";
  const Answer made = RunAt({"table", "create", "--file", path, "--if-not-exists", "-o", "json"});
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.json()[1]["name"], "a");
  EXPECT_EQ(made.json()[1]["created"], true);
  ASSERT_EQ(fake_.created_together.tables_size(), 2);
  EXPECT_TRUE(fake_.created_together.if_not_exists());
  EXPECT_EQ(fake_.created_together.tables(0).spec().name(), "b");
  EXPECT_EQ(fake_.created_together.tables(0).shards(), 2u);
  EXPECT_THAT(RunAt({"table", "create", "--file", path}).out, HasSubstr("created 2 tables"));
  EXPECT_THAT(RunAt({"table", "create", "--file", path, "--dry-run"}).out,
              HasSubstr("would create, placed together"));
  EXPECT_TRUE(fake_.created_together.dry_run());

  fake_.created_together.Clear();
  std::ofstream(path) << R"([{"name": "b", "dim": 4, "rows": 5}, {"name": "a", "dim": 0}])";
  const Answer wrong = RunAt({"table", "create", "--file", path});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("tables[1].rows: missing; nothing was created"));
  EXPECT_EQ(fake_.created_together.tables_size(), 0);
  EXPECT_EQ(RunAt({"table", "create", "--file", path, "--dim", "4"}).code, 2);
  EXPECT_EQ(RunAt({"table", "create", "x", "--file", path}).code, 2);
  EXPECT_EQ(RunAt({"table", "create", "--dim", "4", "--rows", "5"}).code, 2) << "no name";
  EXPECT_EQ(RunAt({"table", "create", "--file", "/nowhere/tables.json"}).code, 1);
}

TEST_F(TableCommandsTest, TableCreateByAPlan) {
  const std::string tables = testing::TempDir() + "/run_cli_test_planned_tables.json";
  const std::string plan = testing::TempDir() + "/run_cli_test_plan.json";
  std::ofstream(tables) << R"([{"name": "b", "dim": 4, "rows": 10, "optimizer": "sgd"}])";
  std::ofstream(plan) << R"({"strategy": "column_even", "tables": [{"name": "b", "shards": [
      {"server": "s1", "rows": [0, 10], "columns": [0, 2]},
      {"server": "s0", "rows": [0, 10], "columns": [2, 4]}]}]})";
  const Answer made = RunAt({"table", "create", "--file", tables, "--plan", plan});
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(fake_.created_together.tables_size(), 1);
  const v1::NewTable& table = fake_.created_together.tables(0);
  EXPECT_EQ(table.spec().column_slices(), 2u);
  ASSERT_EQ(table.placed_size(), 2);
  EXPECT_EQ(table.placed(0).column_limit(), 2u);
  EXPECT_EQ(table.placed(0).range_limit(), 10u);
  EXPECT_EQ(table.placed(0).servers(0), 11u);
  EXPECT_EQ(table.placed(1).servers(0), 10u);

  fake_.created_together.Clear();
  std::ofstream(tables) << R"([{"name": "c", "dim": 4, "rows": 10}])";
  const Answer other = RunAt({"table", "create", "--file", tables, "--plan", plan});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("table \"c\" is not in the plan"));
  EXPECT_THAT(other.err, HasSubstr("nothing was created"));
  EXPECT_EQ(fake_.created_together.tables_size(), 0);
  EXPECT_NE(RunAt({"table", "create", "x", "--dim", "4", "--rows", "5", "--plan", plan}).code, 0);
}

// Before anything is made: dry runs say it too.
TEST_F(TableCommandsTest, TablesThatNoServerCouldHoldAreWarnedOf) {
  const std::vector<std::string> big = {"table",        "create",   "big",     "--dim",
                                        "64",           "--rows",   "1000000", "--durability",
                                        "replicated=2", "--dry-run"};
  EXPECT_THAT(RunAt(big).err, Not(HasSubstr("warning"))) << "nobody has said what is free";
  v1::ServerInfo* const live = fake_.map.mutable_servers(0);
  live->mutable_load()->set_free_bytes(100 << 20);
  fake_.map.mutable_servers(1)->mutable_load()->set_free_bytes(uint64_t{1} << 40);  // it is down
  const Answer warned = RunAt(big);
  EXPECT_EQ(warned.code, 0);
  EXPECT_THAT(warned.err, HasSubstr("warning: table 'big' takes "));
  EXPECT_THAT(warned.err, HasSubstr("(1) have room for 100 MiB of rows"));
  EXPECT_THAT(RunAt({"table", "create", "small", "--dim", "4", "--rows", "1000"}).err,
              Not(HasSubstr("warning")));
  const std::string path = testing::TempDir() + "/run_cli_test_large.json";
  std::ofstream(path) << R"([{"name": "b", "dim": 64, "rows": 300000},
                             {"name": "a", "dim": 64, "rows": 300000}])";
  EXPECT_THAT(RunAt({"table", "create", "--file", path}).err, HasSubstr("2 tables take "));
  live->mutable_load()->set_free_bytes(uint64_t{1} << 40);
  EXPECT_THAT(RunAt(big).err, Not(HasSubstr("warning")));
}

}  // namespace table_commands_test
}  // namespace hotbed
