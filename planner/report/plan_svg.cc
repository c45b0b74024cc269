#include "planner/report/plan_svg.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/html_escape.h"
#include "planner/report/text_table.h"

namespace hotbed {
namespace {

// Ten colours that stay apart for most eyes (Tableau 10), and one for the rest.
constexpr const char* kColours[] = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1",
                                    "#edc948", "#76b7b2", "#9c755f", "#ff9da7", "#3b3b58"};
constexpr char kRest[] = "#bab0ac";
constexpr double kTop = 56;
constexpr double kHeight = 320;
constexpr double kLeft = 84;
constexpr double kLegend = 230;

std::string Escaped(absl::string_view text, size_t width) {
  return HtmlEscape(Fitted(text, width));
}

// Bytes of each table on each server of one plan.
struct Stacks {
  std::vector<std::vector<std::pair<std::string, uint64_t>>> of_server;
  absl::flat_hash_map<std::string, size_t> server_index;
};

Stacks StacksOf(const PlannerOutput& plan) {
  Stacks stacks;
  stacks.of_server.resize(plan.servers.size());
  for (size_t s = 0; s < plan.servers.size(); ++s) {
    stacks.server_index.emplace(plan.servers[s].name, s);
  }
  for (const PlacedTable& table : plan.tables) {
    for (const PlacedRange& range : table.ranges) {
      auto& stack = stacks.of_server[range.server];
      if (stack.empty() || stack.back().first != table.name) stack.emplace_back(table.name, 0);
      stack.back().second += range.bytes;
    }
  }
  return stacks;
}

uint64_t Total(const std::vector<std::pair<std::string, uint64_t>>& stack) {
  uint64_t sum = 0;
  for (const auto& [table, bytes] : stack) sum += bytes;
  return sum;
}

// Colours of the largest tables over all plans, in the order of the first plan that has them.
class Palette {
 public:
  explicit Palette(const std::vector<const PlannerOutput*>& plans) {
    std::vector<std::pair<std::string, uint64_t>> sizes;
    absl::flat_hash_map<std::string, size_t> index;
    for (const PlannerOutput* plan : plans) {
      for (const PlacedTable& table : plan->tables) {
        uint64_t bytes = 0;
        for (const PlacedRange& range : table.ranges) bytes += range.bytes;
        const auto [at, fresh] = index.emplace(table.name, sizes.size());
        if (fresh) sizes.emplace_back(table.name, 0);
        sizes[at->second].second = std::max(sizes[at->second].second, bytes);
      }
    }
    all_ = sizes.size();
    std::stable_sort(sizes.begin(), sizes.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (size_t i = 0; i < std::min(sizes.size(), std::size(kColours)); ++i) {
      colours_.emplace(sizes[i].first, i);
      names_.push_back(sizes[i].first);
    }
  }

  // A place in kColours, or the number of them for the rest.
  size_t Of(const std::string& table) const {
    const auto found = colours_.find(table);
    return found == colours_.end() ? std::size(kColours) : found->second;
  }

  std::string Legend(double left) const {
    std::string out;
    double y = kTop;
    const auto line = [&](const char* colour, const std::string& text) {
      absl::StrAppendFormat(&out,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                            "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                            left, y, colour, left + 18, y + 10.5, text);
      y += 20;
    };
    for (size_t i = 0; i < names_.size(); ++i) line(kColours[i], Escaped(names_[i], 26));
    if (all_ > names_.size()) line(kRest, absl::StrCat(all_ - names_.size(), " smaller tables"));
    return out;
  }

 private:
  absl::flat_hash_map<std::string, size_t> colours_;
  std::vector<std::string> names_;
  size_t all_ = 0;
};

class Picture {
 public:
  Picture(Palette palette, uint64_t most, size_t servers, size_t bars_per_server)
      : palette_(std::move(palette)), most_(std::max<uint64_t>(1, most)) {
    // Many servers get thin bars, few ones no broad ones.
    slot_ = std::clamp(900.0 / static_cast<double>(servers), 4.0, 90.0);
    bar_ = slot_ * 0.8 / static_cast<double>(bars_per_server);
    width_ = kLeft + slot_ * static_cast<double>(servers) + 24 + kLegend;
  }

  void AddBar(size_t server, size_t bar, const std::string& title, double opacity,
              const std::vector<std::pair<std::string, uint64_t>>& stack) {
    std::vector<uint64_t> parts(std::size(kColours) + 1);
    for (const auto& [table, bytes] : stack) parts[palette_.Of(table)] += bytes;
    const double x = Left(server) + bar_ * static_cast<double>(bar);
    double y = kTop + kHeight;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] == 0) continue;
      const double height = Scaled(parts[i]);
      y -= height;
      absl::StrAppendFormat(
          &body_,
          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
          "fill-opacity=\"%.2f\" stroke=\"#fff\" stroke-width=\"%.1f\"><title>%s, %s</title>"
          "</rect>\n",
          x, y, bar_, height, i < std::size(kColours) ? kColours[i] : kRest, opacity,
          bar_ > 8 ? 0.8 : 0.0, title, BytesText(parts[i]));
    }
  }

  // Answers whether the limit is within the scale.
  bool AddLimit(size_t server, uint64_t limit) {
    if (limit == 0 || limit > most_) return false;
    const double y = kTop + kHeight - Scaled(limit);
    absl::StrAppendFormat(&body_,
                          "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%.2f\" y2=\"%.2f\" stroke=\"#c00\" "
                          "stroke-width=\"2\" stroke-dasharray=\"4 2\"/>\n",
                          Left(server) - 2, Left(server) + slot_ * 0.8 + 2, y, y);
    return true;
  }

