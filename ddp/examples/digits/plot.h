#pragma once

#include <string>
#include <vector>

namespace digits {

// A picture of losses[i] at step i + 1, as SVG: axes with round numbers, one polyline. Numbers that
// are not finite are drawn at the top. losses must not be empty.
std::string loss_plot(const std::vector<double>& losses, const std::string& title);

}  // namespace digits
