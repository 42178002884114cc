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
#include "vector_clones.hpp"

namespace attune::emulated {
namespace {

/// A matrix operand in shared memory, as its 64-bit descriptor says (PTX ISA 9.7.15.5).
class Operand {
 public:
  Operand(std::uint64_t descriptor, bool mn)
      : start_(static_cast<std::uint32_t>(descriptor & 0x3FFF) << 4),
        leading_(static_cast<std::uint32_t>(descriptor >> 16 & 0x3FFF) << 4),
        stride_(static_cast<std::uint32_t>(descriptor >> 32 & 0x3FFF) << 4),
        mn_major_(mn) {
    switch (descriptor >> 62) {
      case 1: swizzle_ = 3; break;
      case 2: swizzle_ = 2; break;
      case 3: swizzle_ = 1; break;
      default: swizzle_ = 0; break;
    }
  }

  [[nodiscard]] bool mn_major() const { return mn_major_; }

  /// Eight elements that lie in one chunk of 16 bytes: from (mn, k) along k, or along mn.
  void chunk(int mn, int k, Element element, float (&to)[8]) const {
    const auto row_bytes = 16u << swizzle_;
    const auto m = static_cast<std::uint32_t>(mn);
    const auto j = static_cast<std::uint32_t>(k);
    std::uint32_t address = start_;
    if (mn_major_) {
      const auto row_elements = row_bytes / 2;
      address +=
          m / row_elements * leading_ + j / 8 * stride_ + j % 8 * row_bytes + m % row_elements * 2;
    } else if (swizzle_ == 0) {
      address += m / 8 * stride_ + j / 8 * leading_ + m % 8 * 16;
    } else {
      address += m / 8 * stride_ + m % 8 * row_bytes + j * 2;
    }
    std::uint16_t bits[8];
    std::memcpy(bits, shared_pointer(swizzled(address, swizzle_)), 16);
    widen(bits, 8, element, to);
  }

 private:
  std::uint32_t start_;
  std::uint32_t leading_;
  std::uint32_t stride_;
  bool mn_major_;
  int swizzle_ = 0;
};

/// A product of a whole warpgroup, or a commit. Registers of A are taken at once: a kernel that
/// overwrites them early is not caught. Accumulators hold NaN until the wait.
struct Operation {
  bool commit = false;
  int arrived = 0;
  WarpgroupProduct shape;
  std::array<float*, 128> d{};
  std::array<std::array<std::uint32_t, 4>, 128> a{};
  /// Of a chain's first product: what its accumulators held before they were hidden.
  std::vector<float> kept;
};

struct Warpgroup {
  /// Those that some thread has yet to come to, oldest first, and how many came before them.
  std::deque<Operation> coming;
  std::uint64_t gone = 0;
  std::array<std::uint64_t, 128> next{};  ///< by thread, in the same numbers
  std::vector<Operation> open;
  std::deque<std::vector<Operation>> commits;
};

/// c = a b, in the order of k.
ATTUNE_VECTOR_CLONES void multiply(const float (*__restrict a)[16],
                                   const float (*__restrict b)[256], float (*__restrict c)[256],
                                   int n) {
  for (int row = 0; row < 64; row += 4)
    for (int begin = 0; begin < n; begin += 8) {
      float sum[4][8] = {};
      for (int k = 0; k < 16; ++k)
        for (int r = 0; r < 4; ++r)
          for (int i = 0; i < 8; ++i) sum[r][i] += a[row + r][k] * b[k][begin + i];
      for (int r = 0; r < 4; ++r)
        for (int i = 0; i < 8; ++i) c[row + r][begin + i] = sum[r][i];
    }
}

void read_a(const Operation& p, Element element, float (&a)[64][16]) {
  if (p.shape.a != nullptr) {
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < 4; ++i)
        for (int e = 0; e < 2; ++e)
          a[16 * (t / 32) + t % 32 / 4 + 8 * (i % 2)][8 * (i / 2) + 2 * (t % 4) + e] =
              widened(static_cast<std::uint16_t>(
                          p.a[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)] >> 16 * e),
                      element);
    return;
  }
  const Operand operand(p.shape.descriptor_a, p.shape.a_mn_major);
  float eight[8];
  for (int i = 0; i < 128; ++i) {
    const int row = operand.mn_major() ? i / 16 * 8 : i / 2;
    const int k = operand.mn_major() ? i % 16 : i % 2 * 8;
    operand.chunk(row, k, element, eight);
    for (int e = 0; e < 8; ++e) (operand.mn_major() ? a[row + e][k] : a[row][k + e]) = eight[e];
  }
}

void read_b(const Operation& p, Element element, float (&b)[16][256]) {
  const Operand operand(p.shape.descriptor_b, p.shape.b_mn_major);
  float eight[8];
  for (int column = 0; column < p.shape.n; column += operand.mn_major() ? 8 : 1)
    for (int k = 0; k < 16; k += operand.mn_major() ? 1 : 8) {
      operand.chunk(column, k, element, eight);
      for (int e = 0; e < 8; ++e)
        (operand.mn_major() ? b[k][column + e] : b[k + e][column]) = eight[e];
    }
}