  // With many servers only every n-th has its name below, so that names do not overlap.
  void AddName(size_t server, const std::string& name, bool gone = false) {
    const double x = Left(server) + slot_ * 0.4;
    const double y = kTop + kHeight + 14;
    const char* const mark = gone ? " (gone)" : "";
    if (IsBroad()) {
      absl::StrAppendFormat(&body_,
                            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>"
                            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                            x, y, Escaped(name, static_cast<size_t>(slot_ / 6.5)), x, y + 15, mark);
    } else if (server % static_cast<size_t>(16 / slot_ + 1) == 0 || gone) {
      absl::StrAppendFormat(&body_,
                            "<text transform=\"translate(%.1f %.1f) rotate(-60)\" "
                            "text-anchor=\"end\">%s%s</text>\n",
                            x + 4, y - 4, Escaped(name, 14), mark);
    }
  }

  std::string ToSvg(const std::string& title, const std::string& subtitle) const {
    const double height = kTop + kHeight + (IsBroad() ? 44 : 110);
    const double width = std::max(width_, 560.0);
    std::string out = absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
        "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n"
        "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
        "<text x=\"16\" y=\"22\" font-size=\"15\" font-weight=\"bold\">%s</text>\n"
        "<text x=\"16\" y=\"40\" fill=\"#555\">%s</text>\n",
        width, height, width, height, title, subtitle);
    const double right = width_ - kLegend - 16;
    for (int i = 0; i <= 4; ++i) {
      const double y = kTop + kHeight * (4 - i) / 4;
      absl::StrAppendFormat(&out,
                            "<line x1=\"%.0f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" "
                            "stroke=\"#ddd\"/><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\" "
                            "fill=\"#555\">%s</text>\n",
                            kLeft - 4, right, y, y, kLeft - 10, y + 4,
                            BytesText(most_ / 4 * static_cast<uint64_t>(i) +
                                      most_ % 4 * static_cast<uint64_t>(i) / 4));
    }
    return absl::StrCat(out, body_, palette_.Legend(width_ - kLegend), "</svg>\n");
  }

 private:
  // Whether a name fits below a bar.
  bool IsBroad() const { return slot_ > 60; }
  double Left(size_t server) const { return kLeft + slot_ * (static_cast<double>(server) + 0.1); }
  double Scaled(uint64_t bytes) const {
    return kHeight * static_cast<double>(bytes) / static_cast<double>(most_);
  }

  const Palette palette_;
  const uint64_t most_;
  double slot_ = 0;
  double bar_ = 0;
  double width_ = 0;
  std::string body_;
};

uint64_t Most(const Stacks& stacks) {
  uint64_t most = 0;
  for (const auto& stack : stacks.of_server) most = std::max(most, Total(stack));
  return most;
}

}  // namespace

std::string PlanSvg(const PlannerOutput& plan, const PlannerInput* input) {
  const Stacks stacks = StacksOf(plan);
  const uint64_t fullest = Most(stacks);
  // A limit that is near enough is worth a smaller scale.
  uint64_t most = fullest;
  for (size_t s = 0; input != nullptr && s < input->topology.servers.size(); ++s) {
    const uint64_t limit = input->topology.servers[s].host_bytes;
    if (limit / 2 <= fullest) most = std::max(most, limit);
  }
  Picture picture(Palette({&plan}), most, plan.servers.size(), 1);
  bool limits = false;
  for (size_t s = 0; s < plan.servers.size(); ++s) {
    const PlacedServer& server = plan.servers[s];
    picture.AddBar(s, 0, Escaped(server.name, 40), 1, stacks.of_server[s]);
    if (input != nullptr && s < input->topology.servers.size()) {
      limits |= picture.AddLimit(s, input->topology.servers[s].host_bytes);
    }
    picture.AddName(s, server.name);
  }
  return picture.ToSvg(
      absl::StrCat("Plan by strategy ", Escaped(plan.strategy, 40)),
      absl::StrCat("Bytes on ", plan.servers.size(), " servers by table, replicas and backups too",
                   limits ? "; dashed: host_bytes" : ""));
}

std::string PlanDiffSvg(const PlannerOutput& before, const PlannerOutput& after) {
  const Stacks old_stacks = StacksOf(before);
  const Stacks new_stacks = StacksOf(after);
  std::vector<std::string> names;
  for (const PlacedServer& server : after.servers) names.push_back(server.name);
  for (const PlacedServer& server : before.servers) {
    if (!new_stacks.server_index.contains(server.name)) names.push_back(server.name);
  }
  Picture picture(Palette({&after, &before}), std::max(Most(old_stacks), Most(new_stacks)),
                  names.size(), 2);
  for (size_t s = 0; s < names.size(); ++s) {
    const auto was = old_stacks.server_index.find(names[s]);
    const auto is = new_stacks.server_index.find(names[s]);
    const std::string name = Escaped(names[s], 40);
    if (was != old_stacks.server_index.end()) {
      picture.AddBar(s, 0, name + " before", 0.5, old_stacks.of_server[was->second]);
    }
    if (is != new_stacks.server_index.end()) {
      picture.AddBar(s, 1, name + " after", 1, new_stacks.of_server[is->second]);
    }
    picture.AddName(s, names[s], is == new_stacks.server_index.end());
  }
  return picture.ToSvg(
      absl::StrCat("From ", Escaped(before.strategy, 30), " to ", Escaped(after.strategy, 30)),
      "Bytes by table; each server's left, paler bar is before, the right one after");
}

}  // namespace hotbed
