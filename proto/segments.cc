#include "proto/segments.h"

#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

// Calls visit(name, values) for each column but `shards`.
template <typename Visit>
void VisitColumns(const v1::PullGroup& group, const Visit& visit) {
  visit("epochs", group.epochs());
  visit("id_counts", group.id_counts());
  visit("lsns_min", group.lsns_min());
  visit("bag_counts", group.bag_counts());
}

template <typename Visit>
void VisitColumns(const v1::PushGroup& group, const Visit& visit) {
  visit("epochs", group.epochs());
  visit("id_counts", group.id_counts());
  visit("numbers", group.numbers());
  visit("distances", group.distances());
  visit("opens", group.opens());
  visit("last_parts", group.last_parts());
  visit("dims", group.dims());
}

template <typename Header>
std::string ErrorOf(const Header& header) {
  std::string error;
  for (const auto& group : header.groups()) {
    VisitColumns(group, [&](const char* name, const auto& values) {
      if (values.size() <= 1 || values.size() == group.shards_size() || !error.empty()) return;
      error = absl::StrCat("a group of table ", group.table(), " has ", group.shards_size(),
                           " shards and ", values.size(), " values in the column ", name,
                           "; allowed are one per shard, one for all, or none");
    });
    if (!error.empty()) break;
  }
  return error;
}

}  // namespace

void PackColumns(v1::PullGroup* group) {
  PackColumn(group->mutable_epochs());
  PackColumn(group->mutable_id_counts());
  PackColumn(group->mutable_lsns_min());
  PackColumn(group->mutable_bag_counts());
}

void PackColumns(v1::PushGroup* group) {
  PackColumn(group->mutable_epochs());
  PackColumn(group->mutable_id_counts());
  PackColumn(group->mutable_numbers());
  PackColumn(group->mutable_distances());
  PackColumn(group->mutable_opens());
  PackColumn(group->mutable_last_parts());
  PackColumn(group->mutable_dims());
}

std::string ColumnError(const v1::PullHeader& header) { return ErrorOf(header); }
std::string ColumnError(const v1::PushHeader& header) { return ErrorOf(header); }

bool IsWhole(const v1::ReplyHeader& reply) {
  const uint32_t segments = reply.segments();
  const auto fits = [segments](int values) { return static_cast<uint32_t>(values) == segments; };
  if (reply.lsns_size() > 1 && !fits(reply.lsns_size())) return false;
  if (reply.row_bytes_size() > 0 && !fits(reply.row_bytes_size())) return false;
  uint64_t least = 0;
  for (const v1::SegmentReply& exception : reply.exceptions()) {
    if (exception.segment() < least || exception.segment() >= segments) return false;
    least = uint64_t{exception.segment()} + 1;
  }
  return true;
}

}  // namespace hotbed
