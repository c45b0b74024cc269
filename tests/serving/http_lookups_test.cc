#include "serving/http_lookups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "row_math/quantize.h"
#include "serving/http/lookup_body.h"
#include "serving/http/lookup_reply.h"
#include "serving/http/table_list.h"
#include "serving/http/top_k_body.h"
#include "tests/common/test_seed.h"
#include "tests/serving/mutate_lookup.h"

namespace hotbed {
namespace http_lookups_test {

using Json = nlohmann::json;
using testing::HasSubstr;

constexpr uint64_t kEntriesMax = 100;

absl::StatusOr<LookupBody> Parse(const std::string& json) {
  return ParseLookupBody(json, kEntriesMax);
}

TEST(LookupBodyTest, EveryFieldIsRead) {
  const absl::StatusOr<LookupBody> body = Parse(
      R"({"ids": [0, 18446744073709551615], "pooling": "mean", "offsets": [0, 1],
          "weights": [0.5, -2], "type": "fp16", "encoding": "base64", "timeout_ms": 50,
          "staleness_max_ms": 30000})");
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(body->ids, (std::vector<uint64_t>{0, std::numeric_limits<uint64_t>::max()}));
  EXPECT_EQ(body->pooling, v1::SERVED_MEAN);
  EXPECT_EQ(body->offsets, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(body->weights, (std::vector<float>{0.5f, -2}));
  EXPECT_EQ(body->type, RowType::kFp16);
  EXPECT_TRUE(body->base64);
  EXPECT_EQ(body->timeout_ms, 50u);
  EXPECT_EQ(body->staleness_ms_max, 30'000u);
  // 7 and 1, little-endian.
  const absl::StatusOr<LookupBody> packed = Parse(R"({"ids": "BwAAAAAAAAABAAAAAAAAAA=="})");
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->ids, (std::vector<uint64_t>{7, 1}));
  EXPECT_EQ(Parse(R"({"ids": []})")->ids.size(), 0u);
}

TEST(LookupBodyTest, ErrorsNameFieldValueAndLimit) {
  const std::string too_many = absl::StrCat(
      "{\"ids\": [0", absl::StrReplaceAll(std::string(kEntriesMax, 'x'), {{"x", ",1"}}), "]}");
  for (const auto& [json, text] : std::initializer_list<std::pair<std::string, std::string>>{
           {"", "the body is no JSON, at byte"},
           {"{", "the body is no JSON, at byte"},
           {R"({"ids": [NaN]})", "the body is no JSON, at byte"},
           {R"({"ids": [1e999]})", "the body is no JSON, at byte"},
           {R"({"ids": [1]} 2)", "the body is no JSON, at byte"},
           {"[1]", "the body is an array; allowed: an object"},
           {"3", "the body is 3; allowed: an object"},
           {"{}", "ids is missing"},
           {R"({"ids": [1], "idz": 2})", "idz is unknown; allowed: ids, pooling, offsets"},
           {R"({"ids": [1], "ids": [2]})", "ids is there twice"},
           {R"({"ids": [1, -1]})", "ids[1] is -1; allowed: an array of integers 0..184467"},
           {R"({"ids": [1.5]})", "ids[0] is 1.5; allowed"},
           {R"({"ids": [18446744073709551616]})", "ids[0] is 18446744073709551616; allowed"},
           {R"({"ids": ["1"]})", R"(ids[0] is "1"; allowed)"},
           {R"({"ids": [null]})", "ids[0] is null; allowed"},
           {R"({"ids": [[1]]})", "ids[0] is an array; allowed"},
           {R"({"ids": {"a": 1}})", "ids is an object; allowed"},
           {R"({"ids": 7})", "ids is 7; allowed"},
           {R"({"ids": "AA=="})", R"(ids is "AA=="; allowed: base64 of 8 bytes per id)"},
           {R"({"ids": "!!"})", R"(ids is "!!"; allowed: base64)"},
           {too_many, "ids is longer than 100 entries; allowed: 0..100 entries"},
           {R"({"ids": [], "pooling": "avg"})", R"(pooling is "avg"; allowed: "none", "sum")"},
           {R"({"ids": [], "pooling": true})", "pooling is true; allowed"},
           {R"({"ids": [], "offsets": [4294967296]})", "offsets[0] is 4294967296; allowed"},
           {R"({"ids": [], "weights": [1e39]})", "weights[0] is 1e39; allowed: an array of finite"},
           {R"({"ids": [], "type": "fp8"})", R"(type is "fp8"; allowed: "fp32")"},
           {R"({"ids": [], "encoding": []})",
            "encoding is an array; allowed: \"array\", \"base64\""},
           {R"({"ids": [], "timeout_ms": 0})", "timeout_ms is 0; allowed: 1..86400000"},
           {R"({"ids": [], "staleness_max_ms": -3})", "staleness_max_ms is -3; allowed"}}) {
    const absl::StatusOr<LookupBody> body = Parse(json);
    EXPECT_EQ(body.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(body.status().message()), HasSubstr(text)) << json;
    // The error is a JSON document, whatever the body holds.
    const Json error = Json::parse(ErrorResponse(400, body.status()).body)["error"];
    EXPECT_EQ(error["message"], std::string(body.status().message()));
    if (absl::StrContains(text, "no JSON")) continue;
    EXPECT_TRUE(error.contains("field") && error.contains("value") && error.contains("limit"))
        << error;
  }
  const absl::Status weights = RequestOf(*Parse(R"({"ids": [1, 2], "pooling": "sum",
      "offsets": [0], "weights": [1]})"),
                                         7, "user")
                                   .status();
  EXPECT_EQ(weights.message(),
            "table \"user\": weights is 1 entries long; allowed: 2, one per id, "
            "or none");
  const absl::Status offsets = RequestOf(*Parse(R"({"ids": [1, 2], "pooling": "sum",
      "offsets": [0, 3]})"),
                                         7, "user")
                                   .status();
  EXPECT_THAT(offsets.message(), HasSubstr("table \"user\": offsets[1] is 3; allowed: 0"));
}

