#include "client/embedding/jagged_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/edit_distance.h"
#include "common/status_macros.h"
#include "hotbed/batch.h"

namespace hotbed {
namespace {

std::string NameOf(const JaggedBatch& batch, size_t key) {
  return absl::StrCat("feature \"", batch.keys[key], "\"");
}

absl::Status CheckKeys(const JaggedBatch& batch) {
  absl::flat_hash_set<std::string> seen;
  for (size_t k = 0; k < batch.keys.size(); ++k) {
    if (seen.insert(batch.keys[k]).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(batch, k), " at position ", k, " of the keys occurs a second time; name it apart"));
  }
  return absl::OkStatus();
}

// Compares the sum of the lengths with the number of ids. The error names the bag that exceeds it,
// or where ids are left over.
absl::Status CheckSum(const JaggedBatch& batch) {
  uint64_t sum = 0;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    sum += batch.lengths[i];
    if (sum <= batch.ids.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        NameOf(batch, i / batch.batch_size), ": the length ", batch.lengths[i], " of sample ",
        i % batch.batch_size, " (position ", i, " of the lengths) ends at id ", sum,
        ", there are only ", batch.ids.size(), " ids; lengths must add up to the number of ids"));
  }
  if (sum == batch.ids.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      batch.keys.empty() ? "no feature" : NameOf(batch, batch.keys.size() - 1),
      ": the lengths end at position ", sum, " of ", batch.ids.size(), " ids, ",
      batch.ids.size() - sum, " are left over; lengths must add up to the number of ids"));
}

// The first position without a length, or the first length that belongs to no feature.
absl::Status UnevenLengths(const JaggedBatch& batch, uint64_t batch_size) {
  const uint64_t bags = batch.lengths.size();
  const uint64_t needed = batch.keys.size() * batch_size;
  return absl::InvalidArgumentError(absl::StrCat(
      bags, " lengths for ", batch.keys.size(), " features x ", batch_size, " samples: ",
      bags < needed ? absl::StrCat(NameOf(batch, bags / batch_size), " lacks that of sample ",
                                   bags % batch_size, " at position ", bags)
                    : absl::StrCat("those from position ", needed, " on belong to no feature"),
      "; give one a feature and sample, key by key"));
}

// The feature and sample that the id at `position` belongs to.
std::string PlaceOf(const JaggedBatch& batch, uint64_t position) {
  const JaggedPlace place = PlaceOfId(batch, position);
  return absl::StrCat(NameOf(batch, place.key), " at position ", position - place.key_begin,
                      " of its ids (sample ", place.sample, ")");
}

absl::Status CheckWeights(const JaggedBatch& batch) {
  if (!batch.weighted()) return absl::OkStatus();
  const uint64_t ids = batch.ids.size();
  const uint64_t weights = batch.weights.size();
  if (weights != ids) {
    const std::string where =
        weights < ids ? absl::StrCat("the first without one is ", PlaceOf(batch, weights))
                      : absl::StrCat("those from position ", ids, " on belong to no id of ",
                                     batch.keys.empty() ? "any feature"
                                                        : NameOf(batch, batch.keys.size() - 1));
    return absl::InvalidArgumentError(absl::StrCat(weights, " weights for ", ids, " ids: ", where,
                                                   "; give one an id, or none at all"));
  }
  for (uint64_t i = 0; i < weights; ++i) {
    if (std::isfinite(batch.weights[i])) continue;
    return absl::InvalidArgumentError(absl::StrCat("the weight of ", PlaceOf(batch, i), " is ",
                                                   batch.weights[i], "; it must be finite"));
  }
  return absl::OkStatus();
}

// Appends the samples [first, first + count) of key `key`; `begin` is where its ids begin.
void AppendKey(const JaggedBatch& from, size_t key, uint64_t begin, uint32_t first, uint32_t count,
               JaggedBatch* to) {
  const auto lengths = from.lengths.begin() + static_cast<ptrdiff_t>(key * from.batch_size);
  begin = std::accumulate(lengths, lengths + first, begin);
  const uint64_t end = std::accumulate(lengths + first, lengths + first + count, begin);
  to->lengths.insert(to->lengths.end(), lengths + first, lengths + first + count);
  const auto append = [&](const auto& source, auto* target) {
    target->insert(target->end(), source.begin() + static_cast<ptrdiff_t>(begin),
                   source.begin() + static_cast<ptrdiff_t>(end));
  };
  append(from.ids, &to->ids);
  if (from.weighted()) append(from.weights, &to->weights);
}

