#include "warpgroup_product.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "machine.hpp"
#include "tensor_map.hpp"

namespace attune::emulated {
namespace {

/// A matrix operand in shared memory, as its 64-bit descriptor says (PTX ISA 9.7.15.5).
struct Operand {
  explicit Operand(std::uint64_t descriptor, bool mn)
      : start(static_cast<std::uint32_t>(descriptor & 0x3FFF) << 4),
        leading(static_cast<std::uint32_t>(descriptor >> 16 & 0x3FFF) << 4),
        stride(static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFF) << 4),
        mn_major(mn) {
    switch (descriptor >> 62) {
      case 1: swizzle = 3; break;
      case 2: swizzle = 2; break;
      case 3: swizzle = 1; break;
      default: swizzle = 0; break;
    }
  }

  /// Element (mn, k) of the operand, k in 0 … 15.
  [[nodiscard]] std::uint16_t at(int mn, int k) const {
    const auto row_bytes = 16u << swizzle;
    const auto row_elements = row_bytes / 2;
    const auto m = static_cast<std::uint32_t>(mn);
    const auto j = static_cast<std::uint32_t>(k);
    std::uint32_t address = start;
    if (mn_major) {
      address +=
          m / row_elements * leading + j / 8 * stride + j % 8 * row_bytes + m % row_elements * 2;
    } else if (swizzle == 0) {
      address += m / 8 * stride + j / 8 * leading + m % 8 * 16 + j % 8 * 2;
    } else {
      address += m / 8 * stride + m % 8 * row_bytes + j * 2;
    }
    std::uint16_t bits;
    std::memcpy(&bits, shared_pointer(swizzled(address, swizzle)), 2);
    return bits;
  }

  std::uint32_t start;
  std::uint32_t leading;
  std::uint32_t stride;
  bool mn_major;
  int swizzle = 0;
};

/// A product of a whole warpgroup under way. Registers of A are taken at once: a kernel that
/// overwrites them early is not caught. Accumulators hold NaN until the wait.
struct Issued {
  std::array<float*, 128> d{};
  std::array<std::array<std::uint32_t, 4>, 128> a{};
  WarpgroupProduct shape;
  /// Of a chain's first product: what its accumulators held before they were hidden.
  std::vector<float> kept;
};

struct Warpgroup {
  std::vector<Issued> open;
  std::deque<std::vector<Issued>> commits;
};

void multiply(const Issued& p) {
  const int n = p.shape.n;
  static float a[64][16];
  static float b[16][256];
  if (p.shape.a == nullptr) {
    const Operand operand(p.shape.descriptor_a, p.shape.a_mn_major);
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 16; ++k) a[row][k] = p.shape.widen(operand.at(row, k), 0);
  } else {
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < 4; ++i)
        for (int e = 0; e < 2; ++e)
          a[16 * (t / 32) + t % 32 / 4 + 8 * (i % 2)][8 * (i / 2) + 2 * (t % 4) + e] =
              p.shape.widen(p.a[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)], e);
  }
  const Operand operand(p.shape.descriptor_b, p.shape.b_mn_major);
  for (int k = 0; k < 16; ++k)
    for (int column = 0; column < n; ++column)
      b[k][column] = p.shape.widen(operand.at(column, k), 0);
  static float c[64][256];
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < n; ++column) c[row][column] = 0;
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < n; ++column) c[row][column] += a[row][k] * b[k][column];
  }
  for (int t = 0; t < 128; ++t) {
    float* const d = p.d[static_cast<std::size_t>(t)];
    for (int i = 0; i < n / 2; ++i) {
      const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2);
      const float product = c[row][8 * (i / 4) + 2 * (t % 4) + i % 2];
      d[i] = p.shape.accumulate ? d[i] + product : product;
    }
  }
}

/// Shared by the four warps: kept with the warpgroup's first thread, found through the meeting.
std::shared_ptr<Warpgroup> of_thread() {
  ThreadState& state = thread_state();
  if (!state.products) state.products = std::make_shared<Warpgroup>();
  return std::static_pointer_cast<Warpgroup>(state.products);
}

struct Member {
  WarpgroupProduct* product = nullptr;
  std::shared_ptr<Warpgroup> own;
  int pending = 0;
};

Warpgroup& first(void* const* lanes) { return *static_cast<Member*>(lanes[0])->own; }

}  // namespace

void issue_product(WarpgroupProduct& mine) {
  Member member{&mine, of_thread(), 0};
  meet_warpgroup("wgmma", &member, [](void* const* lanes) {
    Issued issued;
    issued.shape = *static_cast<Member*>(lanes[0])->product;
    for (std::size_t t = 0; t < 128; ++t) {
      const WarpgroupProduct& own = *static_cast<Member*>(lanes[t])->product;
      issued.d[t] = own.d;
      if (own.n != issued.shape.n || own.descriptor_b != issued.shape.descriptor_b ||
          own.descriptor_a != issued.shape.descriptor_a ||
          own.accumulate != issued.shape.accumulate)
        trap("wgmma: the threads of a warpgroup name different operands");
      if (own.a != nullptr)
        for (std::size_t i = 0; i < 4; ++i) issued.a[t][i] = own.a[i];
    }
    if (rules().delivery == Delivery::early) {
      multiply(issued);
      return;
    }
    Warpgroup& group = first(lanes);
    bool under_way = false;
    const auto look = [&](const std::vector<Issued>& list) {
      for (const Issued& other : list) under_way = under_way || other.d[0] == issued.d[0];
    };
    for (const auto& commit : group.commits) look(commit);
    look(group.open);
    if (!under_way) {
      // The first product of a chain: its accumulators' present values are kept and hidden.
      std::vector<float> kept;
      const auto count = static_cast<std::size_t>(issued.shape.n / 2);
      for (std::size_t t = 0; t < 128; ++t)
        for (std::size_t i = 0; i < count; ++i) {
          kept.push_back(issued.d[t][i]);
          issued.d[t][i] = std::numeric_limits<float>::quiet_NaN();
        }
      issued.kept = std::move(kept);
    }
    group.open.push_back(std::move(issued));
  });
}

void commit_products() {
  Member member{nullptr, of_thread(), 0};
  meet_warpgroup("wgmma.commit_group", &member, [](void* const* lanes) {
    Warpgroup& group = first(lanes);
    group.commits.push_back(std::exchange(group.open, {}));
  });
}

void wait_for_products(int pending) {
  Member member{nullptr, of_thread(), pending};
  meet_warpgroup("wgmma.wait_group", &member, [](void* const* lanes) {
    Warpgroup& group = first(lanes);
    const auto most = static_cast<std::size_t>(static_cast<Member*>(lanes[0])->pending);
    for (; group.commits.size() > most; group.commits.pop_front())
      for (const Issued& product : group.commits.front()) {
        if (!product.kept.empty()) {
          const auto count = static_cast<std::size_t>(product.shape.n / 2);
          for (std::size_t t = 0; t < 128; ++t)
            for (std::size_t i = 0; i < count; ++i) product.d[t][i] = product.kept[t * count + i];
        }
        multiply(product);
      }
  });
}

}  // namespace attune::emulated