TEST(LookupBodyTest, AnyBytesAreReadOrRefused) {
  const TestSeed seed(827);
  Random random(seed.value());
  for (int i = 0; i < 20'000; ++i) {
    const std::string json = MutatedLookup(&random);
    ASSERT_EQ(LookupFault(json), "") << json;
  }
}

v1::ServingLookupReply ReplyOf(const std::vector<float>& values, uint32_t dim, std::string exists) {
  v1::ServingLookupReply reply;
  reply.add_tables()->set_dim(dim);
  reply.mutable_tables(0)->set_age_ms(12);
  reply.set_rows(std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  reply.set_exists(std::move(exists));
  return reply;
}

TEST(LookupReplyTest, ArraysReadAsTheSameFloats) {
  const std::vector<float> values = {0.1f, -0.0f, 1e-45f, 3.4028235e38f, NAN, -INFINITY};
  LookupBody body;
  body.ids = {1, 2};
  const HttpResponse response = LookupResponse(ReplyOf(values, 3, std::string("\1\0", 2)), body,
                                               LookupForm::kArrays, "us\"er", "r0");
  EXPECT_EQ(response.type, "application/json");
  EXPECT_LE(response.body.size(), ResponseBytes(body, 3, LookupForm::kArrays));
  const Json json = Json::parse(response.body);
  EXPECT_EQ(json["table"], "us\"er");
  EXPECT_EQ(json["age_ms"], 12);
  EXPECT_EQ(json["exists"], Json::parse("[true, false]"));
  for (size_t i = 0; i < values.size(); ++i) {
    const Json& element = json["values"][i / 3][i % 3];
    if (!std::isfinite(values[i])) {
      EXPECT_TRUE(element.is_null());
    } else {
      EXPECT_EQ(element.get<float>(), values[i]);
    }
  }
}

TEST(LookupReplyTest, Base64AndOctetsAreTheBytesOfTheType) {
  LookupBody body;
  body.ids = {1, 2, 3};
  body.pooling = v1::SERVED_SUM;
  body.offsets = {0, 2};
  const v1::ServingLookupReply reply = ReplyOf({1, 2, 3, 4}, 2, std::string("\1\0\1", 3));
  const Json json =
      Json::parse(LookupResponse(reply, body, LookupForm::kBase64, "user", "r0").body);
  EXPECT_EQ(json["values"], absl::Base64Escape(reply.rows()));
  EXPECT_EQ(json["exists"], absl::Base64Escape(reply.exists()));
  EXPECT_EQ(json["rows"], 2);
  const HttpResponse octets = LookupResponse(reply, body, LookupForm::kOctets, "user", "r0");
  EXPECT_EQ(octets.body, reply.rows() + reply.exists());
  EXPECT_LE(octets.body.size(), ResponseBytes(body, 2, LookupForm::kOctets));
  EXPECT_THAT(octets.headers, testing::Contains(testing::Pair("Hotbed-Rows", "2")));
  EXPECT_THAT(octets.headers, testing::Contains(testing::Pair("Hotbed-Ids", "3")));
}

TEST(LookupReplyTest, TiersAreToldIfAskedFor) {
  LookupBody body = *ParseLookupBody(R"({"ids": [1, 2, 3, 4], "with_tiers": true})", 10);
  EXPECT_TRUE(RequestOf(body, 7, "user")->with_tiers());
  v1::ServingLookupReply reply = ReplyOf({1, 2, 3, 4}, 1, std::string("\1\1\0\1", 4));
  reply.set_tiers(std::string("\2\1\0\3", 4));
  const auto answer = [&](LookupForm form) {
    const HttpResponse response = LookupResponse(reply, body, form, "user", "r0");
    EXPECT_LE(response.body.size(), ResponseBytes(body, 1, form));
    return response;
  };
  EXPECT_EQ(Json::parse(answer(LookupForm::kArrays).body)["tiers"],
            Json::parse(R"(["disk", "memory", "none", "device"])"));
  EXPECT_EQ(Json::parse(answer(LookupForm::kBase64).body)["tiers"],
            absl::Base64Escape(reply.tiers()));
  const HttpResponse octets = answer(LookupForm::kOctets);
  EXPECT_EQ(octets.body, reply.rows() + reply.exists() + reply.tiers());
  EXPECT_THAT(octets.headers, testing::Contains(testing::Pair("Hotbed-Tiers", "4")));
  body = *ParseLookupBody(R"({"ids": [1]})", 10);
  EXPECT_FALSE(Json::parse(answer(LookupForm::kArrays).body).contains("tiers"));
}

TEST(TopKBodyTest, FieldsAreReadAndErrorsNameThem) {
  const absl::StatusOr<TopKBody> body = ParseTopKBody(
      R"({"vectors": [[0.5, -1], [2, 3e3]], "k": 3, "metric": "l2", "only_ids": [7, 8],
          "first_id": 1, "last_id": 18446744073709551615, "timeout_ms": 50, "version": "v1"})",
      kEntriesMax);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(body->vectors, (std::vector<float>{0.5f, -1, 2, 3e3}));
  EXPECT_EQ(body->version, "v1");
  const v1::ServingTopKRequest request = *TopKRequestOf(*body, 7, 2, "user");
  EXPECT_EQ(request.k(), 3u);
  EXPECT_EQ(request.metric(), v1::TOP_K_L2);
  EXPECT_TRUE(request.only_ids());
  EXPECT_EQ(request.ids().size(), 16u);
  EXPECT_EQ(request.vectors().size(), 16u);
  EXPECT_EQ(TopKRequestOf(*body, 7, 3, "user").status().message(),
            "table \"user\": vectors[0] is 2 numbers long; allowed: 3, the dim of the table");
  // 1 and -2, little-endian; an empty list of ids is one, too.
  const absl::StatusOr<TopKBody> packed =
      ParseTopKBody(R"({"vectors": "AACAPwAAAMA=", "only_ids": []})", kEntriesMax);
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->vectors, (std::vector<float>{1, -2}));
  EXPECT_TRUE(packed->only);
  for (const auto& [json, text] : std::initializer_list<std::pair<std::string, std::string>>{
           {"{}", "vectors is missing"},
           {R"({"vectors": [1]})", "vectors[0] is 1; allowed: an array of vectors"},
           {R"({"vectors": [[1, 1e39]]})", "vectors[0][1] is 1e39; allowed: an array of vectors"},
           {R"({"vectors": [[[1]]]})", "vectors[0][0] is an array"},
           {R"({"vectors": "AAA="})", "base64 of 4 bytes per number"},
           {R"({"vectors": [[1]], "k": 0})", "k is 0; allowed: 1..16384"},
           {R"({"vectors": [[1]], "metric": "max"})", R"(metric is "max"; allowed: "dot")"},
           {R"({"vectors": [[1]], "last_id": -1})", "last_id is -1; allowed: 0.."},
           {R"({"vectors": [[1]], "ids": []})", "ids is unknown; allowed: vectors, k"}}) {
    const absl::Status error = ParseTopKBody(json, kEntriesMax).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(error.message()), HasSubstr(text)) << json;
  }
}

