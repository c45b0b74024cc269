// Messages that are started while another is in flight, compared with rows kept in a map; and the
// cost of a message.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "tests/device/case.h"
#include "tests/device/cpu_rows.h"

namespace hotbed {
namespace device {
namespace flight_cases {

constexpr uint32_t kIdsOfTable = 30;  // 0, 1, ...; those that are multiples of 3 are not there

RowsOptions Room(uint32_t tables_max) {
  RowsOptions options;
  options.device_bytes = 192ull << 20;
  options.ids_max = 4096;
  options.segments_max = tables_max;
  options.tables_max = tables_max;
  options.row_bytes_max = 8ull << 20;
  options.move_bytes_max = 64 << 10;
  return options;
}

// Tables on the device, and the same rows here.
class Tables {
 public:
  bool Open(Device* device, const RowsOptions& options, Findings* findings) {
    return findings->Ok(DeviceRows::Open(device, options, &rows_));
  }
  bool Add(const RowShape& shape, Findings* findings) {
    uint32_t table = 0;
    std::vector<RowToInsert> inserted;
    std::vector<MovedRow> evicted;
    if (!findings->Ok(rows_->AddTable(shape, false, 0, 64, &table))) return false;
    shapes_.push_back(shape);
    for (uint64_t id = 0; id < kIdsOfTable; ++id) {
      if (id % 3 == 0) continue;
      stored_[{table, id}] = FirstStored(shape, id);
      inserted.push_back({table, PositionOfId(shape, id), nullptr});
    }
    return findings->Ok(rows_->Insert(inserted, false, &evicted));
  }
  DeviceRows* rows() { return rows_.get(); }
  const std::vector<RowShape>& shapes() const { return shapes_; }
  Bytes* Stored(uint32_t table, uint64_t id) { return &stored_[{table, id}]; }

 private:
  std::unique_ptr<DeviceRows> rows_;
  std::vector<RowShape> shapes_;
  std::map<std::pair<uint32_t, uint64_t>, Bytes> stored_;
};

enum class Kind { kPull, kProbe, kUpdate };

// Staging memory of a message in flight, reused by later messages: some that was allocated,
// and pinned memory for the rows of answers.
class StagedMessage {
 public:
  static constexpr uint64_t kBytes = 64 << 10;  // of each, more than any message has

  StagedMessage(Device* device, Findings* findings) : device_(device) {
    answer_ = static_cast<uint8_t*>(std::aligned_alloc(kPinUnit, kBytes));
    ok_ = findings->Ok(device->AllocateStaging(3 * kBytes, &staged_)) &&
          findings->Ok(device->PinStaging(answer_, kBytes));
  }
  ~StagedMessage() {
    device_->Wait();
    device_->FreeStaging(staged_);
    if (ok_) device_->UnpinStaging(answer_);
    std::free(answer_);
  }
  StagedMessage(const StagedMessage&) = delete;
  bool ok() const { return ok_; }
  uint64_t* ids() const { return reinterpret_cast<uint64_t*>(staged_); }
  uint8_t* gradients() const { return staged_ + kBytes; }
  uint8_t* flags() const { return staged_ + 2 * kBytes; }
  uint8_t* answer() const { return answer_; }

 private:
  Device* const device_;
  uint8_t* staged_ = nullptr;
  uint8_t* answer_ = nullptr;
  bool ok_ = false;
};

// A message, what it is to find, and where its answer goes.
struct Message {
  Kind kind;
  std::vector<Segment> segments;
  std::vector<uint64_t> ids;
  Bytes gradients, answer, flags, want;
  std::vector<uint32_t> missing, want_missing;
  uint64_t row_bytes = 0;
  std::vector<RowsOut> parts;  // of a pull's rows
  uint64_t copies = 0;         // needed for these

