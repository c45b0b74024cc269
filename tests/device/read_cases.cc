// Gather and pooled gather in every pair of types, against the CPU's conversions and a plain sum.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "row_math/pooling.h"
#include "tests/device/case.h"
#include "tests/device/cpu_rows.h"

namespace hotbed {
namespace device {
namespace read_cases {

RowsOptions SmallRows() {
  RowsOptions options;
  options.device_bytes = 128ull << 20;
  options.ids_max = 4096;
  options.segments_max = 64;
  options.tables_max = 16;
  options.row_bytes_max = 16ull << 20;
  options.move_bytes_max = 4ull << 20;
  return options;
}

// A few tables of different kinds, some of their rows on the device.
struct Tables {
  std::vector<RowShape> shapes;
  std::vector<std::map<uint64_t, Bytes>> stored;  // by id

  bool Fill(DeviceRows* rows, CaseRandom* random, Findings* findings) {
    std::vector<RowToInsert> inserted;
    std::vector<MovedRow> evicted;
    for (uint32_t dim : {1u, 4u, 7u, 32u, 65u, 129u}) {
      const uint32_t number = static_cast<uint32_t>(shapes.size());
      shapes.push_back(RandomShape(random, dim));
      stored.emplace_back();
      uint32_t table = 0;
      const bool direct = number % 2 == 0;
      shapes.back().hashed = !direct;
      if (!findings->Ok(rows->AddTable(shapes.back(), direct, 100, 300, &table))) return false;
      findings->Check(table == number, "table ", number, " got number ", table);
      for (uint64_t id = 100; id < 160; ++id) {
        if (random->OneIn(3)) continue;
        stored.back()[id] = RandomStored(random, shapes.back());
      }
    }
    for (uint32_t t = 0; t < shapes.size(); ++t) {
      for (const auto& [id, bytes] : stored[t]) {
        inserted.push_back({t, PositionOfId(shapes[t], id), bytes.data()});
      }
    }
    return findings->Ok(rows->Insert(inserted, false, &evicted));
  }

  static Bytes RandomStored(CaseRandom* random, const RowShape& shape) {
    Bytes bytes = FirstStored(shape, 0);
    std::vector<float> values(shape.dim);
    const bool odd = random->OneIn(4);  // zeros of both signs, a constant, what is not finite
    const float constant = random->Float(1.0f);
    for (float& value : values) {
      value = odd ? random->Pick<float>({0.0f, -0.0f, constant}) : random->Float(2.0f);
    }
    if (odd && random->OneIn(2)) {
      values[random->Below(shape.dim)] = random->Pick<float>(
          {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), 3e38f});
    }
    const Bytes weights = EncodedRow(static_cast<RowType>(shape.weight_type), values);
    std::copy(weights.begin(), weights.end(), bytes.begin());
    return bytes;
  }

  Bytes Stored(uint32_t table, uint64_t id) const {
    const auto found = stored[table].find(id);
    return found != stored[table].end() ? found->second : FirstStored(shapes[table], id);
  }
};

// Segments of random ids of random tables, and where each row goes.
struct RandomBatch {
  std::vector<Segment> segments;
  std::vector<uint64_t> ids;
  std::vector<uint32_t> segment_of;
  uint64_t row_bytes = 0;