TEST(TopKReplyTest, TheNearestOfEachVectorAreAsTheyWereFound) {
  v1::ServingTopKReply reply;
  const uint64_t ids[] = {7, 18446744073709551615u, 3};
  const double scores[] = {0.1, NAN, -1e300};
  reply.set_ids(ids, sizeof(ids));
  reply.set_scores(scores, sizeof(scores));
  for (const uint32_t count : {2u, 0u, 1u}) reply.add_counts(count);
  const HttpResponse response = TopKResponse(reply, "user", "r0", "v1");
  EXPECT_EQ(Json::parse(response.body)["nearest"], Json::parse(R"([
      {"ids": [7, 18446744073709551615], "scores": [0.1, null]}, {"ids": [], "scores": []},
      {"ids": [3], "scores": [-1e300]}])"));
  TopKBody body;
  body.vectors = {1, 2, 3};
  body.k = 2;
  EXPECT_LE(response.body.size(), TopKResponseBytes(body, 1));
}

// --- routes

constexpr char kNowhere[] = "127.0.0.1:1";  // nothing listens there

class HttpLookupsTest : public testing::Test {
 protected:
  HttpLookupsTest() : tables_({kNowhere, {}}, 1 << 20, Clock::Real()), budget_(1 << 20) {
    v1::ServingOrders orders;
    orders.add_tables()->set_table(7);
    v1::TableSpec& spec = *orders.add_specs();
    spec.set_id(7);
    spec.set_name("ads/clicks");
    spec.set_dim(4);
    tables_.Obey(orders, "c");
  }

