#include "tools/uni_plan/svg.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "tools/uni_plan/schedule.h"
#include "tools/uni_plan/text.h"

namespace unisono::uni_plan {
namespace {

constexpr int32_t kMaxLabelledRanks = 16;
constexpr std::array kColours = {"#4477aa", "#ee6677", "#228833", "#aa7711", "#66ccee", "#aa3377"};
constexpr int32_t kLeft = 150, kTop = 78;

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string range(char buffer, const Chunk& chunk) {
  return chunk.blocks == 1
             ? fmt::format("{}{}", buffer, chunk.first)
             : fmt::format("{}{}-{}", buffer, chunk.first, chunk.first + chunk.blocks - 1);
}

std::string place(const Chunk& chunk) {
  return range(chunk.buffer == Buffer::kInput    ? 'i'
               : chunk.buffer == Buffer::kOutput ? 'o'
                                                 : 's',
               chunk);
}

// "r3+i2:o2": what rank 3 sent and input block 2 make output block 2.
std::string label(const Plan& plan, const Step& step) {
  std::string text;
  for (const Operand& source : step.sources) {
    if (!text.empty()) text += '+';
    text += source.receive
                ? fmt::format("r{}", plan.channels[static_cast<size_t>(source.channel)].writer)
                : place(source.chunk);
  }
  if (step.has_destination) text += ":" + place(step.destination);
  return text;
}

class Drawing {
 public:
  Drawing(const std::vector<Plan>& plans, const Schedule& schedule)
      : plans_(plans), schedule_(schedule) {
    labelled_ = static_cast<int32_t>(plans.size()) <= kMaxLabelledRanks;
    row_ = labelled_ ? 24 : 12;
    size_t longest = 4;
    for (const Plan& plan : plans)
      for (const Lane& lane : plan.lanes)
        for (const Step& step : lane.steps) longest = std::max(longest, label(plan, step).size());
    box_ = labelled_ ? 14 + 7 * static_cast<int32_t>(std::min(longest, kLongestLabel)) : 14;
    gap_ = labelled_ ? 36 : 14;
    int32_t y = kTop;
    for (const Plan& plan : plans) {
      y += row_ / 2;
      band_.push_back(y);
      std::vector<int32_t>& rows = y_.emplace_back();
      for (const Lane& lane : plan.lanes) {
        rows.push_back(y);
        if (!lane.steps.empty()) y += row_;
      }
      if (y == band_.back()) y += row_;  // a rank that has nothing to do is still there
    }
    band_.push_back(y + row_ / 2);
    width_ = kLeft + schedule.length * (box_ + gap_) + 20;
    width_ = std::max(width_, 640);
  }

  std::string svg() {
    const int32_t height = band_.back() + 12;
    fmt::format_to(out(),
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "
                   "xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 "
                   "0 {0} {1}\" font-family=\"sans-serif\" font-size=\"11\">\n",
                   width_, height);
    text_ +=
        "<defs><marker id=\"head\" markerWidth=\"7\" markerHeight=\"6\" refX=\"6\" refY=\"3\" "
        "orient=\"auto\"><path d=\"M0,0 L7,3 L0,6 z\" fill=\"#333333\"/></marker></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    head();
    bands();
    boxes();
    for (const Arrow& arrow : schedule_.arrows) draw(arrow);
    text_ += "</svg>\n";
    return std::move(text_);
  }

 private:
  static constexpr size_t kLongestLabel = 18;

  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }
  static const char* colour(size_t lane) { return kColours[lane % kColours.size()]; }
  int32_t x_of(const StepPlace& step) const {
    const int32_t time =
        schedule_.start[static_cast<size_t>(step.rank)][static_cast<size_t>(step.lane)]
                       [static_cast<size_t>(step.step)];
    return kLeft + time * (box_ + gap_);
  }
  int32_t y_of(const StepPlace& step) const {
    return y_[static_cast<size_t>(step.rank)][static_cast<size_t>(step.lane)];
  }

  void head() {
    const Plan& any = plans_.front();
    fmt::format_to(out(), "<text x=\"12\" y=\"24\" font-size=\"16\">{} {}, {} ranks{}</text>\n",
                   escaped(any.algorithm), collective_name(any.collective), any.ranks,
                   has_root(any.collective) ? fmt::format(", root {}", any.root) : "");
    fmt::format_to(out(),
                   "<text x=\"12\" y=\"42\" fill=\"#555555\">one round: {} steps deep, {} "
                   "messages; a box is a step, i: input, o: output, s: scratch, r: received from "
                   "rank</text>\n",
                   schedule_.length, schedule_.arrows.size());
    int32_t x = 12;
    for (size_t lane = 0; lane < any.lanes.size(); ++lane) {
      fmt::format_to(out(),
                     "<rect x=\"{}\" y=\"52\" width=\"12\" height=\"12\" fill=\"{}\"/><text "
                     "x=\"{}\" y=\"62\">{}</text>\n",
                     x, colour(lane), x + 16, escaped(any.lanes[lane].name));
      x += 34 + 7 * static_cast<int32_t>(any.lanes[lane].name.size());
    }
  }

