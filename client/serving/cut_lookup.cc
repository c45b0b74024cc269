#include "client/serving/cut_lookup.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "row_math/pooling.h"

namespace hotbed {
namespace {

bool IsPooled(const ServingIds& asked) { return asked.pooling != Pooling::kNone; }

// Joins the bags that a part has made of its ids to those of the parts before it. Bags that no part
// has made so far are not `begun`.
void JoinBags(const CutLookup::Piece& piece, const ServingRows& answer, std::vector<bool>* begun,
              std::vector<float>* bags) {
  const uint32_t dim = answer.dim;
  for (size_t i = 0; i < piece.bags.size(); ++i) {
    const float* const from = answer.values.data() + i * dim;
    float* const to = bags->data() + piece.bags[i] * dim;
    const bool first = !(*begun)[piece.bags[i]];
    (*begun)[piece.bags[i]] = true;
    for (uint32_t d = 0; d < dim; ++d) {
      if (first) {
        to[d] = from[d];
      } else if (piece.asked.pooling == Pooling::kSum) {
        to[d] += from[d];
      } else if (IsLarger(from[d], to[d])) {
        to[d] = from[d];
      }
    }
  }
}

// Sums become means, divided as a server does that has the whole bag.
void DivideBags(const ServingIds& asked, uint32_t dim, std::vector<float>* bags) {
  for (size_t bag = 0; bag < asked.offsets.size(); ++bag) {
    const size_t first = asked.offsets[bag];
    const size_t limit = bag + 1 < asked.offsets.size() ? asked.offsets[bag + 1] : asked.ids.size();
    // A sum of ones in fp32 ends at 2^24.
    float divisor = asked.weights.empty() ? static_cast<float>(limit - first) : 0;
    for (size_t i = first; i < limit && !asked.weights.empty(); ++i) divisor += asked.weights[i];
    float* const out = bags->data() + bag * dim;
    for (uint32_t d = 0; d < dim; ++d) out[d] = divisor == 0 ? 0.0f : out[d] / divisor;
  }
}

// Bags of which some ids are not known have sums of the others.
void ClearUnknown(ServingRows* rows) {
  for (size_t row = 0; row < rows->known.size(); ++row) {
    if (rows->known[row] == 0) std::fill_n(rows->values.begin() + row * rows->dim, rows->dim, 0.0f);
  }
}

// Adds the rows of one piece to those of its table.
void AddPiece(const CutLookup::Piece& piece, const ServingRows& answer, const ServingIds& asked,
              std::vector<bool>* begun, ServingRows* rows) {
  const size_t ids = asked.ids.size();
  absl::Status status = answer.status;
  if (status.ok() && rows->dim != 0 && rows->dim != answer.dim) {
    status =
        absl::InternalError(absl::StrCat("rows of dim ", answer.dim, " come from ", answer.server,
                                         ", of dim ", rows->dim, " from ", rows->server));
  }
  if (!status.ok()) {
    rows->status.Update(status);
    rows->known.resize(IsPooled(asked) ? asked.offsets.size() : ids, 1);
    for (const size_t row : IsPooled(asked) ? piece.bags : piece.at) rows->known[row] = 0;
    return;
  }
  rows->dim = answer.dim;
  rows->values.resize((IsPooled(asked) ? asked.offsets.size() : ids) * answer.dim);
  rows->exists.resize(ids);
  if (IsPooled(asked)) JoinBags(piece, answer, begun, &rows->values);
  for (size_t i = 0; i < piece.at.size(); ++i) {
    rows->exists[piece.at[i]] = answer.exists[i];
    if (IsPooled(asked)) continue;
    std::copy_n(answer.values.data() + i * answer.dim, answer.dim,
                rows->values.data() + piece.at[i] * answer.dim);
  }
  if (answer.tiers.size() == piece.at.size() && !piece.at.empty()) {
    rows->tiers.resize(ids);
    for (size_t i = 0; i < piece.at.size(); ++i) rows->tiers[piece.at[i]] = answer.tiers[i];
  }
  rows->age = std::max(rows->age, answer.age);
  rows->older |= answer.older;
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
  size_t bag = 0;
  for (size_t i = 0; i < asked.ids.size(); ++i) {
    Piece& piece = parts[cut.places.PartOfId(asked.ids[i], cut.parts)];
    if (IsPooled(asked)) {
      while (bag + 1 < asked.offsets.size() && asked.offsets[bag + 1] <= i) ++bag;
      if (piece.bags.empty() || piece.bags.back() != bag) {
        piece.bags.push_back(bag);
        piece.offsets.push_back(static_cast<uint32_t>(piece.ids.size()));
      }
      if (!asked.weights.empty()) piece.weights.push_back(asked.weights[i]);
    }
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
    piece.wire_type = wire_type;
    if (piece.bags.empty()) continue;
    piece.asked.pooling = asked.pooling == Pooling::kMax ? Pooling::kMax : Pooling::kSum;
    piece.asked.offsets = piece.offsets;
    piece.asked.weights = piece.weights;
    // Sums that were rounded would add up to less exact ones.
    piece.wire_type = RowType::kFp32;
  }
}

std::vector<ServingRows> CutLookup::Join(std::vector<ServingRows> answers) const {
  std::vector<ServingRows> joined(tables_.size());
  std::vector<bool> begun;  // bags of the table
  for (size_t i = 0; i < pieces_.size(); ++i) {
    ServingRows& rows = joined[pieces_[i].table];
    if (pieces_[i].part.parts == 1) {
      rows = std::move(answers[i]);
      continue;
    }
    const ServingIds& asked = tables_[pieces_[i].table];
    const bool first = i == 0 || pieces_[i - 1].table != pieces_[i].table;
    if (first) begun.assign(asked.offsets.size(), false);
    AddPiece(pieces_[i], answers[i], asked, &begun, &rows);
    const bool last = i + 1 == pieces_.size() || pieces_[i + 1].table != pieces_[i].table;
    if (!last) continue;
    if (rows.dim == 0 && !rows.status.ok()) {  // no part has answered
      ServingRows bad;
      bad.status = rows.status;
      rows = std::move(bad);
      continue;
    }
    if (asked.pooling == Pooling::kMean) DivideBags(asked, rows.dim, &rows.values);
    ClearUnknown(&rows);
  }
  return joined;
}

}  // namespace hotbed