// The key itself, or the key with the first suffix "#n" that makes it unique.
std::string FreshKey(const std::string& key, const absl::flat_hash_set<std::string>& taken) {
  if (!taken.contains(key)) return key;
  for (int n = 1;; ++n) {
    std::string name = absl::StrCat(key, "#", n);
    if (!taken.contains(name)) return name;
  }
}

absl::Status CheckUnmixedWeights(absl::Span<const JaggedBatch> parts) {
  const JaggedBatch* weighted = nullptr;
  size_t bare = parts.size();
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].ids.empty()) continue;  // without ids: both weighted and unweighted
    if (parts[p].weighted()) {
      weighted = &parts[p];
    } else if (bare == parts.size()) {
      bare = p;
    }
  }
  if (weighted == nullptr || bare == parts.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("parts[", bare, "] has no weights, parts[",
                                                 weighted - parts.data(),
                                                 "] has; weigh all parts, or none"));
}

absl::Status CheckParts(absl::Span<const JaggedBatch> parts) {
  for (size_t p = 0; p < parts.size(); ++p) {
    const absl::Status status = parts[p].Validate();
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat("parts[", p, "]: ", status.message()));
  }
  return CheckUnmixedWeights(parts);
}

}  // namespace

JaggedPlace PlaceOfId(const JaggedBatch& batch, uint64_t position) {
  JaggedPlace place;
  uint64_t begin = 0;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    place.key = i / batch.batch_size;
    place.sample = static_cast<uint32_t>(i % batch.batch_size);
    if (place.sample == 0) place.key_begin = begin;
    if (position < begin + batch.lengths[i]) break;
    begin += batch.lengths[i];
  }
  return place;
}

absl::StatusOr<JaggedBatch> JaggedBatch::FromLengths(std::vector<std::string> keys,
                                                     std::vector<uint32_t> lengths,
                                                     std::vector<uint64_t> ids,
                                                     std::vector<float> weights) {
  JaggedBatch batch;
  const uint64_t bags = lengths.size();
  batch.keys = std::move(keys);
  batch.lengths = std::move(lengths);
  batch.ids = std::move(ids);
  batch.weights = std::move(weights);
  if (!batch.keys.empty() && bags % batch.keys.size() == 0 &&
      bags / batch.keys.size() <= std::numeric_limits<uint32_t>::max()) {
    batch.batch_size = static_cast<uint32_t>(bags / batch.keys.size());
  } else if (bags != 0) {
    return batch.keys.empty()
               ? absl::InvalidArgumentError(absl::StrCat(bags, " lengths for no features"))
               : UnevenLengths(batch, (bags + batch.keys.size() - 1) / batch.keys.size());
  }
  HOTBED_RETURN_IF_ERROR(batch.Validate());
  return batch;
}

absl::StatusOr<JaggedBatch> JaggedBatch::FromOffsets(std::vector<std::string> keys,
                                                     absl::Span<const int64_t> offsets,
                                                     std::vector<uint64_t> ids,
                                                     std::vector<float> weights) {
  const size_t features = keys.size();
  if (offsets.empty() || offsets[0] != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("offsets begin with ", offsets.empty() ? "nothing" : absl::StrCat(offsets[0]),
                     " at position 0; the first is 0, the last the number of ids"));
  }
  const size_t bags = offsets.size() - 1;
  const size_t batch_size = features == 0 ? 0 : bags / features;
  std::vector<uint32_t> lengths(bags);
  for (size_t i = 0; i < bags; ++i) {
    const std::string where = features == 0 || i >= features * batch_size
                                  ? ""
                                  : absl::StrCat(" (feature \"", keys[i / batch_size],
                                                 "\", sample ", i % batch_size, ")");
    if (offsets[i + 1] < offsets[i]) {
      return absl::InvalidArgumentError(absl::StrCat("offsets fall from ", offsets[i], " to ",
                                                     offsets[i + 1], " at position ", i + 1, where,
                                                     "; they must not"));
    }
    if (offsets[i + 1] - offsets[i] > int64_t{std::numeric_limits<uint32_t>::max()}) {
      return absl::InvalidArgumentError(absl::StrCat(
          "offsets grow by ", offsets[i + 1] - offsets[i], " at position ", i + 1, where,
          "; a bag has at most ", std::numeric_limits<uint32_t>::max(), " ids"));
    }
    lengths[i] = static_cast<uint32_t>(offsets[i + 1] - offsets[i]);
  }
  return FromLengths(std::move(keys), std::move(lengths), std::move(ids), std::move(weights));
}

