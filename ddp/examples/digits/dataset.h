#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace digits {

inline constexpr int kPixels = 64;  // 8 x 8, each 0..16
inline constexpr int kClasses = 10;

// Images of handwritten digits, one after the other, and what they show.
struct Dataset {
  std::vector<unsigned char> pixels;
  std::vector<unsigned char> labels;
  size_t size() const { return labels.size(); }
};

struct Split {
  Dataset train, test;
};

// The file that the build put into this program (DATA_LICENCE.md).
std::string_view embedded_csv();

// A line an image: 64 pixels and the label, separated by commas. Every fifth image is for testing:
// the file goes from writer to writer, so both parts have all of them. *problem says what is wrong
// and in which line; it stays empty otherwise.
Split read_csv(std::string_view text, std::string* problem);

}  // namespace digits
