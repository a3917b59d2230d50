// A writer of our own: one polyline with two axes is less than any plotting library asks for.
#include "ddp/examples/digits/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace digits {
namespace {

constexpr double kWidth = 720, kHeight = 420;
constexpr double kLeft = 64, kRight = 20, kTop = 44, kBottom = 50;
constexpr int kTicks = 6;

// The distance of ticks: 1, 2 or 5 times a power of ten, at most kTicks of them up to `most`.
double tick_step(double most) {
  const double rough = most / kTicks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

// From numbers to the picture's coordinates; the y axis points up.
struct Scale {
  double most_x, most_y;
  double x(double value) const { return kLeft + value / most_x * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - value / most_y * (kHeight - kTop - kBottom);
  }
};

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') safe += "&amp;";
    if (c == '<') safe += "&lt;";
    if (c != '&' && c != '<') safe += c;
  }
  return safe;
}

void draw_axes(const Scale& scale, std::string* svg) {
  auto out = std::back_inserter(*svg);
  const double bottom = scale.y(0), right = scale.x(scale.most_x);
  const double step_y = tick_step(scale.most_y), step_x = std::max(1.0, tick_step(scale.most_x));
  for (double value = 0; value <= scale.most_y * (1 + 1e-9); value += step_y) {
    fmt::format_to(out, "<path class=\"grid\" d=\"M{:.1f} {:.2f}H{:.1f}\"/>\n", kLeft,
                   scale.y(value), right);
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.2f}\" text-anchor=\"end\">{:.6g}</text>\n",
                   kLeft - 8, scale.y(value) + 4, value);
  }
  for (double value = 0; value <= scale.most_x * (1 + 1e-9); value += step_x) {
    fmt::format_to(out, "<path class=\"axis\" d=\"M{:.2f} {:.1f}v5\"/>\n", scale.x(value), bottom);
    fmt::format_to(out, "<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.6g}</text>\n",
                   scale.x(value), bottom + 19, value);
  }
  fmt::format_to(out, "<path class=\"axis\" d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\"/>\n", kLeft, kTop,
                 bottom, right);
  fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">step</text>\n",
                 (kLeft + right) / 2, kHeight - 10);
  fmt::format_to(out,
                 "<text x=\"16\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 16 "
                 "{:.1f})\">loss</text>\n",
                 (kTop + bottom) / 2, (kTop + bottom) / 2);
}

}  // namespace

std::string loss_plot(const std::vector<double>& losses, const std::string& title) {
  double most = 0;
  for (const double loss : losses) most = std::isfinite(loss) ? std::max(most, loss) : most;
  const Scale scale{static_cast<double>(losses.size()), most > 0 ? most * 1.02 : 1};
  std::string svg;
  auto out = std::back_inserter(svg);
  fmt::format_to(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 "
      "0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n",
      kWidth, kHeight);
  svg +=
      "<style>.axis{stroke:#333;fill:none}.grid{stroke:#ddd}.loss{stroke:#4477aa;fill:none;"
      "stroke-width:1.5;stroke-linejoin:round}</style>\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n";
  fmt::format_to(out, "<text x=\"{:.1f}\" y=\"26\" font-size=\"15\">{}</text>\n", kLeft,
                 escaped(title));
  draw_axes(scale, &svg);
  svg += "<polyline class=\"loss\" points=\"";
  for (size_t i = 0; i < losses.size(); i++) {
    const double loss = std::isfinite(losses[i]) ? losses[i] : scale.most_y;
    fmt::format_to(out, "{}{:.2f},{:.2f}", i == 0 ? "" : " ", scale.x(static_cast<double>(i + 1)),
                   scale.y(loss));
  }
  svg += "\"/>\n</svg>\n";
  return svg;
}

}  // namespace digits