  HttpResponse Ask(const std::string& method, const std::string& path, const std::string& body = "",
                   const std::string& token = "", int64_t age_ns = 0) {
    HttpLookupOptions options = {.server = "r0", .message_bytes_max = message_bytes_max_};
    if (asks_for_tokens_) {
      options.access = [](absl::string_view shown, absl::string_view call,
                          absl::string_view table) {
        if (shown.empty()) return absl::UnauthenticatedError("no token");
        const bool may = shown == "t" && (table.empty() || table == "ads/clicks");
        return may ? absl::OkStatus() : absl::PermissionDeniedError("not you");
      };
    }
    if (others_ != nullptr) options.others = [this](absl::Duration) { return others_; };
    if (batch_ != nullptr) {
      options.run = [this](const LookupQueue::Wanted& wanted, LookupQueue::Task task, int64_t*) {
        *batch_ = wanted.batch;
        task();
        return absl::OkStatus();
      };
    }
    if (retry_ms_ > 0) {
      options.run = [this](const LookupQueue::Wanted&, LookupQueue::Task, int64_t* retry_ns) {
        *retry_ns = retry_ms_ * kMillisecondNs;
        return absl::ResourceExhaustedError("too much waits");
      };
    }
    HttpLookups lookups(options, &tables_, &budget_, Clock::Real());
    HttpRequest request = {.method = method, .path = path};
    request.body = body;
    request.arrived_ns = Clock::Real()->NowNs() - age_ns;
    if (!token.empty()) request.authorization = "Bearer " + token;
    return lookups.Answer(request);
  }

  TableReplicas tables_;
  AnswerBudget budget_;
  bool asks_for_tokens_ = false;
  uint64_t message_bytes_max_ = 1000;
  ServingClient* others_ = nullptr;
  bool* batch_ = nullptr;  // of the newest lookup
  int64_t retry_ms_ = 0;   // above 0: lookups are refused with this hint
};

// Answers tables "user" and "item" with rows of their ids, and has no others.
class FakeOthers final : public ServingClient {
 public:
  uint32_t Dim(const std::string& table) const override { return table == "nobody" ? 0 : 2; }
  absl::StatusOr<std::vector<ServingRows>> Lookup(const std::vector<ServingIds>& tables,
                                                  const ServingLookupOptions& options) override {
    options_ = options;
    std::vector<ServingRows> answer(tables.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      ServingRows& one = answer[i];
      if (tables[i].table == "nobody") {
        one.status = absl::NotFoundError("nobody is not served");
        if (!options.partial || tables.size() == 1) return one.status;
        continue;
      }
      one.dim = 2;
      one.server = "r9";
      one.version = options.version.empty() ? "" : "v3";
      one.age = absl::Microseconds(1500);
      for (const uint64_t id : tables[i].ids) {
        one.values.push_back(static_cast<float>(id));
        one.values.push_back(0.5f);
        one.exists.push_back(id % 2);
      }
      if (tables[i].table == "cut" && options.partial) {  // the first row is of a part that is away
        one.status = absl::UnavailableError("part 1 is away");
        one.known.assign(tables[i].ids.size(), 1);
        one.known[0] = 0;
      }
    }
    return answer;
  }
  absl::StatusOr<ServingNearest> TopK(const std::string& table, absl::Span<const float> vectors,
                                      uint32_t k, const ServingTopKOptions&) override {
    if (table == "nobody") return absl::NotFoundError("nobody is not served");
    ServingNearest nearest;
    nearest.rows = {{{.id = vectors.size(), .score = 2.5}, {.id = k, .score = 1}}};
    nearest.server = "r9";
    nearest.version = "v3";
    return nearest;
  }
  ServingClientStats stats() const override { return {}; }
  ServingLookupOptions options_;  // of the newest lookup
};

TEST_F(HttpLookupsTest, OthersAreAskedForTheirCopies) {
  FakeOthers others;
  others_ = &others;
  HttpResponse response =
      Ask("POST", "/v1/tables/user:lookup",
          R"({"ids": [3, 4], "version": "current", "priority": "batch", "timeout_ms": 60000})");
  ASSERT_EQ(response.code, 200) << response.body;
  EXPECT_EQ(Json::parse(response.body), Json::parse(R"({"table": "user", "server": "r9",
      "version": "v3", "age_ms": 2, "type": "fp32", "dim": 2, "rows": 2,
      "values": [[3, 0.5], [4, 0.5]], "exists": [true, false]})"));
  EXPECT_EQ(others.options_.version, "current");
  EXPECT_EQ(others.options_.priority, ServingPriority::kBatch);
  EXPECT_LE(others.options_.timeout, absl::Seconds(60));
  EXPECT_GT(others.options_.timeout, absl::Seconds(1));
  // Values in base64 have the type that was asked for.
  response = Ask("POST", "/v1/tables/user:lookup",
                 R"({"ids": [1], "type": "fp16", "encoding": "base64"})");
  EXPECT_EQ(Json::parse(response.body)["values"], "ADwAOA==");
  // A copy that is being loaded here may be whole there.
  EXPECT_EQ(Ask("POST", "/v1/tables/ads%2Fclicks:lookup", R"({"ids": [1]})").code, 200);
  response = Ask("POST", "/v1/tables/user:topk", R"({"vectors": [[1, 2]], "k": 1})");
  EXPECT_EQ(Json::parse(response.body)["nearest"],
            Json::parse(R"([{"ids": [2, 1], "scores": [2.5, 1]}])"));
  EXPECT_EQ(Ask("POST", "/v1/tables/nobody:lookup", R"({"ids": [1]})").code, 404);
  EXPECT_EQ(Ask("POST", "/v1/tables/nobody:topk", R"({"vectors": [[1]]})").code, 404);
  EXPECT_EQ(Ask("POST", "/v1/tables/user:topk", R"({"vectors": [[1, 2, 3]]})").code, 400);
  EXPECT_EQ(Ask("POST", "/v1/tables/user:lookup",
                R"({"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]})")
                .code,
            413);
  EXPECT_EQ(budget_.in_flight(), 0u);
}

