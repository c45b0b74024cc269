#include "server/peers/transfer_wire.h"

#include <grpcpp/support/slice.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace hotbed {
namespace {

using Kind = ReplicaMessage::Kind;

static_assert(static_cast<int>(Kind::kAppend) == v1::TRANSFER_APPEND);
static_assert(static_cast<int>(Kind::kAppendReply) == v1::TRANSFER_APPEND_REPLY);
static_assert(static_cast<int>(Kind::kSnapshotBegin) == v1::TRANSFER_SNAPSHOT_BEGIN);
static_assert(static_cast<int>(Kind::kSnapshotRows) == v1::TRANSFER_SNAPSHOT_ROWS);
static_assert(static_cast<int>(Kind::kSnapshotEnd) == v1::TRANSFER_SNAPSHOT_END);
static_assert(static_cast<int>(Kind::kSnapshotReply) == v1::TRANSFER_SNAPSHOT_REPLY);

void FillItem(const ReplicaMessage& message, v1::TransferItem* item) {
  item->set_kind(static_cast<v1::TransferKind>(message.kind));
  item->set_shard(message.shard.packed());
  item->set_epoch(message.epoch);
  ToWire(message.to, item->mutable_to());
  item->set_prev_epoch(message.prev_epoch);
  item->set_prev_lsn(message.prev_lsn);
  item->set_commit(message.commit);
  item->set_lsn(message.lsn);
  item->set_ok(message.ok);
  item->set_needs_snapshot(message.needs_snapshot);
  item->set_applied(message.applied);
  item->set_last(message.last);
  item->set_transfer(message.transfer);
  item->set_chunk(message.chunk);
  item->set_bytes_total(message.bytes_total);
  item->set_rolling_hash(message.rolling_hash);
  item->set_hash_lsn(message.hash_lsn);
  for (const SharedBytes& record : message.records) item->add_record_bytes(record.bytes.size());
  item->set_body_bytes(BodyBytes(message));
}

void FillMessage(const v1::TransferItem& item, ReplicaMessage* message) {
  message->kind = static_cast<Kind>(item.kind());
  message->shard = ShardId::FromPacked(item.shard());
  message->epoch = item.epoch();
  message->to = FromWire(item.to());
  message->prev_epoch = item.prev_epoch();
  message->prev_lsn = item.prev_lsn();
  message->commit = item.commit();
  message->lsn = item.lsn();
  message->ok = item.ok();
  message->needs_snapshot = item.needs_snapshot();
  message->applied = item.applied();
  message->last = item.last();
  message->transfer = item.transfer();
  message->chunk = item.chunk();
  message->bytes_total = item.bytes_total();
  message->rolling_hash = item.rolling_hash();
  message->hash_lsn = item.hash_lsn();
}

// Gathers small pieces into one slice and refers to large ones.
class Slices {
 public:
  explicit Slices(std::string head) : head_(std::move(head)) {}

  void Add(const SharedBytes& piece) {
    if (piece.bytes.size() < kCopiedBodyBytes) {
      head_.append(reinterpret_cast<const char*>(piece.bytes.data()), piece.bytes.size());
      return;
    }
    EndHead();
    auto* const owner = new std::shared_ptr<const void>(piece.owner);
    slices_.emplace_back(
        const_cast<uint8_t*>(piece.bytes.data()), piece.bytes.size(),
        [](void* data) { delete static_cast<std::shared_ptr<const void>*>(data); }, owner);
  }
  grpc::ByteBuffer Take() {
    EndHead();
    return grpc::ByteBuffer(slices_.data(), slices_.size());
  }

 private:
  void EndHead() {
    if (!head_.empty()) slices_.emplace_back(head_);
    head_.clear();
  }

