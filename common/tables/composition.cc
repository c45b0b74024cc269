#include "common/tables/composition.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "row_math/position.h"

namespace hotbed {
namespace {

template <typename Value>
absl::Status Bad(absl::string_view field, const Value& value, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", allowed: ", allowed));
}

const std::string& WordOf(ComposeForm form) { return kComposeFormWords[static_cast<size_t>(form)]; }

// Options that another form would silently ignore.
absl::Status CheckQuotientRemainder(const TableSpec& spec) {
  const Composition& c = spec.composition;
  if (c.buckets > spec.rows) {
    return Bad(
        "buckets", c.buckets,
        absl::StrCat("1..", spec.rows, " (at most rows), or 0 for ", DefaultBuckets(spec.rows)));
  }
  if (!c.block_dims.empty()) {
    return Bad("block_dims", absl::StrJoin(c.block_dims, ","),
               "none with compose quotient-remainder");
  }
  if (static_cast<size_t>(c.combine) >= kCombineWords.size()) {
    return Bad("combine", static_cast<size_t>(c.combine), absl::StrJoin(kCombineWords, ", "));
  }
  if (c.combine == Combine::kConcatenate && spec.dim % 2 != 0) {
    return Bad("dim", spec.dim, "even with combine concatenate, whose parts have half of it each");
  }
  return absl::OkStatus();
}

absl::Status CheckBlocks(const TableSpec& spec) {
  const Composition& c = spec.composition;
  const std::string& word = WordOf(c.form);
  if (c.buckets != 0) return Bad("buckets", c.buckets, absl::StrCat("0 with compose ", word));
  if (c.combine != Combine::kMultiply) {
    return Bad("combine", kCombineWords[static_cast<size_t>(c.combine)],
               absl::StrCat("none with compose ", word));
  }
  if (c.pool_first) {
    return Bad("pool_first", "true",
               absl::StrCat("false with compose ", word, ", which pools first anyway"));
  }
  const size_t most = std::min<uint64_t>(spec.rows, kBlocksMax);
  if (c.block_dims.empty() || c.block_dims.size() > most) {
    return Bad("block_dims", absl::StrCat("of ", c.block_dims.size(), " blocks"),
               absl::StrCat("1..", most, " blocks (at most rows and ", kBlocksMax, ")"));
  }
  for (const uint32_t dim : c.block_dims) {
    if (dim >= 1 && dim <= spec.dim) continue;
    return Bad("block_dims", absl::StrJoin(c.block_dims, ","),
               absl::StrCat("1..", spec.dim, " each (at most dim)"));
  }
  if (c.form == ComposeForm::kFrequency && spec.rows > kFrequencyRowsMax) {
    return Bad("rows", spec.rows,
               absl::StrCat("1..", kFrequencyRowsMax,
                            " with compose frequency, because clients hold the order of the ids"));
  }
  return absl::OkStatus();
}

TableSpec PartOf(const TableSpec& composed, const std::string& name) {
  TableSpec part = composed;
  part.name = absl::StrCat(composed.name, "/", name);
  part.has_padding_id = false;
  part.padding_id = 0;
  part.bounds_mode = BoundsMode::kError;
  Composition& c = part.composition;
  c.table = composed.name;
  c.rows = composed.rows;
  c.dim = composed.dim;
  c.has_padding_id = composed.has_padding_id;
  c.padding_id = composed.padding_id;
  c.bounds_mode = composed.bounds_mode;
  return part;
}

InitializerParams XavierNormal(uint64_t rows, uint64_t columns) {
  const double deviation = std::sqrt(2.0 / static_cast<double>(rows + columns));
  return {InitializerKind::kNormal, 0.0f, static_cast<float>(deviation)};
}