TEST_F(HttpLookupsTest, SeveralTablesAreAnsweredTogetherOrInPart) {
  FakeOthers others;
  others_ = &others;
  message_bytes_max_ = 4000;
  const auto ask = [&](const std::string& tables, const std::string& more) {
    return Ask("POST", "/v1/lookup", absl::StrCat("{\"tables\": [", tables, "]", more, "}"), "t");
  };
  const std::string user = R"({"table": "user", "ids": [1]})";
  const std::string nobody = R"({"table": "nobody", "ids": [1]})";
  HttpResponse response = ask(user + R"(, {"ids": [5], "table": "item"})", "");
  ASSERT_EQ(response.code, 200) << response.body;
  Json tables = Json::parse(response.body)["tables"];
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[1]["table"], "item");
  EXPECT_EQ(tables[1]["values"], Json::parse("[[5, 0.5]]"));
  EXPECT_EQ(ask(absl::StrCat(user, ",", nobody), "").code, 404);
  response = ask(absl::StrCat(user, ",", nobody), ", \"partial\": true");
  ASSERT_EQ(response.code, 200) << response.body;
  tables = Json::parse(response.body)["tables"];
  EXPECT_EQ(tables[0]["exists"], Json::parse("[true]"));
  EXPECT_EQ(tables[1], Json::parse(R"({"table": "nobody", "error": {
      "code": 404, "message": "nobody is not served"}})"));
  EXPECT_EQ(ask(nobody, ", \"partial\": true").code, 404) << "no part is left";
  for (const bool base64 : {false, true}) {
    response = ask(R"({"table": "cut", "ids": [4, 5]})",
                   absl::StrCat(", \"partial\": true", base64 ? R"(, "encoding": "base64")" : ""));
    ASSERT_EQ(response.code, 200) << response.body;
    const Json cut = Json::parse(response.body)["tables"][0];
    EXPECT_EQ(cut["known"], base64 ? Json("AAE=") : Json::parse("[false, true]"));
    EXPECT_EQ(cut["exists"], base64 ? Json("AAE=") : Json::parse("[false, true]"));
    EXPECT_EQ(cut["error"], Json::parse(R"({"code": 503, "message": "part 1 is away"})"));
  }
  // Rules are looked at by table.
  asks_for_tokens_ = true;
  const std::string clicks = R"({"table": "ads/clicks", "ids": [1]})";
  EXPECT_EQ(ask(clicks, "").code, 200);
  EXPECT_EQ(ask(absl::StrCat(clicks, ",", user), "").code, 403);
  response = ask(absl::StrCat(clicks, ",", user), ", \"partial\": true");
  ASSERT_EQ(response.code, 200) << response.body;
  EXPECT_EQ(Json::parse(response.body)["tables"][1]["error"]["code"], 403);
  EXPECT_EQ(ask(user, ", \"partial\": true").code, 403);
  EXPECT_EQ(budget_.in_flight(), 0u);
}

TEST_F(HttpLookupsTest, PrioritiesGoToTheQueueOfLookups) {
  bool batch = false;
  batch_ = &batch;
  for (const bool wanted : {true, false}) {
    Ask("POST", "/v1/tables/ads%2Fclicks:lookup",
        absl::StrCat(R"({"ids": [1], "priority": ")", wanted ? "batch" : "inference", "\"}"));
    EXPECT_EQ(batch, wanted);
  }
}

TEST(LookupsBodyTest, ErrorsNameTheTableAndTheField) {
  const absl::StatusOr<LookupsBody> body = ParseLookupsBody(
      R"({"timeout_ms": 50, "tables": [{"table": "user", "ids": [1, 2]},
          {"ids": "AQAAAAAAAAA=", "table": "item", "pooling": "sum", "offsets": [0]}],
          "type": "fp16", "partial": true})",
      kEntriesMax);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_TRUE(body->partial);
  ASSERT_EQ(body->tables.size(), 2u);
  EXPECT_EQ(body->tables[0].table, "user");
  EXPECT_EQ(body->tables[1].ids, std::vector<uint64_t>{1});
  EXPECT_EQ(body->tables[1].type, RowType::kFp16);
  EXPECT_EQ(body->tables[1].timeout_ms, 50u);
  for (const auto& [json, text] : std::initializer_list<std::pair<std::string, std::string>>{
           {"{}", "tables is missing"},
           {R"({"tables": []})", "tables is empty; allowed: an array of 1..1024 objects"},
           {R"({"tables": {}})", "tables is an object; allowed: an array"},
           {R"({"tables": 5})", "tables is 5"},
           {R"({"tables": ["user"]})", "tables[0] is \"user\""},
           {R"({"tables": [[]]})", "tables[0] is an array"},
           {R"({"tables": [{"table": "user"}]})", "tables[0].ids is missing"},
           {R"({"tables": [{"table": "user", "ids": [1]}, {"ids": []}]})",
            "tables[1].table is missing"},
           {R"({"tables": [{"table": "user", "ids": [1, -2]}]})", "tables[0].ids[1] is -2"},
           {R"({"tables": [{"table": "user", "ids": [], "type": "fp16"}]})",
            "tables[0].type is unknown; allowed: table, ids"},
           {R"({"tables": [{"table": "user", "ids": {}}]})", "tables[0].ids is an object"},
           {R"({"tables": [], "tables": []})", "tables is there twice"},
           {R"({"tables": [{"table": "user", "ids": [1]}], "partial": 1})",
            "partial is 1; allowed: true, false"},
           {R"({"tables": [{"table": "user", "ids": [1)", "no JSON"}}) {
    const absl::Status error = ParseLookupsBody(json, kEntriesMax).status();
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_THAT(std::string(error.message()), HasSubstr(text)) << json;
  }
  EXPECT_FALSE(ParseLookupsBody(R"({"tables": [{"table": "a", "ids": [1, 2]},
                                               {"table": "b", "ids": [3]}]})",
                                2)
                   .ok())
      << "entries are limited over all tables";
}

