// The dumb twin of proto/wire.h: the generated classes on a contiguous copy. Used by the test and
// by the fuzz target.
#ifndef HOTBED_TESTS_PROTO_WIRE_TWIN_H_
#define HOTBED_TESTS_PROTO_WIRE_TWIN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/wire.h"

namespace hotbed {

// `bytes` cut at random places, some pieces empty; each piece is memory of its own, so that reading
// past its end is found by the address sanitizer.
class FragmentedMessage {
 public:
  FragmentedMessage(const std::string& bytes, size_t piece_bytes_max, Random* random) {
    size_t at = 0;
    while (at < bytes.size()) {
      const size_t size = std::min<size_t>(random->Uniform(piece_bytes_max + 1), bytes.size() - at);
      memory_.emplace_back(new uint8_t[size]);
      std::copy_n(bytes.data() + at, size, memory_.back().get());
      fragments_.emplace_back(memory_.back().get(), size);
      at += size;
    }
  }
  Fragments fragments() const { return fragments_; }

 private:
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
  std::vector<Fragment> fragments_;
};

inline std::string Bytes(Fragments fragments, const FragmentRange& range) {
  std::string bytes(range.bytes, '\0');
  FragmentReader(fragments, range).CopyTo(bytes.data(), bytes.size());
  return bytes;
}

// Empty when wire.h and the generated class agree on `bytes`, else a description of the difference.
template <typename Message, typename View, typename CompareBulk>
std::string Disagreement(const std::string& bytes, Fragments fragments,
                         absl::Status (*parse)(Fragments, View*), const CompareBulk& compare_bulk) {
  const google::protobuf::LogSilencer
      silent;  // protobuf prints a line for each text that is not UTF-8
  Message message;
  const bool twin_ok = message.ParseFromString(bytes);
  View view;
  const absl::Status status = parse(fragments, &view);
  if (absl::StrContains(status.message(), "occurs twice")) return "";  // the stated difference
  if (status.ok() != twin_ok)
    return absl::StrCat("protobuf accepts: ", twin_ok, ", ", status.ToString());
  if (!status.ok()) return "";
  if (view.header.SerializeAsString() != message.header().SerializeAsString()) {
    return "the headers differ";
  }
  return compare_bulk(message, view) ? "" : "a bulk field differs";
}

// The same for all messages of the data plane with bulk fields.
inline std::string AnyDisagreement(const std::string& bytes, Fragments f) {
  std::string found =
      Disagreement<v1::PullRequest>(bytes, f, ParsePullRequest, [&](const auto& m, const auto& v) {
        return m.ids() == Bytes(f, v.ids) && m.lengths() == Bytes(f, v.lengths) &&
               m.weights() == Bytes(f, v.weights);
      });
  if (!found.empty()) return absl::StrCat("PullRequest: ", found);
  found = Disagreement<v1::PullReply>(bytes, f, ParsePullReply, [&](const auto& m, const auto& v) {
    return m.rows() == Bytes(f, v.rows) && m.flags() == Bytes(f, v.flags) &&
           m.arg_max() == Bytes(f, v.arg_max);
  });
  if (!found.empty()) return absl::StrCat("PullReply: ", found);
  found =
      Disagreement<v1::PushRequest>(bytes, f, ParsePushRequest, [&](const auto& m, const auto& v) {
        return m.ids() == Bytes(f, v.ids) && m.gradients() == Bytes(f, v.gradients);
      });
  return found.empty() ? "" : absl::StrCat("PushRequest: ", found);
}

}  // namespace hotbed

#endif  // HOTBED_TESTS_PROTO_WIRE_TWIN_H_
