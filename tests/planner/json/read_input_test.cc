#include "planner/json/read_input.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "absl/strings/str_replace.h"
#include "planner/model/context_hash.h"
#include "planner/model/validate_input.h"
#include "tests/planner/json/json_cases.h"

namespace hotbed {
namespace read_input_test {

// The error of reading and validating kFullInput with `from` replaced by `to`.
PlanError ErrorWith(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(kFullInput, {{from, to}});
  EXPECT_NE(text, kFullInput) << from;
  const PlanResult<PlannerInput> input = ReadPlannerInput(text);
  if (!input.ok()) return input.error();
  const std::optional<PlanError> error = ValidateInput(input.value());
  EXPECT_TRUE(error.has_value()) << "accepted: " << to;
  return error.value_or(PlanError());
}

TEST(ReadPlannerInput, EveryKey) {
  const PlanResult<PlannerInput> read = ReadPlannerInput(kFullInput);
  ASSERT_TRUE(read.ok()) << read.error().message;
  const PlannerInput& input = read.value();
  EXPECT_FALSE(ValidateInput(input).has_value());
  const InputTable& user = input.tables[0];
  EXPECT_EQ(std::tie(user.name, user.rows, user.dim), std::make_tuple("user", 1000u, 8u));
  EXPECT_EQ(user.weight, PlannerWeight::kFp16);
  EXPECT_EQ(user.optimizer, PlannerOptimizer::kAdam);
  EXPECT_EQ(user.combiner, PlannerCombiner::kMean);
  EXPECT_TRUE(user.hashed);
  EXPECT_EQ(user.row_statistics, RowStatistics::kSlice);
  EXPECT_EQ(user.replicas, 2u);
  EXPECT_EQ(user.reads_per_step, 12.5);
  EXPECT_EQ(user.zipf, 1.05);
  ASSERT_EQ(user.hotness.size(), 2u);
  EXPECT_EQ(user.hotness[1].accesses, 0.9);
  EXPECT_EQ(input.features[0].table, 1u);
  EXPECT_TRUE(input.features[0].weighted);
  EXPECT_EQ(input.topology.servers[0].zone, "z0");
  EXPECT_TRUE(input.topology.servers[0].draining);
  EXPECT_EQ(input.topology.servers[1].host, "s1") << "a server is its own host";
  EXPECT_EQ(input.topology.device, PlannerDevice::kCuda);
  EXPECT_EQ(input.topology.bandwidth.spill, 6.0);
  EXPECT_EQ(input.workload.trainers, 3u);
  const PlannerOptions& options = input.options;
  EXPECT_EQ(options.column_slice_threshold, 9u);
  EXPECT_EQ(options.row_slice_threshold, std::nullopt);
  EXPECT_EQ(options.data_parallel_threshold, 0u);
  EXPECT_EQ(options.order, FeatureOrder::kShuffled);
  ASSERT_EQ(options.constraints.size(), 1u);
  EXPECT_EQ(options.constraints[0].table, 1u);
  EXPECT_EQ(options.constraints[0].sharding[1], Sharding::kGrid);
  EXPECT_EQ(options.constraints[0].servers[0], 1u);
  EXPECT_EQ(options.reserve.kind, ReserveKind::kHeuristic);
  EXPECT_EQ(options.evaluations_max, 77u);
  EXPECT_EQ(options.move_bytes_max, 1000u);
}

TEST(ReadPlannerInput, TorchrecOptionsByName) {
  const auto read = [](const std::string& torchrec) {
    return ReadPlannerInput(absl::StrCat(R"({"tables": [{"name": "t", "rows": 1e3, "dim": 2}],
        "topology": {"servers": [{"name": "s", "host_bytes": 10}]},
        "planner": {"strategy": "torchrec", "torchrec": )",
                                         torchrec, "}}"));
  };
  const PlanResult<PlannerInput> input = read(R"({"partitioner": "memory_balanced",
      "proposers": ["dynamic_programming", "cache_scaleup"], "pipeline": "prefetch",
      "run_embedding_at_peak_memory": true, "wire": {"forward": "fp16", "backward": "mx4"}})");
  ASSERT_TRUE(input.ok()) << input.error().message;
  const TorchrecOptions& options = input.value().options.torchrec;
  EXPECT_EQ(options.partitioner, TorchrecPartitioner::kMemoryBalanced);
  ASSERT_EQ(options.proposers.size(), 2u);
  EXPECT_EQ(options.proposers[0], TorchrecProposer::kDynamicProgramming);
  EXPECT_EQ(options.proposers[1], TorchrecProposer::kCacheScaleup);
  EXPECT_EQ(options.pipeline, TorchrecPipeline::kPrefetch);
  EXPECT_TRUE(options.run_embedding_at_peak_memory);
  EXPECT_EQ(options.forward_wire, TorchrecWire::kFp16);
  EXPECT_EQ(options.backward_wire, TorchrecWire::kMx4);
  EXPECT_NE(ContextHash(input.value()), ContextHash(read("{}").value()));
  EXPECT_EQ(read(R"({"partitioner": "memory_balancd"})").error().message,
            "planner.torchrec.partitioner: unknown value 'memory_balancd'; the nearest known one "
            "is 'memory_balanced'");
  EXPECT_EQ(read(R"({"wire": {"forwards": "fp16"}})").error().message,
            "planner.torchrec.wire.forwards: unknown key 'forwards'; the nearest known one is "
            "'forward'");
}

TEST(ReadPlannerInput, PassesOfAPrefetch) {
  const auto read = [](const std::string& constraint) {
    return ReadPlannerInput(absl::StrCat(R"({"tables": [{"name": "t", "rows": 1e3, "dim": 2}],
        "topology": {"servers": [{"name": "s", "host_bytes": 10}]},
        "planner": {"strategy": "torchrec", "constraints": [{"table": "t")",
                                         constraint, "}]}}"));
  };
  const PlanResult<PlannerInput> input = read(R"(, "prefetch_passes": 5)");
  ASSERT_TRUE(input.ok()) << input.error().message;
  EXPECT_EQ(input.value().options.constraints[0].prefetch_passes, 5u);
  EXPECT_EQ(read("").value().options.constraints[0].prefetch_passes, 1u);
  EXPECT_NE(ContextHash(input.value()), ContextHash(read("").value()));
  const auto refused = ValidateInput(read(R"(, "prefetch_passes": 0)").value());
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->message, "table 't': prefetch_passes is 0; at least 1 is needed");
}

TEST(ReadPlannerInput, DefaultsOfASmallInput) {
  const PlanResult<PlannerInput> read = ReadPlannerInput(R"({
    "tables": [{"name": "t", "rows": 1e3, "dim": 2}],
    "topology": {"servers": [{"name": "s", "host_bytes": 10}]},
    "planner": {"strategy": "cost"}})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value().tables[0].rows, 1000u);
  EXPECT_EQ(read.value().tables[0].row_statistics, RowStatistics::kRow);
  ASSERT_EQ(read.value().features.size(), 1u) << "each table has a feature of its name";
  EXPECT_EQ(read.value().features[0].name, "t");
  EXPECT_EQ(read.value().workload.batch_size, 512u);
}