TEST_F(HttpLookupsTest, ErrorsHaveTheCodeThatFits) {
  const std::string path = "/v1/tables/ads%2Fclicks:lookup";
  const auto code = [&](const std::string& body) { return Ask("POST", path, body).code; };
  EXPECT_EQ(code(R"({"ids": [1]})"), 503);  // it is being loaded
  EXPECT_EQ(code(R"({"ids": [-1]})"), 400);
  EXPECT_EQ(code(R"({"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]})"), 413);  // the answer is too large
  EXPECT_EQ(Ask("POST", path, R"({"ids": [1], "timeout_ms": 5})", "", 6 * kMillisecondNs).code,
            504);
  // An answer that is too large would be so the next time, too.
  EXPECT_EQ(Ask("POST", path, R"({"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9], "timeout_ms": 5})", "",
                6 * kMillisecondNs)
                .code,
            413);
  EXPECT_EQ(Ask("POST", "/v1/tables/user:lookup", R"({"ids": [1]})").code, 404);
  EXPECT_EQ(Ask("POST", "/v1/tables/%zz:lookup", R"({"ids": [1]})").code, 404);
  EXPECT_EQ(Ask("GET", path).code, 405);
  EXPECT_EQ(Ask("GET", "/v2").code, 404);
  ASSERT_TRUE(budget_.Take(1 << 20).ok());
  const HttpResponse busy = Ask("POST", path, R"({"ids": [1]})");
  EXPECT_EQ(busy.code, 429);
  EXPECT_THAT(busy.headers, testing::Contains(testing::Pair("Retry-After", "1")));
  budget_.Give(1 << 20);
  EXPECT_EQ(budget_.in_flight(), 0u);
}

TEST_F(HttpLookupsTest, ErrorsNameFieldValueAndLimit) {
  const std::string path = "/v1/tables/ads%2Fclicks:lookup";
  const auto error = [&](const std::string& of, const std::string& body, int64_t late_ns = 0) {
    return Json::parse(Ask("POST", of, body, "", late_ns).body)["error"];
  };
  const Json table = error("/v1/tables/user:lookup", R"({"ids": [1]})");
  EXPECT_EQ(table["field"], "table");
  EXPECT_EQ(table["value"], "user");
  const Json version = error(path, R"({"ids": [1], "version": "v9"})");
  EXPECT_EQ(version["field"], "version");
  EXPECT_EQ(version["value"], "v9");
  EXPECT_EQ(error(path, R"({"ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]})")["field"], "ids");
  const Json late = error(path, R"({"ids": [1], "timeout_ms": 5})", 6 * kMillisecondNs);
  EXPECT_EQ(late["field"], "timeout_ms");
  EXPECT_EQ(late["value"], "5");
}

TEST_F(HttpLookupsTest, ErrorsOfOverloadSayWhenToComeAgain) {
  retry_ms_ = 1001;
  const HttpResponse busy = Ask("POST", "/v1/tables/ads%2Fclicks:lookup", R"({"ids": [1]})");
  EXPECT_EQ(busy.code, 429);
  EXPECT_EQ(Json::parse(busy.body)["error"]["retry_ms"], 1001);
  EXPECT_THAT(busy.headers, testing::Contains(testing::Pair("Retry-After", "2")));
}

TEST_F(HttpLookupsTest, TopKChecksItsFieldsFirst) {
  const auto ask = [&](const std::string& body) {
    return Ask("POST", "/v1/tables/ads%2Fclicks:topk", body);
  };
  EXPECT_EQ(ask(R"({"vectors": [[1, 2, 3, 4]], "k": 2})").code, 503);  // it is being loaded
  EXPECT_EQ(ask(R"({"vectors": [[1, 2, 3, 4]]})").code, 413);          // the answer is too large
  for (const auto& [body, text] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"({"vectors": [[1, 2, 3]]})", "vectors[0] is 3 numbers long; allowed: 4"},
           {R"({"vectors": []})", "vectors is empty; allowed: 1..1024 vectors of 4 numbers"},
           {R"({"vectors": [[1, 2, 3, 4]], "first_id": 5, "last_id": 4})", "first_id is 5"},
           {R"({"vectors": "AADAfwAAAAAAAAAAAAAAAA=="})",
            "vectors[0][0] is nan; allowed: finite"}}) {
    const HttpResponse response = ask(body);
    EXPECT_EQ(response.code, 400) << body;
    EXPECT_THAT(response.body, HasSubstr(text)) << body;
  }
  EXPECT_EQ(budget_.in_flight(), 0u);
}

