// The kernel that lists decode work from lengths on the device, held to the host's list chunk for
// chunk: any batch, any number of workers, places that do not suffice, entries that are unsound.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/decode_plan/sm80/launch.hpp"
#include "plan/decode_work.hpp"

namespace attune::kernels::decode_plan::sm80 {
namespace {

struct Batch {
  std::vector<std::int32_t> qo_indptr{0}, kv_indptr{0}, last_page_len;
  std::int32_t page_size = 16;
  std::int64_t longest = 0;

  Batch(const std::vector<std::int64_t>& lengths, std::int32_t page) : page_size(page) {
    for (const std::int64_t n : lengths) {
      const auto pages = static_cast<std::int32_t>((n + page - 1) / page);
      qo_indptr.push_back(qo_indptr.back() + 1);
      kv_indptr.push_back(kv_indptr.back() + pages);
      last_page_len.push_back(
          pages == 0 ? 0 : static_cast<std::int32_t>(n - std::int64_t{pages - 1} * page));
      longest = std::max(longest, n);
    }
  }
  [[nodiscard]] BatchView view() const {
    return {.form = BatchForm::decode,
            .page_size = page_size,
            .qo_indptr = qo_indptr,
            .kv_indptr = kv_indptr,
            .kv_last_page_len = last_page_len};
  }
};

struct List {
  attention::DecodeWork work;
  std::vector<attention::DecodeChunk> chunks;
};

List on_the_host(const Batch& batch, const attention::MaskRule& mask,
                 const attention::CutRule& rule, std::int32_t tile) {
  plan::DecodeList list;
  plan::list_decode_work(batch.view(), {.mask = mask}, rule, tile, {}, list);
  list.chunks.resize(static_cast<std::size_t>(list.work.num_chunks));
  return {list.work, list.chunks};
}

List on_the_device(const Batch& batch, const attention::MaskRule& mask,
                   const attention::CutRule& rule, std::int32_t tile) {
  const auto n = static_cast<std::int64_t>(batch.last_page_len.size());
  List list;
  list.chunks.resize(static_cast<std::size_t>(rule.max_chunks));
  std::vector<Row> rows(static_cast<std::size_t>(rows_wanted(n)));
  const Status launched = launch({.kv_indptr = batch.kv_indptr.data(),
                                  .kv_last_page_len = batch.last_page_len.data(),
                                  .num_requests = static_cast<std::int32_t>(n),
                                  .page_size = batch.page_size,
                                  .max_kv_entries = batch.kv_indptr.back(),
                                  .max_kv_len = batch.longest,
                                  .mask = mask,
                                  .rule = rule,
                                  .tile = base::FastDivisor(static_cast<std::uint32_t>(tile)),
                                  .work = &list.work,
                                  .chunks = list.chunks.data(),
                                  .rows = rows.data()},
                                 nullptr);
  EXPECT_TRUE(launched.ok()) << launched.text();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  list.chunks.resize(static_cast<std::size_t>(list.work.num_chunks));
  return list;
}

void expect_same(const List& have, const List& want, const std::string& what) {
  ASSERT_EQ(have.work.num_chunks, want.work.num_chunks) << what;
  ASSERT_EQ(have.work.num_items, want.work.num_items) << what;
  for (std::size_t i = 0; i < want.chunks.size(); ++i)
    ASSERT_EQ(std::memcmp(&have.chunks[i], &want.chunks[i], sizeof(attention::DecodeChunk)), 0)
        << what << ", chunk " << i;
}

attention::CutRule rule_of(int workers, int units, std::size_t requests, int max_parts,
                           int min_tiles, int even_tiles) {
  return {.workers = workers,
          .units = units,
          .max_chunks = static_cast<std::int32_t>(requests) + max_parts,
          .max_parts = max_parts,
          .min_tiles = min_tiles,
          .even_tiles = even_tiles,
          .least_even_tiles = std::max(1, min_tiles / 8)};
}

void expect_agreement(const std::vector<std::int64_t>& lengths, const attention::CutRule& rule,
                      const std::string& what, const attention::MaskRule& mask = {},
                      std::int32_t page_size = 64) {
  const Batch batch(lengths, page_size);
  expect_same(on_the_device(batch, mask, rule, 16), on_the_host(batch, mask, rule, 16), what);
}

TEST(DecodePlan, KnownShapesAreCutAsOnTheHost) {
  std::vector<std::int64_t> skewed(31, 1024);
  skewed.push_back(131072);
  const struct {
    std::string what;
    std::vector<std::int64_t> lengths;
  } batches[] = {{"none", {}},
                 {"one empty", {0}},
                 {"one", {1}},
                 {"b1x32k", {32768}},
                 {"b64x8k", std::vector<std::int64_t>(64, 8192)},
                 {"b256x1k", std::vector<std::int64_t>(256, 1024)},
                 {"b513x1k", std::vector<std::int64_t>(513, 1024)},
                 {"all empty", std::vector<std::int64_t>(600, 0)},
                 {"skewed", skewed}};
  for (const auto& batch : batches)
    for (const int units : {1, 4, 8})
      expect_agreement(batch.lengths,
                       rule_of(132, units, batch.lengths.size(), 16 * 132 / units, 32, 256),
                       batch.what + ", units " + std::to_string(units));
}

TEST(DecodePlan, RandomBatchesAreCutAsOnTheHost) {
  std::mt19937 random(5);
  const auto pick = [&](auto... values) {
    const std::vector<int> all{values...};
    return all[random() % all.size()];
  };
  for (int round = 0; round < 150; ++round) {
    const auto n = static_cast<std::size_t>(pick(1, 2, 7, 31, 256, 511, 512, 513, 1500));
    const int scale = pick(3, 70, 1500, 20000);
    std::vector<std::int64_t> lengths(n);
    for (auto& length : lengths) length = static_cast<std::int64_t>(random()) % scale;
    for (int huge = pick(0, 1, 5); huge > 0; --huge) lengths[random() % n] = 200000 + scale;
    const int workers = pick(1, 2, 132, 264);
    const int units = pick(1, 2, 8);
    // Few places: levels must be given up.
    const int max_parts = pick(2, 20, 16 * workers / units + 2);
    const attention::MaskRule mask{.window_left = pick(-1, -1, 100)};
    expect_agreement(lengths, rule_of(workers, units, n, max_parts, pick(1, 8, 32), pick(0, 256)),
                     "round " + std::to_string(round), mask, pick(1, 5, 64));
  }
}

TEST(DecodePlan, UnsoundRequestsAreEmpty) {
  const std::vector<std::int64_t> lengths{100, 30, 64, 7, 900};
  const attention::CutRule rule = rule_of(8, 2, lengths.size(), 64, 4, 0);
  const auto without = [&](std::size_t gone) {
    std::vector<std::int64_t> rest = lengths;
    rest[gone] = 0;
    List list = on_the_host(Batch(rest, 16), {}, rule, 16);
    return list;
  };
  // Page ids of the others lie where they lay.
  const auto expect_empty = [&](const Batch& spoiled, std::size_t gone, const std::string& what) {
    List have = on_the_device(spoiled, {}, rule, 16);
    List want = without(gone);
    for (attention::DecodeChunk& chunk : want.chunks) {
      const auto r = static_cast<std::size_t>(chunk.request.q_row);
      chunk.request.entry_begin = r == gone ? 0 : spoiled.kv_indptr[r];
    }
    expect_same(have, want, what);
  };
  for (const std::int32_t last : {0, -7, 17}) {
    Batch batch(lengths, 16);
    batch.last_page_len[2] = last;
    expect_empty(batch, 2, "last page of " + std::to_string(last));
  }
  Batch beyond(lengths, 16);
  beyond.longest = 899;
  expect_empty(beyond, 4, "longer than the bound");
  Batch first(lengths, 16);
  first.kv_indptr[0] = -1;
  expect_empty(first, 0, "a negative entry");
}

}  // namespace
}  // namespace attune::kernels::decode_plan::sm80
