#include "server/shard/in_flight.h"

#include <gtest/gtest.h>

#include <utility>

namespace hotbed {
namespace in_flight_test {

TEST(InFlight, AnOperationEndsOnceHoweverItsTokenMoves) {
  InFlight in_flight;
  EXPECT_TRUE(in_flight.none());
  {
    InFlight::Token first = in_flight.Begin();
    InFlight::Token second = in_flight.Begin();
    second = std::move(first);  // ends the second operation
    EXPECT_FALSE(in_flight.none());
    second.End();
    EXPECT_TRUE(in_flight.none());
  }
  EXPECT_TRUE(in_flight.none());
  in_flight.Begin().Detach();
  EXPECT_FALSE(in_flight.none());
  { const InFlight::Token adopted = in_flight.Adopt(); }
  EXPECT_TRUE(in_flight.none());
}

}  // namespace in_flight_test
}  // namespace hotbed
