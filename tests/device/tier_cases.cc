// Random operations over tables that are smaller than the rows asked for, with a map as the tier
// below: no row is lost or stale, whichever rows had to make room.
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "tests/device/case.h"
#include "tests/device/cpu_rows.h"

namespace hotbed {
namespace device {
namespace tier_cases {

struct RowPlace {
  uint32_t table;
  uint64_t id;
  bool operator<(const RowPlace& other) const {
    return table != other.table ? table < other.table : id < other.id;
  }
};

// Rows of several tables on a device, over a map that holds what was written back.
class TwoTiers {
 public:
  TwoTiers(DeviceRows* rows, Findings* findings) : rows_(rows), findings_(findings) {}

  void AddTable(const RowShape& shape, bool direct, uint64_t slots) {
    uint32_t table = 0;
    findings_->Ok(rows_->AddTable(shape, direct, 0, slots, &table));
    findings_->Check(table == shapes_.size(), "table ", table);
    shapes_.push_back(shape);
  }
  const std::vector<RowShape>& shapes() const { return shapes_; }

  // `between`: something else that happens while rows are fetched.
  template <typename Between>
  void Update(const Batch& batch, const uint8_t* gradients, Between between) {
    std::vector<uint32_t> missing, elsewhere;
    if (!findings_->Ok(ProbeNow(&*rows_, batch, &missing))) return;
    InsertMissing(batch, missing);
    between();
    if (!findings_->Ok(UpdateNow(&*rows_, batch, gradients, &elsewhere))) return;
    StepBelow(batch, gradients, elsewhere);
  }

  // A read brings nothing in: it looks below.
  Bytes Read(const RowPlace& place) {
    Segment segment;
    segment.table = place.table;
    segment.type = static_cast<RowType>(shapes_[place.table].weight_type);
    Bytes out(RowWireBytes(segment.type, shapes_[place.table].dim));
    std::vector<uint32_t> missing;
    if (!findings_->Ok(
            PullNow(&*rows_, {&segment, 1, &place.id, 1}, out.data(), nullptr, &missing))) {
      return out;
    }
    if (missing.empty()) return out;
    Bytes stored = Below(place);
    stored.resize(out.size());
    return stored;
  }
  // Dirty rows are written to the map and become clean.
  void WriteBack(uint32_t table, uint32_t wanted) {
    std::vector<MovedRow> moved;
    uint32_t slot = 0;
    while (slot < rows_->slots(table)) {
      findings_->Ok(rows_->Collect(table, &slot, wanted, &moved));
      if (findings_->count() > 0) return;
    }
    PutBelow(moved);
  }
  bool ExistsBelow(const RowPlace& place) const { return below_.count(place) > 0; }
  Bytes Below(const RowPlace& place) const {
    const auto found = below_.find(place);
    return found != below_.end() ? found->second : FirstStored(shapes_[place.table], place.id);
  }

 private:
  void PutBelow(const std::vector<MovedRow>& moved) {
    for (const MovedRow& row : moved) {
      const RowPlace place = {row.table, IdOfPosition(shapes_[row.table], row.position)};
      if (row.dirty) {
        below_[place] = row.stored;
      } else {
        findings_->Check(row.stored == Below(place), "a clean row that is not what is below");
      }
    }
  }
  static uint32_t TableOf(const Batch& batch, uint32_t k) {
    const Segments segments = {batch.segments, batch.segment_count, batch.ids_count};
    return batch.segments[SegmentOf(segments, k)].table;
  }
  void InsertMissing(const Batch& batch, const std::vector<uint32_t>& missing) {
    std::map<RowPlace, bool> once;
    std::vector<RowToInsert> known, fresh;
    for (uint32_t k : missing) {
      const RowPlace place = {TableOf(batch, k), batch.ids[k]};
      if (!once.emplace(place, true).second) continue;
      const uint64_t position = PositionOfId(shapes_[place.table], place.id);
      const auto found = below_.find(place);
      if (found != below_.end()) {
        known.push_back({place.table, position, found->second.data()});
      } else {
        fresh.push_back({place.table, position, nullptr});
      }
    }
    std::vector<MovedRow> evicted;
    findings_->Ok(rows_->Insert(known, false, &evicted));
    findings_->Ok(rows_->Insert(fresh, true, &evicted));
    PutBelow(evicted);
  }
  void StepBelow(const Batch& batch, const uint8_t* gradients,
                 const std::vector<uint32_t>& elsewhere) {
    std::map<RowPlace, std::vector<std::vector<float>>> sums;
    std::map<RowPlace, const Segment*> segment_of;
    const Segments segments = {batch.segments, batch.segment_count, batch.ids_count};
    for (uint32_t k : elsewhere) {
      const Segment& segment = batch.segments[SegmentOf(segments, k)];
      const uint32_t dim = shapes_[segment.table].dim;
      const RowPlace place = {segment.table, batch.ids[k]};
      sums[place].push_back(DecodedRow(segment.type, gradients + RowOffset(segment, dim, k), dim));
      segment_of.emplace(place, &segment);
    }
    for (const auto& [place, parts] : sums) {
      Bytes stored = Below(place);
      const std::vector<float> sum = SumOfRuns(parts);
      StepStored(shapes_[place.table], place.id, segment_of[place]->scalars, RowType::kFp32,
                 reinterpret_cast<const uint8_t*>(sum.data()), &stored);
      below_[place] = stored;
    }
  }