absl::Status JaggedBatch::Validate() const {
  HOTBED_RETURN_IF_ERROR(CheckKeys(*this));
  if (lengths.size() != keys.size() * uint64_t{batch_size}) {
    return UnevenLengths(*this, batch_size);
  }
  HOTBED_RETURN_IF_ERROR(CheckSum(*this));
  return CheckWeights(*this);
}

std::vector<uint64_t> JaggedBatch::Offsets() const {
  std::vector<uint64_t> offsets(lengths.size() + 1);
  for (size_t i = 0; i < lengths.size(); ++i) offsets[i + 1] = offsets[i] + lengths[i];
  return offsets;
}

std::vector<uint64_t> JaggedBatch::LengthPerKey() const {
  std::vector<uint64_t> counts(keys.size());
  for (size_t i = 0; i < lengths.size(); ++i) counts[i / batch_size] += lengths[i];
  return counts;
}

std::vector<uint64_t> JaggedBatch::OffsetPerKey() const {
  std::vector<uint64_t> offsets(keys.size() + 1);
  const std::vector<uint64_t> counts = LengthPerKey();
  for (size_t k = 0; k < counts.size(); ++k) offsets[k + 1] = offsets[k] + counts[k];
  return offsets;
}

absl::StatusOr<size_t> JaggedBatch::IndexOf(const std::string& key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found != keys.end()) return static_cast<size_t>(found - keys.begin());
  const auto nearest =
      std::min_element(keys.begin(), keys.end(), [&](const std::string& a, const std::string& b) {
        return EditDistance(a, key) < EditDistance(b, key);
      });
  return absl::NotFoundError(
      absl::StrCat("the batch has no feature \"", key, "\"",
                   nearest == keys.end() ? "; it has none"
                                         : absl::StrCat("; the nearest is \"", *nearest, "\"")));
}

absl::StatusOr<std::vector<JaggedBatch>> JaggedBatch::Split(absl::Span<const size_t> counts) const {
  HOTBED_RETURN_IF_ERROR(Validate());
  // Each count is checked before it is added: a sum that overflows could equal keys.size().
  size_t left = keys.size();
  for (size_t g = 0; g < counts.size(); ++g) {
    if (counts[g] > left) {
      return absl::InvalidArgumentError(absl::StrCat("counts[", g, "] is ", counts[g], ", only ",
                                                     left, " of ", keys.size(), " keys are left"));
    }
    left -= counts[g];
  }
  if (left != 0) {
    return absl::InvalidArgumentError(absl::StrCat("counts add up to ", keys.size() - left, " of ",
                                                   keys.size(), " keys; name all of them"));
  }
  const std::vector<uint64_t> begins = OffsetPerKey();
  std::vector<JaggedBatch> groups(counts.size());
  size_t key = 0;
  for (size_t g = 0; g < counts.size(); ++g) {
    groups[g].batch_size = batch_size;
    for (size_t n = 0; n < counts[g]; ++n, ++key) {
      groups[g].keys.push_back(keys[key]);
      AppendKey(*this, key, begins[key], 0, batch_size, &groups[g]);
    }
  }
  return groups;
}

absl::StatusOr<JaggedBatch> JaggedBatch::Permute(absl::Span<const size_t> order) const {
  HOTBED_RETURN_IF_ERROR(Validate());
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < keys.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("order[", i, "] is ", order[i], ", the batch has ", keys.size(), " keys"));
  }
  const std::vector<uint64_t> begins = OffsetPerKey();
  // A suffixed name must differ from every key that comes later in the order.
  absl::flat_hash_set<std::string> taken;
  absl::flat_hash_set<size_t> used;
  for (size_t key : order) taken.insert(keys[key]);
  JaggedBatch out;
  out.batch_size = batch_size;
  for (size_t key : order) {
    out.keys.push_back(used.insert(key).second ? keys[key] : FreshKey(keys[key], taken));
    taken.insert(out.keys.back());
    AppendKey(*this, key, begins[key], 0, batch_size, &out);
  }
  return out;
}

