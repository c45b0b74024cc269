#include "client/embedding/jagged_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
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

// Where each key's bags begin in `lengths`: keys.size() + 1 numbers.
std::vector<uint64_t> BagBegins(const JaggedBatch& batch) {
  std::vector<uint64_t> begins(batch.keys.size() + 1);
  for (size_t k = 0; k < batch.keys.size(); ++k) begins[k + 1] = begins[k] + batch.BagsOf(k);
  return begins;
}

// The key of a position of the lengths, and the number of its bag there.
std::pair<size_t, uint64_t> BagAt(const JaggedBatch& batch, uint64_t position) {
  size_t key = 0;
  while (position >= batch.BagsOf(key)) position -= batch.BagsOf(key++);
  return {key, position};
}

absl::Status CheckVariable(const JaggedBatch& batch) {
  const size_t keys = batch.keys.size();
  if (batch.bags_per_key.size() != keys) {
    return absl::InvalidArgumentError(absl::StrCat(batch.bags_per_key.size(), " bags_per_key for ",
                                                   keys, " features; give one per feature"));
  }
  if (batch.inverse.size() != keys * uint64_t{batch.batch_size}) {
    return absl::InvalidArgumentError(
        absl::StrCat(batch.inverse.size(), " inverse indices for ", keys, " features x ",
                     batch.batch_size, " samples; give one per feature and sample, key by key"));
  }
  for (uint64_t i = 0; i < batch.inverse.size(); ++i) {
    const size_t key = i / batch.batch_size;
    if (batch.inverse[i] < batch.bags_per_key[key]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(batch, key), ": sample ", i % batch.batch_size, " has bag ",
                     batch.inverse[i], ", the feature has ", batch.bags_per_key[key]));
  }
  const uint64_t bags = BagBegins(batch).back();
  if (batch.batch_size == 0 && bags > 0) {
    return absl::InvalidArgumentError(absl::StrCat(bags, " bags for 0 samples"));
  }
  if (batch.lengths.size() == bags) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(batch.lengths.size(), " lengths for ", bags, " bags; give one per bag"));
}

// Compares the sum of the lengths with the number of ids. The error names the bag that exceeds it,
// or where ids are left over.
absl::Status CheckSum(const JaggedBatch& batch) {
  uint64_t sum = 0;
  for (size_t i = 0; i < batch.lengths.size(); ++i) {
    sum += batch.lengths[i];
    if (sum <= batch.ids.size()) continue;
    const auto [key, bag] = BagAt(batch, i);
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(batch, key), ": the length ", batch.lengths[i], " of ",
                     batch.variable() ? "bag " : "sample ", bag, " (position ", i,
                     " of the lengths) ends at id ", sum, ", there are only ", batch.ids.size(),
                     " ids; lengths must add up to the number of ids"));
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

// Appends bags [first, first + count) of a batch, whose ids begin at `begin`.
void AppendBags(const JaggedBatch& from, uint64_t first, uint64_t count, uint64_t begin,
                JaggedBatch* to) {
  const auto lengths = from.lengths.begin() + static_cast<ptrdiff_t>(first);
  const auto limit = lengths + static_cast<ptrdiff_t>(count);
  const uint64_t end = std::accumulate(lengths, limit, begin);
  to->lengths.insert(to->lengths.end(), lengths, limit);
  const auto append = [&](const auto& source, auto* target) {
    target->insert(target->end(), source.begin() + static_cast<ptrdiff_t>(begin),
                   source.begin() + static_cast<ptrdiff_t>(end));
  };
  append(from.ids, &to->ids);
  if (from.weighted()) append(from.weights, &to->weights);
}

// Appends whole keys of one batch to others.
class KeyCopier {
 public:
  explicit KeyCopier(const JaggedBatch& from)
      : from_(from), ids_(from.OffsetPerKey()), bags_(BagBegins(from)) {}