  DeviceRows* const rows_;
  Findings* const findings_;
  std::vector<RowShape> shapes_;
  std::map<RowPlace, Bytes> below_;
};

RowsOptions MessageRoom(uint32_t ids_max, uint32_t tables_max) {
  RowsOptions options;
  options.device_bytes = 192ull << 20;
  options.ids_max = ids_max;
  options.segments_max = 2 * tables_max;
  options.tables_max = tables_max;
  options.row_bytes_max = 16ull << 20;
  options.move_bytes_max = 64 << 10;  // so that an insert is several parts
  return options;
}

// A batch of random ids of all tables, `ids_of` each, and its gradients.
struct RandomUpdate {
  std::vector<Segment> segments;
  std::vector<uint64_t> ids;
  Bytes gradients;

  RandomUpdate(const std::vector<RowShape>& shapes, CaseRandom* random, uint64_t step,
               uint32_t ids_of, uint32_t range) {
    for (uint32_t t = 0; t < shapes.size(); ++t) {
      Segment segment;
      segment.table = t;
      segment.first = static_cast<uint32_t>(ids.size());
      gradients.resize((gradients.size() + 15) / 16 * 16);
      segment.rows_at = gradients.size();
      segment.type = static_cast<RowType>(random->Below(3));
      segment.scalars = RandomScalars(random, shapes[t], step);
      for (uint32_t k = random->Below(ids_of + 1); k > 0; --k) {
        ids.push_back(random->OneIn(2) ? random->Below(range) : random->Below(8));
        std::vector<float> values(shapes[t].dim);
        for (float& value : values) value = random->Float(1.0f);
        const Bytes row = EncodedRow(segment.type, values);
        gradients.insert(gradients.end(), row.begin(), row.end());
      }
      segments.push_back(segment);
    }
  }
  Batch AsBatch() const {
    return {segments.data(), static_cast<uint32_t>(segments.size()), ids.data(),
            static_cast<uint32_t>(ids.size())};
  }
};

// The same update of the twin, which knows no tiers.
void UpdateTwin(const std::vector<RowShape>& shapes, const RandomUpdate& update,
                std::map<RowPlace, Bytes>* twin) {
  for (uint32_t s = 0; s < update.segments.size(); ++s) {
    const Segment& segment = update.segments[s];
    const RowShape& shape = shapes[segment.table];
    const uint32_t limit = s + 1 < update.segments.size()
                               ? update.segments[s + 1].first
                               : static_cast<uint32_t>(update.ids.size());
    std::map<uint64_t, std::vector<std::vector<float>>> sums;
    for (uint32_t k = segment.first; k < limit; ++k) {
      sums[update.ids[k]].push_back(DecodedRow(
          segment.type, update.gradients.data() + RowOffset(segment, shape.dim, k), shape.dim));
    }
    for (const auto& [id, parts] : sums) {
      Bytes& stored =
          twin->emplace(RowPlace{segment.table, id}, FirstStored(shape, id)).first->second;
      const std::vector<float> sum = SumOfRuns(parts);
      StepStored(shape, id, segment.scalars, RowType::kFp32,
                 reinterpret_cast<const uint8_t*>(sum.data()), &stored);
    }
  }
}

// Tables of 64 to 192 slots under a range of 400 ids: at load factor 1.0 and over-full.
void OverFull(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  CaseRandom random(seed);
  if (!findings->Ok(DeviceRows::Open(device, MessageRoom(4096, 8), &rows))) return;
  TwoTiers tiers(rows.get(), findings);
  for (uint32_t t = 0; t < 4; ++t) {
    RowShape shape = RandomShape(&random, 1 + random.Below(40));
    shape.hashed = t < 2;
    tiers.AddTable(shape, t == 3, t == 3 ? 400 : 64 * (1 + random.Below(3)));
  }
  std::map<RowPlace, Bytes> twin;
  for (uint64_t step = 1; step <= 40 && findings->count() == 0; ++step) {
    const RandomUpdate update(tiers.shapes(), &random, step, 150, 400);
    tiers.Update(update.AsBatch(), update.gradients.data(), [&]() {
      if (random.OneIn(2)) tiers.Read({random.Below(4), random.Below(400)});
      if (random.OneIn(3)) tiers.WriteBack(random.Below(4), 1 + random.Below(100));
    });
    UpdateTwin(tiers.shapes(), update, &twin);
    for (uint32_t k = 0; k < 30; ++k) {
      const RowPlace place = {random.Below(4), random.Below(400)};
      const RowShape& shape = tiers.shapes()[place.table];
      const auto known = twin.find(place);
      Bytes want = known != twin.end() ? known->second : FirstStored(shape, place.id);
      want.resize(shape.weight_bytes());
      findings->Check(tiers.Read(place) == want, "step ", step, ": table ", place.table, " id ",
                      place.id);
    }
  }
  // In the end all state is below, as the twin has it.
  for (uint32_t t = 0; t < 4; ++t) tiers.WriteBack(t, 1000);
  for (const auto& [place, stored] : twin) {
    findings->Check(tiers.ExistsBelow(place) && tiers.Below(place) == stored, "in the end: table ",
                    place.table, " id ", place.id);
  }
  findings->Check(rows->counts().evicted > 0, "nobody made room");
}

// One bucket, and more rows in one update than it has slots: the rest is stepped below.
void NoRoom(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  CaseRandom random(seed);
  if (!findings->Ok(DeviceRows::Open(device, MessageRoom(4096, 8), &rows))) return;
  TwoTiers tiers(rows.get(), findings);
  tiers.AddTable(RandomShape(&random, 9), false, 64);
  std::map<RowPlace, Bytes> twin;
  for (uint64_t step = 1; step <= 10 && findings->count() == 0; ++step) {
    const RandomUpdate update(tiers.shapes(), &random, step, 900, 300);
    tiers.Update(update.AsBatch(), update.gradients.data(), []() {});
    UpdateTwin(tiers.shapes(), update, &twin);
  }
  tiers.WriteBack(0, 1000);
  for (const auto& [place, stored] : twin) {
    findings->Check(tiers.Below(place) == stored, "id ", place.id);
  }
  findings->Check(rows->counts().refused > 0, "every row found room");
}

// Visited rows stay while unvisited ones come and go.
void HotStays(Device* device, uint64_t seed, Findings* findings) {
  std::unique_ptr<DeviceRows> rows;
  CaseRandom random(seed);
  if (!findings->Ok(DeviceRows::Open(device, MessageRoom(4096, 8), &rows))) return;
  RowShape shape = RandomShape(&random, 4);
  uint32_t table = 0;
  findings->Ok(rows->AddTable(shape, false, 0, 1024, &table));
  std::vector<uint64_t> hot;
  for (uint64_t id = 0; id < 400; ++id) hot.push_back(id);
  Segment segment;
  segment.table = table;
  std::vector<uint32_t> missing;
  Bytes out(RowWireBytes(segment.type, shape.dim) * hot.size());
  std::vector<MovedRow> evicted;
  uint64_t cold = 1000;
  for (uint32_t round = 0; round < 40; ++round) {
    const Batch batch = {&segment, 1, hot.data(), static_cast<uint32_t>(hot.size())};
    if (!findings->Ok(PullNow(&*rows, batch, out.data(), nullptr, &missing))) return;
    findings->Check(round == 0 || missing.size() < 8, "round ", round, ": ", missing.size(),
                    " of 400 rows that are read all the time are gone");
    std::vector<RowToInsert> inserted;
    for (uint32_t k : missing) inserted.push_back({table, Mix64(hot[k]), nullptr});
    for (uint32_t k = 0; k < 300; ++k) inserted.push_back({table, Mix64(cold++), nullptr});
    if (!findings->Ok(rows->Insert(inserted, false, &evicted))) return;
  }
}

}  // namespace tier_cases

std::vector<Case> TierCases() {
  return {{"over_full", tier_cases::OverFull},
          {"no_room", tier_cases::NoRoom},
          {"hot_stays", tier_cases::HotStays}};
}

std::vector<Case> AllCases() {
  std::vector<Case> cases = StepCases();
  for (const auto& part : {ReadCases(), TierCases(), FlightCases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

}  // namespace device
}  // namespace hotbed
