#include "server/protocol/session_table.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "common/random.h"
#include "tests/common/test_seed.h"

namespace hotbed {
namespace session_table_test {

using Twin = std::map<SessionId, Session>;

void ExpectEqual(const SessionTable& table, const Twin& twin) {
  ASSERT_EQ(table.size(), twin.size());
  for (const auto& [id, session] : twin) {
    const Session* const found = table.Find(id);
    ASSERT_NE(found, nullptr) << id;
    EXPECT_EQ(*found, session) << id;
    EXPECT_EQ(found->heard_ns, session.heard_ns) << id;
  }
  Twin visited;
  table.ForEach([&](SessionId id, const Session& session) { visited[id] = session; });
  EXPECT_EQ(visited, twin);
}

void ExpectDense(const SessionTable& table) {
  ASSERT_LE(table.allocated_bytes(), SessionTable::kBytesPerSession * table.size())
      << table.size() << " sessions";
}

// Sizes go up and down again, so that arrays are made larger and smaller, and ids come back.
TEST(SessionTableTest, IsWhatAMapIsAndDense) {
  const TestSeed seed(11);
  Random random(seed.value());
  for (const uint64_t ids : {3, 9, 40, 3000}) {
    SessionTable table;
    Twin twin;
    for (int i = 0; i < 20'000; ++i) {
      const bool shrinks = i / 2'500 % 2 == 1;
      const SessionId id = 1 + random.Uniform(ids);
      if (random.Uniform(4) == (shrinks ? 3 : 0)) {
        twin[id] = {random.Uniform(5), random.Uniform(1 << 20), 7};
        table.Set(id, twin[id]);
      } else if (shrinks) {
        twin.erase(id);
        table.Erase(id);
      } else if (twin.contains(id)) {
        twin[id].heard_ns = i;
        table.SetHeard(id, i);
      } else {
        EXPECT_EQ(table.Find(id), nullptr) << id;
      }
      ExpectDense(table);
      if (i % 500 == 0) ExpectEqual(table, twin);
    }
    ExpectEqual(table, twin);
  }
}

TEST(SessionTableTest, IsDenseAtEverySize) {
  SessionTable table;
  for (SessionId id = 1; id <= 5'000; ++id) {
    table.Set(id, {1, id, 0});
    ExpectDense(table);
  }
  for (SessionId id = 1; id <= 5'000; ++id) {
    table.Erase(id);
    ExpectDense(table);
  }
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.allocated_bytes(), 0u);
}

// A table of few places, nearly full: what stands behind an erased one is found all the same.
TEST(SessionTableTest, KeepsNeighboursWhenOneGoes) {
  const TestSeed seed(12);
  Random random(seed.value());
  for (int round = 0; round < 2'000; ++round) {
    SessionTable table;
    Twin twin;
    while (twin.size() < 12) {
      const SessionId id = random.Uniform(64);
      twin[id] = {1, random.Uniform(100), 0};
      table.Set(id, twin[id]);
    }
    while (twin.size() > 9) {
      const SessionId id = random.Uniform(64);
      twin.erase(id);
      table.Erase(id);
      ExpectEqual(table, twin);
    }
  }
}

TEST(SessionTableTest, ComesBackFromItsBytesAndComparesByState) {
  SessionTable table;
  for (SessionId id = 100; id > 0; --id)
    table.Set(id * 7, {id, id << 20, static_cast<int64_t>(id)});
  std::string bytes;
  table.AppendTo(&bytes);
  ByteReader reader(bytes);
  absl::StatusOr<SessionTable> back = SessionTable::TakeFrom(&reader);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, table) << "but for when they were heard, which is not stored";
  ExpectDense(*back);
  std::string again;
  back->AppendTo(&again);
  EXPECT_EQ(again, bytes);

  back->Set(7, {1, 2, 3});
  EXPECT_FALSE(*back == table);
  back->Set(7, *table.Find(7));
  EXPECT_EQ(*back, table);
  back->Erase(14);
  EXPECT_FALSE(*back == table);

  ByteReader cut(absl::string_view(bytes).substr(0, bytes.size() - 1));
  EXPECT_EQ(SessionTable::TakeFrom(&cut).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace session_table_test
}  // namespace hotbed