  // Ids of every table, each once or several times.
  void Draw(Tables* tables, CaseRandom* random, uint64_t step) {
    uint64_t at = 0;
    for (uint32_t t = 0; t < tables->shapes().size(); ++t) {
      const RowShape& shape = tables->shapes()[t];
      Segment segment;
      segment.table = t;
      segment.first = static_cast<uint32_t>(ids.size());
      segment.rows_at = at;
      segment.type = kind == Kind::kPull ? static_cast<RowType>(shape.weight_type) : RowType::kFp32;
      segment.scalars = RandomScalars(random, shape, step);
      for (uint32_t k = random->Below(20); k > 0; --k) {
        if (random->OneIn(4)) want_missing.push_back(static_cast<uint32_t>(ids.size()));
        const bool missing_id = !want_missing.empty() && want_missing.back() == ids.size();
        const uint64_t third = random->Below(kIdsOfTable / 3);
        ids.push_back(3 * third + (missing_id ? 0 : 1 + random->Below(2)));
        at += RowWireBytes(segment.type, shape.dim);
      }
      row_bytes = at;
      at = (at + 15) / 16 * 16;
      segments.push_back(segment);
    }
    answer.assign(at, 0xee);
    flags.assign(ids.size(), 0xee);
    gradients.resize(at);
  }
  uint32_t Limit(uint32_t s) const {
    return s + 1 < segments.size() ? segments[s + 1].first : static_cast<uint32_t>(ids.size());
  }
  // Reads what is there now, or steps it.
  void Expect(Tables* tables, CaseRandom* random) {
    want = answer;
    for (uint32_t s = 0; s < segments.size(); ++s) {
      const Segment& segment = segments[s];
      const RowShape& shape = tables->shapes()[segment.table];
      std::map<uint64_t, std::vector<std::vector<float>>> sums;
      for (uint32_t k = segment.first; k < Limit(s); ++k) {
        const uint64_t offset = RowOffset(segment, shape.dim, k);
        if (kind == Kind::kUpdate) {
          std::vector<float> values(shape.dim);
          for (float& value : values) value = random->Float(1.0f);
          std::memcpy(gradients.data() + offset, values.data(), 4 * values.size());
          if (ids[k] % 3 != 0) sums[ids[k]].push_back(values);
        } else if (kind == Kind::kPull && ids[k] % 3 != 0) {
          std::copy_n(tables->Stored(segment.table, ids[k])->begin(), shape.weight_bytes(),
                      want.begin() + static_cast<std::ptrdiff_t>(offset));
        }
      }
      for (const auto& [id, parts] : sums) {
        const std::vector<float> sum = SumOfRuns(parts);
        StepStored(shape, id, segment.scalars, RowType::kFp32,
                   reinterpret_cast<const uint8_t*>(sum.data()), tables->Stored(s, id));
      }
    }
  }
  // Parts of the rows to places in both halves of the memory: some follow each other, some leave a
  // gap, and some bytes go nowhere.
  void DrawParts(CaseRandom* random, const StagedMessage& staged) {
    uint8_t* next[2] = {staged.answer(), staged.answer() + StagedMessage::kBytes / 2};
    uint32_t half = 0, last_half = 2;
    uint64_t follows_at = 0;  // offset in the rows that continues the last copy
    for (uint64_t at = 0; at < row_bytes;) {
      const uint64_t bytes = std::min<uint64_t>(row_bytes - at, 1 + random->Below(300));
      if (random->OneIn(4)) half = 1 - half;
      const bool gap = random->OneIn(3);
      if (gap) next[half] += 1 + random->Below(20);
      if (!random->OneIn(5)) {
        parts.push_back({at, bytes, next[half]});
        copies += gap || half != last_half || at != follows_at;
        next[half] += bytes;
        last_half = half;
        follows_at = at + bytes;
      }
      at += bytes;
    }
  }
  Status Start(DeviceRows* rows, uint32_t flight, const StagedMessage& staged) {
    std::copy(ids.begin(), ids.end(), staged.ids());
    std::copy(gradients.begin(), gradients.end(), staged.gradients());
    std::fill_n(staged.answer(), StagedMessage::kBytes, 0xee);
    const Batch batch = {segments.data(), static_cast<uint32_t>(segments.size()), staged.ids(),
                         static_cast<uint32_t>(ids.size())};
    if (kind == Kind::kPull) return rows->StartPull(flight, batch, parts, staged.flags());
    if (kind == Kind::kProbe) return rows->StartProbe(flight, batch);
    return rows->StartUpdate(flight, batch, staged.gradients());
  }
  // The answer from where its parts went; what went nowhere is as it should be.
  void Gather(const StagedMessage& staged, Findings* findings) {
    if (kind != Kind::kPull) return;
    answer = want;
    std::copy_n(staged.flags(), flags.size(), flags.begin());
    std::vector<bool> written(StagedMessage::kBytes);
    for (const RowsOut& part : parts) {
      std::copy_n(part.to, part.bytes, answer.begin() + static_cast<std::ptrdiff_t>(part.rows_at));
      std::fill_n(written.begin() + (part.to - staged.answer()), part.bytes, true);
    }
    for (uint64_t k = 0; k < StagedMessage::kBytes; ++k) {
      findings->Check(written[k] || staged.answer()[k] == 0xee, "byte ", k, " of no part");
    }
  }
  void Check(Tables* tables, uint32_t round, Findings* findings) const {
    findings->Check(missing == want_missing, "message ", round, ": ", missing.size(),
                    " rows are missing, not ", want_missing.size());
    if (kind != Kind::kPull) return;
    for (uint32_t s = 0; s < segments.size(); ++s) {
      const uint32_t dim = tables->shapes()[s].dim;
      for (uint32_t k = segments[s].first; k < Limit(s); ++k) {
        const bool there = ids[k] % 3 != 0;
        findings->Check(flags[k] == there, "message ", round, ": flag of id ", k);
        const auto at = static_cast<std::ptrdiff_t>(RowOffset(segments[s], dim, k));
        const uint32_t bytes = RowWireBytes(segments[s].type, dim);
        findings->Check(
            !there || std::equal(want.begin() + at, want.begin() + at + bytes, answer.begin() + at),
            "message ", round, ": row of table ", s, " id ", ids[k]);
      }
    }
  }
};

// Two messages in flight at any time, of all kinds, over the same rows.
void Flights(Device* device, uint64_t seed, Findings* findings) {
  CaseRandom random(seed);
  Tables tables;
  if (!tables.Open(device, Room(8), findings)) return;
  for (uint32_t t = 0; t < 3; ++t) {
    RowShape shape = RandomShape(&random, 1 + random.Below(30));
    shape.optimizer = OptimizerParams();
    shape.optimizer.kind = t == 0 ? OptimizerKind::kAdam : OptimizerKind::kRowwiseAdagrad;
    if (!tables.Add(shape, findings)) return;
  }
  std::unique_ptr<Message> under_way[kFlights];
  std::unique_ptr<StagedMessage> staged[kFlights];
  for (auto& memory : staged) {
    memory = std::make_unique<StagedMessage>(device, findings);
    if (!memory->ok()) return;
  }
  for (uint32_t round = 0; round < 60 + kFlights && findings->count() == 0; ++round) {
    const uint32_t flight = round % kFlights;
    std::unique_ptr<Message>& message = under_way[flight];
    if (message != nullptr) {
      if (!findings->Ok(tables.rows()->Finish(flight, &message->missing))) return;
      message->Gather(*staged[flight], findings);
      message->Check(&tables, round - kFlights, findings);
    }
    message = round < 60 ? std::make_unique<Message>() : nullptr;
    if (message == nullptr) continue;
    message->kind = static_cast<Kind>(random.Below(3));
    message->Draw(&tables, &random, round + 1);
    message->Expect(&tables, &random);
    if (message->kind == Kind::kPull) message->DrawParts(&random, *staged[flight]);
    const uint64_t copies = device->counts().copies_out;
    if (!findings->Ok(message->Start(tables.rows(), flight, *staged[flight]))) return;
    // Beside rows: numbers, and of a pull the flags.
    const uint64_t others = message->ids.empty() ? 0 : message->kind == Kind::kPull ? 2 : 1;
    findings->Check(device->counts().copies_out - copies == message->copies + others, "message ",
                    round, ": not one copy for what lies together");
    // Other calls must wait for messages in flight.
    std::vector<uint32_t> none;
    const std::vector<RowToInsert> row = {{0, PositionOfId(tables.shapes()[0], 999), nullptr}};
    std::vector<MovedRow> evicted;
    const Batch batch = {};
    findings->Check(!tables.rows()->StartProbe(flight, batch).ok(), "a room was used twice");
    findings->Check(!tables.rows()->Insert(row, false, &evicted).ok(),
                    "a row came in under a message");
  }
}

// --- costs

// The most that a message may cost, whatever it names.
constexpr uint64_t kLaunchesMax = 12;
constexpr uint64_t kWaitsMax = 2;
constexpr uint32_t kRowBitsMax = 31;

struct Cost {
  uint64_t launches, waits;
};
template <typename F>
Cost CostOf(Device* device, F call) {
  const DeviceCounts before = device->counts();
  call();
  const DeviceCounts after = device->counts();
  return {after.launches - before.launches, after.waits - before.waits};
}

struct CostBatch {
  std::vector<Segment> segments, bags;
  std::vector<uint64_t> ids;
  std::vector<uint32_t> offsets{0};

