#include "serving/lookup_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hotbed {
namespace lookup_answer_test {

using testing::HasSubstr;

// Follows nobody: nothing listens there.
constexpr char kNowhere[] = "127.0.0.1:1";

v1::ServingLookupRequest RequestOf(uint32_t table, uint32_t ids) {
  v1::ServingLookupRequest request;
  v1::ServingLookupTable& asked = *request.add_tables();
  asked.set_table(table);
  asked.set_ids(ids);
  request.set_ids(std::string(uint64_t{ids} * 8, '\0'));
  return request;
}

TEST(LookupAnswerTest, ATableThatIsNotHereOrNotLoadedIsTold) {
  TableReplicas tables({kNowhere, {}}, 1 << 20, Clock::Real());
  v1::ServingOrders orders;
  orders.add_tables()->set_table(7);
  v1::TableSpec& spec = *orders.add_specs();
  spec.set_id(7);
  spec.set_name("clicks");
  spec.set_dim(4);
  tables.Obey(orders, "c");
  for (const auto& [table, outcome, text] :
       {std::tuple(7u, v1::ServingTableReply::LOADING, "table clicks is being loaded"),
        std::tuple(8u, v1::ServingTableReply::NOT_SERVED, "table number 8 is not served here")}) {
    v1::ServingLookupReply reply;
    ASSERT_TRUE(AnswerLookup(tables, {}, RequestOf(table, 2), &reply).ok());
    ASSERT_EQ(reply.tables_size(), 1);
    EXPECT_EQ(reply.tables(0).outcome(), outcome);
    EXPECT_THAT(reply.tables(0).detail(), HasSubstr(text));
    EXPECT_TRUE(reply.rows().empty());
  }
  EXPECT_EQ(AnswerBytes(tables, RequestOf(7, 2)), 2 * (4 * 4 + 1));
  EXPECT_TRUE(IsQuick(tables, RequestOf(7, 200)));
  EXPECT_FALSE(IsQuick(tables, RequestOf(7, 204))) << "20 floats per row and 64 per table";
  v1::ServingLookupRequest empty_bags = RequestOf(7, 0);
  empty_bags.mutable_tables(0)->set_bags(1009);
  EXPECT_FALSE(IsQuick(tables, empty_bags)) << "the answer has rows";
  empty_bags.mutable_tables(0)->set_bags(1008);
  EXPECT_TRUE(IsQuick(tables, empty_bags));
  v1::ServingLookupRequest many_tables;
  for (uint32_t table = 0; table < 65; ++table) many_tables.add_tables()->set_table(100 + table);
  EXPECT_FALSE(IsQuick(tables, many_tables));
  v1::ServingLookupReply denied;
  const auto nobody = [](absl::string_view) { return absl::PermissionDeniedError("not you"); };
  ASSERT_TRUE(AnswerLookup(tables, nobody, RequestOf(7, 2), &denied).ok());
  EXPECT_EQ(denied.tables(0).outcome(), v1::ServingTableReply::DENIED);
  tables.Obey(v1::ServingOrders(), "c");
  EXPECT_EQ(tables.Find(7), nullptr);
}

TEST(TableReplicasTest, ACopyKnowsItsCut) {
  TableReplicas tables({kNowhere, {}, "b"}, 1 << 20, Clock::Real());
  v1::ServingOrders orders;
  orders.add_tables()->set_table(7);
  v1::TableSpec& spec = *orders.add_specs();
  spec.set_id(7);
  spec.set_name("clicks");
  spec.set_rows(100);
  spec.set_dim(4);
  v1::OrderedCopy& other = *orders.add_beside();
  *other.mutable_spec() = spec;
  v1::ServedTable& cut = *other.mutable_table();
  cut.set_table(7);
  cut.set_parts(2);
  cut.add_servers("b");
  cut.add_server_parts(1);
  tables.Obey(orders, "c");
  EXPECT_EQ(tables.Find(7, {0, 1})->cut(), TableReplica::Cut::kPresent);
  EXPECT_EQ(tables.Find(7, {1, 2})->cut(), TableReplica::Cut::kComing);
  EXPECT_EQ(tables.Present().size(), 1u);
  other.set_leaves(true);
  tables.Obey(orders, "c");
  EXPECT_EQ(tables.Find(7, {1, 2})->cut(), TableReplica::Cut::kLeaving);
  EXPECT_EQ(tables.Find(7)->part(), (ServedPart{0, 1})) << "of the present cut";
}

TEST(LookupAnswerTest, IdsOfAnotherPartAreNotToldToBeMissing) {
  TableReplicas tables({kNowhere, {}, "b"}, 1 << 20, Clock::Real());
  v1::ServingOrders orders;
  v1::ServedTable& served = *orders.add_tables();
  served.set_table(7);
  served.set_parts(2);
  for (const char* name : {"a", "b"}) {
    served.add_servers(name);
    served.add_server_parts(served.server_parts_size());
  }
  v1::TableSpec& spec = *orders.add_specs();
  spec.set_id(7);
  spec.set_name("clicks");
  spec.set_rows(100);
  spec.set_dim(4);
  tables.Obey(orders, "c");
  for (const auto& [part, parts, outcome] :
       {std::tuple(1u, 2u, v1::ServingTableReply::LOADING),
        std::tuple(0u, 2u, v1::ServingTableReply::NOT_SERVED),
        std::tuple(1u, 3u, v1::ServingTableReply::NOT_SERVED),
        std::tuple(0u, 0u, v1::ServingTableReply::NOT_SERVED)}) {  // of an earlier release
    v1::ServingLookupRequest request = RequestOf(7, 2);
    request.mutable_tables(0)->set_part(part);
    request.mutable_tables(0)->set_parts(parts);
    v1::ServingLookupReply reply;
    ASSERT_TRUE(AnswerLookup(tables, {}, request, &reply).ok());
    EXPECT_EQ(reply.tables(0).outcome(), outcome) << part << " of " << parts;
  }
}

TEST(LookupAnswerTest, ARequestThatContradictsItselfIsRefused) {
  const TableReplicas tables({kNowhere, {}}, 1 << 20, Clock::Real());
  v1::ServingLookupReply reply;
  v1::ServingLookupRequest request = RequestOf(1, 2);
  request.mutable_ids()->pop_back();
  const absl::Status short_ids = AnswerLookup(tables, {}, request, &reply);
  EXPECT_EQ(short_ids.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(short_ids.message(), HasSubstr("2 ids of 8 bytes, the field ids has 15 bytes"));
  EXPECT_EQ(AnswerLookup(tables, {}, v1::ServingLookupRequest(), &reply).code(),
            absl::StatusCode::kInvalidArgument);
  request = RequestOf(1, 1);
  request.set_row_type(static_cast<v1::RowType>(99));
  EXPECT_EQ(AnswerLookup(tables, {}, request, &reply).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace lookup_answer_test
}  // namespace hotbed
