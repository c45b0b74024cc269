#include "planner/json/parse_json.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace hotbed {
namespace {

// Builds the tree by hand: nlohmann's own builder keeps the last of equal keys, searches an
// object's keys one by one, and knows no depth limit.
class TreeBuilder {
 public:
  using number_integer_t = PlanJson::number_integer_t;
  using number_unsigned_t = PlanJson::number_unsigned_t;
  using number_float_t = PlanJson::number_float_t;
  using string_t = PlanJson::string_t;
  using binary_t = PlanJson::binary_t;

  bool null() { return Add(nullptr) != nullptr; }
  bool boolean(bool value) { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) { return Add(value) != nullptr; }
  bool string(string_t& value) { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) { return false; }  // JSON text has none
  bool start_object(size_t) { return Open(PlanJson::object()); }
  bool start_array(size_t) { return Open(PlanJson::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }

  bool key(string_t& value) {
    Level& level = levels_.back();
    if (!level.keys.insert(value).second) {
      return Fail(absl::StrCat("key '", value, "' stands twice in ", Path()));
    }
    level.key = std::move(value);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // nlohmann's text begins with its own number of the error, as in "[json.exception...] ".
    const std::string text = error.what();
    const size_t skip = text.find("] ");
    return Fail(absl::StrCat("not valid JSON at byte ", position, ": ",
                             skip == std::string::npos ? text : text.substr(skip + 2)));
  }

  const std::optional<std::string>& failure() const { return failure_; }
  PlanJson& root() { return root_; }

 private:
  struct Level {
    PlanJson* node;
    std::string key;
    absl::flat_hash_set<std::string> keys;
  };

  bool Fail(std::string message) {
    failure_ = std::move(message);
    return false;
  }

  // The object that is being read, as in tables[3]; its own place in an array is counted already.
  std::string Path() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.node->is_array()) {
        absl::StrAppend(&path, "[", level.node->size() - 1, "]");
      } else if (&level != &levels_.back()) {
        absl::StrAppend(&path, path.empty() ? "" : ".", level.key);
      }
    }
    return path.empty() ? "the outermost object" : path;
  }

  template <typename T>
  PlanJson* Add(T&& value) {
    if (levels_.empty()) {
      root_ = std::forward<T>(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.node->is_array()) {
      auto& items = level.node->get_ref<PlanJson::array_t&>();
      items.emplace_back(std::forward<T>(value));
      return &items.back();
    }
    // The vector below the ordered map: its own emplace would search all keys.
    PlanJson::object_t::Container& members = level.node->get_ref<PlanJson::object_t&>();
    members.emplace_back(level.key, std::forward<T>(value));
    return &members.back().second;
  }

  bool Open(PlanJson container) {
    if (levels_.size() >= kJsonDepthMax) {
      return Fail(absl::StrCat("nested deeper than ", kJsonDepthMax, " levels"));
    }
    levels_.push_back({Add(std::move(container)), "", {}});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  PlanJson root_;
  std::vector<Level> levels_;
  std::optional<std::string> failure_;
};

}  // namespace

PlanResult<PlanJson> ParseJson(absl::string_view text) {
  TreeBuilder builder;
  const bool ok = PlanJson::sax_parse(text.begin(), text.end(), &builder);
  if (!ok) {
    return PlanError{PlanErrorKind::kInput, builder.failure().value_or("not valid JSON")};
  }
  return std::move(builder.root());
}

}  // namespace hotbed