  void Append(size_t key, JaggedBatch* to) const {
    AppendBags(from_, bags_[key], from_.BagsOf(key), ids_[key], to);
    if (!from_.variable()) return;
    to->bags_per_key.push_back(from_.bags_per_key[key]);
    const auto inverse = from_.inverse.begin() + static_cast<ptrdiff_t>(key * from_.batch_size);
    to->inverse.insert(to->inverse.end(), inverse, inverse + from_.batch_size);
  }
  // Only of batches that are not variable.
  void AppendSamples(size_t key, uint32_t first, uint32_t count, JaggedBatch* to) const {
    const auto lengths = from_.lengths.begin() + static_cast<ptrdiff_t>(bags_[key]);
    AppendBags(from_, bags_[key] + first, count,
               std::accumulate(lengths, lengths + first, ids_[key]), to);
  }

 private:
  const JaggedBatch& from_;
  const std::vector<uint64_t> ids_;   // where each key's ids begin
  const std::vector<uint64_t> bags_;  // where each key's bags begin
};

// Every sample gets the bag of its own number.
void MakeVariable(JaggedBatch* batch) {
  if (batch->variable()) return;
  batch->bags_per_key.assign(batch->keys.size(), batch->batch_size);
  for (size_t k = 0; k < batch->keys.size(); ++k) {
    for (uint32_t s = 0; s < batch->batch_size; ++s) batch->inverse.push_back(s);
  }
}

// A tensor of one key's bags, with the ids or the weights of the batch as its values.
template <typename T>
JaggedTensor<T> TensorOf(const JaggedBatch& batch, size_t key, const std::vector<T>& values) {
  const uint64_t bag = BagBegins(batch)[key];
  const std::vector<uint64_t> ids = batch.OffsetPerKey();
  const auto at = [](const auto& vector, uint64_t i) {
    return vector.begin() + static_cast<ptrdiff_t>(i);
  };
  JaggedTensor<T> out;
  out.lengths.assign(at(batch.lengths, bag), at(batch.lengths, bag + batch.BagsOf(key)));
  out.values.assign(at(values, ids[key]), at(values, ids[key + 1]));
  return out;
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
  size_t i = 0;
  for (size_t key = 0; key < batch.keys.size(); ++key) {
    place.key = key;
    place.key_begin = begin;
    for (uint32_t bag = 0; bag < batch.BagsOf(key); ++bag, ++i) {
      place.sample = bag;
      if (position < begin + batch.lengths[i]) return place;
      begin += batch.lengths[i];
    }
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

absl::StatusOr<JaggedBatch> JaggedBatch::FromVariable(
    std::vector<std::string> keys, uint32_t batch_size, std::vector<uint32_t> bags_per_key,
    std::vector<uint32_t> lengths, std::vector<uint64_t> ids, std::vector<uint32_t> inverse,
    std::vector<float> weights) {
  JaggedBatch batch;
  batch.keys = std::move(keys);
  batch.batch_size = batch_size;
  batch.lengths = std::move(lengths);
  batch.ids = std::move(ids);
  batch.weights = std::move(weights);
  batch.bags_per_key = std::move(bags_per_key);
  batch.inverse = std::move(inverse);
  HOTBED_RETURN_IF_ERROR(batch.Validate());
  return batch;
}

absl::StatusOr<JaggedBatch> JaggedBatch::FromFeatures(
    std::vector<std::string> keys, absl::Span<const JaggedTensor<uint64_t>> ids,
    absl::Span<const JaggedTensor<float>> weights) {
  if (ids.size() != keys.size() || (!weights.empty() && weights.size() != keys.size())) {
    return absl::InvalidArgumentError(absl::StrCat(ids.size(), " tensors of ids and ",
                                                   weights.size(), " of weights for ", keys.size(),
                                                   " keys; give one per key, or no weights"));
  }
  JaggedBatch batch;
  batch.keys = std::move(keys);
  if (!ids.empty()) batch.batch_size = static_cast<uint32_t>(ids[0].lengths.size());
  for (size_t k = 0; k < ids.size(); ++k) {
    if (ids[k].width != 1 || ids[k].lengths.size() != batch.batch_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          NameOf(batch, k), ": ", ids[k].lengths.size(), " samples of width ", ids[k].width,
          "; needed: ", batch.batch_size, " of width 1, as the first feature has"));
    }
    if (absl::Status valid = ids[k].Validate(); !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(NameOf(batch, k), ": ", valid.message()));
    }
    batch.lengths.insert(batch.lengths.end(), ids[k].lengths.begin(), ids[k].lengths.end());
    batch.ids.insert(batch.ids.end(), ids[k].values.begin(), ids[k].values.end());
    if (weights.empty()) continue;
    if (weights[k].lengths != ids[k].lengths || weights[k].values.size() != ids[k].values.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(batch, k), ": the weights have other lengths than the ids"));
    }
    batch.weights.insert(batch.weights.end(), weights[k].values.begin(), weights[k].values.end());
  }
  HOTBED_RETURN_IF_ERROR(batch.Validate());
  return batch;
}

