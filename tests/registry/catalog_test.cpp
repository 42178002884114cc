#include "registry/catalog.hpp"

#include <gtest/gtest.h>

namespace attune::registry {
namespace {

// Not a static_assert like the catalog's other checks: g++ with -fsanitize=undefined takes no
// function's address for a constant (GCC bug 71962).
TEST(Catalog, ABuiltCpuRowAndItsFactoryGoTogether) {
  for (const CatalogEntry& entry : catalog()) {
    bool built = false;
    for (const Capability& row : entry.descriptor->capabilities)
      built = built || (row.device == DeviceKind::cpu && row.status != BackendStatus::not_built);
    EXPECT_EQ(built, entry.make != nullptr) << entry.descriptor->name;
  }
}

}  // namespace
}  // namespace attune::registry