TEST(ReadPlannerInput, SourcesSliceWhatSaysNothing) {
  const auto statistics = [](const std::string& strategy, const std::string& extra) {
    const auto read =
        ReadPlannerInput(R"({"tables": [{"name": "t", "rows": 1, "dim": 2)" + extra +
                         R"(}], "topology": {"servers": [{"name": "s", "host_bytes": 10}]},
            "planner": {"strategy": ")" +
                         strategy + R"("}})");
    EXPECT_TRUE(read.ok());
    return read.value().tables[0].row_statistics;
  };
  EXPECT_EQ(statistics("basic", ""), RowStatistics::kSlice);
  EXPECT_EQ(statistics("basic", R"(, "optimizer": "rowwise_adagrad")"), RowStatistics::kRow);
  EXPECT_EQ(statistics("basic", R"(, "row_statistics": "row")"), RowStatistics::kRow);
  EXPECT_EQ(statistics("basic", R"(, "weight_type": "int8")"), RowStatistics::kRow);
  EXPECT_EQ(statistics("fair", ""), RowStatistics::kRow);
}

TEST(ReadPlannerInput, UnknownKeysNameTheNearest) {
  EXPECT_EQ(ErrorWith("\"zipf\"", "\"zipff\"").message,
            "tables[0].zipff: unknown key 'zipff'; the nearest known one is 'zipf'");
  EXPECT_EQ(ErrorWith("\"topology\"", "\"topologie\"").message,
            "topologie: unknown key 'topologie'; the nearest known one is 'topology'");
  EXPECT_EQ(ErrorWith("\"inter_host\"", "\"interhost\"").message,
            "topology.bandwidth.interhost: unknown key 'interhost'; the nearest known one is "
            "'inter_host'");
  EXPECT_EQ(ErrorWith("\"kind\"", "\"kindd\"").message,
            "planner.reserve.kindd: unknown key 'kindd'; the nearest known one is 'kind'");
  EXPECT_EQ(ErrorWith("\"adam\"", "\"adamm\"").message,
            "tables[0].optimizer: unknown value 'adamm'; the nearest known one is 'adam'");
  EXPECT_EQ(ErrorWith("\"adam\"", "\"adamm\"").table, "user");
}

