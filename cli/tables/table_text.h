// Tables, shards and servers as command-line text and as JSON. Pure functions.
#ifndef HOTBED_CLI_TABLES_TABLE_TEXT_H_
#define HOTBED_CLI_TABLES_TABLE_TEXT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tables/table_spec.h"
#include "nlohmann/json.hpp"
#include "proto/control.pb.h"

namespace hotbed {

// "zero", "constant:1", "uniform:-0.01,0.01", "normal:0,0.01", "truncated-normal:0,0.01".
// InvalidArgument names the text and the forms.
absl::StatusOr<InitializerParams> ParseInitializer(const std::string& text);
std::string InitializerText(const InitializerParams& initializer);

// "rowwise-adagrad lr=0.05 eps=1e-08"
std::string OptimizerText(const OptimizerParams& optimizer);
// "bounded, 1,000 rows" or "hashed" or "hashed, about 1,000 rows"
std::string KindText(const TableSpec& spec);
// The policies in force by which rows come and go, and what rows keep for them, as far as they are
// not the defaults: "touches ttl-s=60 evict-by=lfu"; "they stay" if all are.
std::string PoliciesText(const TableSpec& spec);

// All options and changes; ReadTableFile reads it back.
nlohmann::ordered_json TableJson(const TableSpec& spec);

// The name of a server, for messages that carry only its number.
std::string ServerName(const v1::ClusterMap& map, uint64_t server);
std::string ShardName(const v1::ClusterMap& map, uint64_t packed_shard);
std::string ColumnsText(const v1::ShardRecord& record);  // "0..16", inclusive
nlohmann::ordered_json ShardJson(const v1::ClusterMap& map, const v1::ShardRecord& record);

}  // namespace hotbed

#endif  // HOTBED_CLI_TABLES_TABLE_TEXT_H_
