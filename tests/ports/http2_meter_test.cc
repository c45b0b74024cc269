#include "ports/http2_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "tests/common/test_seed.h"

namespace hotbed {
namespace http2_meter_test {

using Verdict = Http2Meter::Verdict;
constexpr int64_t kSecond = 1'000'000'000;

enum Type : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kPing = 6, kContinuation = 9 };

std::string Hello() { return {kHttp2Hello, kHttp2HelloBytes}; }

std::string Frame(Type type, uint8_t flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  const auto size = static_cast<uint32_t>(payload.size());
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(size >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + payload;
}

// The beginning of a message that announces `length` bytes.
std::string Prefix(uint32_t length) {
  std::string prefix(1, '\0');
  for (const int shift : {24, 16, 8, 0}) prefix += static_cast<char>(length >> shift);
  return prefix;
}
std::string Message(uint32_t length) { return Prefix(length) + std::string(length, 'x'); }

Verdict Give(const std::string& bytes, Http2Meter* meter, int64_t now_ns = 1) {
  return meter->Take({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, now_ns);
}

Http2Limits Small() {
  Http2Limits limits;
  limits.message_bytes_max = 1000;
  limits.header_bytes_max = 100;
  limits.control_frames_burst = 10;
  limits.control_frames_per_second = 2;
  return limits;
}

TEST(Http2MeterTest, AMessageTooLargeIsSeenInItsFirstBytes) {
  Http2Meter meter(Small());
  EXPECT_EQ(Give(Hello() + Frame(kData, 0, 1, Message(1000)), &meter), Verdict::kGoOn);
  EXPECT_EQ(Give(Frame(kData, 0, 1, Prefix(1001)), &meter), Verdict::kMessageTooLarge);
}

TEST(Http2MeterTest, UnfinishedMessagesAreCountedByStream) {
  Http2Meter meter(Small());
  ASSERT_EQ(Give(Hello(), &meter), Verdict::kGoOn);
  EXPECT_TRUE(meter.greeted());
  EXPECT_EQ(meter.unfinished_since_ns(), 0);
  Give(Frame(kData, 0, 1, Prefix(100) + std::string(40, 'x')), &meter, 7);
  Give(Frame(kData, 0, 3, Prefix(200)), &meter, 9);
  EXPECT_EQ(meter.unfinished_bytes(), 45u + 5u);
  EXPECT_EQ(meter.unfinished_since_ns(), 7);
  Give(Frame(kData, 0, 1, std::string(60, 'x')), &meter, 11);  // complete
  EXPECT_EQ(meter.unfinished_bytes(), 5u);
  EXPECT_EQ(meter.unfinished_since_ns(), 9);
  Give(Frame(kReset, 0, 3, std::string(4, '\0')), &meter, 12);
  EXPECT_EQ(meter.unfinished_bytes(), 0u);
  Give(Frame(kData, /*END_STREAM*/ 1, 5, Prefix(10)), &meter, 13);
  EXPECT_EQ(meter.unfinished_bytes(), 0u);
}

TEST(Http2MeterTest, PaddingIsNoMessage) {
  Http2Meter meter(Small());
  Give(Hello(), &meter);
  const std::string padded = std::string(1, '\3') + Message(10) + std::string(3, '\xff');
  EXPECT_EQ(Give(Frame(kData, /*PADDED*/ 8, 1, padded), &meter), Verdict::kGoOn);
  EXPECT_EQ(meter.unfinished_bytes(), 0u);
}

TEST(Http2MeterTest, ManyControlFramesAreTooMany) {
  Http2Meter meter(Small());
  Give(Hello(), &meter);  // its SETTINGS frame is one
  const std::string ping = Frame(kPing, 0, 0, std::string(8, 'p'));
  for (int i = 0; i < 9; ++i) ASSERT_EQ(Give(ping, &meter), Verdict::kGoOn) << i;
  EXPECT_EQ(Give(ping, &meter), Verdict::kTooManyControlFrames);

  Http2Meter slow(Small());
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(Give(i == 0 ? Hello() : ping, &slow, i * kSecond), Verdict::kGoOn) << i;
  }
  // What is rare for a client of ours and cheap to send: a reset, and a request without a message.
  for (const std::string& frame :
       {Frame(kReset, 0, 1, std::string(4, '\0')), Frame(kHeaders, /*END_STREAM*/ 1, 1, "x"),
        Frame(kData, 0, 1, "")}) {
    Http2Meter flooded(Small());
    Give(Hello(), &flooded);
    for (int i = 0; i < 9; ++i) ASSERT_EQ(Give(frame, &flooded), Verdict::kGoOn);
    EXPECT_EQ(Give(frame, &flooded), Verdict::kTooManyControlFrames);
  }
}

TEST(Http2MeterTest, HeadersWithoutEndAreTooLarge) {
  Http2Meter meter(Small());
  Give(Hello() + Frame(kHeaders, 0, 1, std::string(60, 'h')), &meter);
  EXPECT_EQ(Give(Frame(kContinuation, 0, 1, std::string(60, 'h')), &meter),
            Verdict::kHeadersTooLarge);
}

TEST(Http2MeterTest, AnotherProtocolIsSeenInItsFirstByte) {
  Http2Meter meter(Small());
  EXPECT_EQ(Give("GET / HTTP/1.1", &meter), Verdict::kNotHttp2);
}

// However the bytes are cut into reads, the meter comes to the same.
TEST(Http2MeterTest, CutsDoNotMatter) {
  const TestSeed seed(4783);
  std::mt19937_64 random(seed.value());
  std::string bytes = Hello();
  for (int i = 0; i < 200; ++i) {
    const uint32_t stream = 1 + 2 * (random() % 5);
    std::string payload = Message(random() % 50);
    payload.resize(payload.size() - (i > 150 ? random() % payload.size() : 0));
    const bool padded = random() % 3 == 0;
    if (padded) payload = std::string(1, '\2') + payload + "PP";
    bytes += Frame(kData, padded ? 8 : 0, stream, payload);
  }
  Http2Meter whole(Small());
  const Verdict said = Give(bytes, &whole);
  Http2Meter pieces(Small());
  Verdict verdict = Verdict::kGoOn;
  for (size_t at = 0; at < bytes.size() && verdict == Verdict::kGoOn;) {
    const size_t n = std::min<size_t>(1 + random() % 20, bytes.size() - at);
    verdict = Give(bytes.substr(at, n), &pieces);
    at += n;
  }
  EXPECT_EQ(verdict, said);
  EXPECT_EQ(pieces.unfinished_bytes(), whole.unfinished_bytes());
}

}  // namespace http2_meter_test
}  // namespace hotbed
