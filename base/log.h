// Logging: levels error, warn, info, debug, trace (UNISONO_LOG_LEVEL, default warn), to standard
// error or UNISONO_LOG_FILE.
//
// spdlog does the work, behind this header so that its own is compiled once. Thread-safe. A message
// that the level hides is not formatted.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <string_view>

namespace unisono {

enum class LogLevel : int { kError = 0, kWarn, kInfo, kDebug, kTrace };

namespace log_internal {
extern std::atomic<int> level;
void write(LogLevel level, std::string_view text);
}  // namespace log_internal

// From the environment's words; unknown words leave the level alone and return false.
bool set_log_level(std::string_view word);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (static_cast<int>(level) > log_internal::level.load(std::memory_order_relaxed)) return;
  log_internal::write(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kError, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}

}  // namespace unisono
