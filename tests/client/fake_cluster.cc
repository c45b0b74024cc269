#include "tests/client/fake_cluster.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "tests/kernels/pool_twin.h"

namespace hotbed {
namespace {

// A dumb twin of the conversions: exact for what the tests send, small integers and halves.
uint16_t HalfOf(float f) {
  if (f == 0) return 0;
  int exponent;
  const float mantissa = std::frexp(std::fabs(f), &exponent);  // [0.5, 1)
  return static_cast<uint16_t>((f < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) |
                               (static_cast<int>(mantissa * 2048) & 0x3ff));
}

float FloatOfHalf(uint16_t h) {
  if ((h & 0x7fff) == 0) return 0;
  const float value = std::ldexp(1.0f + (h & 0x3ff) / 1024.0f, ((h >> 10) & 31) - 15);
  return (h & 0x8000) != 0 ? -value : value;
}

uint16_t Bf16Of(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>(bits >> 16);
}

void AppendRow(const std::vector<float>& row, v1::RowType type, std::string* out) {
  if (type == v1::ROW_FP32) {
    out->append(reinterpret_cast<const char*>(row.data()), 4 * row.size());
    return;
  }
  if (type == v1::ROW_INT8) {  // scale 0.5, bias -64
    for (float f : row) out->push_back(static_cast<char>(static_cast<uint8_t>((f + 64) * 2)));
    const float scale_bias[2] = {0.5f, -64.0f};
    out->append(reinterpret_cast<const char*>(scale_bias), 8);
    return;
  }
  for (float f : row) {
    const uint16_t half = type == v1::ROW_FP16 ? HalfOf(f) : Bf16Of(f);
    out->append(reinterpret_cast<const char*>(&half), 2);
  }
}

float GradientAt(const char* gradients, uint64_t index, v1::RowType type) {
  if (type == v1::ROW_FP32) {
    float f;
    std::memcpy(&f, gradients + 4 * index, 4);
    return f;
  }
  uint16_t half;
  std::memcpy(&half, gradients + 2 * index, 2);
  if (type == v1::ROW_FP16) return FloatOfHalf(half);
  const uint32_t bits = uint32_t{half} << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

}  // namespace

class FakeCluster::DataService final : public v1::Data::Service {
 public:
  using ReadStream = grpc::ServerReaderWriter<v1::PullReply, v1::PullRequest>;

  DataService(FakeCluster* cluster, int server) : cluster_(cluster), server_(server) {
    // The server takes lookups as streams, too (server/streams/raw_data_service.h).
    using Handler =
        grpc::internal::BidiStreamingHandler<DataService, v1::PullRequest, v1::PullReply>;
    MarkMethodStreamed(2, new Handler(
                              [](DataService* service, grpc::ServerContext*, ReadStream* stream) {
                                return service->ServeReads(stream, /*looks_up=*/true);
                              },
                              this));
  }

  grpc::Status Pull(grpc::ServerContext*, ReadStream* stream) override {
    return ServeReads(stream, /*looks_up=*/false);
  }