TEST(ReadPlannerInput, WrongTypesAndNumbersSayWhere) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"\"rows\": 1000", "\"rows\": \"1000\"",
       "tables[0].rows: expected a whole number, found string"},
      {"\"rows\": 1000", "\"rows\": -1", "tables[0].rows: -1 is negative"},
      {"\"rows\": 1000", "\"rows\": 1.5", "tables[0].rows: 1.5 is not a whole number"},
      {"\"rows\": 1000", "\"rows\": 9223372036854775808",
       "tables[0].rows: 9223372036854775808 is above the limit 9223372036854775807"},
      {"\"rows\": 1000", "\"rows\": 99999999999999999999",
       "tables[0].rows: 1e+20 is above the limit 9223372036854775807"},
      {"\"rows\": 1000", "\"rows\": 0", "table 'user': rows is 0; at least 1 is needed"},
      {"\"rows\": 1000, ", "", "tables[0].rows: missing"},
      {"\"dim\": 8", "\"dim\": 0", "table 'user': dim is 0; at least 1 is needed"},
      {"\"dim\": 8", "\"dim\": 4294967296",
       "tables[0].dim: 4294967296 is above the limit 4294967295"},
      {"\"name\": \"user\"", "\"name\": null", "tables[0].name: expected a string, found null"},
      {"12.5", "-0.5", "table 'user': reads_per_step -0.5 is not a number of 0 or more"},
      {"12.5", "1e19", "tables[0].reads_per_step: 1e+19 is beyond 2^63"},
      {"[0.5, 0.9]", "[0.5]",
       "tables[0].hotness[1]: expected [fraction of rows, fraction of accesses], found 1 numbers"},
      {"[0.5, 0.9]", "[0.05, 0.9]",
       "table 'user': hotness[1] is [0.05, 0.9]; fractions must ascend within 0 to 1"},
      {"\"draining\": true", "\"draining\": 1",
       "topology.servers[0].draining: expected true or false, found number"},
      {"\"host_bytes\": 2000000", "\"host_bytes\": {}",
       "topology.servers[1].host_bytes: expected a whole number, found object"},
      {"\"workload\": {\"batch_size\": 64, \"trainers\": 3}", "\"workload\": []",
       "workload: expected an object, found array"},
  };
  for (const auto& [from, to, message] : cases) {
    const PlanError error = ErrorWith(from, to);
    EXPECT_EQ(error.message, message);
    EXPECT_EQ(error.kind, PlanErrorKind::kInput);
  }
}

TEST(ReadPlannerInput, NamesMustBeKnownAndDiffer) {
  const PlanError feature =
      ErrorWith("\"table\": \"item\", \"pooling", "\"table\": \"items\", \"pooling");
  EXPECT_EQ(feature.message, "features[0].table: no table is named 'items'");
  EXPECT_EQ(feature.table, "items");
  const PlanError pin = ErrorWith("\"servers\": [\"s1\"]", "\"servers\": [\"s7\"]");
  EXPECT_EQ(pin.message, "planner.constraints[0].servers[0]: no server is named 's7'");
  EXPECT_EQ(pin.table, "item");
  EXPECT_EQ(ErrorWith("\"item\"", "\"user\"").table, "user");
  EXPECT_EQ(ErrorWith("\"name\": \"g\"", "\"name\": \"f\"").message,
            "two features are named 'f'; names must differ");
  EXPECT_EQ(ErrorWith("\"name\": \"s1\"", "\"name\": \"s0\"").message,
            "planner.constraints[0].servers[0]: no server is named 's1'");
}