void carry_out(const Operation& p, Element element, bool accumulate) {
  static float a[64][16];
  static float b[16][256];
  static float c[64][256];
  const int n = p.shape.n;
  read_a(p, element, a);
  read_b(p, element, b);
  multiply(a, b, c, n);
  for (int t = 0; t < 128; ++t) {
    float* d = p.d[static_cast<std::size_t>(t)];
    const int row = 16 * (t / 32) + t % 32 / 4;
    const float* upper = &c[row][2 * (t % 4)];
    const float* lower = &c[row + 8][2 * (t % 4)];
    for (int i = 0; i < n / 8; ++i, d += 4, upper += 8, lower += 8) {
      const float product[4] = {upper[0], upper[1], lower[0], lower[1]};
      if (accumulate)
        for (int e = 0; e < 4; ++e) d[e] += product[e];
      else
        for (int e = 0; e < 4; ++e) d[e] = product[e];
    }
  }
}

void carry_out(const Operation& p) {
  carry_out(p, p.shape.element, p.shape.accumulate);
  if (p.shape.element == Element::e4m3_low) carry_out(p, Element::e4m3_high, true);
}

/// The first product of a chain: its accumulators' present values are kept and hidden.
void hide(Operation& product) {
  const auto count = static_cast<std::size_t>(product.shape.n / 2);
  product.kept.reserve(128 * count);
  for (float* const d : product.d)
    for (std::size_t i = 0; i < count; ++i) {
      product.kept.push_back(d[i]);
      d[i] = std::numeric_limits<float>::quiet_NaN();
    }
}

void show(const Operation& product) {
  if (product.kept.empty()) return;
  const auto count = static_cast<std::size_t>(product.shape.n / 2);
  for (std::size_t t = 0; t < 128; ++t)
    for (std::size_t i = 0; i < count; ++i) product.d[t][i] = product.kept[t * count + i];
}

/// All threads have come to it.
void begin(Warpgroup& group, Operation operation) {
  if (operation.commit) {
    group.commits.push_back(std::exchange(group.open, {}));
    return;
  }
  if (rules().delivery == Delivery::early) return carry_out(operation);
  bool under_way = false;
  const auto look = [&](const std::vector<Operation>& list) {
    for (const Operation& other : list) under_way = under_way || other.d[0] == operation.d[0];
  };
  for (const auto& commit : group.commits) look(commit);
  look(group.open);
  if (!under_way) hide(operation);
  group.open.push_back(std::move(operation));
}

Warpgroup& of_thread() {
  std::shared_ptr<void>& state = warpgroup_state();
  if (!state) state = std::make_shared<Warpgroup>();
  return *static_cast<Warpgroup*>(state.get());
}

bool same(const Operation& operation, bool commit, const WarpgroupProduct& mine) {
  return operation.commit == commit && operation.shape.n == mine.n &&
         operation.shape.descriptor_a == mine.descriptor_a &&
         operation.shape.descriptor_b == mine.descriptor_b &&
         operation.shape.accumulate == mine.accumulate;
}

void come(bool commit, const WarpgroupProduct& mine) {
  Warpgroup& group = of_thread();
  const auto t = static_cast<std::size_t>(current_thread() % 128);
  const std::uint64_t place = group.next[t]++ - group.gone;
  if (place == group.coming.size()) {
    group.coming.emplace_back();
    group.coming.back().commit = commit;
    group.coming.back().shape = mine;
  }
  Operation& operation = group.coming[place];
  if (!same(operation, commit, mine))
    trap("wgmma: the threads of a warpgroup name different operands");
  operation.d[t] = mine.d;
  if (mine.a != nullptr) std::memcpy(operation.a[t].data(), mine.a, 16);
  if (++operation.arrived < 128) return;
  // Each thread comes to them in order, and so they are complete in order.
  Operation complete = std::move(group.coming.front());
  group.coming.pop_front();
  ++group.gone;
  begin(group, std::move(complete));
}

}  // namespace

void issue_product(const WarpgroupProduct& mine) { come(false, mine); }

void commit_products() { come(true, {}); }

void wait_for_products(int pending) {
  meet_warpgroup("wgmma.wait_group", &pending, [](void* const* lanes) {
    Warpgroup& group = of_thread();
    if (!group.coming.empty())
      trap("wgmma: the threads of a warpgroup wait after different products");
    const auto most = static_cast<std::size_t>(*static_cast<int*>(lanes[0]));
    for (; group.commits.size() > most; group.commits.pop_front())
      for (const Operation& product : group.commits.front()) {
        show(product);
        carry_out(product);
      }
  });
}

}  // namespace attune::emulated
