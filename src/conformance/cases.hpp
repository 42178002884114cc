// Cases from capability rows (layer conformance).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "conformance/case.hpp"

namespace attune::conformance {

/// Why this device cannot run a row; empty if it can.
[[nodiscard]] std::string hardware_reason(const Capability& row, const DeviceInfo& device);

/// Every declared value and every feasible pair of values, each property over typical shapes, and
/// named hard cases. Names are unique.
[[nodiscard]] std::vector<Case> make_cases(const Capability& row, std::uint64_t seed);

/// The part of them for a linear variant.
[[nodiscard]] std::vector<Case> make_linear_cases(const Capability& row, Variant variant);

/// A request the row accepts with nothing special in it.
[[nodiscard]] Case plain_case(const Capability& row, Phase phase);
[[nodiscard]] Case plain_linear_case(const Capability& row, Phase phase);

/// "cpu/gqa/kv_dtype bf16", "cpu/mla/feature lse", …: what a row declares, and what a case
/// exercises of it.
[[nodiscard]] std::set<std::string> declared_by(const Capability& row);
[[nodiscard]] std::set<std::string> exercised_by(const Case& one, const Capability& row);

}  // namespace attune::conformance