void AddQuotientRemainder(const TableSpec& composed, std::vector<TableSpec>* parts) {
  const Composition& c = composed.composition;
  const uint64_t least = DefaultBuckets(composed.rows);
  const uint64_t buckets = c.buckets != 0 ? c.buckets : least;
  for (const char* name : {"quotient", "remainder"}) {
    TableSpec& part = parts->emplace_back(PartOf(composed, name));
    part.composition.buckets = buckets;
    const uint64_t quotients = buckets == least ? least : (composed.rows + buckets - 1) / buckets;
    part.rows = parts->size() == 1 ? quotients : buckets;
    if (c.combine == Combine::kConcatenate) part.dim = composed.dim / 2;
    if (part.initializer.kind != InitializerKind::kScaled) continue;
    // A product of two rows is then of the size of a plain table's row.
    const double root = std::sqrt(static_cast<double>(part.dim));
    const float reach =
        static_cast<float>(1.0 / (c.combine == Combine::kMultiply ? std::sqrt(root) : root));
    part.initializer = {InitializerKind::kUniform, -reach, reach};
  }
}

void AddBlocks(const TableSpec& composed, std::vector<TableSpec>* parts) {
  const Composition& c = composed.composition;
  if (c.form == ComposeForm::kFrequency) {
    TableSpec& index = parts->emplace_back(PartOf(composed, "index"));
    index.dim = 2;
    index.weight_type = WeightType::kFp32;
    index.column_slices = 1;
    index.optimizer = OptimizerParams();
    index.optimizer.kind = OptimizerKind::kNone;
    index.schedule = Schedule();
    index.clip_slice_norm = 0;
    index.consistency = Consistency::kAsync;
    index.staleness = 0;
    index.initializer = {InitializerKind::kZero, 0, 0};
  }
  const uint32_t blocks = static_cast<uint32_t>(c.block_dims.size());
  for (uint32_t b = 0; b < blocks; ++b) {
    TableSpec& rows = parts->emplace_back(PartOf(composed, absl::StrCat("block", b)));
    rows.rows = RowsOfBlock(composed.rows, blocks, b);
    rows.dim = c.block_dims[b];
    const bool scaled = rows.initializer.kind == InitializerKind::kScaled;
    if (scaled) rows.initializer = XavierNormal(rows.rows, rows.dim);
    if (!HasMap(composed, b)) continue;
    TableSpec& map = parts->emplace_back(PartOf(composed, absl::StrCat("map", b)));
    map.rows = composed.dim;
    map.dim = c.block_dims[b];
    map.initializer = XavierNormal(map.rows, map.dim);
    map.optimizer.max_norm = 0;
    map.optimizer.max_norm_type = OptimizerParams().max_norm_type;
  }
}

// The parts of `composed`, whose composition is valid.
std::vector<TableSpec> MadeParts(const TableSpec& composed) {
  std::vector<TableSpec> parts;
  if (composed.composition.form == ComposeForm::kQuotientRemainder) {
    AddQuotientRemainder(composed, &parts);
  } else {
    AddBlocks(composed, &parts);
  }
  for (uint32_t p = 0; p < parts.size(); ++p) {
    parts[p].composition.part = p;
    if (composed.seed != 0) parts[p].seed = Mix64(composed.seed + p);
  }
  return parts;
}

// Compares the options on which the client relies; others of a part may differ.
bool Fits(const TableSpec& part, const TableSpec& needed) {
  return part.name == needed.name && part.hashed == needed.hashed && part.rows == needed.rows &&
         part.dim == needed.dim && part.composition == needed.composition && !part.has_padding_id &&
         part.bounds_mode == BoundsMode::kError;
}

}  // namespace