absl::Status JaggedBatch::Validate() const {
  HOTBED_RETURN_IF_ERROR(CheckKeys(*this));
  if (variable() || !inverse.empty()) {
    HOTBED_RETURN_IF_ERROR(CheckVariable(*this));
  } else if (lengths.size() != keys.size() * uint64_t{batch_size}) {
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
  for (size_t k = 0, i = 0; k < keys.size(); ++k) {
    for (uint32_t bag = 0; bag < BagsOf(k); ++bag) counts[k] += lengths[i++];
  }
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
  const KeyCopier copier(*this);
  std::vector<JaggedBatch> groups(counts.size());
  size_t key = 0;
  for (size_t g = 0; g < counts.size(); ++g) {
    groups[g].batch_size = batch_size;
    for (size_t n = 0; n < counts[g]; ++n, ++key) {
      groups[g].keys.push_back(keys[key]);
      copier.Append(key, &groups[g]);
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
  const KeyCopier copier(*this);
  // A suffixed name must differ from every key that comes later in the order.
  absl::flat_hash_set<std::string> taken;
  absl::flat_hash_set<size_t> used;
  for (size_t key : order) taken.insert(keys[key]);
  JaggedBatch out;
  out.batch_size = batch_size;
  for (size_t key : order) {
    out.keys.push_back(used.insert(key).second ? keys[key] : FreshKey(keys[key], taken));
    taken.insert(out.keys.back());
    copier.Append(key, &out);
  }
  return out;
}

absl::StatusOr<JaggedBatch> JaggedBatch::Concat(absl::Span<const JaggedBatch> parts) {
  HOTBED_RETURN_IF_ERROR(CheckParts(parts));
  JaggedBatch out;
  if (!parts.empty()) out.batch_size = parts[0].batch_size;
  const bool variable = std::any_of(parts.begin(), parts.end(),
                                    [](const JaggedBatch& part) { return part.variable(); });
  for (size_t p = 0; p < parts.size(); ++p) {
    JaggedBatch part = parts[p];
    if (variable) MakeVariable(&part);
    if (part.batch_size != out.batch_size) {
      return absl::InvalidArgumentError(absl::StrCat("parts[", p, "] has ", part.batch_size,
                                                     " samples, parts[0] has ", out.batch_size));
    }
    out.keys.insert(out.keys.end(), part.keys.begin(), part.keys.end());
    out.lengths.insert(out.lengths.end(), part.lengths.begin(), part.lengths.end());
    out.ids.insert(out.ids.end(), part.ids.begin(), part.ids.end());
    out.weights.insert(out.weights.end(), part.weights.begin(), part.weights.end());
    out.bags_per_key.insert(out.bags_per_key.end(), part.bags_per_key.begin(),
                            part.bags_per_key.end());
    out.inverse.insert(out.inverse.end(), part.inverse.begin(), part.inverse.end());
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
  std::vector<JaggedBatch> expanded;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].keys != out.keys) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parts[", p, "] has not the keys of parts[0] in the same order; Permute it first"));
    }
    samples += parts[p].batch_size;
    HOTBED_ASSIGN_OR_RETURN(expanded.emplace_back(), parts[p].Expand());
  }
  if (samples > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(samples, " samples in all parts, the limit is ",
                                                   std::numeric_limits<uint32_t>::max()));
  }
  out.batch_size = static_cast<uint32_t>(samples);
  const std::vector<KeyCopier> copiers(expanded.begin(), expanded.end());
  for (size_t k = 0; k < out.keys.size(); ++k) {
    for (const KeyCopier& copier : copiers) copier.Append(k, &out);
  }
  return out;
}