  void bands() {
    for (size_t r = 0; r < plans_.size(); ++r) {
      const int32_t top = band_[r] - row_ / 4, height = band_[r + 1] - band_[r] - row_ / 4;
      fmt::format_to(
          out(), "<rect class=\"rank\" x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
          top, width_, height, r % 2 == 0 ? "#f2f2f2" : "#fafafa");
      fmt::format_to(out(), "<text x=\"12\" y=\"{}\"{}>rank {}</text>\n", band_[r] + row_ * 3 / 5,
                     labelled_ ? "" : " font-size=\"9\"", r);
      if (!labelled_) continue;
      for (size_t lane = 0; lane < plans_[r].lanes.size(); ++lane)
        if (!plans_[r].lanes[lane].steps.empty())
          fmt::format_to(out(),
                         "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#777777\" "
                         "font-size=\"9\">{}</text>\n",
                         kLeft - 8, y_[r][lane] + row_ * 3 / 5,
                         escaped(plans_[r].lanes[lane].name));
    }
  }

  void boxes() {
    for (const Plan& plan : plans_) {
      for (size_t lane = 0; lane < plan.lanes.size(); ++lane) {
        for (size_t s = 0; s < plan.lanes[lane].steps.size(); ++s) {
          const Step& step = plan.lanes[lane].steps[s];
          const StepPlace where{plan.rank, static_cast<int32_t>(lane), static_cast<int32_t>(s)};
          const int32_t x = x_of(where), y = y_of(where);
          fmt::format_to(out(),
                         "<g class=\"step\"><title>rank {} {} {}: {}</title><rect x=\"{}\" "
                         "y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\"/>",
                         plan.rank, escaped(plan.lanes[lane].name), s,
                         escaped(step_text(plan, step)), x, y + 2, box_, row_ - 6, colour(lane));
          if (labelled_) {
            std::string words = label(plan, step);
            if (words.size() > kLongestLabel) words = words.substr(0, kLongestLabel - 2) + "..";
            fmt::format_to(out(),
                           "<text x=\"{}\" y=\"{}\" fill=\"#ffffff\" text-anchor=\"middle\">{}"
                           "</text>",
                           x + box_ / 2, y + row_ / 2 + 3, words);
          }
          text_ += "</g>\n";
        }
      }
    }
  }

  void draw(const Arrow& arrow) {
    const int32_t x1 = x_of(arrow.from) + box_, x2 = x_of(arrow.to);
    const int32_t y1 = y_of(arrow.from) + row_ / 2 - 1, y2 = y_of(arrow.to) + row_ / 2 - 1;
    fmt::format_to(
        out(),
        "<path class=\"message\" d=\"M{},{} C{},{} {},{} {},{}\" fill=\"none\" "
        "stroke=\"#333333\" stroke-opacity=\"0.7\" marker-end=\"url(#head)\"><title>rank "
        "{} to rank {}</title></path>\n",
        x1, y1, x1 + gap_ / 2, y1, x2 - gap_ / 2, y2, x2, y2, arrow.from.rank, arrow.to.rank);
  }

  const std::vector<Plan>& plans_;
  const Schedule& schedule_;
  std::vector<int32_t> band_;            // by rank: its top; one more
  std::vector<std::vector<int32_t>> y_;  // by rank, lane
  bool labelled_ = true;
  int32_t row_ = 0, box_ = 0, gap_ = 0, width_ = 0;
  std::string text_;
};

}  // namespace

Result<std::string> to_svg(const std::vector<Plan>& plans) {
  size_t steps = 0;
  for (const Plan& plan : plans) steps += plan.order.size();
  if (plans.size() > static_cast<size_t>(kMaxDrawnRanks) || steps > kMaxDrawnSteps)
    return error(Code::kInvalidArgument,
                 "{} ranks with {} steps: nobody can read such a picture; at most {} ranks and {} "
                 "steps are drawn",
                 plans.size(), steps, kMaxDrawnRanks, kMaxDrawnSteps);
  TRY_ASSIGN(const Schedule schedule, schedule_plans(plans));
  return Drawing(plans, schedule).svg();
}

}  // namespace unisono::uni_plan
