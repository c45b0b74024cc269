#include "proto/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/common/test_seed.h"
#include "tests/proto/wire_twin.h"

namespace hotbed {
namespace wire_test {

std::string RandomBytes(Random* random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random->Next());
  return bytes;
}

uint64_t RandomNumber(Random* random) { return random->Next() >> random->Uniform(64); }

void Fill(Random* random, v1::Hello* hello) {
  hello->set_cluster_id("cluster");
  hello->set_wire_version(kWireVersion);
  hello->set_session(random->Next());
}

v1::PushRequest RandomPush(Random* random) {
  v1::PushRequest push;
  if (random->OneIn(3)) Fill(random, push.mutable_header()->mutable_hello());
  push.mutable_header()->set_request(RandomNumber(random));
  push.mutable_header()->set_gradient_type(static_cast<v1::RowType>(random->Uniform(3)));
  for (uint64_t i = random->Uniform(5); i > 0; --i) {
    v1::PushGroup* const group = push.mutable_header()->add_groups();
    group->set_table(static_cast<uint32_t>(random->Next()));
    group->set_step(RandomNumber(random));
    if (random->OneIn(2)) group->set_learning_rate(0.5f);
    for (uint64_t s = random->Uniform(9); s > 0; --s) {
      group->add_shards(static_cast<uint32_t>(RandomNumber(random)));
      group->add_epochs(RandomNumber(random));
      group->add_distances(RandomNumber(random));
      group->add_last_parts(random->OneIn(2));
    }
  }
  push.set_ids(RandomBytes(random, random->Uniform(200)));
  push.set_gradients(RandomBytes(random, random->Uniform(1000)));
  return push;
}

v1::PullReply RandomReply(Random* random) {
  v1::PullReply reply;
  reply.mutable_header()->set_request(RandomNumber(random));
  for (uint64_t i = random->Uniform(5); i > 0; --i) {
    reply.mutable_header()->add_lsns(RandomNumber(random));
    v1::SegmentReply* const segment = reply.mutable_header()->add_exceptions();
    segment->set_code(static_cast<v1::Code>(random->Uniform(v1::Code_ARRAYSIZE)));
    segment->set_detail("größe");
    segment->mutable_record()->add_members()->set_server(random->Next());
  }
  reply.set_rows(RandomBytes(random, random->Uniform(1000)));
  if (random->OneIn(2)) reply.set_flags(RandomBytes(random, random->Uniform(100)));
  if (random->OneIn(2)) reply.set_arg_max(RandomBytes(random, random->Uniform(100)));
  return reply;
}

v1::PullRequest RandomPull(Random* random) {
  v1::PullRequest pull;
  pull.mutable_header()->set_request(RandomNumber(random));
  for (uint64_t i = random->Uniform(5); i > 0; --i) {
    v1::PullGroup* const group = pull.mutable_header()->add_groups();
    group->set_table(static_cast<uint32_t>(random->Next()));
    for (uint64_t s = random->Uniform(9); s > 0; --s) {
      group->add_shards(static_cast<uint32_t>(RandomNumber(random)));
      group->add_id_counts(static_cast<uint32_t>(RandomNumber(random)));
      group->add_bag_counts(static_cast<uint32_t>(RandomNumber(random)));
    }
    group->set_pooling(static_cast<v1::Pooling>(random->Uniform(5)));  // unknown ones too
    group->set_weighted(random->OneIn(2));
    group->set_want_arg_max(random->OneIn(2));
  }
  pull.set_ids(RandomBytes(random, random->Uniform(200)));
  pull.set_lengths(RandomBytes(random, random->Uniform(100)));
  pull.set_weights(RandomBytes(random, random->Uniform(100)));
  return pull;
}

// Outer fields of `message` one by one, in random order, with unknown fields of every wire type
// between them.
std::string Shuffled(Random* random, std::vector<std::string> fields) {
  static const char* const kUnknown[] = {"9801", "9901efcdab8967452301", "9a01020102",
                                         "9d0101020304", "9b0108069b01080a9c019c01"};
  for (const char* hex : kUnknown) {
    if (random->OneIn(2)) {
      const std::string tail = std::string(hex) == "9801" ? "05" : "";
      fields.push_back(absl::HexStringToBytes(hex + tail));
    }
  }
  std::shuffle(fields.begin(), fields.end(), *random);
  std::string bytes;
  for (const std::string& field : fields) bytes += field;
  return bytes;
}

std::string Bulk(int field, const std::string& payload) {
  std::string bytes;
  AppendBulkTag(field, payload.size(), &bytes);
  EXPECT_EQ(bytes.size(), BulkTagBytes(field, payload.size()));
  return bytes + payload;
}

std::string HeaderField(const google::protobuf::MessageLite& header) {
  std::string bytes = "before";
  AppendHeaderField(header, &bytes);
  EXPECT_EQ(bytes.size(), 6 + HeaderFieldBytes(header));
  return bytes.substr(6);
}

TEST(Wire, WhatItWritesTheGeneratedClassesRead) {
  const TestSeed seed(1);
  Random random(seed.value());
  for (int i = 0; i < 300; ++i) {
    const v1::PushRequest push = RandomPush(&random);
    v1::PushRequest parsed;
    ASSERT_TRUE(parsed.ParseFromString(HeaderField(push.header()) + Bulk(2, push.ids()) +
                                       Bulk(3, push.gradients())));
    ASSERT_EQ(parsed.SerializeAsString(), push.SerializeAsString());
  }
}

TEST(Wire, ReadsAnyOrderOfFieldsFromAnyFragments) {
  const TestSeed seed(2);
  Random random(seed.value());
  PushRequestView push_view;  // used again and again, as a stream does
  for (int i = 0; i < 500; ++i) {
    const v1::PushRequest push = RandomPush(&random);
    const std::string bytes = Shuffled(
        &random, {HeaderField(push.header()), Bulk(2, push.ids()), Bulk(3, push.gradients())});
    const FragmentedMessage message(bytes, 1 + random.Uniform(300), &random);
    const absl::Status status = ParsePushRequest(message.fragments(), &push_view);
    ASSERT_TRUE(status.ok()) << status << " " << absl::BytesToHexString(bytes);
    ASSERT_EQ(push_view.header.SerializeAsString(), push.header().SerializeAsString());
    ASSERT_EQ(Bytes(message.fragments(), push_view.ids), push.ids());
    ASSERT_EQ(Bytes(message.fragments(), push_view.gradients), push.gradients());
    ASSERT_EQ(AnyDisagreement(bytes, message.fragments()), "");
  }
}

TEST(Wire, ReadsPooledPullsFromAnyFragments) {
  const TestSeed seed(12);
  Random random(seed.value());
  PullRequestView view;
  PullReplyView reply_view;
  for (int i = 0; i < 300; ++i) {
    const v1::PullRequest pull = RandomPull(&random);
    std::string bytes = Shuffled(&random, {HeaderField(pull.header()), Bulk(2, pull.ids()),
                                           Bulk(3, pull.lengths()), Bulk(4, pull.weights())});
    const FragmentedMessage message(bytes, 1 + random.Uniform(100), &random);
    ASSERT_TRUE(ParsePullRequest(message.fragments(), &view).ok());
    ASSERT_EQ(view.header.SerializeAsString(), pull.header().SerializeAsString());
    ASSERT_EQ(Bytes(message.fragments(), view.lengths), pull.lengths());
    ASSERT_EQ(Bytes(message.fragments(), view.weights), pull.weights());
    ASSERT_EQ(AnyDisagreement(bytes, message.fragments()), "");
    const v1::PullReply reply = RandomReply(&random);
    bytes = Shuffled(&random, {HeaderField(reply.header()), Bulk(2, reply.rows()),
                               Bulk(3, reply.flags()), Bulk(4, reply.arg_max())});
    const FragmentedMessage answer(bytes, 1 + random.Uniform(100), &random);
    ASSERT_TRUE(ParsePullReply(answer.fragments(), &reply_view).ok());
    ASSERT_EQ(Bytes(answer.fragments(), reply_view.arg_max), reply.arg_max());
    ASSERT_EQ(AnyDisagreement(bytes, answer.fragments()), "");
  }
}

TEST(Wire, AgreesWithTheGeneratedClassesOnDamagedMessages) {
  const TestSeed seed(3);
  Random random(seed.value());
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = random.OneIn(2) ? RandomPush(&random).SerializeAsString()
                                        : RandomReply(&random).SerializeAsString();
    for (uint64_t n = random.Uniform(4); n > 0 && !bytes.empty(); --n) {
      const size_t near = random.OneIn(2) ? std::min<size_t>(bytes.size(), 40) : bytes.size();
      const size_t at = random.Uniform(near);
      switch (random.Uniform(4)) {
        case 0:
          bytes[at] = static_cast<char>(random.Next());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.Uniform(8)));
          break;
        case 2:
          bytes.erase(at, 1 + random.Uniform(8));
          break;
        default:
          bytes.insert(at, RandomBytes(&random, 1 + random.Uniform(8)));
      }
    }
    const FragmentedMessage message(bytes, 1 + random.Uniform(100), &random);
    ASSERT_EQ(AnyDisagreement(bytes, message.fragments()), "") << absl::BytesToHexString(bytes);
  }
}