absl::Status ValidateComposition(const TableSpec& spec) {
  const Composition& c = spec.composition;
  if (c == Composition()) return absl::OkStatus();
  if (static_cast<size_t>(c.form) >= kComposeFormWords.size()) {
    return Bad("compose", static_cast<size_t>(c.form), absl::StrJoin(kComposeFormWords, ", "));
  }
  if (c.form == ComposeForm::kNone) {
    return Bad("compose", "none",
               "quotient-remainder, block or frequency with combine, pool_first, buckets and "
               "block_dims");
  }
  if (IsPart(spec)) return absl::OkStatus();  // CheckParts compares all parts
  if (spec.hashed) {
    return Bad("hashed", "true",
               absl::StrCat("false with compose ", WordOf(c.form), ", whose ids are 0..rows-1"));
  }
  if (spec.optimizer.average.rate != 0) {
    return Bad("optimizer.average_rate", spec.optimizer.average.rate,
               "0 with compose, whose rows have no half of averages");
  }
  return c.form == ComposeForm::kQuotientRemainder ? CheckQuotientRemainder(spec)
                                                   : CheckBlocks(spec);
}

absl::StatusOr<std::vector<TableSpec>> PartsOf(const TableSpec& composed) {
  HOTBED_RETURN_IF_ERROR(ValidateTableSpec(composed));
  TableSpec canonical = composed;
  MakeCanonical(&canonical);
  std::vector<TableSpec> parts = MadeParts(canonical);
  for (const TableSpec& part : parts) {
    const absl::Status valid = ValidateTableSpec(part);
    if (valid.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat("composed table \"", composed.name,
                                                   "\": a part does not fit: ", valid.message()));
  }
  return parts;
}

TableSpec ComposedOf(absl::Span<const TableSpec> parts) {
  // The index of frequency blocks is trained by nothing; the next part has the options.
  const bool indexed = parts.front().composition.form == ComposeForm::kFrequency;
  TableSpec spec = parts[indexed && parts.size() > 1 ? 1 : 0];
  Composition& c = spec.composition;
  spec.name = std::move(c.table);
  spec.rows = c.rows;
  spec.dim = c.dim;
  spec.has_padding_id = c.has_padding_id;
  spec.padding_id = c.padding_id;
  spec.bounds_mode = c.bounds_mode;
  Composition shown;
  shown.form = c.form;
  shown.combine = c.combine;
  shown.pool_first = c.pool_first;
  shown.buckets = c.buckets;
  shown.block_dims = std::move(c.block_dims);
  c = std::move(shown);
  return spec;
}

std::vector<std::vector<TableSpec>> ComposedTablesOf(absl::Span<const TableSpec> tables) {
  std::map<std::string, size_t> places;
  std::vector<std::vector<TableSpec>> found;
  for (const TableSpec& spec : tables) {
    if (!IsPart(spec)) continue;
    const auto [place, is_new] = places.emplace(spec.composition.table, found.size());
    if (is_new) found.emplace_back();
    found[place->second].push_back(spec);
  }
  std::vector<std::vector<TableSpec>> whole;
  for (std::vector<TableSpec>& parts : found) {
    std::sort(parts.begin(), parts.end(), [](const TableSpec& a, const TableSpec& b) {
      return a.composition.part < b.composition.part;
    });
    if (CheckParts(parts).ok()) whole.push_back(std::move(parts));
  }
  return whole;
}

std::vector<TableSpec> PartsByName(absl::Span<const TableSpec> tables, const std::string& name) {
  std::vector<TableSpec> parts;
  for (const TableSpec& spec : tables) {
    if (IsPart(spec) && spec.composition.table == name) parts.push_back(spec);
  }
  std::vector<std::vector<TableSpec>> whole = ComposedTablesOf(parts);
  return whole.empty() ? std::vector<TableSpec>() : std::move(whole.front());
}