  grpc::Status Push(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::PushReply, v1::PushRequest>* stream) override {
    v1::PushRequest request;
    bool first = true;
    while (stream->Read(&request)) {
      v1::Hello hello;
      const grpc::Status greeted = first ? cluster_->Greet(&hello) : grpc::Status::OK;
      if (!greeted.ok()) return greeted;
      v1::PushReply reply = cluster_->ServePush(server_, request);
      if (first) *reply.mutable_header()->mutable_hello() = hello;
      first = false;
      {
        absl::MutexLock lock(&cluster_->mu_);
        if (cluster_->break_after_push_ && cluster_->break_after_push_()) {
          return {grpc::StatusCode::UNAVAILABLE, "broken by the test"};
        }
      }
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status ServeReads(ReadStream* stream, bool looks_up) {
    v1::PullRequest request;
    bool first = true;
    while (stream->Read(&request)) {
      if (first && !request.header().has_hello()) {
        return {grpc::StatusCode::INVALID_ARGUMENT, "no hello in the first message"};
      }
      v1::Hello hello;
      const grpc::Status greeted = first ? cluster_->Greet(&hello) : grpc::Status::OK;
      if (!greeted.ok()) return greeted;
      v1::PullReply reply = cluster_->ServePull(server_, request);
      if (first) *reply.mutable_header()->mutable_hello() = hello;
      first = false;
      if (looks_up) {
        absl::MutexLock lock(&cluster_->mu_);
        ++cluster_->lookups_;
      }
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

  FakeCluster* const cluster_;
  const int server_;
};

class FakeCluster::CoordinatorService final : public v1::Coordinator::Service {
 public:
  explicit CoordinatorService(FakeCluster* cluster) : cluster_(cluster) {}

  grpc::Status GetClusterMap(grpc::ServerContext*, const v1::GetClusterMapRequest*,
                             v1::ClusterMap* reply) override {
    absl::MutexLock lock(&cluster_->mu_);
    *reply = cluster_->told_;
    return grpc::Status::OK;
  }

  grpc::Status WatchClusterMap(grpc::ServerContext* context, const v1::GetClusterMapRequest*,
                               grpc::ServerWriter<v1::ClusterMap>* writer) override {
    uint64_t sent = 0;
    while (!context->IsCancelled()) {
      v1::ClusterMap map;
      {
        absl::MutexLock lock(&cluster_->mu_);
        map = cluster_->told_;
      }
      if (map.plan_revision() != sent && !writer->Write(map)) break;
      sent = map.plan_revision();
      absl::SleepFor(absl::Milliseconds(5));
    }
    return grpc::Status::OK;
  }

  grpc::Status CreateTable(grpc::ServerContext*, const v1::CreateTableRequest* request,
                           v1::CreateTableReply* reply) override {
    const v1::TableSpec& spec = request->spec();
    const uint32_t id = cluster_->AddTable(spec.name(), spec.rows(), spec.dim(), 2);
    absl::MutexLock lock(&cluster_->mu_);
    const FakeTable& table = cluster_->tables_[id];
    *reply->mutable_spec() = table.spec;
    for (const FakeShard& shard : table.shards) *reply->add_shards() = shard.record;
    reply->set_created(true);
    reply->set_plan_revision(cluster_->revision_);
    return grpc::Status::OK;
  }

  grpc::Status DropTable(grpc::ServerContext*, const v1::DropTableRequest* request,
                         v1::DropTableReply* reply) override {
    absl::MutexLock lock(&cluster_->mu_);
    for (auto it = cluster_->tables_.begin(); it != cluster_->tables_.end(); ++it) {
      if (it->second.spec.name() != request->name()) continue;
      reply->set_id(it->first);
      cluster_->tables_.erase(it);
      ++cluster_->revision_;
      cluster_->told_ = cluster_->Map();
      reply->set_plan_revision(cluster_->revision_);
      return grpc::Status::OK;
    }
    return {grpc::StatusCode::NOT_FOUND, "no such table"};
  }

  grpc::Status Train(grpc::ServerContext*, const v1::TrainRequest* request,
                     v1::TrainReply* reply) override {
    absl::MutexLock lock(&cluster_->mu_);
    reply->set_member(true);
    reply->set_members(2);
    reply->set_lease_ms(60000);
    reply->set_ended_step(request->ended_step());
    reply->set_ended_min(std::min(request->ended_step(), cluster_->ended_by_others_));
    reply->mutable_commit()->set_step(reply->ended_min());
    reply->mutable_commit()->add_sessions(request->session());
    return grpc::Status::OK;
  }

  grpc::Status OpenSession(grpc::ServerContext*, const v1::OpenSessionRequest* request,
                           v1::OpenSessionReply* reply) override {
    std::function<void()> delay;
    {
      absl::MutexLock lock(&cluster_->mu_);
      delay = cluster_->open_delay_;
    }
    if (delay) delay();
    absl::MutexLock lock(&cluster_->mu_);
    reply->set_session(std::hash<std::string>()(request->name()) | 1);
    reply->set_incarnation(++cluster_->incarnations_[request->name()]);
    reply->set_cluster_id("fake");
    return grpc::Status::OK;
  }

 private:
  FakeCluster* const cluster_;
};

FakeCluster::FakeCluster(int servers) : scripts_(servers), servers_(servers) {
  for (int s = 0; s < servers; ++s) StartServer(s);
  coordinator_service_ = std::make_unique<CoordinatorService>(this);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(coordinator_service_.get());
  coordinator_ = builder.BuildAndStart();
  coordinator_address_ = absl::StrCat("127.0.0.1:", port);
  absl::MutexLock lock(&mu_);
  told_ = Map();
}

FakeCluster::~FakeCluster() {
  for (size_t s = 0; s < servers_.size(); ++s) SetHanging(static_cast<int>(s), false);
  for (FakeServer& s : servers_) {
    if (s.server != nullptr) s.server->Shutdown(std::chrono::system_clock::now());
  }
  coordinator_->Shutdown(std::chrono::system_clock::now());
}

void FakeCluster::StartServer(int server) {
  FakeServer& s = servers_[server];
  s.service = std::make_unique<DataService>(this, server);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", s.port), grpc::InsecureServerCredentials(),
                           &s.port);
  builder.RegisterService(s.service.get());
  s.server = builder.BuildAndStart();
  HOTBED_CHECK(s.server != nullptr) << "port " << s.port;
  s.address = absl::StrCat("127.0.0.1:", s.port);
}

void FakeCluster::StopServer(int server) {
  servers_[server].server->Shutdown(std::chrono::system_clock::now());
  servers_[server].server.reset();
}

uint32_t FakeCluster::AddTable(const std::string& name, uint64_t rows, uint32_t dim,
                               uint32_t shards, v1::NanPolicy nan_policy) {
  v1::TableSpec spec;
  spec.set_name(name);
  spec.set_rows(rows);
  spec.set_dim(dim);
  spec.set_nan_policy(nan_policy);
  return AddTable(std::move(spec), shards);
}

uint32_t FakeCluster::AddTable(v1::TableSpec spec, uint32_t shards) {
  absl::MutexLock lock(&mu_);
  const uint32_t id = tables_.empty() ? 1 : tables_.rbegin()->first + 1;
  FakeTable& table = tables_[id];
  spec.set_id(id);
  if (spec.optimizer().epsilon() == 0) spec.mutable_optimizer()->set_epsilon(1e-8f);
  table.spec = spec;
  const uint32_t slices = std::max<uint32_t>(spec.column_slices(), 1);
  const uint64_t space = spec.hashed() ? 65536 : spec.rows();
  uint32_t column = 0;
  for (uint32_t slice = 0; slice < slices; ++slice) {
    const uint32_t width = spec.dim() / slices + (slice < spec.dim() % slices ? 1 : 0);
    for (uint32_t i = 0; i < shards; ++i) {
      const uint32_t index = slice * shards + i;
      FakeShard shard;
      shard.record.set_shard(ShardId{id, index}.packed());
      shard.record.set_range_first(space * i / shards);
      shard.record.set_range_limit(space * (i + 1) / shards);
      shard.record.set_column_first(column);
      shard.record.set_column_limit(column + width);
      shard.record.set_epoch(1);
      shard.record.set_active(true);
      shard.record.mutable_primary()->set_server(index % servers_.size() + 1);
      table.shards.push_back(shard);
    }
    column += width;
  }
  ++revision_;
  told_ = Map();
  return id;
}

v1::ClusterMap FakeCluster::Map() const {
  v1::ClusterMap map;
  map.set_cluster_id("fake");
  map.set_plan_revision(revision_);
  for (const auto& [id, table] : tables_) {
    *map.add_tables() = table.spec;
    for (const FakeShard& shard : table.shards) *map.add_shards() = shard.record;
  }
  for (size_t s = 0; s < servers_.size(); ++s) {
    v1::ServerInfo* info = map.add_servers();
    info->set_server(s + 1);
    info->set_address(servers_[s].address);
    info->set_live(scripts_[s].live);
    if (limit_registered_) info->set_message_bytes_max(message_bytes_max_);
  }
  return map;
}

grpc::Status FakeCluster::Greet(v1::Hello* hello) {
  absl::MutexLock lock(&mu_);
  hello->set_messages_in_flight_max(4);
  hello->set_message_bytes_max(message_bytes_max_);
  return greeting_ ? greeting_() : grpc::Status::OK;
}

bool FakeCluster::RefuseLarge(uint64_t bytes, v1::ReplyHeader* header) {
  if (message_bytes_max_ == 0 || bytes <= message_bytes_max_) return false;
  ++refused_;
  header->clear_segments();
  header->clear_lsns();
  header->clear_exceptions();
  header->clear_row_bytes();
  header->set_code(v1::INVALID_ARGUMENT);
  header->set_detail(absl::StrCat(bytes, " bytes, the limit is ", message_bytes_max_));
  return true;
}

void FakeCluster::Move(ShardId shard, int to_server, bool announce) {
  absl::MutexLock lock(&mu_);
  v1::ShardRecord& record = tables_[shard.table].shards[shard.index].record;
  record.set_epoch(record.epoch() + 1);
  record.mutable_primary()->set_server(static_cast<uint64_t>(to_server) + 1);
  ++revision_;
  if (announce) told_ = Map();
}

void FakeCluster::SetReplicas(ShardId shard, const std::vector<int>& backups,
                              const std::vector<int>& read_replicas) {
  absl::MutexLock lock(&mu_);
  v1::ShardRecord& record = tables_[shard.table].shards[shard.index].record;
  record.clear_members();
  record.clear_learners();
  *record.add_members() = record.primary();
  for (const int s : backups) record.add_members()->set_server(static_cast<uint64_t>(s) + 1);
  record.clear_readers();
  for (const int s : read_replicas) {
    record.add_learners()->set_server(static_cast<uint64_t>(s) + 1);
    record.add_readers(static_cast<uint64_t>(s) + 1);
  }
  record.set_revision(++revision_);
  told_ = Map();
}

void FakeCluster::SetLive(int server, bool live) {
  absl::MutexLock lock(&mu_);
  scripts_[server].live = live;
  ++revision_;
  told_ = Map();
}

void FakeCluster::SetHanging(int server, bool hanging) {
  absl::MutexLock lock(&mu_);
  scripts_[server].hanging = hanging;
}

void FakeCluster::AwaitNotHanging(int server) {
  mu_.Await(absl::Condition(
      +[](ServerScript* script) { return !script->hanging; }, &scripts_[server]));
}

FakeShard* FakeCluster::FindShard(int server, ShardId id, uint64_t epoch, bool pull,
                                  v1::SegmentReply* refusal) {
  const auto table = tables_.find(id.table);
  if (table == tables_.end() || id.index >= table->second.shards.size()) {
    refusal->set_code(v1::UNKNOWN_SHARD);
    return nullptr;
  }
  FakeShard& shard = table->second.shards[id.index];
  const uint64_t id_of_server = static_cast<uint64_t>(server) + 1;
  bool holds = shard.record.primary().server() == id_of_server;
  if (pull) {
    for (const v1::Member& m : shard.record.members()) holds |= m.server() == id_of_server;
    for (const v1::Member& m : shard.record.learners()) holds |= m.server() == id_of_server;
  }
  if (shard.record.epoch() == epoch && holds) return &shard;
  refusal->set_code(v1::WRONG_EPOCH);
  *refusal->mutable_record() = shard.record;
  return nullptr;
}

void FakeCluster::ServeBags(const FakeShard& shard, uint32_t dim, const v1::PullHeader& header,
                            const PullAsk& segment, const SegmentBytes& from,
                            v1::PullReply* reply) {
  uint32_t next = 0;
  for (uint32_t b = 0; b < segment.bag_count; ++b) {
    uint32_t length;
    std::memcpy(&length, from.lengths + 4 * b, 4);
    std::vector<std::vector<float>> rows;
    std::vector<float> weights;
    for (uint32_t k = 0; k < length; ++k, ++next) {
      uint64_t id;
      std::memcpy(&id, from.ids + 8 * next, 8);
      const auto row = shard.rows.find(id);
      rows.push_back(row == shard.rows.end() ? std::vector<float>(dim) : row->second);
      if (from.weights != nullptr) {
        std::memcpy(&weights.emplace_back(), from.weights + 4 * next, 4);
      }
      if (header.want_flags()) reply->mutable_flags()->push_back(row == shard.rows.end() ? 0 : 1);
    }
    const PooledBag bag = PoolByHand(static_cast<RowPooling>(segment.pooling), dim, rows, weights);
    AppendRow(bag.row, header.row_type(), reply->mutable_rows());
    if (segment.want_arg_max) {
      reply->mutable_arg_max()->append(reinterpret_cast<const char*>(bag.arg_max.data()), 4 * dim);
    }
  }
}

v1::PullReply FakeCluster::ServePull(int server, const v1::PullRequest& request) {
  std::function<void()> delay;
  {
    absl::MutexLock lock(&mu_);
    delay = delay_;
  }
  if (delay) delay();
  absl::MutexLock lock(&mu_);
  AwaitNotHanging(server);
  ++pulls_;
  ++scripts_[server].pulls;
  scripts_[server].last_pull = request.header();
  largest_ = std::max<uint64_t>(largest_, request.ByteSizeLong());
  v1::PullReply reply;
  reply.mutable_header()->set_request(request.header().request());
  if (RefuseLarge(request.ByteSizeLong(), reply.mutable_header())) return reply;
  const char* ids = request.ids().data();
  const char* lengths = request.lengths().data();
  const char* weights = request.weights().data();
  for (const PullAsk& segment : AskedOf(request.header())) {
    v1::SegmentReply answer;
    Lsn lsn = 0;
    const size_t before = reply.rows().size();
    const absl::Cleanup add = [&] {
      reply.mutable_header()->add_row_bytes(reply.rows().size() - before);
      AddAnswer(answer, lsn, segment.epoch, 0, reply.mutable_header());
    };
    const char* const begin = ids;
    const char* const lengths_begin = lengths;
    const char* const weights_begin = segment.weighted ? weights : nullptr;
    ids += 8 * segment.id_count;
    lengths += 4 * segment.bag_count;
    if (segment.weighted) weights += 4 * segment.id_count;
    if (pull_script_) {
      if (auto scripted = pull_script_(server, segment)) {
        answer = *scripted;
        continue;
      }
    }
    FakeShard* shard = FindShard(server, segment.shard, segment.epoch, /*pull=*/true, &answer);
    if (shard == nullptr) continue;
    const uint32_t dim = shard->record.column_limit() - shard->record.column_first();
    if (segment.bag_count > 0) {
      ServeBags(*shard, dim, request.header(), segment, {begin, lengths_begin, weights_begin},
                &reply);
    }
    for (uint32_t i = 0; i < segment.id_count && segment.bag_count == 0; ++i) {
      uint64_t id;
      std::memcpy(&id, begin + 8 * i, 8);
      const auto row = shard->rows.find(id);
      AppendRow(row == shard->rows.end() ? std::vector<float>(dim) : row->second,
                request.header().row_type(), reply.mutable_rows());
      if (request.header().want_flags()) {
        reply.mutable_flags()->push_back(row == shard->rows.end() ? 0 : 1);
      }
    }
    answer.set_epoch(shard->record.epoch());
    lsn = shard->lsn;
  }
  largest_ = std::max<uint64_t>(largest_, reply.ByteSizeLong());
  if (RefuseLarge(reply.ByteSizeLong(), reply.mutable_header())) reply.clear_rows();
  return reply;
}

v1::PushReply FakeCluster::ServePush(int server, const v1::PushRequest& request) {
  absl::MutexLock lock(&mu_);
  AwaitNotHanging(server);
  ++pushes_;
  scripts_[server].last_push = request.header();
  largest_ = std::max<uint64_t>(largest_, request.ByteSizeLong());
  v1::PushReply reply;
  reply.mutable_header()->set_request(request.header().request());
  if (RefuseLarge(request.ByteSizeLong(), reply.mutable_header())) return reply;
  const char* gradients = request.gradients().data();
  size_t id_offset = 0;
  for (const PushAsk& segment : AskedOf(request.header())) {
    std::vector<uint64_t> ids(segment.id_count);
    std::memcpy(ids.data(), request.ids().data() + id_offset, 8 * ids.size());
    id_offset += 8 * ids.size();
    Lsn lsn = 0;
    const v1::SegmentReply answer =
        ServePushSegment(server, request.header(), segment, ids.data(), gradients, &lsn);
    AddAnswer(answer, lsn, segment.epoch, segment.seq, reply.mutable_header());
    gradients += uint64_t{segment.id_count} * segment.dim *
                 (request.header().gradient_type() == v1::ROW_FP32 ? 4 : 2);
  }
  return reply;
}

v1::SegmentReply FakeCluster::ServePushSegment(int server, const v1::PushHeader& header,
                                               const PushAsk& segment, const uint64_t* ids,
                                               const char* gradients, Lsn* lsn) {
  v1::SegmentReply answer;
  if (push_script_) {
    if (auto scripted = push_script_(server, segment)) return *scripted;
  }
  FakeShard* shard = FindShard(server, segment.shard, segment.epoch, /*pull=*/false, &answer);
  if (shard == nullptr) return answer;
  const auto known = shard->sessions.find(header.session());
  const bool opens =
      known == shard->sessions.end() || header.incarnation() > known->second.incarnation;
  if (opens && !segment.open) {
    answer.set_code(v1::UNKNOWN_SESSION);
    return answer;
  }
  FakeShard::Session& session = shard->sessions[header.session()];
  answer.set_last_seq(session.last_seq);
  if (header.incarnation() < session.incarnation) {
    answer.set_code(v1::FENCED);
    return answer;
  }
  session.incarnation = header.incarnation();
  if (segment.seq <= session.last_seq) {
    ++shard->duplicates;
    return answer;
  }
  const bool fresh_step = session.last_seq == 0 || segment.seq >> 20 != session.last_seq >> 20;
  if (segment.prev_seq != session.last_seq && !(opens && segment.prev_seq == 0 && fresh_step)) {
    answer.set_code(v1::GAP);
    return answer;
  }
  session.last_seq = segment.seq;
  for (uint32_t i = 0; i < segment.id_count; ++i) {
    std::vector<float>& row = shard->rows[ids[i]];
    row.resize(segment.dim);
    shard->applied_ids.push_back(ids[i]);
    for (uint32_t d = 0; d < segment.dim; ++d) {
      row[d] -= GradientAt(gradients, uint64_t{i} * segment.dim + d, header.gradient_type());
    }
  }
  ++shard->applied;
  *lsn = ++shard->lsn;
  answer.set_epoch(shard->record.epoch());
  answer.set_last_seq(session.last_seq);
  return answer;
}

void FakeCluster::set_push_script(PushScript script) {
  absl::MutexLock lock(&mu_);
  push_script_ = std::move(script);
}
void FakeCluster::set_pull_script(PullScript script) {
  absl::MutexLock lock(&mu_);
  pull_script_ = std::move(script);
}
void FakeCluster::set_break_after_push(std::function<bool()> script) {
  absl::MutexLock lock(&mu_);
  break_after_push_ = std::move(script);
}
void FakeCluster::set_delay(std::function<void()> delay) {
  absl::MutexLock lock(&mu_);
  delay_ = std::move(delay);
}
void FakeCluster::set_open_delay(std::function<void()> delay) {
  absl::MutexLock lock(&mu_);
  open_delay_ = std::move(delay);
}
void FakeCluster::set_ended_by_others(uint64_t step) {
  absl::MutexLock lock(&mu_);
  ended_by_others_ = step;
}

void FakeCluster::set_greeting(std::function<grpc::Status()> script) {
  absl::MutexLock lock(&mu_);
  greeting_ = std::move(script);
}
void FakeCluster::set_message_bytes_max(uint64_t bytes, bool registered) {
  absl::MutexLock lock(&mu_);
  message_bytes_max_ = bytes;
  limit_registered_ = registered;
  ++revision_;
  told_ = Map();
}
FakeShard FakeCluster::shard(ShardId id) const {
  absl::MutexLock lock(&mu_);
  return tables_.at(id.table).shards.at(id.index);
}
std::vector<float> FakeCluster::Row(uint32_t table, uint64_t id) const {
  absl::MutexLock lock(&mu_);
  const FakeTable& t = tables_.at(table);
  std::vector<float> joined(t.spec.dim());
  for (const FakeShard& shard : t.shards) {
    const auto row = shard.rows.find(id);
    if (row == shard.rows.end()) continue;
    std::copy(row->second.begin(), row->second.end(), joined.begin() + shard.record.column_first());
  }
  return joined;
}
uint64_t FakeCluster::pull_messages() const {
  absl::MutexLock lock(&mu_);
  return pulls_;
}
uint64_t FakeCluster::push_messages() const {
  absl::MutexLock lock(&mu_);
  return pushes_;
}
uint64_t FakeCluster::lookup_messages() const {
  absl::MutexLock lock(&mu_);
  return lookups_;
}
uint64_t FakeCluster::pull_messages_of(int server) const {
  absl::MutexLock lock(&mu_);
  return scripts_[server].pulls;
}
v1::PullHeader FakeCluster::last_pull_of(int server) const {
  absl::MutexLock lock(&mu_);
  return scripts_[server].last_pull;
}
v1::PushHeader FakeCluster::last_push_of(int server) const {
  absl::MutexLock lock(&mu_);
  return scripts_[server].last_push;
}
uint64_t FakeCluster::largest_message() const {
  absl::MutexLock lock(&mu_);
  return largest_;
}
uint64_t FakeCluster::refused_messages() const {
  absl::MutexLock lock(&mu_);
  return refused_;
}

}  // namespace hotbed