// Each was once decoded wrongly. In hex; the fuzz target starts from the same bytes.
TEST(Wire, AgreesWithTheGeneratedClassesOnTheKeptCorpus) {
  Random random(4);
  std::vector<std::string> corpus = {
      "",                  // empty message
      "0a00",              // empty header
      "0a020801",          // header
      "0a0208010a021005",  // header merged from two fields
      "1200",              // empty bulk field
      "00",                // tag 0
      "02",                // field number 0
      "0c",                // end of a group that never began
      "0e",
      "0f",                      // wire types that do not exist
      "0b0c",                    // header field as a group: unknown
      "0b13140c",                // nested groups
      "0b130c14",                // groups closed in the wrong order
      "0b",                      // group left open
      "0801",                    // header as a varint: unknown
      "12ffffffffffffffffff01",  // length over 2^32
      "12ffffffff0f",            // length over 2^31
      "128080808000",            // length written too long, but allowed
      "12808080808000",          // longer than protobuf reads
      "1205010203",              // truncated payload
      "9880808080808080808001"
      "01",                          // tag too long
      "10ffffffffffffffffff7f",      // varint of ten bytes
      "10ffffffffffffffffffff01",    // varint of eleven bytes
      "0a0108",                      // truncated inside the header
      "0a0402020000",                // field 0 in the header
      "0a0b0a0208ff0a0508ffffffff",  // lengths in the header beyond its end
      "220122",                      // unknown delimited field
      "0a0912070a05fffefdfcfb",      // text that is not UTF-8
  };
  std::string deep;
  for (int i = 0; i < 99; ++i) deep += "23";
  for (int i = 0; i < 99; ++i) deep += "24";
  corpus.push_back(deep);
  corpus.push_back("23" + deep + "24");
  corpus.push_back("2323" + deep + "2424");
  corpus.push_back("232323" + deep + "242424");
  for (const std::string& hex : corpus) {
    const std::string bytes = absl::HexStringToBytes(hex);
    for (const size_t piece : {1, 3, 1000}) {
      const FragmentedMessage message(bytes, piece, &random);
      EXPECT_EQ(AnyDisagreement(bytes, message.fragments()), "") << hex;
    }
  }
}

