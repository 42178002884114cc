// What makes a batch valid, on the host or with its page tables on the device.
#include <attune/validate.hpp>

#include <algorithm>
#include <limits>
#include <string_view>

#include "attention/batch_scan.hpp"
#include "attention/validate_blocks.hpp"
#include "attention/validate_compressed.hpp"
#include "base/join.hpp"

namespace attune::attention {
namespace {

using base::join;

Status check_indptr(std::string_view what, std::span<const std::int32_t> indptr) {
  if (indptr[0] != 0) return invalid_argument(join(what, "[0] must be 0, have ", indptr[0]));
  for (std::size_t i = 1; i < indptr.size(); ++i)
    if (indptr[i] < indptr[i - 1])
      return invalid_argument(
          join(what, " must never fall, but [", i, "] = ", indptr[i], " follows ", indptr[i - 1]));
  return {};
}

Status check_count(std::string_view what, std::size_t have, std::int64_t want) {
  if (static_cast<std::int64_t>(have) == want) return {};
  return invalid_argument(join(what, ": want ", want, " entries, have ", have));
}

Status check_last_pages(const BatchView& batch) {
  if (Status s = check_count("kv_last_page_len", batch.kv_last_page_len.size(), batch.batch_size());
      !s.ok())
    return s;
  for (std::size_t i = 0; i < batch.kv_last_page_len.size(); ++i) {
    const std::int32_t pages = batch.kv_indptr[i + 1] - batch.kv_indptr[i];
    const std::int32_t last = batch.kv_last_page_len[i];
    const std::int32_t least = pages == 0 ? 0 : 1;
    const std::int32_t most = pages == 0 ? 0 : batch.page_size;
    if (last < least || last > most)
      return invalid_argument(join("kv_last_page_len[", i, "] = ", last, ", want ", least, " … ",
                                   most, " for a request of ", pages, " pages of ", batch.page_size,
                                   " tokens"));
  }
  return {};
}

Status negative_page(std::span<const std::int32_t> pages) {
  const auto found = std::find_if(pages.begin(), pages.end(), [](auto page) { return page < 0; });
  return invalid_argument(
      join("kv_indices[", found - pages.begin(), "] = ", *found, " is negative: not a page id"));
}

Status check_ragged(const BatchView& batch) {
  if (Status s = check_count("kv_indices of a ragged batch", batch.kv_indices.size(), 0); !s.ok())
    return s;
  if (Status s =
          check_count("kv_last_page_len of a ragged batch", batch.kv_last_page_len.size(), 0);
      !s.ok())
    return s;
  if (!batch.prefix_groups.empty())
    return invalid_argument("prefix_groups need a paged batch: a ragged one shares no pages");
  return {};
}

Status check_form(const BatchView& batch) {
  if (batch.form == BatchForm::idle && batch.num_qo_tokens() != 0)
    return invalid_argument(
        join("an idle batch has no query tokens, have ", batch.num_qo_tokens()));
  if (batch.form != BatchForm::decode) return {};
  for (std::int64_t i = 0; i < batch.batch_size(); ++i)
    if (batch.qo_len(i) != 1)
      return invalid_argument(join("a decode batch has one query token a request, request ", i,
                                   " has ", batch.qo_len(i), "; call it mixed or extend"));
  return {};
}

/// What scan_rows found to be wrong, in words.
Status check_rows(const BatchView& batch) {
  if (Status s = check_indptr("qo_indptr", batch.qo_indptr); !s.ok()) return s;
  if (Status s = check_indptr("kv_indptr", batch.kv_indptr); !s.ok()) return s;
  if (batch.source == KvSource::paged)
    if (Status s = check_last_pages(batch); !s.ok()) return s;
  return check_form(batch);
}

Status check_mask(const BatchView& batch, const AttentionSpec& spec) {
  const std::int64_t n = batch.batch_size();
  if (!spec.custom_mask) {
    if (batch.custom_mask.empty() && batch.custom_mask_indptr.empty()) return {};
    return invalid_argument(
        "the batch brings a custom mask, but the spec says custom_mask = false");
  }
  if (Status s = check_count("custom_mask_indptr", batch.custom_mask_indptr.size(), n + 1); !s.ok())
    return s;
  if (batch.custom_mask_indptr[0] < 0)
    return invalid_argument(
        join("custom_mask_indptr[0] = ", batch.custom_mask_indptr[0], " is negative"));
  for (std::int64_t i = 0; i < n; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t begin = batch.custom_mask_indptr[at];
    const std::int64_t end = batch.custom_mask_indptr[at + 1];
    if (end < begin)
      return invalid_argument(join("custom_mask_indptr must never fall, but [", i + 1, "] = ", end,
                                   " follows ", begin));
    const std::int64_t rows = batch.qo_len(i);
    const std::int64_t columns = batch.kv_len(i);
    if (columns > 0 && rows > (std::numeric_limits<std::int64_t>::max() - 7) / columns)
      return invalid_argument(
          join("the mask of request ", i, " is too large: ", rows, " x ", columns, " bits"));
    const std::int64_t bytes = (rows * columns + 7) / 8;
    if (end - begin < bytes)
      return invalid_argument(join("the custom mask of request ", i, " is too short: want ", bytes,
                                   " bytes for ", rows, " x ", columns, " bits, have ",
                                   end - begin));
  }
  const std::int64_t last = batch.custom_mask_indptr.back();
  if (last > static_cast<std::int64_t>(batch.custom_mask.size()))
    return invalid_argument(join("custom_mask_indptr ends at ", last, ", but the mask has ",
                                 batch.custom_mask.size(), " bytes"));
  return {};
}

Status check_group(const BatchView& batch, std::size_t index) {
  const PrefixGroup& g = batch.prefix_groups[index];
  const std::int64_t end = std::int64_t{g.first_request} + g.num_requests;
  if (g.first_request < 0 || g.num_requests < 1 || end > batch.batch_size())
    return invalid_argument(join("prefix_groups[", index, "] covers requests ", g.first_request,
                                 " … ", end - 1, " of ", batch.batch_size()));
  if (g.num_pages < 1)
    return invalid_argument(
        join("prefix_groups[", index, "] shares ", g.num_pages, " pages; leave the group out"));
  const std::int32_t* shared =
      batch.kv_indices.data() + batch.kv_indptr[static_cast<std::size_t>(g.first_request)];
  for (std::int64_t i = g.first_request; i < end; ++i) {
    if (batch.kv_len(i) < std::int64_t{g.num_pages} * batch.page_size)
      return invalid_argument(join("prefix_groups[", index, "] shares ", g.num_pages,
                                   " full pages, but request ", i, " has ", batch.kv_len(i),
                                   " keys"));
    const std::int32_t* own =
        batch.kv_indices.data() + batch.kv_indptr[static_cast<std::size_t>(i)];
    if (!std::equal(shared, shared + g.num_pages, own))
      return invalid_argument(join("prefix_groups[", index, "]: the pages of request ", i,
                                   " differ from those of request ", g.first_request));
    if (batch.first_kv_position(i) != batch.first_kv_position(g.first_request))
      return invalid_argument(join("prefix_groups[", index, "]: request ", i,
                                   " begins at another position than request ", g.first_request));
  }
  return {};
}

/// No key of these is ever left behind, so their chunks and blocks count from the first of the page
/// table.
Status check_first_keys(const BatchView& batch, const AttentionSpec& spec) {
  if (spec.variant != Variant::dual_chunk && spec.variant != Variant::minimax_sparse) return {};
  const auto found = std::find_if(batch.kv_offset.begin(), batch.kv_offset.end(),
                                  [](std::int64_t offset) { return offset != 0; });
  if (found == batch.kv_offset.end()) return {};
  return unsupported(join(name(spec.variant), " wants all keys from position 0 on, but kv_offset[",
                          found - batch.kv_offset.begin(), "] = ", *found));
}

/// What all batches of a backend share.
Status check_page_size(const BatchView& batch, std::int32_t page_size) {
  if (batch.source == KvSource::paged && batch.page_size != page_size)
    return invalid_argument(join("the batch has pages of ", batch.page_size,
                                 " tokens, the backend was made for ", page_size));
  if (batch.page_size < 1)
    return invalid_argument(join("page_size must be positive, have ", batch.page_size));
  return {};
}

}  // namespace

Result<BatchFacts> validate_batch(const BatchView& batch, const AttentionSpec& spec,
                                  std::int32_t page_size) {
  if (batch.on_device.given())
    return unsupported(
        "the batch's lengths are on the device, and this backend plans on the host: choose one "
        "that "
        "declares device_planning, or give kv_indptr, kv_indices and kv_last_page_len");
  if (Status s = check_page_size(batch, page_size); !s.ok()) return s;
  if (batch.qo_indptr.empty() != batch.kv_indptr.empty())
    return invalid_argument("qo_indptr and kv_indptr must both be given, or neither");
  BatchFacts facts{.source = batch.source, .batch_size = batch.batch_size()};
  if (batch.qo_indptr.empty()) {
    if (!batch.kv_indices.empty() || !batch.kv_last_page_len.empty())
      return invalid_argument("a batch without qo_indptr cannot have pages");
    return facts;
  }
  const std::int64_t n = facts.batch_size;
  if (Status s = check_count("kv_indptr", batch.kv_indptr.size(), n + 1); !s.ok()) return s;
  const RowScan rows = scan_rows(batch);
  if (!rows.sound)
    if (Status s = check_rows(batch); !s.ok()) return s;
  if (Status s = batch.source == KvSource::paged
                     ? check_count("kv_indices", batch.kv_indices.size(), batch.kv_indptr.back())
                     : check_ragged(batch);
      !s.ok())
    return s;
  const PageScan pages = scan_pages(batch.kv_indices);
  if (pages.any_negative) return negative_page(batch.kv_indices);
  if (!batch.kv_offset.empty()) {
    if (Status s = check_count("kv_offset", batch.kv_offset.size(), n); !s.ok()) return s;
    for (std::size_t i = 0; i < batch.kv_offset.size(); ++i)
      if (batch.kv_offset[i] < 0 || batch.kv_offset[i] > std::int64_t{1} << 60)
        return invalid_argument(
            join("kv_offset[", i, "] = ", batch.kv_offset[i], " is not a position"));
    if (Status s = check_first_keys(batch, spec); !s.ok()) return s;
  }
  if (!batch.state_indices.empty())
    if (Status s = check_count("state_indices", batch.state_indices.size(), n); !s.ok()) return s;
  if (Status s = check_mask(batch, spec); !s.ok()) return s;
  if (Status s = validate_blocks(batch, spec); !s.ok()) return s;
  for (std::size_t g = 0; g < batch.prefix_groups.size(); ++g)
    if (Status s = check_group(batch, g); !s.ok()) return s;

  facts.num_qo_tokens = batch.num_qo_tokens();
  facts.max_qo_len = rows.max_qo_len;
  facts.max_kv_len = rows.max_kv_len;
  facts.num_kv_tokens = batch.source == KvSource::ragged ? batch.kv_indptr.back() : 0;
  facts.max_page_id = pages.largest;
  if (Status s = validate_compressed_batch(batch, spec, facts); !s.ok()) return s;
  return facts;
}

Result<BatchFacts> validate_device_batch(const BatchView& batch, const AttentionSpec& spec,
                                         std::int32_t page_size) {
  const DeviceTables& tables = batch.on_device;
  if (tables.kv_indptr == nullptr || tables.kv_indices == nullptr ||
      tables.kv_last_page_len == nullptr)
    return invalid_argument(
        "a batch on the device gives all of kv_indptr, kv_indices and kv_last_page_len there");
  if (!batch.kv_indptr.empty() || !batch.kv_indices.empty() || !batch.kv_last_page_len.empty())
    return invalid_argument(
        "a batch has its page tables on the host or on the device, not on both");
  if (batch.form != BatchForm::decode || batch.source != KvSource::paged)
    return unsupported(
        join("only paged decode batches are planned on the device, have form ", name(batch.form)));
  if (Status s = check_page_size(batch, page_size); !s.ok()) return s;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (tables.max_kv_entries < 0 || tables.max_kv_entries > kMost || tables.max_kv_len < 0 ||
      tables.max_kv_len > kMost)
    return invalid_argument(join("max_kv_entries and max_kv_len are counts below 2^31, have ",
                                 tables.max_kv_entries, " and ", tables.max_kv_len));
  if (!batch.kv_offset.empty() || spec.attention_chunk > 0)
    return unsupported(
        "positions on the device count from the page table's first key: kv_offset and "
        "attention_chunk need a plan made on the host");
  if (spec.custom_mask || !batch.custom_mask.empty())
    return unsupported("a custom mask is laid out by lengths that the host must know");
  if (spec.block_mask || batch.block_mask.given())
    return unsupported("a block mask is laid out by lengths that the host must know");
  if (batch.qo_indptr.empty()) return BatchFacts{};
  if (Status s = check_indptr("qo_indptr", batch.qo_indptr); !s.ok()) return s;
  if (Status s = check_form(batch); !s.ok()) return s;
  return BatchFacts{.source = batch.source,
                    .batch_size = batch.batch_size(),
                    .num_qo_tokens = batch.num_qo_tokens(),
                    .max_qo_len = 1,
                    .max_kv_len = tables.max_kv_len};
}

BatchBounds bounds_of(const BatchView& batch) {
  if (batch.on_device.given())
    return {.max_batch = batch.batch_size(),
            .max_qo_tokens = batch.num_qo_tokens(),
            .max_kv_entries = batch.on_device.max_kv_entries,
            .max_kv_len = batch.on_device.max_kv_len,
            .page_size = batch.page_size,
            .decode_only = true};
  BatchBounds bounds{.max_batch = batch.batch_size(),
                     .max_qo_tokens = batch.num_qo_tokens(),
                     .max_kv_entries = batch.kv_indptr.empty() ? 0 : batch.kv_indptr.back(),
                     .page_size = batch.page_size,
                     .decode_only = batch.form == BatchForm::decode};
  for (std::int64_t i = 0; i < batch.batch_size(); ++i) {
    bounds.max_kv_len = std::max(bounds.max_kv_len, batch.kv_len(i));
    if (batch.compressed.given())
      bounds.max_positions =
          std::max(bounds.max_positions, batch.first_kv_position(i) + batch.kv_len(i));
  }
  return bounds;
}

}  // namespace attune::attention