TEST_F(HttpLookupsTest, SomeSearchesWaitBesideOneAnother) {
  message_bytes_max_ = 100'000;
  HttpLookups* lookups = nullptr;
  HttpRequest request = {.method = "POST", .path = "/v1/tables/ads%2Fclicks:topk"};
  request.body = R"({"vectors": [[1, 2, 3, 4]], "k": 2})";
  request.arrived_ns = Clock::Real()->NowNs();
  int waiting = 0;
  HttpLookupOptions options = {.server = "r0", .message_bytes_max = message_bytes_max_};
  options.search = [&](const std::function<void()>& search) {
    // The next one comes while this one waits.
    const HttpResponse next = lookups->Answer(request);
    EXPECT_EQ(next.code, ++waiting == 1 ? 429 : 503)
        << next.body;  // 503: the table is being loaded
    search();
    return absl::OkStatus();
  };
  HttpLookups busy(options, &tables_, &budget_, Clock::Real());
  lookups = &busy;
  EXPECT_EQ(busy.Answer(request).code, 503);
  EXPECT_EQ(waiting, 6) << "and two threads of the port are left for lookups";
  EXPECT_EQ(budget_.in_flight(), 0u);
}

TEST_F(HttpLookupsTest, VersionsAreNamedAndTold) {
  v1::ServingOrders orders;
  orders.add_tables()->set_table(7);
  orders.add_specs()->set_id(7);
  orders.mutable_specs(0)->set_dim(4);
  v1::ServedVersion& version = *orders.add_versions();
  version.set_number(3);
  version.set_name("v3");
  version.add_tables(7);
  orders.add_current(3);
  const auto ask = [&](const std::string& name) {
    return Ask("POST", "/v1/tables/ads%2Fclicks:lookup",
               absl::StrCat(R"({"ids": [1], "version": ")", name, "\"}"));
  };
  EXPECT_EQ(ask("current").code, 503);  // there is none, as far as it knows
  tables_.Obey(orders, "c");
  for (const char* const name : {"current", "v3"}) {
    const HttpResponse response = ask(name);  // it is not taken up yet
    EXPECT_EQ(response.code, 503);
    EXPECT_THAT(response.body, HasSubstr("v3")) << response.body;
  }
  const HttpResponse none = ask("v4");
  EXPECT_EQ(none.code, 404);
  EXPECT_THAT(none.body, HasSubstr("no version \\\"v4\\\"; it has: v3"));
  EXPECT_EQ(Ask("POST", "/v1/tables/ads%2Fclicks:lookup",
                R"({"ids": [1], "version": "v3", "staleness_max_ms": 5})")
                .code,
            400);
  const Json listed = Json::parse(Ask("GET", "/v1/versions").body)["versions"];
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["version"], "v3");
  EXPECT_EQ(listed[0]["current"], true);
  EXPECT_EQ(listed[0]["held"], false);
  EXPECT_EQ(listed[0]["tables"], Json::parse(R"(["ads/clicks"])"));
}

TEST_F(HttpLookupsTest, TokensAreAskedForWhereThereAreRules) {
  asks_for_tokens_ = true;
  const std::string path = "/v1/tables/ads%2Fclicks:lookup", body = R"({"ids": [1]})";
  EXPECT_EQ(Ask("POST", path, body).code, 401);
  EXPECT_EQ(Ask("POST", path, body, "other").code, 403);
  EXPECT_EQ(Ask("POST", path, body, "t").code, 503);  // allowed, and it is being loaded
  EXPECT_EQ(Ask("POST", "/v1/tables/user:lookup", body, "t").code, 403);
  EXPECT_EQ(Ask("GET", "/v1/tables").code, 401);
  EXPECT_EQ(Ask("GET", "/v1/tables", "", "t").code, 200);
  EXPECT_EQ(Ask("GET", "/openapi.json").code, 200);
}

