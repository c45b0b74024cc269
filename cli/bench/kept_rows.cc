#include "cli/bench/kept_rows.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/random.h"
#include "common/status_macros.h"
#include "common/zipf.h"

namespace hotbed {
namespace {

constexpr uint64_t kRowsWritten = 256;  // of each table and step

// The steps in which each row of a table was written; the row then has the step as its value.
struct Written {
  std::unordered_map<uint64_t, std::vector<uint64_t>> steps;

  void Compare(uint64_t id, float value, uint64_t step, uint64_t steps_kept,
               KeptRowsCheck* check) const {
    const auto of_row = steps.find(id);
    if (of_row == steps.end()) return;
    ++check->rows;
    const std::vector<uint64_t>& all = of_row->second;
    const auto newest_by = [&](uint64_t by) {
      const auto after = std::upper_bound(all.begin(), all.end(), by);
      return after == all.begin() ? 0.0f : static_cast<float>(*(after - 1));
    };
    const bool known = std::find(all.begin(), all.end(), static_cast<uint64_t>(value)) != all.end();
    if (newest_by(step) == value) return;
    ++check->behind;
    const float least = step > steps_kept ? newest_by(step - steps_kept) : 0.0f;
    if (least == 0.0f) return;  // the value may be from before the check
    check->older += value < least ? 1 : 0;
    check->never_written += known ? 0 : 1;
  }
};

absl::Status Write(Client* client, uint64_t step, const std::vector<const Table*>& tables,
                   const std::vector<std::vector<uint64_t>>& ids) {
  std::vector<std::vector<float>> rows;
  std::vector<PushFeature> features;
  for (size_t t = 0; t < tables.size(); ++t) {
    rows.emplace_back(ids[t].size() * tables[t]->dim(), static_cast<float>(step));
    features.push_back({tables[t], ids[t], rows.back().data()});
  }
  PushOptions options;
  options.assign = true;
  return client->Push(step, features, options).Wait().status;
}

absl::StatusOr<std::vector<const Table*>> OpenAll(Client* client,
                                                  const std::vector<std::string>& names) {
  std::vector<const Table*> tables;
  for (const std::string& name : names) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, client->OpenTable(name));
    tables.push_back(table);
  }
  return tables;
}

}  // namespace

absl::StatusOr<KeptRowsCheck> CheckKeptRows(const LoadSpec& spec, uint64_t steps) {
  const std::string target = "hotbed://" + spec.coordinator;
  HOTBED_ASSIGN_OR_RETURN(const auto reader, Client::Connect(target, ClientOptionsOf(spec)));
  HOTBED_ASSIGN_OR_RETURN(const auto writer, Client::Connect(target));
  HOTBED_ASSIGN_OR_RETURN(const auto read, OpenAll(reader.get(), spec.tables));
  HOTBED_ASSIGN_OR_RETURN(const auto write, OpenAll(writer.get(), spec.tables));
  Random random(spec.seed);
  std::vector<Written> written(read.size());
  std::vector<ZipfSampler> zipf;
  for (const Table* table : read) zipf.emplace_back(spec.zipf, table->options().rows);
  const auto draw = [&](size_t t, uint64_t count) {
    const uint64_t rows = read[t]->options().rows;
    return DrawIds(random, spec.zipf > 0 ? &zipf[t] : nullptr, rows, std::min(count, rows));
  };
  KeptRowsCheck check;
  for (uint64_t step = 1; step <= steps; ++step) {
    std::vector<std::vector<uint64_t>> to_write, to_read;
    for (size_t t = 0; t < read.size(); ++t) {
      std::vector<uint64_t>& ids = to_write.emplace_back(draw(t, kRowsWritten));
      std::sort(ids.begin(), ids.end());
      ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
      for (const uint64_t id : ids) written[t].steps[id].push_back(step);
      to_read.push_back(draw(t, spec.batch));
    }
    HOTBED_RETURN_IF_ERROR(Write(writer.get(), step, write, to_write));
    std::vector<std::vector<float>> rows;
    std::vector<PullFeature> features;
    for (size_t t = 0; t < read.size(); ++t) {
      rows.emplace_back(to_read[t].size() * read[t]->dim());
      features.push_back({read[t], to_read[t], rows.back().data()});
    }
    PullOptions options;
    options.step = step;
    HOTBED_RETURN_IF_ERROR(reader->Pull(features, options).Wait());
    for (size_t t = 0; t < read.size(); ++t) {
      for (size_t i = 0; i < to_read[t].size(); ++i) {
        written[t].Compare(to_read[t][i], rows[t][i * read[t]->dim()], step, spec.row_cache_steps,
                           &check);
      }
    }
  }
  return check;
}

}  // namespace hotbed