absl::StatusOr<JaggedBatch> JaggedBatch::Concat(absl::Span<const JaggedBatch> parts) {
  HOTBED_RETURN_IF_ERROR(CheckParts(parts));
  JaggedBatch out;
  if (!parts.empty()) out.batch_size = parts[0].batch_size;
  for (size_t p = 0; p < parts.size(); ++p) {
    const JaggedBatch& part = parts[p];
    if (part.batch_size != out.batch_size) {
      return absl::InvalidArgumentError(absl::StrCat("parts[", p, "] has ", part.batch_size,
                                                     " samples, parts[0] has ", out.batch_size));
    }
    out.keys.insert(out.keys.end(), part.keys.begin(), part.keys.end());
    out.lengths.insert(out.lengths.end(), part.lengths.begin(), part.lengths.end());
    out.ids.insert(out.ids.end(), part.ids.begin(), part.ids.end());
    out.weights.insert(out.weights.end(), part.weights.begin(), part.weights.end());
  }
  const absl::Status keys = CheckKeys(out);
  if (!keys.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("parts put together: ", keys.message()));
  }
  return out;
}

absl::StatusOr<JaggedBatch> JaggedBatch::ConcatSamples(absl::Span<const JaggedBatch> parts) {
  HOTBED_RETURN_IF_ERROR(CheckParts(parts));
  JaggedBatch out;
  if (parts.empty()) return out;
  out.keys = parts[0].keys;
  uint64_t samples = 0;
  std::vector<std::vector<uint64_t>> begins;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].keys != out.keys) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parts[", p, "] has not the keys of parts[0] in the same order; Permute it first"));
    }
    samples += parts[p].batch_size;
    begins.push_back(parts[p].OffsetPerKey());
  }
  if (samples > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(samples, " samples in all parts, the limit is ",
                                                   std::numeric_limits<uint32_t>::max()));
  }
  out.batch_size = static_cast<uint32_t>(samples);
  for (size_t k = 0; k < out.keys.size(); ++k) {
    for (size_t p = 0; p < parts.size(); ++p) {
      AppendKey(parts[p], k, begins[p][k], 0, parts[p].batch_size, &out);
    }
  }
  return out;
}

absl::StatusOr<JaggedBatch> JaggedBatch::Samples(uint32_t first, uint32_t count) const {
  HOTBED_RETURN_IF_ERROR(Validate());
  if (first > batch_size || count > batch_size - first) {
    return absl::InvalidArgumentError(absl::StrCat(
        "samples [", first, ", ", uint64_t{first} + count, ") of a batch of ", batch_size));
  }
  const std::vector<uint64_t> begins = OffsetPerKey();
  JaggedBatch out;
  out.keys = keys;
  out.batch_size = count;
  for (size_t k = 0; k < keys.size(); ++k) AppendKey(*this, k, begins[k], first, count, &out);
  return out;
}

absl::StatusOr<std::vector<JaggedBatch>> JaggedBatch::Regroup(
    absl::Span<const std::vector<std::string>> groups) const {
  std::vector<JaggedBatch> out;
  for (const std::vector<std::string>& group : groups) {
    std::vector<size_t> order;
    for (const std::string& key : group) {
      HOTBED_ASSIGN_OR_RETURN(const size_t index, IndexOf(key));
      order.push_back(index);
    }
    HOTBED_ASSIGN_OR_RETURN(JaggedBatch batch, Permute(order));
    out.push_back(std::move(batch));
  }
  return out;
}

std::vector<uint64_t> IdsFrom(absl::Span<const int32_t> ids) {
  std::vector<uint64_t> out(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) out[i] = static_cast<uint64_t>(int64_t{ids[i]});
  return out;
}

std::vector<uint64_t> IdsFrom(absl::Span<const int64_t> ids) {
  return std::vector<uint64_t>(ids.begin(), ids.end());
}

std::vector<uint64_t> IdsFrom(absl::Span<const uint64_t> ids) {
  return std::vector<uint64_t>(ids.begin(), ids.end());
}

}  // namespace hotbed
