#include "proto/protobuf_log.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <string>

namespace hotbed {
namespace protobuf_log_test {

TEST(ProtobufLog, ABadPeerDoesNotFillTheLog) {
  LimitProtobufLog();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) GOOGLE_LOG(ERROR) << "a string that is not UTF-8";
  const std::string log = testing::internal::GetCapturedStderr();
  const size_t first = log.find("protobuf: a string that is not UTF-8");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("not UTF-8", first + 40), std::string::npos) << log;
}

}  // namespace protobuf_log_test
}  // namespace hotbed