TEST(Wire, RefusalsNameMessageAndByte) {
  Random random(5);
  PullRequestView view;
  const std::string twice = Bulk(2, "12345678") + Bulk(2, "12345678");
  const absl::Status status =
      ParsePullRequest(FragmentedMessage(twice, 4, &random).fragments(), &view);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "malformed PullRequest at byte 12: bulk field 2 occurs twice");
}

TEST(FragmentReader, RowPointersPointToTheRows) {
  const TestSeed seed(6);
  Random random(seed.value());
  for (int i = 0; i < 500; ++i) {
    const size_t row_bytes = 1 + random.Uniform(40);
    const size_t rows = random.Uniform(50);
    const std::string payload = RandomBytes(&random, rows * row_bytes);
    const std::string bytes = Bulk(2, payload);
    const FragmentedMessage message(bytes, 1 + random.Uniform(200), &random);
    PullReplyView view;
    ASSERT_TRUE(ParsePullReply(message.fragments(), &view).ok());
    FragmentReader reader(message.fragments(), view.rows);
    WireScratch scratch;
    std::vector<const uint8_t*> pointers(rows);
    const size_t first = random.Uniform(rows + 1);  // in two calls, as two segments
    reader.RowPointers(row_bytes, first, pointers.data(), &scratch);
    reader.RowPointers(row_bytes, rows - first, pointers.data() + first, &scratch);
    ASSERT_EQ(reader.left(), 0u);
    for (size_t r = 0; r < rows; ++r) {
      ASSERT_EQ(std::string(pointers[r], pointers[r] + row_bytes),
                payload.substr(r * row_bytes, row_bytes));
    }
  }
}

TEST(FragmentReader, ContiguousIsInPlaceWhereItCanBe) {
  alignas(16) uint8_t first[32];
  alignas(16) uint8_t second[32];
  for (int i = 0; i < 32; ++i) {
    first[i] = static_cast<uint8_t>(i);
    second[i] = static_cast<uint8_t>(100 + i);
  }
  const std::vector<Fragment> fragments = {{first, 32}, {}, {second, 32}};
  WireScratch scratch;
  FragmentReader reader(fragments, {.fragment = 0, .offset = 8, .bytes = 50, .present = true});
  EXPECT_EQ(reader.Contiguous(8, 8, &scratch), first + 8);
  EXPECT_NE(reader.Contiguous(0, 8, &scratch), nullptr);
  const uint8_t* const copied = reader.Contiguous(24, 8, &scratch);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(copied) % 8, 0u);
  EXPECT_EQ(copied[15], 31);
  EXPECT_EQ(copied[16], 100);
  reader.Skip(1);
  const uint8_t* const aligned = reader.Contiguous(8, 8, &scratch);
  EXPECT_NE(aligned, second + 9);
  EXPECT_EQ(aligned[0], 109);
  EXPECT_EQ(reader.left(), 9u);
}

TEST(WireScratch, GivesAlignedMemoryThatStays) {
  WireScratch scratch;
  std::vector<uint8_t*> pieces;
  for (size_t i = 0; i < 2000; ++i) {
    pieces.push_back(scratch.Allocate(i % 50 + 1));
    ASSERT_EQ(reinterpret_cast<uintptr_t>(pieces.back()) % 16, 0u);
    pieces.back()[0] = static_cast<uint8_t>(i);
  }
  for (size_t i = 0; i < pieces.size(); ++i) ASSERT_EQ(pieces[i][0], static_cast<uint8_t>(i));
  scratch.Clear();
  EXPECT_NE(scratch.Allocate(100000), nullptr);
}

}  // namespace wire_test
}  // namespace hotbed
