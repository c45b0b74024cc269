#include "server/catalog_file.h"

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "server/byte_reader.h"

namespace hotbed {
namespace {

constexpr absl::string_view kMagic = "HOTBDCAT";
constexpr uint32_t kVersion = 1;

void AppendFloat(float value, std::string* out) { AppendLittle<float>(value, out); }

void AppendTable(const TableSpec& table, std::string* out) {
  AppendLittle<uint32_t>(table.id, out);
  AppendString(table.name, out);
  AppendLittle<uint8_t>(table.hashed, out);
  AppendLittle<uint64_t>(table.rows, out);
  AppendLittle<uint32_t>(table.dim, out);
  AppendLittle<uint8_t>(static_cast<uint8_t>(table.weight_type), out);
  AppendLittle<uint8_t>(static_cast<uint8_t>(table.optimizer.kind), out);
  for (float value :
       {table.optimizer.learning_rate, table.optimizer.epsilon, table.optimizer.beta1,
        table.optimizer.beta2, table.optimizer.weight_decay, table.optimizer.initial_accumulator}) {
    AppendFloat(value, out);
  }
  AppendLittle<uint8_t>(static_cast<uint8_t>(table.initializer.kind), out);
  AppendFloat(table.initializer.a, out);
  AppendFloat(table.initializer.b, out);
  AppendLittle<uint64_t>(table.seed, out);
  AppendLittle<uint8_t>(static_cast<uint8_t>(table.durability), out);
  AppendLittle<uint8_t>(static_cast<uint8_t>(table.nan_policy), out);
}

TableSpec TakeTable(ByteReader* in) {
  TableSpec table;
  table.id = in->Take<uint32_t>();
  table.name = in->TakeString();
  table.hashed = in->Take<uint8_t>() != 0;
  table.rows = in->Take<uint64_t>();
  table.dim = in->Take<uint32_t>();
  table.weight_type = static_cast<WeightType>(in->Take<uint8_t>());
  table.optimizer.kind = static_cast<OptimizerKind>(in->Take<uint8_t>());
  for (float* value : {&table.optimizer.learning_rate, &table.optimizer.epsilon,
                       &table.optimizer.beta1, &table.optimizer.beta2,
                       &table.optimizer.weight_decay, &table.optimizer.initial_accumulator}) {
    *value = in->Take<float>();
  }
  table.initializer.kind = static_cast<InitializerKind>(in->Take<uint8_t>());
  table.initializer.a = in->Take<float>();
  table.initializer.b = in->Take<float>();
  table.seed = in->Take<uint64_t>();
  table.durability = static_cast<Durability>(in->Take<uint8_t>());
  table.nan_policy = static_cast<NanPolicy>(in->Take<uint8_t>());
  return table;
}

}  // namespace

std::string Catalog::Serialize() const {
  std::string out(kMagic);
  AppendLittle<uint32_t>(kVersion, &out);
  AppendLittle<uint32_t>(static_cast<uint32_t>(tables.size()), &out);
  for (const auto& [id, table] : tables) AppendTable(table, &out);
  AppendLittle<uint32_t>(static_cast<uint32_t>(shards.size()), &out);
  for (const auto& [shard, range] : shards) {
    AppendLittle<uint64_t>(shard.packed(), &out);
    AppendLittle<uint64_t>(range.first, &out);
    AppendLittle<uint64_t>(range.limit, &out);
    AppendLittle<uint32_t>(range.column_first, &out);
    AppendLittle<uint32_t>(range.column_limit, &out);
  }
  AppendLittle<uint32_t>(Crc32c(out.data(), out.size()), &out);
  return out;
}

absl::StatusOr<Catalog> Catalog::Parse(absl::string_view bytes) {
  if (bytes.size() < kMagic.size() + 8 || bytes.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError(absl::StrCat("CATALOG: ", bytes.size(), " bytes are no catalog"));
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - 4);
  if (LoadLittle<uint32_t>(bytes.data() + body.size()) != Crc32c(body.data(), body.size())) {
    return absl::DataLossError("CATALOG: the checksum does not match");
  }
  ByteReader in(body.substr(kMagic.size()));
  if (const uint32_t version = in.Take<uint32_t>(); version != kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("CATALOG: version ", version, ", this program reads ", kVersion));
  }
  Catalog catalog;
  for (uint32_t left = in.Take<uint32_t>(); left > 0 && in.ok(); --left) {
    TableSpec table = TakeTable(&in);
    catalog.tables[table.id] = std::move(table);
  }
  for (uint32_t left = in.Take<uint32_t>(); left > 0 && in.ok(); --left) {
    const ShardId shard = ShardId::FromPacked(in.Take<uint64_t>());
    ShardRange range;
    range.first = in.Take<uint64_t>();
    range.limit = in.Take<uint64_t>();
    range.column_first = in.Take<uint32_t>();
    range.column_limit = in.Take<uint32_t>();
    if (!catalog.tables.contains(shard.table)) {
      return absl::DataLossError(absl::StrCat("CATALOG: ", shard.ToString(), " has no table"));
    }
    catalog.shards[shard] = range;
  }
  if (!in.ok() || in.left() != 0) return absl::DataLossError("CATALOG: it does not parse");
  return catalog;
}

absl::StatusOr<Catalog> Catalog::Load(const std::string& path, FileSystem* files) {
  if (!files->Exists(path)) return Catalog();
  HOTBED_ASSIGN_OR_RETURN(const std::string bytes, files->ReadAll(path));
  absl::StatusOr<Catalog> catalog = Parse(bytes);
  if (catalog.ok()) return catalog;
  return absl::Status(catalog.status().code(),
                      absl::StrCat(path, ": ", catalog.status().message()));
}

absl::Status Catalog::Save(const std::string& path, FileSystem* files) const {
  return files->WriteAtomically(path, Serialize());
}

}  // namespace hotbed
