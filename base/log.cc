#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "base/config.h"

namespace unisono {
namespace log_internal {

std::atomic<int> level{static_cast<int>(LogLevel::kWarn)};

namespace {
constexpr std::array<const char*, 5> kWords = {"error", "warn", "info", "debug", "trace"};
constexpr std::array<spdlog::level::level_enum, 5> kSpdlogLevels = {
    spdlog::level::err, spdlog::level::warn, spdlog::level::info, spdlog::level::debug,
    spdlog::level::trace};

std::shared_ptr<spdlog::logger> make_logger() {
  const std::string& file = environment().log_file;
  std::shared_ptr<spdlog::sinks::sink> sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  std::string problem;
  if (!file.empty()) {
    try {  // The library's own code never throws; spdlog does.
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
    } catch (const spdlog::spdlog_ex& e) {
      problem = e.what();
    }
  }
  auto logger = std::make_shared<spdlog::logger>("unisono", sink);
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e unisono[%P] %l: %v");
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  if (!problem.empty())
    logger->warn("UNISONO_LOG_FILE: {}; the log goes to standard error", problem);
  return logger;
}
}  // namespace

void write(LogLevel message_level, std::string_view text) {
  static const auto* logger =
      new std::shared_ptr<spdlog::logger>(make_logger());  // outlives statics
  (*logger)->log(kSpdlogLevels[static_cast<size_t>(message_level)], "{}", text);
}

}  // namespace log_internal

bool set_log_level(std::string_view word) {
  for (size_t i = 0; i < log_internal::kWords.size(); i++) {
    if (word != log_internal::kWords[i]) continue;
    log_internal::level.store(static_cast<int>(i), std::memory_order_relaxed);
    return true;
  }
  return false;
}

}  // namespace unisono