  RandomBatch(const Tables& tables, CaseRandom* random) {
    const uint32_t count = 1 + random->Below(9);
    for (uint32_t s = 0; s < count; ++s) {
      Segment segment;
      segment.table = random->Below(tables.shapes.size());
      segment.first = static_cast<uint32_t>(ids.size());
      segment.rows_at = (row_bytes + 15) / 16 * 16;
      segment.type = static_cast<RowType>(random->Below(4));
      segment.absent_is_initial = random->OneIn(2);
      for (uint32_t k = random->Below(80); k > 0; --k) {
        ids.push_back(100 + random->Below(60));
        segment_of.push_back(s);
      }
      row_bytes =
          segment.rows_at + uint64_t{RowWireBytes(segment.type, tables.shapes[segment.table].dim)} *
                                (ids.size() - segment.first);
      segments.push_back(segment);
    }
  }
  Batch AsBatch() const {
    return {segments.data(), static_cast<uint32_t>(segments.size()), ids.data(),
            static_cast<uint32_t>(ids.size())};
  }
};

void Pulls(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  CaseRandom random(seed);
  Tables tables;
  if (!findings->Ok(DeviceRows::Open(device, SmallRows(), &rows))) return;
  if (!tables.Fill(rows.get(), &random, findings)) return;
  for (uint32_t round = 0; round < 40 && findings->count() == 0; ++round) {
    const RandomBatch batch(tables, &random);
    Bytes out(batch.row_bytes + 1);
    Bytes flags(batch.ids.size() + 1);
    std::vector<uint32_t> missing;
    if (!findings->Ok(PullNow(&*rows, batch.AsBatch(), out.data(), flags.data(), &missing))) return;
    std::vector<uint32_t> expected;
    for (uint32_t k = 0; k < batch.ids.size(); ++k) {
      const Segment& segment = batch.segments[batch.segment_of[k]];
      const RowShape& shape = tables.shapes[segment.table];
      const bool there = tables.stored[segment.table].count(batch.ids[k]) > 0;
      if (!there) expected.push_back(k);
      findings->Check(flags[k] == there, "flag of id ", k);
      if (!there && !segment.absent_is_initial) continue;
      const Bytes want =
          WireOfStored(shape, tables.Stored(segment.table, batch.ids[k]), segment.type);
      findings->Check(
          std::equal(want.begin(), want.end(), out.begin() + RowOffset(segment, shape.dim, k)),
          "row of id ", k, ", dim ", shape.dim, ", stored ", static_cast<int>(shape.weight_type),
          ", wire ", static_cast<int>(segment.type));
    }
    findings->Check(missing == expected, missing.size(), " missing, not ", expected.size());
  }
}

// The bag by the text of row_math/pooling.h.
std::vector<float> PooledRow(const PooledBatch& batch, const std::vector<std::vector<float>>& rows,
                             const float* weights, uint32_t dim, std::vector<uint32_t>* arg) {
  std::vector<float> out(dim, 0.0f);
  arg->assign(dim, kNoArgMax);
  for (uint32_t i = 0; i < dim; ++i) {
    for (uint32_t k = 0; k < rows.size(); ++k) {
      const float value = rows[k][i];
      if (batch.pooling == RowPooling::kSum) {
        const float term = weights != nullptr ? value * weights[k] : value;
        out[i] = out[i] + term;
      } else if (k == 0 || (std::isnan(value) ? !std::isnan(out[i]) : value > out[i])) {
        out[i] = value;
        (*arg)[i] = k;
      }
    }
    if (batch.mean && !rows.empty()) out[i] = out[i] / static_cast<float>(rows.size());
  }
  return out;
}

bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = std::memcmp(&a[i], &b[i], 4) == 0;
    if (!same && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return a.size() == b.size();
}

struct RandomBags {
  RandomBatch ids;
  std::vector<Segment> bags;
  std::vector<uint32_t> offsets{0};
  std::vector<uint32_t> segment_of;
  std::vector<float> weights;
  uint64_t row_bytes = 0;