TEST(ReadPlannerInput, WhatIsNoJson) {
  const auto error = [](const std::string& text) {
    const auto read = ReadPlannerInput(text);
    EXPECT_FALSE(read.ok());
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_NE(error("").find("not valid JSON at byte"), std::string::npos);
  EXPECT_NE(error("{\"tables\": NaN}").find("not valid JSON at byte 12"), std::string::npos);
  EXPECT_NE(error("{\"tables\": 1e400}").find("not valid JSON at byte"), std::string::npos);
  EXPECT_NE(error("{\"a\": \"\xff\"}").find("not valid JSON at byte"), std::string::npos);
  EXPECT_NE(error("{} {}").find("not valid JSON at byte"), std::string::npos);
  EXPECT_EQ(error("{\"tables\": [{\"a\": 1, \"a\": 2}]}"), "key 'a' stands twice in tables[0]");
  EXPECT_EQ(error("{\"tables\": 1, \"tables\": 2}"),
            "key 'tables' stands twice in the outermost object");
  EXPECT_EQ(error("[]"), "input: expected an object, found array");
  EXPECT_EQ(error(std::string(1000000, '[')), "nested deeper than 32 levels");
}

TEST(ValidateInput, CurrentPlansTile) {
  const auto error = [](const std::string& shards) {
    const auto read = ReadPlannerInput(
        R"({"tables": [{"name": "t", "rows": 10, "dim": 4}],
            "topology": {"servers": [{"name": "s", "host_bytes": 1000}]},
            "planner": {"strategy": "basic"},
            "current": {"tables": [{"name": "t", "shards": [)" +
        shards + R"(]}]}})");
    EXPECT_TRUE(read.ok()) << read.error().message;
    const auto found = ValidateInput(read.value());
    return found ? found->message : "";
  };
  const std::string left = R"({"server": "s", "rows": [0, 10], "columns": [0, 2]})";
  const std::string right = R"({"server": "x", "rows": [0, 10], "columns": [2, 4]})";
  const std::string low = R"({"server": "x", "rows": [5, 10], "columns": [2, 4]})";
  const std::string replica =
      R"({"server": "x", "role": "replica", "rows": [0, 10], "columns": [0, 2]})";
  EXPECT_EQ(error(left + "," + right + "," + replica), "");
  EXPECT_EQ(error(left + "," + low),
            "table 't': the current plan does not tile it: its primaries cover 30 of 40 elements");
  EXPECT_EQ(error(left + "," + right + "," + low),
            "table 't': the current plan does not tile it: rows [0, 10) x columns [2, 4) and rows "
            "[5, 10) x columns [2, 4) overlap");
  EXPECT_NE(error(R"({"server": "s", "rows": [0, 11], "columns": [0, 4]})").find("lies outside"),
            std::string::npos);
}

TEST(ValidateInput, TakesNoMoreThanItCanCount) {
  const PlanError error = ErrorWith("\"rows\": 1000", "\"rows\": 9223372036854775807");
  EXPECT_EQ(error.table, "user");
  EXPECT_NE(error.message.find("more than 2^63 bytes"), std::string::npos) << error.message;
}

TEST(ContextHash, CountsEveryFieldButTheCurrentPlan) {
  const PlannerInput input = ReadPlannerInput(kFullInput).value();
  const std::string hash = ContextHash(input);
  EXPECT_EQ(hash.size(), 16u);
  PlannerInput other = input;
  other.current.emplace();
  EXPECT_EQ(ContextHash(other), hash);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"1000,", "1001,"},
      {"fp16", "bf16"},
      {"\"adam\"", "\"adamw\""},
      {"12.5", "12.25"},
      {"1.05", "1.06"},
      {"[0.1, 0.5]", "[0.1, 0.6]"},
      {"\"z0\"", "\"z1\""},
      {"0.25", "0.5"},
      {"\"spill\": 6.0", "\"spill\": 7.0"},
      {": 64", ": 65"},
      {"null", "1"},
      {"\"grid\"", "\"data_parallel\""},
      {"\"seed\": 4", "\"seed\": 5"},
      {"\"columns_min\": 4", "\"columns_min\": 3"},
      {"\"weighted\": true", "\"weighted\": false"},
      {"heuristic", "inference"},
  };
  for (const auto& [from, to] : changes) {
    const auto changed = ReadPlannerInput(absl::StrReplaceAll(kFullInput, {{from, to}}));
    ASSERT_TRUE(changed.ok()) << changed.error().message;
    EXPECT_NE(ContextHash(changed.value()), hash) << from;
  }
}

// Equal on every machine and in every build: a change of this number changes every stored plan's.
TEST(ContextHash, IsFixed) {
  EXPECT_EQ(ContextHash(ReadPlannerInput(kFullInput).value()), "a27541fcc0bd4103");
}

}  // namespace read_input_test
}  // namespace hotbed
