#include "cli/tables/table_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hotbed {
namespace table_text_test {

TEST(Initializer, ReadsEachFormAndWritesItBack) {
  for (const char* text : {"scaled", "zero", "constant:1", "uniform:-0.01,0.01", "normal:0,0.01",
                           "truncated-normal:0.5,2"}) {
    const auto params = ParseInitializer(text);
    ASSERT_TRUE(params.ok()) << params.status();
    EXPECT_EQ(InitializerText(*params), text);
  }
  const auto uniform = ParseInitializer("uniform:-0.25,0.5");
  EXPECT_EQ(uniform->kind, InitializerKind::kUniform);
  EXPECT_EQ(uniform->a, -0.25f);
  EXPECT_EQ(uniform->b, 0.5f);
}

TEST(Initializer, RefusesOtherTextAndSaysTheForms) {
  for (const char* text : {"", "one", "zero:1", "constant", "constant:", "constant:1,2",
                           "uniform:1", "uniform:a,b", "normal:0,1,2", "uniform:1,"}) {
    const auto params = ParseInitializer(text);
    EXPECT_EQ(params.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(params.status().message()),
                ::testing::HasSubstr("normal:MEAN,DEVIATION"));
  }
}

TEST(Text, OptimizersShowTheTermsTheyHave) {
  OptimizerParams o;
  o.kind = OptimizerKind::kSgd;
  o.learning_rate = 1;
  EXPECT_EQ(OptimizerText(o), "sgd lr=1");
  o.kind = OptimizerKind::kAdam;
  o.weight_decay = 0.5;
  EXPECT_EQ(OptimizerText(o), "adam lr=1 eps=1e-08 beta1=0.9 beta2=0.999 weight-decay=0.5");
  o = OptimizerParams();
  o.kind = OptimizerKind::kLars;
  o.clip_value = 2;
  EXPECT_EQ(OptimizerText(o), "lars lr=0.01 momentum=0.9 trust-coefficient=0.001 clip-value=2");
  o = OptimizerParams();
  o.kind = OptimizerKind::kFtrl;
  EXPECT_EQ(OptimizerText(o), "ftrl lr=0.01 l1=0 l2=0 ftrl-beta=1");
  o.kind = OptimizerKind::kNone;
  EXPECT_EQ(OptimizerText(o), "none");
}

TEST(Text, PoliciesAreThoseInForceThatAreNotTheDefaults) {
  TableSpec spec;
  EXPECT_EQ(PoliciesText(spec), "they stay");
  spec.optimizer.kind = OptimizerKind::kSgd;
  spec.optimizer.touches = true;
  spec.life.ttl_s = 60;
  spec.life.evict_by = EvictBy::kLfu;
  EXPECT_EQ(PoliciesText(spec), "touches ttl-s=60 evict-by=lfu");
  EXPECT_EQ(OptimizerText(spec.optimizer), "sgd lr=0.01");
  TableChange change;
  change.has_life = true;
  change.life.rows_max = 1000;
  spec.changes.push_back(change);
  EXPECT_EQ(PoliciesText(spec), "touches rows-max=1000");
}

TEST(Text, AVocabularySaysItsSize) {
  TableSpec spec;
  spec.hashed = true;
  spec.vocabulary = 50'000;
  EXPECT_EQ(KindText(spec), "vocabulary of 50,000 keys");
}

TEST(Text, ServersAndShardsHaveNames) {
  v1::ClusterMap map;
  map.add_servers()->set_server(7);
  map.mutable_servers(0)->set_name("s1");
  map.add_tables()->set_id(3);
  map.mutable_tables(0)->set_name("user");
  EXPECT_EQ(ServerName(map, 7), "s1");
  EXPECT_EQ(ServerName(map, 8), "server 8");
  EXPECT_EQ(ServerName(map, 0), "none");
  EXPECT_EQ(ShardName(map, (3ull << 32) | 5), "user/5");
  EXPECT_EQ(ShardName(map, (4ull << 32) | 5), "4/5");
}

}  // namespace table_text_test
}  // namespace hotbed
