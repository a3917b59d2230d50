#include "ddp/examples/digits/dataset.h"

#include <fmt/format.h>

#include <charconv>

// DIGITS_CSV is the name of a file, from CMakeLists.txt.
asm(".pushsection .rodata\n"
    ".hidden digits_csv_begin\n.global digits_csv_begin\ndigits_csv_begin:\n.incbin \"" DIGITS_CSV
    "\"\n"
    ".hidden digits_csv_end\n.global digits_csv_end\ndigits_csv_end:\n.byte 0\n"
    ".popsection\n");
extern "C" __attribute__((visibility("hidden"))) const char digits_csv_begin[];
extern "C" __attribute__((visibility("hidden"))) const char digits_csv_end[];

namespace digits {
namespace {

constexpr int kMostInk = 16;
constexpr size_t kTestEvery = 5;

// Takes a number of at most `most` and the comma after it, if any, off the line.
bool take_number(std::string_view* line, int most, unsigned char* number) {
  int value = -1;
  const auto [end, code] = std::from_chars(line->data(), line->data() + line->size(), value);
  if (code != std::errc() || value < 0 || value > most) return false;
  *number = static_cast<unsigned char>(value);
  line->remove_prefix(static_cast<size_t>(end - line->data()));
  if (!line->empty() && line->front() != ',') return false;
  if (!line->empty()) line->remove_prefix(1);
  return true;
}

bool take_image(std::string_view line, Dataset* set) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  unsigned char number = 0;
  for (int pixel = 0; pixel < kPixels; pixel++) {
    if (!take_number(&line, kMostInk, &number)) return false;
    set->pixels.push_back(number);
  }
  if (!take_number(&line, kClasses - 1, &number) || !line.empty()) return false;
  set->labels.push_back(number);
  return true;
}

}  // namespace

std::string_view embedded_csv() {
  return {digits_csv_begin, static_cast<size_t>(digits_csv_end - digits_csv_begin)};
}

Split read_csv(std::string_view text, std::string* problem) {
  Split split;
  for (size_t number = 0; !text.empty(); number++) {
    const size_t end = std::min(text.find('\n'), text.size());
    Dataset& set = number % kTestEvery == kTestEvery - 1 ? split.test : split.train;
    if (!take_image(text.substr(0, end), &set)) {
      *problem = fmt::format("line {}: is not {} pixels of 0..{} and a label of 0..{}", number + 1,
                             kPixels, kMostInk, kClasses - 1);
      return {};
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (split.test.size() == 0) *problem = fmt::format("has less than {} images", kTestEvery);
  return split;
}

}  // namespace digits
