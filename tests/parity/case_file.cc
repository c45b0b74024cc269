#include "tests/parity/case_file.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/status_macros.h"
#include "planner/json/json_fields.h"

namespace hotbed::parity {

const std::vector<std::string> kPoolingWords = {"sum", "mean", "max", "none"};
const std::vector<std::string> kPoolingPlaceWords = {"auto", "server", "client"};
const std::vector<std::string> kRowTypeWords = {"fp32", "fp16", "bf16", "int8"};

namespace {

const std::vector<std::string> kBackwardWords = {"fused", "gradients", "none"};
const std::vector<std::string> kLossWords = {"sum", "mean", "square"};
const std::vector<std::string> kHowWords = {"kill", "stop"};

// `-` and `_` are the same in keys, as in a table file.
PlanJson WithUnderscores(const PlanJson& json) {
  if (!json.is_object()) return json;
  PlanJson out = PlanJson::object();
  for (const auto& [key, value] : json.items()) {
    const std::string plain = absl::StrReplaceAll(key, {{"-", "_"}});
    out[out.contains(plain) ? key : plain] = value;  // a second spelling must not hide the first
  }
  return out;
}

class CaseReader {
 public:
  CaseReader(const std::string& dir, FieldFailure* failure)
      : values_(dir, failure), failure_(failure) {}

  void Read(const PlanJson& json, ParityCase* out, absl::Status* tables_status);

 private:
  // The index of the word under `key`, or `fallback`.
  size_t Word(const JsonFields& fields, const char* key, const std::vector<std::string>& words,
              size_t fallback) {
    if (fields.Find(key) == nullptr) return fallback;
    std::string word;
    fields.Optional(key, &word);
    const auto found = std::find(words.begin(), words.end(), word);
    if (found != words.end()) return static_cast<size_t>(found - words.begin());
    failure_->Set(fields.Path(key),
                  absl::StrCat("'", Shown(word), "' is not one of ", absl::StrJoin(words, ", ")));
    return fallback;
  }
  void Number(const JsonFields& fields, const char* key, float* out) {
    double value = *out;
    fields.Optional(key, &value);
    *out = static_cast<float>(value);
  }
  void Expected(const JsonFields& fields, bool* expects, std::string* text) {
    *expects = fields.Find("expect_error") != nullptr;
    fields.Optional("expect_error", text);
  }

  void ReadTables(const JsonFields& fields, ParityCase* out, absl::Status* tables_status);
  CaseRows ReadRows(const PlanJson& json, const std::string& path);
  CaseFeature ReadFeature(const PlanJson& json, const std::string& path);
  CaseOptions ReadOptions(const PlanJson& json, const std::string& path);
  CaseBatch ReadBatch(const PlanJson& json, const std::string& path);
  CaseGradients ReadGradients(const PlanJson& json, const std::string& path);
  void ReadCalls(const PlanJson& json, const std::string& path, bool push, CaseStep* out);
  void ReadWeights(const JsonFields& fields, std::vector<std::pair<std::string, CaseRows>>* out);
  CaseStep ReadStep(const PlanJson& json, const std::string& path);
  void ReadKind(const JsonFields& fields, const std::string& path, CaseStep* step);