absl::Status CheckParts(absl::Span<const TableSpec> tables) {
  std::map<std::string, std::vector<const TableSpec*>> groups;
  for (const TableSpec& spec : tables) {
    if (IsComposed(spec)) {
      return absl::InvalidArgumentError(
          absl::StrCat("table \"", spec.name,
                       "\" is composed; it is created as its parts, all "
                       "together (a client of this version does so)"));
    }
    if (IsPart(spec)) groups[spec.composition.table].push_back(&spec);
  }
  for (const TableSpec& spec : tables) {
    if (groups.find(spec.name) == groups.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", spec.name,
                     "\" has the name of a composed table beside it; its "
                     "parts are plain tables, and no table has its name"));
  }
  for (const auto& [name, parts] : groups) {
    TableSpec composed = ComposedOf({*parts.front()});
    HOTBED_RETURN_IF_ERROR(ValidateTableSpec(composed));
    const std::vector<TableSpec> needed = MadeParts(composed);
    for (const TableSpec& one : needed) {
      const auto found = std::find_if(parts.begin(), parts.end(),
                                      [&](const TableSpec* p) { return Fits(*p, one); });
      if (found != parts.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "composed table \"", name, "\" needs part \"", one.name, "\" of ", one.rows,
          " rows and dim ", one.dim, ", with the same composition as \"", parts.front()->name,
          "\", created together with it; or give a part another name and no composition, which "
          "makes it a plain table"));
    }
    if (parts.size() == needed.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat("composed table \"", name, "\" has ",
                                                   needed.size(), " parts, but ", parts.size(),
                                                   " tables name it"));
  }
  return absl::OkStatus();
}

uint64_t DefaultBuckets(uint64_t rows) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(rows)));
  while (root * root < rows) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= rows) --root;
  return std::max<uint64_t>(root, 1);
}

uint64_t RowsOfBlock(uint64_t rows, uint32_t blocks, uint32_t block) {
  const uint64_t each = rows / blocks;
  return block + 1 < blocks ? each : rows - each * (blocks - 1);
}

Parameters ParametersOf(const TableSpec& composed, absl::Span<const TableSpec> parts) {
  Parameters parameters;
  parameters.plain = composed.rows * composed.dim;
  for (const TableSpec& part : parts) {
    if (part.optimizer.kind == OptimizerKind::kNone && part.dim == 2 &&
        composed.composition.form == ComposeForm::kFrequency && part.composition.part == 0) {
      continue;  // the index
    }
    parameters.composed += part.rows * part.dim;
  }
  return parameters;
}

uint32_t BlockDim(uint32_t dim, uint64_t whole, uint64_t part) {
  uint32_t halves = 0;
  while (halves < 32 && (part == 0 || whole / part >= uint64_t{2} << halves)) ++halves;
  return std::min(dim, std::max<uint32_t>(2, halves < 32 ? dim >> halves : 0));
}

absl::StatusOr<FrequencyOrder> OrderByFrequency(absl::Span<const uint64_t> counts, uint32_t dim,
                                                uint32_t blocks) {
  if (counts.empty() || counts.size() > kFrequencyRowsMax) {
    return Bad("histogram", absl::StrCat("of ", counts.size(), " ids"),
               absl::StrCat("1..", kFrequencyRowsMax, " ids"));
  }
  const uint64_t most = std::min<uint64_t>(kBlocksMax, counts.size());
  if (blocks < 1 || blocks > most) {
    return Bad("blocks", blocks, absl::StrCat("1..", most, " (at most rows and ", kBlocksMax, ")"));
  }
  FrequencyOrder order;
  order.ids.resize(counts.size());
  std::iota(order.ids.begin(), order.ids.end(), 0u);
  std::stable_sort(order.ids.begin(), order.ids.end(),
                   [&counts](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  const uint64_t whole = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  uint64_t at = 0;
  for (uint32_t b = 0; b < blocks; ++b) {
    uint64_t part = 0;
    const uint64_t rows = RowsOfBlock(counts.size(), blocks, b);
    for (uint64_t i = 0; i < rows; ++i, ++at) part += counts[order.ids[at]];
    order.block_dims.push_back(BlockDim(dim, whole, part));
  }
  return order;
}

}  // namespace hotbed
