#include "client/serving/cut_lookup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "row_math/pooling.h"

namespace hotbed {
namespace {

// Bags of rows that came one by one, to the bits of bags that a server makes of them.
std::vector<float> PoolRows(const ServingIds& asked, uint32_t dim, const std::vector<float>& rows) {
  std::vector<float> bags(asked.offsets.size() * dim);
  for (size_t bag = 0; bag < asked.offsets.size(); ++bag) {
    const size_t first = asked.offsets[bag];
    const size_t limit = bag + 1 < asked.offsets.size() ? asked.offsets[bag + 1] : asked.ids.size();
    float* const out = bags.data() + bag * dim;
    float divisor = 0;
    for (size_t i = first; i < limit; ++i) {
      const float* const row = rows.data() + i * dim;
      const float weight = asked.weights.empty() ? 1.0f : asked.weights[i];
      divisor += weight;
      for (uint32_t d = 0; d < dim; ++d) {
        if (asked.pooling != Pooling::kMax) {
          const float product = weight * row[d];  // rounded by itself
          out[d] += product;
        } else if (i == first || IsLarger(row[d], out[d])) {
          out[d] = row[d];
        }
      }
    }
    if (asked.pooling != Pooling::kMean) continue;
    // A sum of ones in fp32 ends at 2^24.
    if (asked.weights.empty()) divisor = static_cast<float>(limit - first);
    for (uint32_t d = 0; d < dim; ++d) out[d] = divisor == 0 ? 0.0f : out[d] / divisor;
  }
  return bags;
}

// Adds the rows of one piece to those of its table.
void AddPiece(const CutLookup::Piece& piece, const ServingRows& answer, size_t ids,
              ServingRows* rows) {
  if (!rows->status.ok()) return;
  if (answer.status.ok() && rows->dim != 0 && rows->dim != answer.dim) {
    rows->status =
        absl::InternalError(absl::StrCat("rows of dim ", answer.dim, " come from ", answer.server,
                                         ", of dim ", rows->dim, " from ", rows->server));
    return;
  }
  rows->status = answer.status;
  if (!answer.status.ok()) return;
  rows->dim = answer.dim;
  rows->values.resize(ids * answer.dim);
  rows->exists.resize(ids);
  for (size_t i = 0; i < piece.at.size(); ++i) {
    std::copy_n(answer.values.data() + i * answer.dim, answer.dim,
                rows->values.data() + piece.at[i] * answer.dim);
    rows->exists[piece.at[i]] = answer.exists[i];
  }
  if (answer.tiers.size() == piece.at.size() && !piece.at.empty()) {
    rows->tiers.resize(ids);
    for (size_t i = 0; i < piece.at.size(); ++i) rows->tiers[piece.at[i]] = answer.tiers[i];
  }
  rows->age = std::max(rows->age, answer.age);
  if (!absl::StrContains(absl::StrCat(",", rows->server, ","),
                         absl::StrCat(",", answer.server, ","))) {
    absl::StrAppend(&rows->server, rows->server.empty() ? "" : ",", answer.server);
  }
  rows->version = answer.version;
}

}  // namespace

CutLookup::CutLookup(const std::vector<ServingIds>& tables, const std::vector<TableCut>& cuts,
                     RowType wire_type)
    : tables_(tables) {
  for (size_t i = 0; i < tables.size(); ++i) {
    if (cuts[i].parts > 1) {
      Cut(i, cuts[i], wire_type);
    } else {
      pieces_.push_back({.table = i, .part = {}, .asked = tables[i], .wire_type = wire_type});
    }
  }
}

void CutLookup::Cut(size_t table, const TableCut& cut, RowType wire_type) {
  const ServingIds& asked = tables_[table];
  std::vector<Piece> parts(cut.parts);
  for (size_t i = 0; i < asked.ids.size(); ++i) {
    Piece& piece = parts[cut.places.PartOfId(asked.ids[i], cut.parts)];
    piece.ids.push_back(asked.ids[i]);
    piece.at.push_back(i);
  }
  for (uint32_t p = 0; p < cut.parts; ++p) {
    // Without any id, the first part has the dim.
    if (parts[p].ids.empty() && !(p == 0 && asked.ids.empty())) continue;
    Piece& piece = pieces_.emplace_back(std::move(parts[p]));
    piece.table = table;
    piece.part = {p, cut.parts};
    piece.asked = {.table = asked.table, .ids = piece.ids};
    // Rounded rows would not make the bags that servers make.
    piece.wire_type = asked.pooling == Pooling::kNone ? wire_type : RowType::kFp32;
  }
}

std::vector<ServingRows> CutLookup::Join(std::vector<ServingRows> answers) const {
  std::vector<ServingRows> joined(tables_.size());
  for (size_t i = 0; i < pieces_.size(); ++i) {
    ServingRows& rows = joined[pieces_[i].table];
    if (pieces_[i].part.parts == 1) {
      rows = std::move(answers[i]);
      continue;
    }
    const ServingIds& asked = tables_[pieces_[i].table];
    AddPiece(pieces_[i], answers[i], asked.ids.size(), &rows);
    const bool last = i + 1 == pieces_.size() || pieces_[i + 1].table != pieces_[i].table;
    if (!last) continue;
    if (!rows.status.ok()) {
      ServingRows bad;
      bad.status = rows.status;
      rows = std::move(bad);
    } else if (asked.pooling != Pooling::kNone) {
      rows.values = PoolRows(asked, rows.dim, rows.values);
    }
  }
  return joined;
}

}  // namespace hotbed
