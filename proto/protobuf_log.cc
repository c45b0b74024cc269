#include "proto/protobuf_log.h"

#include <google/protobuf/stubs/logging.h>

#include <string>

#include "common/log.h"

namespace hotbed {
namespace {

void ToOurLog(google::protobuf::LogLevel level, const char* /*file*/, int /*line*/,
              const std::string& message) {
  if (level == google::protobuf::LOGLEVEL_INFO) return;
  HOTBED_LOG_EVERY_S(Warning, 10) << "protobuf: " << message;
}

}  // namespace

void LimitProtobufLog() { google::protobuf::SetLogHandler(&ToOurLog); }

}  // namespace hotbed
