// Reads a JSON object of known fields as the JSON parser meets its parts: no tree is built, so ids
// need 8 bytes each. For sources that know nlohmann's parser. Used once.
#ifndef HOTBED_SERVING_HTTP_FIELD_READER_H_
#define HOTBED_SERVING_HTTP_FIELD_READER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "serving/http/body_field.h"

namespace hotbed {

class FieldReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  // `entries_max` is the most numbers of a field of arrays; errors name fields behind `around`.
  FieldReader(absl::Span<const BodyField> fields, uint64_t entries_max, std::string around = "")
      : fields_(fields), entries_max_(entries_max), around_(std::move(around)) {}

  bool null() final { return Refuse("null"); }
  bool boolean(bool value) final {
    return (TakesValue() && at_.empty() && TakeBool(*field_, value)) ||
           Refuse(value ? "true" : "false");
  }
  bool binary(binary_t&) final { return Refuse("binary"); }
  bool number_integer(number_integer_t value) final;
  bool number_unsigned(number_unsigned_t value) final;
  bool number_float(number_float_t value, const string_t& text) final;
  bool string(string_t& value) final;
  bool start_object(std::size_t) final;
  bool key(string_t& name) final;
  bool end_object() final { return true; }
  bool start_array(std::size_t) final;
  bool end_array() final;
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) final;

 protected:
  // Where a number stands, and what it is.
  struct Value {
    int field = 0;
    std::optional<uint64_t> integer;  // nothing: it is negative, or no integer
    double number = 0;

    bool Within(uint64_t least, uint64_t most) const {
      return integer.has_value() && *integer >= least && *integer <= most;
    }
  };
  // False: the value is refused, and Refuse names it. They are called where `arrays` of the field
  // allows it: numbers in as many arrays, strings in none.
  virtual bool TakeNumber(const Value& value) = 0;
  virtual bool TakeText(int field, const std::string& text) = 0;
  virtual bool TakeBool(int /*field*/, bool /*value*/) { return false; }
  // Before the value of a field.
  virtual void BeginField(int /*field*/) {}
  // After an inner array of the field, which had `entries` numbers.
  virtual void EndInner(int /*field*/, uint64_t /*entries*/) {}

  // OK, or the first error. InvalidArgument: a field of `required` is missing.
  absl::Status Finish(std::initializer_list<int> required) const;
  bool Fail(absl::Status error);
  // `value` as an error shows it.
  static std::string Cut(absl::string_view value);
  // Base64 of little-endian values into `values`.
  template <typename T>
  bool TakeBase64(int field, absl::string_view text, std::vector<T>* values) {
    const std::optional<std::string> bytes = Base64Of(field, text, sizeof(T));
    if (!bytes.has_value()) return false;
    values->resize(bytes->size() / sizeof(T));
    if (!bytes->empty()) __builtin_memcpy(values->data(), bytes->data(), bytes->size());
    return true;
  }
  // The place of `value` among `names`; nothing: it is none of them.
  static std::optional<int> PlaceOf(absl::string_view value,
                                    std::initializer_list<const char*> names);

 private:
  bool TakesValue() const { return in_object_ && field_.has_value(); }
  std::string Here() const;
  std::string NameOf(int field) const { return around_ + fields_[field].name; }
  bool Refuse(absl::string_view value);
  bool Number(std::optional<uint64_t> integer, double number, absl::string_view text);
  std::optional<std::string> Base64Of(int field, absl::string_view text, size_t value_bytes);

  const absl::Span<const BodyField> fields_;
  const uint64_t entries_max_;
  const std::string around_;
  absl::Status error_;
  std::set<int> seen_;
  std::optional<int> field_;  // whose value comes
  bool in_object_ = false;
  std::vector<uint64_t> at_;  // the place in each array around
  uint64_t entries_ = 0;      // numbers of the field so far
};

}  // namespace hotbed

#endif  // HOTBED_SERVING_HTTP_FIELD_READER_H_
