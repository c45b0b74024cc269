// A vocabulary: whole numbers for keys, given when a key is first looked up (docs/tables.md).
//
//   hotbed::TableOptions options;
//   options.name = "words";
//   hotbed::MakeVocabulary(/*numbers=*/1'000'000, &options);
//   auto table = client->CreateTable(options);
//   auto words = hotbed::Vocabulary::Open(client.get(), *table);
//   auto numbers = (*words)->Lookup(keys);  // 1, 2, ... in the order of their first look-up
//
// The numbers are contiguous, and 0 when the vocabulary is full. How often each key was looked up
// is counted, exactly once however often a call is repeated. Key -1 stands for no key: its number
// is 0, and nothing is counted. A batch of up to 65,536 different keys takes one round trip. The
// numbers of a client that dies in a call may be given, and its keys counted, or not.
//
// Thread-safe; calls of one object come one after another.
#ifndef HOTBED_VOCABULARY_H_
#define HOTBED_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hotbed/client.h"

namespace hotbed {

struct VocabularyEntry {
  uint64_t number = 0;  // 0: the key has none
  uint64_t count = 0;   // how often it was looked up
};

struct VocabularySize {
  uint64_t given = 0;  // the numbers 1 to this one
  uint64_t max = 0;    // that may be given
  uint64_t full = 0;   // look-ups that got 0 because all were given
};

class Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  // `client` outlives it. InvalidArgument: the table is no vocabulary.
  static absl::StatusOr<std::unique_ptr<Vocabulary>> Open(
      Client* client, const Table* table, absl::Duration deadline = absl::ZeroDuration());

  // Per key, in order. Each occurrence counts.
  virtual absl::StatusOr<std::vector<uint32_t>> Lookup(absl::Span<const uint64_t> keys) = 0;
  // Gives no numbers and counts nothing. An ordinary pull: replicas may answer (PullOptions).
  virtual absl::StatusOr<std::vector<VocabularyEntry>> Find(absl::Span<const uint64_t> keys,
                                                            const PullOptions& options = {}) = 0;
  virtual absl::StatusOr<VocabularySize> Size() = 0;
};

}  // namespace hotbed

#endif  // HOTBED_VOCABULARY_H_
