// The kernels prefill_bench runs: those of the library, or of a build that tries others.
#pragma once

#include <vector>

#include "kernels/ragged_prefill/sm90/launch.hpp"

std::vector<attune::kernels::ragged_prefill::sm90::Instance> bench_instances();
