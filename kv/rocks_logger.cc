#include "kv/rocks_logger.h"

#include <cstdarg>
#include <cstdio>

#include "absl/strings/match.h"
#include "common/log.h"

namespace hotbed {
namespace {

class RocksLogger : public rocksdb::Logger {
 public:
  RocksLogger() : Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  ~RocksLogger() override { Close().PermitUncheckedError(); }

  using Logger::Logv;
  void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list arguments) override {
    if (level < rocksdb::InfoLogLevel::WARN_LEVEL) return;
    if (level == rocksdb::InfoLogLevel::HEADER_LEVEL) return;  // the list of options
    char text[1024];
    std::vsnprintf(text, sizeof(text), format, arguments);
    // RocksDB counts its own readers of files here. Nobody can or need act on that.
    if (absl::StrContains(text, "File Deletions ")) return;
    if (level == rocksdb::InfoLogLevel::WARN_LEVEL) {
      HOTBED_LOG_EVERY_S(Warning, 10) << "key-value store: " << text;
    } else {
      HOTBED_LOG(Error) << "key-value store: " << text;
    }
  }

 protected:
  rocksdb::Status CloseImpl() override { return rocksdb::Status::OK(); }
};

}  // namespace

std::shared_ptr<rocksdb::Logger> NewRocksLogger() { return std::make_shared<RocksLogger>(); }

}  // namespace hotbed