  CostBatch(Tables* tables, uint32_t count, CaseRandom* random) {
    const uint32_t number = static_cast<uint32_t>(tables->shapes().size());
    for (uint32_t t = 0; t < number; ++t) {
      Segment segment;
      segment.table = t;
      segment.first = static_cast<uint32_t>(ids.size());
      segment.rows_at = 16ull * ids.size();
      segments.push_back(segment);
      segment.first = t;
      segment.rows_at = 16ull * t;
      bags.push_back(segment);
      for (uint32_t k = 0; k < count / number; ++k) {
        ids.push_back(3 * random->Below(kIdsOfTable / 3) + 1);
      }
      offsets.push_back(static_cast<uint32_t>(ids.size()));
    }
  }
  Batch AsBatch() const {
    return {segments.data(), static_cast<uint32_t>(segments.size()), ids.data(),
            static_cast<uint32_t>(ids.size())};
  }
  PooledBatch AsPooled() const {
    PooledBatch pooled;
    pooled.ids = AsBatch();
    pooled.bags = bags.data();
    pooled.offsets = offsets.data();
    pooled.bags_count = static_cast<uint32_t>(bags.size());
    return pooled;
  }
};

// A message of 4,000 ids of `count` tables with `kinds` kinds of optimizer among them; of more than
// three, some tables are of dims that take longer.
void CostsOf(Device* device, uint32_t count, uint32_t kinds, CaseRandom* random,
             Findings* findings) {
  Tables tables;
  if (!tables.Open(device, Room(1024), findings)) return;
  const OptimizerKind kind_of[] = {OptimizerKind::kAdam,           OptimizerKind::kSgd,
                                   OptimizerKind::kRowwiseAdagrad, OptimizerKind::kAdagrad,
                                   OptimizerKind::kLamb,           OptimizerKind::kMomentumSgd,
                                   OptimizerKind::kRmsProp};
  uint32_t row_numbers = 0;
  for (uint32_t t = 0; t < count; ++t) {
    RowShape shape = RandomShape(random, kinds > 3 && t % 2 == 1 ? 3 : 4);
    shape.optimizer = OptimizerParams();
    shape.optimizer.kind = kind_of[t % kinds];
    if (!tables.Add(shape, findings)) return;
    row_numbers += ByteArena::kUnit;  // as DeviceRows numbers rows
  }
  const CostBatch batch(&tables, 4000, random);
  std::vector<uint32_t> missing;
  Bytes rows(1 << 20), gradients(16 * batch.ids.size());
  DeviceRows* const on = tables.rows();
  const auto check = [&](const char* what, const Cost& cost, uint64_t launches, uint64_t waits) {
    findings->Check(cost.launches <= launches && cost.waits <= waits, what, " of ", count,
                    " tables with ", kinds, " kinds: ", cost.launches, " launches of ", launches,
                    ", ", cost.waits, " waits of ", waits);
  };
  check("a read",
        CostOf(device,
               [&] { findings->Ok(PullNow(on, batch.AsBatch(), rows.data(), nullptr, &missing)); }),
        kinds > 3 ? 2 : 1, 1);
  check("a pooled read",
        CostOf(device,
               [&] {
                 findings->Ok(on->PullPooled(batch.AsPooled(), rows.data(), nullptr, 0, &missing));
               }),
        2, 1);
  // These sort by as many bits as there are rows: a device full of rows has 31.
  uint32_t bits = 1;
  while ((1u << bits) - 1 < row_numbers) ++bits;
  const uint64_t most = kLaunchesMax - (SortLaunches(kRowBitsMax) - SortLaunches(bits));
  check("an update",
        CostOf(device,
               [&] {
                 findings->Ok(ProbeNow(on, batch.AsBatch(), &missing));
                 findings->Ok(UpdateNow(on, batch.AsBatch(), gradients.data(), &missing));
               }),
        most, kWaitsMax);
  findings->Check(missing.empty(), missing.size(), " rows are missing");
}

void Costs(Device* device, uint64_t seed, Findings* findings) {
  CaseRandom random(seed);
  for (const uint32_t tables : {1u, 10u, 1000u}) CostsOf(device, tables, 1, &random, findings);
  for (const uint32_t tables : {10u, 1000u}) CostsOf(device, tables, 3, &random, findings);
  for (const uint32_t tables : {10u, 1000u}) CostsOf(device, tables, 7, &random, findings);
}

}  // namespace flight_cases

std::vector<Case> FlightCases() {
  return {{"flights", flight_cases::Flights}, {"costs", flight_cases::Costs}};
}

}  // namespace device
}  // namespace hotbed