  const CaseValues values_;
  FieldFailure* const failure_;
};

// Rows as [[...]] or a file (all rows), or {"ids": ..., "rows": ...}.
CaseRows CaseReader::ReadRows(const PlanJson& json, const std::string& path) {
  CaseRows out;
  if (!json.is_object()) {
    values_.Read(json, path, &out.rows);
    return out;
  }
  const JsonFields fields(json, path, {"ids", "rows"}, failure_);
  out.all = false;
  if (const PlanJson* ids = fields.FindRequired("ids")) {
    values_.ReadIds(*ids, fields.Path("ids"), &out.ids);
  }
  if (const PlanJson* rows = fields.FindRequired("rows")) {
    values_.Read(*rows, fields.Path("rows"), &out.rows);
  }
  return out;
}

// The tables' options are read by the reader of table files: the same names, the same refusals.
void CaseReader::ReadTables(const JsonFields& fields, ParityCase* out,
                            absl::Status* tables_status) {
  PlanJson plain = PlanJson::array();
  fields.Items("tables", true, [&](const PlanJson& json, const std::string& path) {
    CaseTable table;
    PlanJson options = json;
    if (json.is_object()) {
      if (const auto weights = options.find("weights"); weights != options.end()) {
        table.weights = ReadRows(*weights, absl::StrCat(path, ".weights"));
        options.erase("weights");
      }
      if (const auto existing = options.find("existing"); existing != options.end()) {
        ReadJson(*existing, absl::StrCat(path, ".existing"), failure_, &table.existing);
        options.erase("existing");
      }
    }
    plain.push_back(options);
    out->tables.push_back(std::move(table));
  });
  if (failure_->error) return;
  const absl::StatusOr<std::vector<AskedTable>> asked = ReadTableFile(plain.dump());
  *tables_status = asked.status();
  for (size_t i = 0; asked.ok() && i < asked->size(); ++i) out->tables[i].asked = (*asked)[i];
}

CaseFeature CaseReader::ReadFeature(const PlanJson& json, const std::string& path) {
  const JsonFields fields(
      json, path, {"feature", "table", "pooling", "output", "scale_by_frequency"}, failure_);
  CaseFeature out;
  fields.Required("feature", &out.feature);
  fields.Required("table", &out.table);
  fields.Optional("output", &out.output);
  fields.Optional("scale_by_frequency", &out.scale_by_frequency);
  out.pooling = static_cast<Pooling>(Word(fields, "pooling", kPoolingWords, 0));
  return out;
}

CaseOptions CaseReader::ReadOptions(const PlanJson& json, const std::string& path) {
  const PlanJson plain = WithUnderscores(json);
  const JsonFields fields(
      plain, path,
      {"session", "pooling_at", "row_wire", "gradient_wire", "message_bytes_max", "deadline_ms",
       "accumulate", "accumulate_scale", "first_step", "trainers", "trainer_group"},
      failure_);
  CaseOptions out;
  fields.Optional("session", &out.session);
  out.pooling_at = static_cast<PoolingPlace>(Word(fields, "pooling_at", kPoolingPlaceWords, 0));
  out.row_wire = static_cast<RowType>(Word(fields, "row_wire", kRowTypeWords, 0));
  out.gradient_wire = static_cast<RowType>(Word(fields, "gradient_wire", kRowTypeWords, 0));
  fields.Optional("message_bytes_max", &out.message_bytes_max);
  fields.Optional("deadline_ms", &out.deadline_ms);
  fields.Optional("accumulate", &out.accumulate);
  if (out.accumulate == 0) failure_->Set(fields.Path("accumulate"), "is 0, allowed: 1 or more");
  Number(fields, "accumulate_scale", &out.accumulate_scale);
  fields.Optional("first_step", &out.first_step);
  fields.Optional("trainers", &out.trainers);
  fields.Optional("trainer_group", &out.trainer_group);
  return out;
}

CaseBatch CaseReader::ReadBatch(const PlanJson& json, const std::string& path) {
  const JsonFields fields(json, path, {"keys", "lengths", "offsets", "ids", "weights"}, failure_);
  CaseBatch out;
  fields.Required("keys", &out.keys);
  const PlanJson* lengths = fields.Find("lengths");
  const PlanJson* offsets = fields.Find("offsets");
  if ((lengths == nullptr) == (offsets == nullptr)) {
    failure_->Set(path, "needs lengths or offsets, one of the two");
    return out;
  }
  out.has_offsets = offsets != nullptr;
  if (lengths != nullptr) values_.ReadLengths(*lengths, fields.Path("lengths"), &out.lengths);
  if (offsets != nullptr) values_.ReadOffsets(*offsets, fields.Path("offsets"), &out.offsets);
  if (const PlanJson* ids = fields.FindRequired("ids")) {
    values_.ReadIds(*ids, fields.Path("ids"), &out.ids);
  }
  if (const PlanJson* weights = fields.Find("weights")) {
    values_.Read(*weights, fields.Path("weights"), &out.weights);
  }
  return out;
}

CaseGradients CaseReader::ReadGradients(const PlanJson& json, const std::string& path) {
  const JsonFields fields(json, path, {"loss", "scale", "values", "sequences"}, failure_);
  CaseGradients out;
  Number(fields, "scale", &out.scale);
  if (fields.Find("loss") != nullptr) {
    out.loss = static_cast<LossKind>(Word(fields, "loss", kLossWords, 0) + 1);
    return out;
  }
  out.loss = LossKind::kGiven;
  if (const PlanJson* given = fields.Find("values")) {
    values_.Read(*given, fields.Path("values"), &out.values);
  }
  if (const PlanJson* given = fields.Find("sequences")) {
    if (!given->is_object()) {
      failure_->Set(fields.Path("sequences"), "expected an object, one array an output");
      return out;
    }
    for (const auto& [name, array] : given->items()) {
      values_.Read(array, absl::StrCat(fields.Path("sequences"), ".", name), &out.sequences[name]);
    }
  }
  return out;
}

void CaseReader::ReadCalls(const PlanJson& json, const std::string& path, bool push,
                           CaseStep* out) {
  const PlanJson list = json.is_array() ? json : PlanJson::array({json});
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = absl::StrCat(path, "[", i, "]");
    std::vector<absl::string_view> known = {"table", "ids"};
    if (push) known.push_back("gradients");
    const JsonFields fields(list[i], at, known, failure_);
    CaseCall call;
    fields.Required("table", &call.table);
    if (const PlanJson* ids = fields.FindRequired("ids")) {
      values_.ReadIds(*ids, fields.Path("ids"), &call.ids);
    }
    if (const PlanJson* rows = push ? fields.FindRequired("gradients") : nullptr) {
      values_.Read(*rows, fields.Path("gradients"), &call.gradients);
    }
    out->calls.push_back(std::move(call));
  }
}

// "weights": ["t", ...] or {"t": "all", "u": [ids]}.
void CaseReader::ReadWeights(const JsonFields& fields,
                             std::vector<std::pair<std::string, CaseRows>>* out) {
  const PlanJson* json = fields.Find("weights");
  if (json == nullptr) return;
  if (json->is_array()) {
    std::vector<std::string> names;
    fields.Optional("weights", &names);
    for (const std::string& name : names) out->emplace_back(name, CaseRows());
    return;
  }
  if (!json->is_object()) {
    failure_->Set(fields.Path("weights"),
                  "expected a list of tables, or an object: table to \"all\" or to a list of ids");
    return;
  }
  for (const auto& [name, ids] : json->items()) {
    CaseRows rows;
    rows.all = ids.is_string() && ids.get<std::string>() == "all";
    if (!rows.all) values_.ReadIds(ids, absl::StrCat(fields.Path("weights"), ".", name), &rows.ids);
    out->emplace_back(name, std::move(rows));
  }
}

void CaseReader::ReadKind(const JsonFields& fields, const std::string& path, CaseStep* step) {
  int kinds = 0;
  const auto found = [&](const char* key, StepKind kind) -> const PlanJson* {
    const PlanJson* const json = fields.Find(key);
    if (json == nullptr) return nullptr;
    step->kind = kind;
    ++kinds;
    return json;
  };
  if (const PlanJson* json = found("batch", StepKind::kBatch)) {
    step->batch = ReadBatch(*json, fields.Path("batch"));
  }
  if (const PlanJson* json = found("push", StepKind::kPush)) {
    ReadCalls(*json, fields.Path("push"), true, step);
  }
  if (const PlanJson* json = found("pull", StepKind::kPull)) {
    ReadCalls(*json, fields.Path("pull"), false, step);
  }
  if (const PlanJson* json = found("lookup", StepKind::kLookup)) {
    ReadCalls(*json, fields.Path("lookup"), false, step);
  }
  if (const PlanJson* json = found("restart", StepKind::kRestart)) {
    ReadJson(*json, fields.Path("restart"), failure_, &step->process);
  }
  if (const PlanJson* json = found("disconnect", StepKind::kDisconnect)) {
    ReadJson(*json, fields.Path("disconnect"), failure_, &step->trainer);
  }
  if (kinds == 1) return;
  failure_->Set(path, "is one of: batch, push, pull, lookup, restart, disconnect");
}

CaseStep CaseReader::ReadStep(const PlanJson& json, const std::string& path) {
  const PlanJson plain = WithUnderscores(json);
  const JsonFields fields(
      plain, path,
      {"batch", "push", "pull", "lookup", "restart", "disconnect", "trainer", "step", "gradients",
       "backward", "lr", "clip_global_norm", "gradient_scale", "row_gradients", "assign", "how",
       "weights", "expect_error"},
      failure_);
  CaseStep step;
  fields.Optional("trainer", &step.trainer);
  ReadKind(fields, path, &step);
  fields.Optional("step", &step.step);
  if (const PlanJson* gradients = fields.Find("gradients")) {
    step.gradients = ReadGradients(*gradients, fields.Path("gradients"));
  }
  step.backward = static_cast<BackwardWay>(Word(fields, "backward", kBackwardWords, 0));
  std::optional<double> rate;
  fields.Optional("lr", &rate);
  if (rate) step.learning_rate = static_cast<float>(*rate);
  Number(fields, "clip_global_norm", &step.clip_global_norm);
  Number(fields, "gradient_scale", &step.gradient_scale);
  fields.Optional("row_gradients", &step.row_gradients);
  fields.Optional("assign", &step.assign);
  step.gently = Word(fields, "how", kHowWords, 0) == 1;
  ReadWeights(fields, &step.weights);
  Expected(fields, &step.expects_error, &step.expect_error);
  if (step.trainer >= 256) failure_->Set(fields.Path("trainer"), "allowed: 0..255");
  return step;
}

void CaseReader::Read(const PlanJson& json, ParityCase* out, absl::Status* tables_status) {
  const PlanJson plain = WithUnderscores(json);
  const JsonFields fields(
      plain, "", {"tables", "features", "options", "steps", "weights", "expect_error", "about"},
      failure_);
  ReadTables(fields, out, tables_status);
  fields.Items("features", false, [&](const PlanJson& item, const std::string& path) {
    out->features.push_back(ReadFeature(item, path));
  });
  if (const PlanJson* options = fields.Find("options")) {
    out->options = ReadOptions(*options, "options");
  }
  fields.Items("steps", false, [&](const PlanJson& item, const std::string& path) {
    out->steps.push_back(ReadStep(item, path));
  });
  ReadWeights(fields, &out->weights);
  Expected(fields, &out->expects_error, &out->expect_error);
}

}  // namespace

absl::StatusOr<ParityCase> ReadCase(absl::string_view text, const std::string& dir,
                                    absl::Status* tables_status) {
  const PlanResult<PlanJson> json = ParseJson(text);
  if (!json.ok()) return absl::InvalidArgumentError(json.error().message);
  FieldFailure failure;
  ParityCase out;
  CaseReader(dir, &failure).Read(json.value(), &out, tables_status);
  if (failure.error) return absl::InvalidArgumentError(failure.error->message);
  return out;
}

}  // namespace hotbed::parity
