#include "planner/coordinator/etcd/etcd_meta_store.h"

#include <utility>

#include "common/status_macros.h"

namespace hotbed {
namespace {

constexpr int kReadsMax = 3;  // of a range that is compacted while it is read

}  // namespace

absl::StatusOr<MetaStore::RangeResult> EtcdMetaStore::Range(const std::string& first,
                                                            const std::string& limit) {
  for (int reads = 1;; ++reads) {
    absl::StatusOr<RangeResult> result = ReadPages(first, limit);
    if (!absl::IsOutOfRange(result.status()) || reads == kReadsMax) return result;
  }
}

absl::StatusOr<MetaStore::RangeResult> EtcdMetaStore::ReadPages(const std::string& first,
                                                                const std::string& limit) {
  const size_t prefix_size = client_->address().prefix.size();
  etcdserverpb::RangeRequest request;
  request.set_key(Full(first));
  if (!limit.empty()) request.set_range_end(Full(limit));
  request.set_limit(page_keys_);
  RangeResult result;
  while (true) {
    HOTBED_ASSIGN_OR_RETURN(etcdserverpb::RangeResponse page, client_->Range(request));
    if (request.revision() == 0) {
      result.revision = static_cast<uint64_t>(page.header().revision());
      request.set_revision(page.header().revision());
    }
    const bool more = page.more() && !page.kvs().empty();
    if (more) request.set_key(page.kvs().rbegin()->key() + '\0');  // the first key after it
    for (etcdserverpb::KeyValue& kv : *page.mutable_kvs()) {
      result.kvs.push_back({kv.key().substr(prefix_size), std::move(*kv.mutable_value()),
                            static_cast<uint64_t>(kv.mod_revision())});
    }
    if (!more) return result;
  }
}

absl::StatusOr<TxnResult> EtcdMetaStore::Txn(const std::vector<Compare>& compares,
                                             const std::vector<Op>& ops) {
  HOTBED_RETURN_IF_ERROR(CheckTransaction(compares, ops));
  etcdserverpb::TxnRequest request;
  for (const Compare& compare : compares) {
    etcdserverpb::Compare* const out = request.add_compare();
    out->set_target(etcdserverpb::Compare::MOD);  // 0 where there is no such key
    out->set_key(Full(compare.key));
    out->set_mod_revision(static_cast<int64_t>(compare.mod_revision));
  }
  for (const Op& op : ops) {
    etcdserverpb::RequestOp* const out = request.add_success();
    if (op.kind == Op::Kind::kPut) {
      out->mutable_request_put()->set_key(Full(op.key));
      out->mutable_request_put()->set_value(op.value);
    } else {
      out->mutable_request_delete_range()->set_key(Full(op.key));
    }
  }
  HOTBED_ASSIGN_OR_RETURN(const etcdserverpb::TxnResponse response, client_->Txn(request));
  TxnResult result;
  result.succeeded = response.succeeded();
  result.revision = static_cast<uint64_t>(response.header().revision());
  return result;
}

}  // namespace hotbed