std::set<std::string> KeysOf(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

TEST_F(HttpLookupsTest, TheDocumentHasEveryFieldOfABody) {
  const Json document = Json::parse(Ask("GET", "/openapi.json").body);
  const Json& schemas = document["components"]["schemas"];
  // Each field of a body is read as its example has it, and no other field is.
  const Json& fields = schemas["Lookup"]["properties"];
  EXPECT_EQ(fields.size(), LookupFields().size());
  for (const auto& [name, field] : fields.items()) {
    Json body = {{"ids", {1}}};
    body[name] = field["example"];
    EXPECT_TRUE(Parse(body.dump()).ok()) << name << ": " << Parse(body.dump()).status();
  }
  const Json& several = schemas["Lookups"]["properties"];
  EXPECT_EQ(several.size(), LookupsFields().size());
  for (const auto& [name, field] : several.items()) {
    Json body = {{"tables", Json::parse(R"([{"table": "user", "ids": [1]}])")}};
    body[name] = field["example"];
    EXPECT_TRUE(ParseLookupsBody(body.dump(), kEntriesMax).ok()) << name;
  }
  const Json& each = several["tables"]["items"]["properties"];
  EXPECT_EQ(each.size(), LookupsTableFields().size());
  for (const auto& [name, field] : each.items()) {
    Json body = {{"table", "user"}, {"ids", {1}}};
    body[name] = field["example"];
    EXPECT_TRUE(ParseLookupsBody(Json{{"tables", {body}}}.dump(), kEntriesMax).ok()) << name;
  }
  const Json& top_k = schemas["TopK"]["properties"];
  EXPECT_EQ(top_k.size(), TopKFields().size());
  for (const auto& [name, field] : top_k.items()) {
    Json body = {{"vectors", Json::parse("[[1]]")}};
    body[name] = field["example"];
    EXPECT_TRUE(ParseTopKBody(body.dump(), kEntriesMax).ok()) << name;
  }
  EXPECT_EQ(schemas["Lookup"]["additionalProperties"], false);
  EXPECT_FALSE(Parse(R"({"ids": [], "another": 1})").ok());
}

TEST_F(HttpLookupsTest, TheDocumentHasEveryRouteAndEveryField) {
  const HttpResponse response = Ask("GET", "/openapi.json");
  ASSERT_EQ(response.code, 200);
  const Json document = Json::parse(response.body);
  EXPECT_EQ(document["openapi"], "3.0.3");
  // Each route of the document is answered, and by that method alone.
  size_t routes = 0;
  for (const auto& [form, methods] : document["paths"].items()) {
    const std::string path = absl::StrReplaceAll(form, {{"{name}", "ads%2Fclicks"}});
    for (const auto& [method, operation] : methods.items()) {
      ++routes;
      const std::string name = method == "get" ? "GET" : "POST";
      const HttpResponse answer = Ask(name, path, R"({"ids": [1]})");
      EXPECT_NE(answer.code, 404) << path;
      EXPECT_TRUE(operation["responses"].contains(absl::StrCat(answer.code))) << answer.code;
      EXPECT_EQ(Ask(name == "GET" ? "POST" : "GET", path, "{}").code, 405) << path;
    }
  }
  EXPECT_EQ(routes, HttpRoutes().size());

  const Json& schemas = document["components"]["schemas"];
  EXPECT_EQ(KeysOf(Json::parse(TopKResponse({}, "user", "r0", "").body)),
            KeysOf(schemas["TopKReply"]["properties"]));
  EXPECT_EQ(KeysOf(Json::parse(
                VersionsResponse("r0", std::vector<ListedVersion>(1)).body)["versions"][0]),
            KeysOf(schemas["Versions"]["properties"]["versions"]["items"]["properties"]));

  // Answers have the fields of the document, and no others.
  LookupBody body;
  body.ids = {1};
  body.tiers = true;
  v1::ServingLookupReply reply = ReplyOf({1, 2}, 2, "\1");
  reply.set_tiers("\1");
  for (const LookupForm form : {LookupForm::kArrays, LookupForm::kBase64}) {
    EXPECT_EQ(KeysOf(Json::parse(LookupResponse(reply, body, form, "user", "r0").body)),
              KeysOf(schemas["LookupReply"]["properties"]));
    const Json& each = schemas["LookupsReply"]["properties"]["tables"]["items"]["oneOf"];
    EXPECT_EQ(KeysOf(each[1]["allOf"][1]["properties"]), (std::set<std::string>{"error", "known"}));
  }
  const Json tables = Json::parse(Ask("GET", "/v1/tables").body);
  EXPECT_EQ(KeysOf(tables), KeysOf(schemas["Tables"]["properties"]));
  ASSERT_EQ(tables["tables"].size(), 1u);
  EXPECT_EQ(KeysOf(tables["tables"][0]),
            KeysOf(schemas["Tables"]["properties"]["tables"]["items"]["properties"]));
  const Json error =
      Json::parse(Ask("POST", "/v1/tables/ads%2Fclicks:lookup", R"({"ids": [-1]})").body);
  EXPECT_EQ(KeysOf(error), KeysOf(schemas["Error"]["properties"]));
  std::set<std::string> error_fields = KeysOf(error["error"]);
  error_fields.insert("retry_ms");  // of an overload
  EXPECT_EQ(error_fields, KeysOf(schemas["Error"]["properties"]["error"]["properties"]));
  std::set<std::string> headers;
  for (const auto& [name, value] :
       LookupResponse(reply, body, LookupForm::kOctets, "user", "r0").headers) {
    headers.insert(name);
  }
  EXPECT_EQ(
      headers,
      KeysOf(document["paths"]["/v1/tables/{name}:lookup"]["post"]["responses"]["200"]["headers"]));
}

}  // namespace http_lookups_test
}  // namespace hotbed
