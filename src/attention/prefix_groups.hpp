// Shared prefixes, read off the page tables of a batch (layer attention).
#pragma once

#include <vector>

#include <attune/batch.hpp>

namespace attune::attention {

/// Every run of neighbouring requests whose tables begin with the same full pages at the same
/// positions, outer groups before inner ones. Groups nest. O(requests + equal pages).
void find_prefix_groups(const BatchView& batch, std::vector<PrefixGroup>& groups);

}  // namespace attune::attention
