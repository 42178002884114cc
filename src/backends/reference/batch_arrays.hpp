// What the reference backend's plan keeps of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <attune/batch.hpp>
#include <attune/validate.hpp>

#include "attention/block_table.hpp"

namespace attune::backends::reference {

/// What plan() and refresh() read off a batch: copies, so that a plan outlives the caller's arrays.
struct BatchArrays {
  attention::BatchFacts facts;
  std::int64_t page_size = 1;
  std::vector<std::int32_t> qo_indptr;
  std::vector<std::int32_t> kv_indptr;
  std::vector<std::int32_t> kv_indices;
  std::vector<std::int64_t> kv_len;
  std::vector<std::int64_t> kv_offset;
  std::vector<std::int32_t> compressed_indptr;
  std::vector<std::int32_t> compressed_indices;
  std::vector<std::uint8_t> custom_mask;
  std::vector<std::int64_t> custom_mask_indptr;
  int block_heads;
  std::vector<std::int64_t> block_indptr;
  std::vector<std::int32_t> blocks;
  std::vector<std::uint8_t> block_bits;
  std::vector<std::int32_t> request_of_token;

  BatchArrays(const BatchView& batch, const attention::BatchFacts& checked)
      : facts(checked),
        page_size(batch.page_size),
        qo_indptr(batch.qo_indptr.begin(), batch.qo_indptr.end()),
        kv_indptr(batch.kv_indptr.begin(), batch.kv_indptr.end()),
        kv_indices(batch.kv_indices.begin(), batch.kv_indices.end()),
        compressed_indptr(batch.compressed.kv_indptr.begin(), batch.compressed.kv_indptr.end()),
        compressed_indices(batch.compressed.kv_indices.begin(), batch.compressed.kv_indices.end()),
        custom_mask(batch.custom_mask.begin(), batch.custom_mask.end()),
        custom_mask_indptr(batch.custom_mask_indptr.begin(), batch.custom_mask_indptr.end()),
        block_heads(batch.block_mask.num_heads),
        block_indptr(batch.block_mask.indptr.begin(), batch.block_mask.indptr.end()),
        blocks(batch.block_mask.blocks.begin(), batch.block_mask.blocks.end()),
        block_bits(batch.block_mask.bits.begin(), batch.block_mask.bits.end()) {
    for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
      kv_len.push_back(batch.kv_len(i));
      kv_offset.push_back(batch.first_kv_position(i));
      request_of_token.insert(request_of_token.end(), static_cast<std::size_t>(batch.qo_len(i)),
                              static_cast<std::int32_t>(i));
    }
  }

  /// Where key c of request i is stored: a slot of the cache, or a row of the ragged keys.
  [[nodiscard]] std::int64_t slot(std::size_t i, std::int64_t c) const {
    if (facts.source == KvSource::ragged) return kv_indptr[i] + c;
    const auto entry = static_cast<std::size_t>(kv_indptr[i] + c / page_size);
    return kv_indices[entry] * page_size + c % page_size;
  }

  /// Where compressed key w of request i is stored, `ratio` tokens a key.
  [[nodiscard]] std::int64_t compressed_slot(std::size_t i, std::int64_t w,
                                             std::int64_t ratio) const {
    if (facts.source == KvSource::ragged) return compressed_indptr[i] + w;
    const std::int64_t in_page = page_size / ratio;
    const auto entry = static_cast<std::size_t>(compressed_indptr[i] + w / in_page);
    return compressed_indices[entry] * in_page + w % in_page;
  }

  /// Row `row` of request i and query head h may see key c.
  [[nodiscard]] bool mask_allows(std::size_t i, std::int64_t row, std::int64_t h,
                                 std::int64_t c) const {
    if (!block_indptr.empty()) {
      const attention::BlockTable mask{block_heads, block_indptr.data(), blocks.data(),
                                       block_bits.data()};
      return mask.sees(static_cast<std::int64_t>(i), h, row, c, kv_len[i]);
    }
    if (custom_mask_indptr.empty()) return true;
    const std::int64_t bit = row * kv_len[i] + c;
    const auto byte = static_cast<std::size_t>(custom_mask_indptr[i] + bit / 8);
    return (custom_mask[byte] >> (bit % 8) & 1) != 0;
  }
};

}  // namespace attune::backends::reference
