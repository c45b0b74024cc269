#include "planner/coordinator/state/record_file.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/files/byte_reader.h"
#include "common/files/crc32c.h"
#include "common/status_macros.h"
#include "planner/coordinator/state/keys.h"

namespace hotbed {
namespace {

constexpr uint32_t kVersion = 1;
constexpr size_t kRecordsPerWrite = 100;

}  // namespace

std::string SerializeRecords(absl::string_view magic, const std::vector<KeyValue>& records) {
  std::string out(magic);
  AppendLittle<uint32_t>(kVersion, &out);
  AppendLittle<uint64_t>(records.size(), &out);
  for (const KeyValue& record : records) {
    AppendString(record.key, &out);
    AppendString(record.value, &out);
  }
  AppendLittle<uint32_t>(Crc32c(out.data(), out.size()), &out);
  return out;
}

absl::StatusOr<std::vector<KeyValue>> ParseRecords(absl::string_view magic, absl::string_view what,
                                                   absl::string_view bytes) {
  if (bytes.size() < magic.size() + 16 || !absl::StartsWith(bytes, magic)) {
    return absl::DataLossError(absl::StrCat(bytes.size(), " bytes are no ", what));
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - 4);
  if (LoadLittle<uint32_t>(bytes.data() + body.size()) != Crc32c(body.data(), body.size())) {
    return absl::DataLossError(
        absl::StrCat("the checksum of the ", what, " does not match: it is damaged"));
  }
  ByteReader in(body.substr(magic.size()));
  if (const uint32_t version = in.Take<uint32_t>(); version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the ", what, " has version ", version, ", this program reads ", kVersion));
  }
  std::vector<KeyValue> records;
  std::string format;
  for (uint64_t left = in.Take<uint64_t>(); left > 0 && in.ok(); --left) {
    KeyValue record;
    record.key = in.TakeString();
    record.value = in.TakeString();
    if (record.key == keys::kFormatKey) format = record.value;
    records.push_back(std::move(record));
  }
  if (!in.ok() || in.left() != 0) {
    return absl::DataLossError(absl::StrCat("the ", what, " does not parse"));
  }
  if (format != keys::kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("the ", what, " is of metadata of format \"",
                                                      format, "\", this program reads \"",
                                                      keys::kFormat, "\""));
  }
  return records;
}

absl::StatusOr<bool> WriteInBatches(const std::vector<Compare>& compares,
                                    const std::vector<Op>& ops, MetaStore* store) {
  std::vector<Op> batch;
  size_t bytes = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    bytes += TransactionBytes(ops[i]);
    batch.push_back(ops[i]);
    const bool full = i + 1 == ops.size() || batch.size() == kRecordsPerWrite ||
                      bytes + TransactionBytes(ops[i + 1]) > MetaStore::kTxnBytesMax;
    if (!full) continue;
    HOTBED_ASSIGN_OR_RETURN(const TxnResult written, store->Txn(compares, batch));
    if (!written.succeeded) return false;
    batch.clear();
    bytes = 0;
  }
  return true;
}

}  // namespace hotbed