absl::StatusOr<JaggedBatch> JaggedBatch::Samples(uint32_t first, uint32_t count) const {
  HOTBED_RETURN_IF_ERROR(Validate());
  if (first > batch_size || count > batch_size - first) {
    return absl::InvalidArgumentError(absl::StrCat(
        "samples [", first, ", ", uint64_t{first} + count, ") of a batch of ", batch_size));
  }
  JaggedBatch expanded;
  if (variable()) {
    HOTBED_ASSIGN_OR_RETURN(expanded, Expand());
  }
  const KeyCopier copier(variable() ? expanded : *this);
  JaggedBatch out;
  out.keys = keys;
  out.batch_size = count;
  for (size_t k = 0; k < keys.size(); ++k) copier.AppendSamples(k, first, count, &out);
  return out;
}

absl::StatusOr<JaggedBatch> JaggedBatch::Expand() const {
  HOTBED_RETURN_IF_ERROR(Validate());
  if (!variable()) return *this;
  JaggedBatch out;
  out.keys = keys;
  out.batch_size = batch_size;
  const std::vector<uint64_t> bags = BagBegins(*this);
  const std::vector<uint64_t> begins = Offsets();
  for (size_t i = 0; i < inverse.size(); ++i) {
    const uint64_t bag = bags[i / batch_size] + inverse[i];
    AppendBags(*this, bag, 1, begins[bag], &out);
  }
  return out;
}

absl::StatusOr<JaggedBatch> JaggedBatch::ShareEqualBags() const {
  HOTBED_ASSIGN_OR_RETURN(const JaggedBatch from, Expand());
  JaggedBatch out;
  out.keys = keys;
  out.batch_size = batch_size;
  const std::vector<uint64_t> begins = from.Offsets();
  for (size_t k = 0; k < keys.size(); ++k) {
    absl::flat_hash_map<std::pair<std::vector<uint64_t>, std::vector<float>>, uint32_t> numbers;
    for (size_t i = k * batch_size; i < (k + 1) * size_t{batch_size}; ++i) {
      JaggedBatch bag;
      AppendBags(from, i, 1, begins[i], &bag);
      const auto number = static_cast<uint32_t>(numbers.size());
      const auto [at, fresh] =
          numbers.try_emplace({std::move(bag.ids), std::move(bag.weights)}, number);
      if (fresh) AppendBags(from, i, 1, begins[i], &out);
      out.inverse.push_back(at->second);
    }
    out.bags_per_key.push_back(static_cast<uint32_t>(numbers.size()));
  }
  return out;
}

absl::StatusOr<JaggedTensor<uint64_t>> JaggedBatch::Feature(const std::string& key) const {
  HOTBED_RETURN_IF_ERROR(Validate());
  HOTBED_ASSIGN_OR_RETURN(const size_t index, IndexOf(key));
  return TensorOf(*this, index, ids);
}

absl::StatusOr<JaggedTensor<float>> JaggedBatch::FeatureWeights(const std::string& key) const {
  HOTBED_RETURN_IF_ERROR(Validate());
  HOTBED_ASSIGN_OR_RETURN(const size_t index, IndexOf(key));
  if (!weighted()) {
    return absl::FailedPreconditionError(
        absl::StrCat(NameOf(*this, index), " has no weights: none of the batch has"));
  }
  return TensorOf(*this, index, weights);
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