  std::string head_;
  std::vector<grpc::Slice> slices_;
};

absl::Status CheckItem(const v1::TransferItem& item, int index, uint64_t left) {
  const auto bad = [&](absl::string_view what, uint64_t value, uint64_t limit) {
    return absl::InvalidArgumentError(absl::StrCat(
        "item ", index, " of a transfer, for ", ShardId::FromPacked(item.shard()).ToString(), ": ",
        what, " is ", value, ", allowed is ", limit));
  };
  if (item.kind() <= v1::TRANSFER_NONE || item.kind() > v1::TRANSFER_SNAPSHOT_REPLY) {
    return bad("kind", item.kind(), v1::TRANSFER_SNAPSHOT_REPLY);
  }
  if (item.body_bytes() > left) return bad("body_bytes", item.body_bytes(), left);
  if (item.kind() == v1::TRANSFER_APPEND) {
    uint64_t sum = 0;
    for (const uint64_t bytes : item.record_bytes()) {
      if (bytes == 0 || bytes > item.body_bytes() - sum) {
        return bad("record_bytes", bytes, item.body_bytes() - sum);
      }
      sum += bytes;
    }
    if (sum != item.body_bytes()) return bad("the sum of record_bytes", sum, item.body_bytes());
    return absl::OkStatus();
  }
  if (item.record_bytes_size() > 0) return bad("records", item.record_bytes_size(), 0);
  const bool bodied =
      item.kind() == v1::TRANSFER_SNAPSHOT_ROWS || item.kind() == v1::TRANSFER_SNAPSHOT_END;
  if (!bodied && item.body_bytes() > 0) return bad("body_bytes", item.body_bytes(), 0);
  return absl::OkStatus();
}

absl::Status ReadBody(const v1::TransferItem& item, FragmentReader* reader, TransferBudget* budget,
                      ReplicaMessage* message) {
  if (item.body_bytes() == 0) return absl::OkStatus();
  const bool log = message->kind == Kind::kAppend;
  const std::shared_ptr<uint8_t> memory = budget->Allocate(
      log ? TransferBudget::Kind::kLog : TransferBudget::Kind::kRows, item.body_bytes());
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("records of logs not yet committed hold ", budget->log_bytes(),
                     " bytes here, ", item.body_bytes(), " more are too many: begin again"));
  }
  reader->CopyTo(memory.get(), item.body_bytes());
  if (!log) {
    message->body = {memory, {memory.get(), item.body_bytes()}};
    return absl::OkStatus();
  }
  const uint8_t* at = memory.get();
  message->records.reserve(item.record_bytes_size());
  for (const uint64_t bytes : item.record_bytes()) {
    message->records.push_back({memory, {at, bytes}});
    at += bytes;
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t BodyBytes(const ReplicaMessage& message) {
  uint64_t bytes = message.body.bytes.size();
  for (const SharedBytes& record : message.records) bytes += record.bytes.size();
  return bytes;
}

grpc::ByteBuffer EncodeTransfer(absl::Span<const ReplicaMessage> messages,
                                v1::TransferHeader* header) {
  uint64_t body_bytes = 0;
  for (const ReplicaMessage& message : messages) {
    FillItem(message, header->add_items());
    body_bytes += BodyBytes(message);
  }
  std::string head;
  AppendHeaderField(*header, &head);
  if (body_bytes > 0) AppendBulkTag(v1::TransferMessage::kBodyFieldNumber, body_bytes, &head);
  Slices slices(std::move(head));
  for (const ReplicaMessage& message : messages) {
    for (const SharedBytes& record : message.records) slices.Add(record);
    if (!message.body.bytes.empty()) slices.Add(message.body);
  }
  return slices.Take();
}

absl::Status DecodeTransfer(Fragments fragments, const TransferView& view, const Member& self,
                            TransferBudget* budget, std::vector<ReplicaMessage>* messages) {
  FragmentReader reader(fragments, view.body);
  for (int i = 0; i < view.header.items_size(); ++i) {
    const v1::TransferItem& item = view.header.items(i);
    HOTBED_RETURN_IF_ERROR(CheckItem(item, i, reader.left()));
    if (!(FromWire(item.to()) == self)) {  // meant for an earlier process of this server
      reader.Skip(item.body_bytes());
      continue;
    }
    ReplicaMessage message;
    FillMessage(item, &message);
    HOTBED_RETURN_IF_ERROR(ReadBody(item, &reader, budget, &message));
    messages->push_back(std::move(message));
  }
  if (reader.left() == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the body of a transfer has ", reader.left(),
                                                 " bytes more than its items name"));
}

}  // namespace hotbed
