#include "serving/http/field_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/field_error.h"

namespace hotbed {
namespace {

constexpr size_t kTextMax = 60;  // of a value or name that an error shows

}  // namespace

bool FieldReader::number_integer(number_integer_t value) {
  return Number(std::nullopt, static_cast<double>(value), absl::StrCat(value));
}

bool FieldReader::number_unsigned(number_unsigned_t value) {
  return Number(value, static_cast<double>(value), absl::StrCat(value));
}

bool FieldReader::number_float(number_float_t value, const string_t& text) {
  return Number(std::nullopt, value, text);
}

bool FieldReader::string(string_t& value) {
  if (TakesValue() && at_.empty() && TakeText(*field_, value)) return true;
  return error_.ok() ? Refuse(absl::StrCat("\"", Cut(value), "\"")) : false;
}

bool FieldReader::start_object(std::size_t) {
  if (in_object_) return Refuse("an object");
  in_object_ = true;
  return true;
}

bool FieldReader::key(string_t& name) {
  for (size_t at = 0; at < fields_.size(); ++at) {
    if (name != fields_[at].name) continue;
    field_ = static_cast<int>(at);
    entries_ = 0;
    BeginField(*field_);
    if (seen_.insert(*field_).second) return true;
    return Fail(FieldError("", NameOf(*field_), "there twice", "once"));
  }
  return Fail(FieldError("", absl::StrCat(around_, Cut(name)), "unknown",
                         absl::StrJoin(fields_, ", ", [](std::string* out, const BodyField& field) {
                           out->append(field.name);
                         })));
}

bool FieldReader::start_array(std::size_t) {
  if (!TakesValue() || at_.size() >= static_cast<size_t>(fields_[*field_].arrays)) {
    return Refuse("an array");
  }
  at_.push_back(0);
  return true;
}

bool FieldReader::end_array() {
  const uint64_t entries = at_.back();
  at_.pop_back();
  if (at_.empty()) return true;
  ++at_.back();
  EndInner(*field_, entries);
  return true;
}

bool FieldReader::parse_error(std::size_t position, const std::string&,
                              const nlohmann::detail::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
  absl::string_view text = error.what();
  text = text.substr(std::min(text.size(), text.find("] ") + 2));
  return Fail(absl::InvalidArgumentError(
      absl::StrCat("the body is no JSON, at byte ", position, ": ", text.substr(0, 200))));
}

absl::Status FieldReader::Finish(std::initializer_list<int> required) const {
  if (!error_.ok()) return error_;
  for (const int field : required) {
    if (seen_.contains(field)) continue;
    return FieldError("", NameOf(field), "missing", fields_[field].allowed);
  }
  return absl::OkStatus();
}

bool FieldReader::Fail(absl::Status error) {
  error_ = std::move(error);
  return false;
}

std::string FieldReader::Cut(absl::string_view value) {
  return absl::StrCat(absl::CEscape(value.substr(0, kTextMax)),
                      value.size() > kTextMax ? "..." : "");
}

std::optional<int> FieldReader::PlaceOf(absl::string_view value,
                                        std::initializer_list<const char*> names) {
  const auto found = std::find(names.begin(), names.end(), value);
  if (found == names.end()) return std::nullopt;
  return static_cast<int>(found - names.begin());
}

std::string FieldReader::Here() const {
  if (!TakesValue()) return "the body";
  std::string here = NameOf(*field_);
  for (const uint64_t at : at_) absl::StrAppend(&here, "[", at, "]");
  return here;
}

bool FieldReader::Refuse(absl::string_view value) {
  return Fail(FieldError("", Here(), value, TakesValue() ? fields_[*field_].allowed : "an object"));
}

bool FieldReader::Number(std::optional<uint64_t> integer, double number, absl::string_view text) {
  if (!TakesValue() || at_.size() != static_cast<size_t>(fields_[*field_].arrays)) {
    return Refuse(Cut(text));
  }
  if (!at_.empty() && entries_ >= entries_max_) {
    return Fail(FieldError("", NameOf(*field_),
                           absl::StrCat("longer than ", entries_max_, " entries"),
                           absl::StrCat("0..", entries_max_, " entries")));
  }
  if (!TakeNumber({*field_, integer, number})) return Refuse(Cut(text));
  ++entries_;
  if (!at_.empty()) ++at_.back();
  return true;
}

std::optional<std::string> FieldReader::Base64Of(int field, absl::string_view text,
                                                 size_t value_bytes) {
  const std::string name = NameOf(field);
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes) || bytes.size() % value_bytes != 0) {
    Fail(FieldError("", name, absl::StrCat("\"", Cut(text), "\""),
                    absl::StrCat("base64 of ", value_bytes, " bytes per ",
                                 value_bytes == sizeof(uint64_t) ? "id" : "number")));
    return std::nullopt;
  }
  if (bytes.size() / value_bytes > entries_max_) {
    Fail(FieldError("", name, absl::StrCat(bytes.size() / value_bytes, " entries long"),
                    absl::StrCat("0..", entries_max_, " entries")));
    return std::nullopt;
  }
  return bytes;
}

}  // namespace hotbed
