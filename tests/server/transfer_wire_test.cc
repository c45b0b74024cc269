#include "server/peers/transfer_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/common/test_seed.h"
#include "tests/server/replica_recorder.h"

namespace hotbed {
namespace transfer_wire_test {

using ::testing::HasSubstr;

constexpr Member kReceiver = {7, 70};

std::string Flat(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

// `bytes` cut into fragments of random lengths, some empty.
std::vector<Fragment> Cut(const std::string& bytes, Random* random) {
  std::vector<Fragment> fragments;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length =
        std::min<size_t>(bytes.size() - at, random->OneIn(5) ? 0 : random->Uniform(700));
    fragments.emplace_back(reinterpret_cast<const uint8_t*>(bytes.data()) + at, length);
    at += length;
  }
  return fragments;
}

absl::Status Decode(const std::string& bytes, std::vector<ReplicaMessage>* messages,
                    Random* random) {
  const auto budget = std::make_shared<TransferBudget>(1 << 20, 1 << 20);
  const std::vector<Fragment> fragments = Cut(bytes, random);
  TransferView view;
  if (const absl::Status s = ParseTransferMessage(fragments, &view); !s.ok()) return s;
  return DecodeTransfer(fragments, view, kReceiver, budget.get(), messages);
}

TEST(TransferWireTest, ArrivesAsItWasSent) {
  const TestSeed seed(11);
  Random random(seed.value());
  for (int round = 0; round < 200; ++round) {
    std::vector<ReplicaMessage> sent;
    for (uint64_t n = random.Uniform(20); n > 0; --n) {
      sent.push_back(RandomMessage(&random, kReceiver, random.OneIn(4) ? 20'000 : 200));
    }
    v1::TransferHeader header;
    const std::string bytes = Flat(EncodeTransfer(sent, &header));
    v1::TransferMessage plain;  // the protobuf library of any language reads it
    ASSERT_TRUE(plain.ParseFromString(bytes));
    ASSERT_EQ(plain.header().items_size(), static_cast<int>(sent.size()));

    std::vector<ReplicaMessage> heard;
    const absl::Status status = Decode(bytes, &heard, &random);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(heard.size(), sent.size());
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(Text(heard[i]), Text(sent[i]));
      for (const SharedBytes& record : heard[i].records) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(record.bytes.data()) % 8, 0u);
      }
    }
  }
}

TEST(TransferWireTest, LargeBodiesAreReferredToAndHeld) {
  auto text = std::make_shared<std::string>(kCopiedBodyBytes, 'x');
  const std::weak_ptr<std::string> seen = text;
  ReplicaMessage message;
  message.kind = ReplicaMessage::Kind::kSnapshotRows;
  message.body = {text, {reinterpret_cast<const uint8_t*>(text->data()), text->size()}};
  v1::TransferHeader header;
  std::vector<ReplicaMessage> messages = {message};
  auto buffer = std::make_unique<grpc::ByteBuffer>(EncodeTransfer(messages, &header));
  text->at(5) = 'y';
  text.reset();
  message = {};
  messages.clear();
  EXPECT_FALSE(seen.expired());
  EXPECT_THAT(Flat(*buffer), HasSubstr("xxxxxyx"));
  buffer.reset();
  EXPECT_TRUE(seen.expired());
}

TEST(TransferWireTest, WhatIsForAnotherProcessIsLeftOut) {
  Random random(1);
  std::vector<ReplicaMessage> sent;
  for (int i = 0; i < 12; ++i) {
    sent.push_back(RandomMessage(&random, i % 2 == 0 ? kReceiver : Member{7, 69}, 300));
  }
  v1::TransferHeader header;
  std::vector<ReplicaMessage> heard;
  ASSERT_TRUE(Decode(Flat(EncodeTransfer(sent, &header)), &heard, &random).ok());
  ASSERT_EQ(heard.size(), 6u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Text(heard[i]), Text(sent[2 * i]));
}

struct BadSizes {
  const char* what;
  v1::TransferKind kind;
  std::vector<uint64_t> record_bytes;
  uint64_t body_bytes;
  uint64_t body;
};

TEST(TransferWireTest, SizesThatDoNotAddUpAreRefused) {
  const BadSizes cases[] = {
      {"body_bytes is 9, allowed is 8", v1::TRANSFER_APPEND, {9}, 9, 8},
      {"body of a transfer has 1 bytes more", v1::TRANSFER_APPEND, {8}, 8, 9},
      {"record_bytes is 9, allowed is 8", v1::TRANSFER_APPEND, {9}, 8, 8},
      {"record_bytes is 18446744073709551615", v1::TRANSFER_APPEND, {4, ~0ull, 5}, 8, 8},
      {"record_bytes is 0", v1::TRANSFER_APPEND, {0, 8}, 8, 8},
      {"the sum of record_bytes is 4", v1::TRANSFER_APPEND, {4}, 8, 8},
      {"the sum of record_bytes is 0", v1::TRANSFER_APPEND, {}, 8, 8},
      {"records is 1", v1::TRANSFER_SNAPSHOT_ROWS, {8}, 8, 8},
      {"body_bytes is 8, allowed is 0", v1::TRANSFER_APPEND_REPLY, {}, 8, 8},
      {"body_bytes is 8, allowed is 0", v1::TRANSFER_SNAPSHOT_BEGIN, {}, 8, 8},
      {"body_bytes is 18446744073709551615", v1::TRANSFER_SNAPSHOT_END, {}, ~0ull, 8},
      {"kind is 0", v1::TRANSFER_NONE, {}, 0, 0},
      {"kind is 7", static_cast<v1::TransferKind>(7), {}, 0, 0},
  };
  Random random(2);
  for (const BadSizes& bad : cases) {
    v1::TransferMessage message;
    v1::TransferItem* const item = message.mutable_header()->add_items();
    item->set_kind(bad.kind);
    ToWire(kReceiver, item->mutable_to());
    for (const uint64_t bytes : bad.record_bytes) item->add_record_bytes(bytes);
    item->set_body_bytes(bad.body_bytes);
    message.set_body(std::string(bad.body, 'x'));
    std::vector<ReplicaMessage> heard;
    const absl::Status status = Decode(message.SerializeAsString(), &heard, &random);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad.what << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.what));
  }
}

