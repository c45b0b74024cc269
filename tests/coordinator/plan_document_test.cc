#include "planner/coordinator/console/plan_document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace plan_document_test {

using Json = nlohmann::json;

// All shards on the first of two servers.
ClusterView Uneven(uint32_t shards) {
  ClusterView view;
  for (const ServerId id : {1, 2}) {
    ClusterServer& server = view.servers.emplace_back();
    server.id = id;
    server.name = absl::StrCat("s", id);
    server.host_bytes = uint64_t{8} << 30;
  }
  ClusterTable& table = view.tables.emplace_back();
  table.spec.id = 7;
  table.spec.name = "clicks<b>";
  table.spec.dim = 64;
  table.spec.rows = uint64_t{1000} * shards;
  for (uint32_t i = 0; i < shards; ++i) {
    ClusterShard& shard = table.shards.emplace_back();
    shard.range = {1000 * i, 1000 * (i + 1), 0, 64};
    shard.primary = 1;
    shard.bytes = 1 << 20;
    shard.rows_pulled = 1000;
    shard.index = i;
  }
  return view;
}

TEST(PlanDocumentTest, ShowsBothPlacementsAndWhatMoves) {
  const PlanDocument document = PlanDocumentOf(Uneven(16), /*plan_revision=*/42, /*unix_ms=*/99);
  const Json json = Json::parse(document.json);
  EXPECT_EQ(json["trouble"], "");
  EXPECT_EQ(json["plan_revision"], 42);
  EXPECT_EQ(json["unix_ms"], 99);
  ASSERT_EQ(json["servers"].size(), 2u);
  EXPECT_EQ(json["servers"][1]["name"], "s2");
  EXPECT_EQ(json["servers"][1]["state"], "live");
  EXPECT_EQ(json["servers"][1]["bytes_before"], 0);
  EXPECT_GT(json["servers"][1]["bytes_after"], 0);
  EXPECT_LT(json["slowest_step_ms_after"], json["slowest_step_ms_before"]);
  EXPECT_GT(json["moves_total"], 0);
  EXPECT_EQ(json["moves"][0]["from"], "s1");
  EXPECT_EQ(json["moves"][0]["to"], "s2");
  EXPECT_NE(document.svg.find("clicks&lt;b&gt;"), std::string::npos) << document.svg;
  EXPECT_NE(document.svg.find("s2 after"), std::string::npos);
  EXPECT_EQ(PlanDocumentOf(Uneven(16), 42, 99).json, document.json);
}

TEST(PlanDocumentTest, SaysWhyThereIsNoPlan) {
  const PlanDocument none = PlanDocumentOf(ClusterView(), 1, 1);
  EXPECT_EQ(Json::parse(none.json)["trouble"], "there is no table yet");
  EXPECT_NE(none.svg.find("No plan: there is no table yet"), std::string::npos);
  const PlanDocument away = PlanDocumentOf(absl::UnavailableError("etcd is away"), 1, 1);
  EXPECT_EQ(Json::parse(away.json)["trouble"], "etcd is away");
  const PlanDocument many =
      PlanDocumentOf(Uneven(static_cast<uint32_t>(kShardsPlannedMax) + 1), 1, 1);
  const std::string trouble = Json::parse(many.json)["trouble"];
  EXPECT_NE(trouble.find("the cluster has 200001 shards, and up to 200000"), std::string::npos);
}

}  // namespace plan_document_test
}  // namespace hotbed
