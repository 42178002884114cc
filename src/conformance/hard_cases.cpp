#include "conformance/hard_cases.hpp"

#include <utility>

namespace attune::conformance {

std::vector<Case> HardCases::make() {
  if (row_.phases.contains(Phase::decode)) decode();
  if (row_.phases.contains(Phase::prefill)) prefill();
  return std::move(cases_);
}

Case HardCases::typical(BatchForm form, std::vector<RequestShape> requests) const {
  const bool mla = is_latent(variant_);
  const DType q = pick(factors_.q_dtype, DType::bf16);
  Case one{.form = form,
           .layout = factors_.layout.front(),
           .page_size = pick(factors_.page_size, std::int32_t{16}),
           .want_lse = has(Feature::lse),
           .requests = std::move(requests),
           .seed = 7};
  one.spec =
      base_spec(variant_, mla ? factors_.dims.back() : pick(factors_.dims, HeadDims{128, 128}),
                pick(factors_.group, mla ? 16 : 4), q, pick(factors_.kv_dtype, q));
  return one;
}

Case HardCases::awkward(BatchForm form, std::vector<RequestShape> requests) const {
  const bool mla = is_latent(variant_);
  const DType q = pick(factors_.q_dtype, DType::f32);
  Case one = typical(form, std::move(requests));
  one.layout = factors_.layout.back();
  one.page_size = pick(factors_.page_size, std::int32_t{5});
  one.spec =
      base_spec(variant_, mla ? factors_.dims.front() : pick(factors_.dims, HeadDims{80, 80}),
                pick(factors_.group, 3), q, pick(factors_.kv_dtype, q));
  if (variant_ != Variant::dsv4) return one;
  one.page_size = pick(factors_.page_size, std::int32_t{12});
  set_compression(one, Compression::whole);
  return one;
}

HeadDims HardCases::smallest_dims() const {
  return *std::min_element(
      factors_.dims.begin(), factors_.dims.end(),
      [](const HeadDims& x, const HeadDims& y) { return x.qk + x.vo < y.qk + y.vo; });
}

void HardCases::add(Case one, const Property& property, bool smoke, FeatureSet exercises,
                    std::string_view label) {
  one.property = &property;
  one.smoke = smoke;
  one.exercises = exercises;
  one.label = label;
  cases_.push_back(std::move(one));
}

}  // namespace attune::conformance