// Any input gives an error or messages, never a crash, never more bytes than arrived.
TEST(TransferWireTest, GarbageIsAnError) {
  const TestSeed seed(12);
  Random random(seed.value());
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<ReplicaMessage> sent;
    for (uint64_t n = 1 + random.Uniform(4); n > 0; --n) {
      sent.push_back(RandomMessage(&random, kReceiver, 64));
    }
    v1::TransferHeader header;
    std::string bytes = Flat(EncodeTransfer(sent, &header));
    for (uint64_t n = 1 + random.Uniform(4); n > 0; --n) {
      bytes[random.Uniform(bytes.size())] = static_cast<char>(random.Next());
    }
    if (random.OneIn(4)) bytes.resize(random.Uniform(bytes.size()));
    std::vector<ReplicaMessage> heard;
    const absl::Status status = Decode(bytes, &heard, &random);
    if (!status.ok()) ++refused;
    uint64_t body_bytes = 0;
    for (const ReplicaMessage& message : heard) body_bytes += BodyBytes(message);
    ASSERT_LE(body_bytes, bytes.size());
  }
  EXPECT_GT(refused, 500);
}

TEST(TransferWireTest, RecordsBeyondTheBudgetEndTheMessageAfterWhatFitted) {
  const auto budget = std::make_shared<TransferBudget>(100, 100);
  std::vector<ReplicaMessage> sent(3);
  for (ReplicaMessage& message : sent) {
    message.kind = ReplicaMessage::Kind::kAppend;
    message.to = kReceiver;
    message.records.push_back(OwnedBytes(std::string(48, 'x')));
  }
  v1::TransferHeader header;
  const std::string bytes = Flat(EncodeTransfer(sent, &header));
  const Fragment fragment(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  TransferView view;
  ASSERT_TRUE(ParseTransferMessage({&fragment, 1}, &view).ok());
  std::vector<ReplicaMessage> heard;
  EXPECT_TRUE(absl::IsResourceExhausted(
      DecodeTransfer({&fragment, 1}, view, kReceiver, budget.get(), &heard)));
  EXPECT_EQ(heard.size(), 2u);
  heard.clear();
  EXPECT_EQ(budget->log_bytes(), 0u);
}

}  // namespace transfer_wire_test
}  // namespace hotbed