  RandomBags(const Tables& tables, CaseRandom* random) : ids(tables, random) {
    for (uint32_t s = 0; s < ids.segments.size(); ++s) {
      Segment bag = ids.segments[s];
      const uint32_t limit = s + 1 < ids.segments.size() ? ids.segments[s + 1].first
                                                         : static_cast<uint32_t>(ids.ids.size());
      bag.type = static_cast<RowType>(random->Below(3));
      ids.segments[s].type = RowType::kFp32;
      bag.first = static_cast<uint32_t>(offsets.size()) - 1;
      bag.rows_at = (row_bytes + 15) / 16 * 16;
      do {
        offsets.push_back(std::min(limit, offsets.back() + random->Below(9)));
        segment_of.push_back(s);
      } while (offsets.back() < limit);
      row_bytes = bag.rows_at + uint64_t{RowWireBytes(bag.type, tables.shapes[bag.table].dim)} *
                                    (offsets.size() - 1 - bag.first);
      bags.push_back(bag);
    }
    for (size_t k = 0; k < ids.ids.size() + 1; ++k) weights.push_back(random->Float(2.0f));
    // Where ids' own rows would go does not matter.
    for (Segment& segment : ids.segments) segment.rows_at = 0;
  }
};

void ComparePooled(DeviceRows* rows, const Tables& tables, const RandomBags& bags,
                   const PooledBatch& batch, Findings* findings) {
  constexpr uint32_t kArgStride = 130;
  Bytes out(bags.row_bytes + 1);
  std::vector<uint32_t> args(size_t{kArgStride} * batch.bags_count), incomplete, expected;
  const bool arg = batch.pooling == RowPooling::kMax;
  if (!findings->Ok(rows->PullPooled(batch, out.data(), arg ? args.data() : nullptr, kArgStride,
                                     &incomplete))) {
    return;
  }
  for (uint32_t b = 0; b < batch.bags_count; ++b) {
    const Segment& segment = bags.bags[bags.segment_of[b]];
    const RowShape& shape = tables.shapes[segment.table];
    std::vector<std::vector<float>> parts;
    bool complete = true;
    for (uint32_t k = batch.offsets[b]; k < batch.offsets[b + 1]; ++k) {
      const uint64_t id = bags.ids.ids[k];
      complete = complete && (segment.absent_is_initial || tables.stored[segment.table].count(id));
      const Bytes stored = tables.Stored(segment.table, id);
      parts.push_back(
          DecodedRow(static_cast<RowType>(shape.weight_type), stored.data(), shape.dim));
    }
    if (!complete) expected.push_back(b);
    if (!complete) continue;
    std::vector<uint32_t> arg_max;
    const std::vector<float> row = PooledRow(
        batch, parts, batch.weights != nullptr ? batch.weights + batch.offsets[b] : nullptr,
        shape.dim, &arg_max);
    const Bytes want = EncodedRow(segment.type, row);
    findings->Check(
        SameFloats(
            DecodedRow(segment.type, want.data(), shape.dim),
            DecodedRow(segment.type, out.data() + RowOffset(segment, shape.dim, b), shape.dim)),
        "bag ", b, " of ", parts.size(), " rows, dim ", shape.dim);
    findings->Check(
        !arg || std::equal(arg_max.begin(), arg_max.end(), args.begin() + kArgStride * b),
        "places of the largest of bag ", b);
  }
  findings->Check(incomplete == expected, incomplete.size(), " bags, not ", expected.size());
}

void Pooled(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  CaseRandom random(seed);
  Tables tables;
  if (!findings->Ok(DeviceRows::Open(device, SmallRows(), &rows))) return;
  if (!tables.Fill(rows.get(), &random, findings)) return;
  for (uint32_t round = 0; round < 40 && findings->count() == 0; ++round) {
    const RandomBags bags(tables, &random);
    PooledBatch batch;
    batch.ids = bags.ids.AsBatch();
    batch.bags = bags.bags.data();
    batch.offsets = bags.offsets.data();
    batch.bags_count = static_cast<uint32_t>(bags.offsets.size()) - 1;
    batch.pooling = random.OneIn(3) ? RowPooling::kMax : RowPooling::kSum;
    const bool sum = batch.pooling == RowPooling::kSum;
    batch.mean = sum && random.OneIn(3);
    batch.weights = sum && random.OneIn(2) ? bags.weights.data() : nullptr;
    ComparePooled(rows.get(), tables, bags, batch, findings);
  }
}

}  // namespace read_cases

std::vector<Case> ReadCases() {
  return {{"pulls", read_cases::Pulls}, {"pooled", read_cases::Pooled}};
}

}  // namespace device
}  // namespace hotbed
