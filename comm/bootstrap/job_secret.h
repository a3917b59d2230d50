// The job's secret, from UNISONO_JOB_SECRET_FD, UNISONO_JOB_SECRET_FILE or UNISONO_JOB_SECRET, the
// first that is set.
#pragma once

#include <optional>

#include "base/config.h"
#include "base/net/endpoint.h"
#include "base/status.h"

namespace unisono::bootstrap {

// Empty: none is set. kInvalidArgument names the variable. May block on the descriptor.
Result<std::optional<net::Secret>> read_job_secret(const Environment& environment);
// Of this process's environment(), read once: a pipe can be read only once.
Result<std::optional<net::Secret>> job_secret();

}  // namespace unisono::bootstrap
