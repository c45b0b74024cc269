#include "cli/demo/online_lookups.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "hotbed/client.h"
#include "trainer/batch.h"
#include "trainer/criteo_format.h"
#include "trainer/fm_model.h"

namespace hotbed {
namespace {

constexpr size_t kSamples = 4;
constexpr uint64_t kWarmups = 50;  // not measured: connections open, caches fill

absl::StatusOr<Batch> ReadExamples(const std::string& path, const FieldLayout& layout,
                                   uint64_t examples) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  Batch batch;
  batch.Reset(layout.fields());
  for (std::string line; batch.size() < examples && std::getline(in, line);) {
    HOTBED_RETURN_IF_ERROR(AppendCriteoLine(line, '\t', &batch));
  }
  if (batch.size() == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return batch;
}

// The ids of one example by table, and the place of each field's row.
class ExampleQuery {
 public:
  ExampleQuery(const FieldLayout& layout, std::vector<const Table*> tables)
      : layout_(layout), tables_(std::move(tables)), ids_(tables_.size()), rows_(tables_.size()) {}

  // The model's bias is one more row of the first table.
  absl::Status LookUp(Client* client, const Batch& batch, size_t example) {
    for (auto& ids : ids_) ids.clear();
    for (int f = 0; f < layout_.fields(); ++f) {
      ids_[static_cast<size_t>(layout_.table_of_field[f])].push_back(batch.ids[f][example]);
    }
    ids_[0].push_back(kBiasId);
    std::vector<PullFeature> features;
    for (size_t t = 0; t < tables_.size(); ++t) {
      rows_[t].resize(ids_[t].size() * tables_[t]->dim());
      features.push_back({tables_[t], ids_[t], rows_[t].data()});
    }
    return client->Lookup(features).Wait();
  }

  double Probability() const {
    FmShape shape;
    shape.fields = layout_.fields();
    shape.dim = static_cast<int>(tables_[0]->dim());
    std::vector<const float*> rows;
    std::vector<size_t> next(tables_.size());
    for (int f = 0; f < layout_.fields(); ++f) {
      const size_t t = static_cast<size_t>(layout_.table_of_field[f]);
      rows.push_back(rows_[t].data() + next[t]++ * tables_[t]->dim());
    }
    const float bias = rows_[0][(ids_[0].size() - 1) * tables_[0]->dim()];
    float logit = 0;
    FmPredict(shape, rows, bias, 1, &logit);
    return 1.0 / (1.0 + std::exp(-static_cast<double>(logit)));
  }

  size_t row_count() const {
    size_t n = 0;
    for (const auto& ids : ids_) n += ids.size();
    return n;
  }

 private:
  const FieldLayout& layout_;
  const std::vector<const Table*> tables_;
  std::vector<std::vector<uint64_t>> ids_;  // per table
  std::vector<std::vector<float>> rows_;
};

}  // namespace

absl::StatusOr<OnlineReport> LookUpOnline(const std::string& target, const std::string& criteo_path,
                                          const std::string& table_prefix, uint64_t examples,
                                          const Clock* clock) {
  const FieldLayout layout = CriteoLayout(table_prefix);
  HOTBED_ASSIGN_OR_RETURN(const Batch batch, ReadExamples(criteo_path, layout, examples));
  HOTBED_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Connect(target));
  std::vector<const Table*> tables;
  for (const std::string& name : layout.tables) {
    HOTBED_ASSIGN_OR_RETURN(const Table* table, client->OpenTable(name));
    tables.push_back(table);
  }
  ExampleQuery query(layout, tables);
  for (uint64_t i = 0; i < kWarmups; ++i) {
    HOTBED_RETURN_IF_ERROR(query.LookUp(client.get(), batch, i % batch.size()));
  }
  OnlineReport report;
  std::vector<double> seconds;
  const int64_t begin_ns = clock->NowNs();
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t start_ns = clock->NowNs();
    HOTBED_RETURN_IF_ERROR(query.LookUp(client.get(), batch, i));
    seconds.push_back(static_cast<double>(clock->NowNs() - start_ns) * 1e-9);
    if (i < kSamples) report.samples.push_back({query.Probability(), batch.labels[i] > 0.5f});
  }
  const double total = static_cast<double>(clock->NowNs() - begin_ns) * 1e-9;
  std::sort(seconds.begin(), seconds.end());
  report.lookups = seconds.size();
  report.rows_a_lookup = query.row_count();
  report.p50_seconds = seconds[seconds.size() / 2];
  report.p99_seconds = seconds[seconds.size() * 99 / 100];
  report.lookups_per_second = static_cast<double>(seconds.size()) / total;
  return report;
}

}  // namespace hotbed
