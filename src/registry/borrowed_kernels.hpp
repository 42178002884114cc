// Names whose kernels are another name's where those can serve (layer registry). What the lender's
// rows say of a request is then the reason for which of its kernels the borrower takes.
#pragma once

#include <string>
#include <string_view>

#include <attune/fixed_list.hpp>
#include <attune/registry.hpp>

#include "registry/offers.hpp"

namespace attune::registry {

struct Loan {
  FixedList<std::string_view, 3> borrowers{};
  std::string_view lender;
  Variant variant = Variant::gqa;
  Phase phase = Phase::prefill;
  std::string_view lent;       ///< the lender's kernels
  std::string_view own;        ///< the borrower's
  std::string_view batchwise;  ///< what a plan may still decide, batch by batch
  bool widens = false;         ///< the borrower may copy fp8 keys to the queries' type first
};

inline constexpr Loan kLoans[] = {
    // backends/shared/cuda/prefill_choice: all make their tiles by hopper_tiles.
    {.borrowers = {"flashinfer"},
     .lender = "fa4",
     .lent = "Hopper's kernels (wgmma)",
     .own = "plain mma",
     .batchwise =
         "few rows before many keys, whose keys plain mma cuts, and rows beside levels of "
         "shared prefixes; keys in fp8 or of odd pages may be copied to contiguous rows first",
     .widens = true},
    {.borrowers = {"trtllm_mha", "hpc_ops", "flex_attention"},
     .lender = "fa4",
     .lent = "Hopper's kernels (wgmma)",
     .own = "plain mma",
     .batchwise = "few rows before many keys, whose keys plain mma cuts; keys in fp8 may be copied "
                  "to contiguous rows first",
     .widens = true},
};

/// Which kernels a chosen backend takes and why; empty where it has only its own.
[[nodiscard]] std::string borrowed_kernels(const Setting& setting, const Offer& chosen,
                                           const AttentionSpec& spec, Phase phase);

}  // namespace attune::registry
