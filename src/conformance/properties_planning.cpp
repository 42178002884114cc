// Properties of plans made on the device (docs/decisions/0009-device-planning.md).
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <attune/validate.hpp>

#include "base/join.hpp"
#include "base/math.hpp"
#include "conformance/properties.hpp"
#include "conformance/scene.hpp"

namespace attune::conformance {
namespace {

/// Page tables of some lengths, on the host.
struct Tables {
  std::vector<std::int32_t> indptr{0}, indices, last_page_len;
};

/// The first `lengths[i]` keys of each request.
Tables tables_of(const Prepared& p, std::int32_t page_size,
                 const std::vector<std::int64_t>& lengths) {
  Tables t;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto pages =
        static_cast<std::int32_t>(base::ceil_div<std::int64_t>(lengths[i], page_size));
    const auto first = p.kv_indices.begin() + p.kv_indptr[i];
    t.indices.insert(t.indices.end(), first, first + pages);
    t.indptr.push_back(t.indptr.back() + pages);
    t.last_page_len.push_back(
        pages == 0 ? 0
                   : static_cast<std::int32_t>(lengths[i] - (pages - 1) * std::int64_t{page_size}));
  }
  return t;
}

struct Bytes {
  std::vector<char> o, lse;
};

Result<Bytes> answer_of(Stage& stage, const Prepared& p) {
  if (Status s = stage.memory().synchronize(); !s.ok()) return s;
  auto o = p.o.download();
  if (!o.ok()) return o.status();
  if (Status s = p.o.check_guards("o"); !s.ok()) return s;
  if (p.lse.size() == 0) return Bytes{.o = std::move(*o), .lse = {}};
  auto lse = p.lse.download();
  if (!lse.ok()) return lse.status();
  return Bytes{.o = std::move(*o), .lse = std::move(*lse)};
}

/// A subject that plans on the device, and the same on the host, over one stage.
class BothPlanners {
 public:
  BothPlanners(Scene& scene, const Case& one, Prepared& p) : scene_(scene), case_(one), p_(p) {}

  /// Plans on the device and records refresh and run.
  Status open() {
    Stage& stage = *scene_.stage;
    const std::size_t n = p_.kv_last_page_len.size();
    const auto room = [&](GuardedMemory& memory, std::size_t count) -> Status {
      auto made = GuardedMemory::make(stage.memory(), count * sizeof(std::int32_t), 0xff);
      if (!made.ok()) return made.status();
      memory = std::move(*made);
      return {};
    };
    // One entry at least: an array has an address.
    if (Status s = room(indptr_, n + 1); !s.ok()) return s;
    if (Status s = room(indices_, std::max<std::size_t>(1, p_.kv_indices.size())); !s.ok())
      return s;
    if (Status s = room(last_page_len_, n); !s.ok()) return s;
    batch_ = p_.batch;
    batch_.kv_indptr = batch_.kv_indices = batch_.kv_last_page_len = {};
    batch_.on_device = {
        .kv_indptr = reinterpret_cast<const std::int32_t*>(indptr_.data()),
        .kv_indices = reinterpret_cast<const std::int32_t*>(indices_.data()),
        .kv_last_page_len = reinterpret_cast<const std::int32_t*>(last_page_len_.data()),
        .max_kv_entries = static_cast<std::int64_t>(p_.kv_indices.size()),
        .max_kv_len = attention::bounds_of(p_.batch).max_kv_len};
    auto workspace = stage.workspace(*scene_.backend, batch_);
    if (!workspace.ok()) return workspace.status();
    workspace_ = std::move(*workspace);
    // What the arrays hold while the plan is made does not matter.
    auto plan = scene_.backend->plan(batch_, workspace_.view, stage.memory().stream());
    if (!plan.ok()) return plan.status();
    plan_ = std::move(*plan);
    return {};
  }
  Status record() {
    auto recording = scene_.stage->memory().record([&](Stream stream) -> Status {
      if (Status s = scene_.backend->refresh(*plan_, batch_, stream); !s.ok()) return s;
      return scene_.backend->run(*plan_, p_.call, stream);
    });
    if (!recording.ok()) return recording.status();
    recording_ = std::move(*recording);
    return {};
  }

  /// Both ways over the same lengths; `spoil` changes what the device is given.
  Result<bool> agree(const std::vector<std::int64_t>& lengths, auto spoil) {
    Stage& stage = *scene_.stage;
    const Tables tables = tables_of(p_, case_.page_size, lengths);
    // The host's answer to the same lengths, asked for again after other plans, is the same.
    if (!of_host_.contains(lengths)) {
      auto bytes = on_the_host(tables);
      if (!bytes.ok()) return bytes.status();
      of_host_.emplace(lengths, std::move(*bytes));
    }
    const Bytes& wanted = of_host_.at(lengths);
    Tables given = tables;
    spoil(given);
    if (Status s = put(indptr_, given.indptr); !s.ok()) return s;
    if (Status s = put(indices_, given.indices); !s.ok()) return s;
    if (Status s = put(last_page_len_, given.last_page_len); !s.ok()) return s;
    if (Status s = stage.blank(p_); !s.ok()) return s;
    if (recording_ != nullptr) {
      if (Status s = recording_->replay(); !s.ok()) return s;
    } else {
      const Stream stream = stage.memory().stream();
      if (Status s = scene_.backend->refresh(*plan_, batch_, stream); !s.ok()) return s;
      if (Status s = scene_.backend->run(*plan_, p_.call, stream); !s.ok()) return s;
    }
    auto have = answer_of(stage, p_);
    if (!have.ok()) return have.status();
    if (Status s = workspace_.check_guards(); !s.ok()) return s;
    return have->o == wanted.o && have->lse == wanted.lse;
  }

  /// What a plan made on the device must not be refreshed to.
  std::string wrongly_accepted() {
    const auto accepts = [&](const BatchView& batch) {
      return scene_.backend->refresh(*plan_, batch, scene_.stage->memory().stream()).ok();
    };
    if (accepts(p_.batch)) return "tables on the host";
    BatchView b = batch_;
    ++b.on_device.max_kv_entries;
    if (accepts(b)) return "more entries than planned for";
    b = batch_;
    ++b.on_device.max_kv_len;
    if (accepts(b)) return "longer requests than planned for";
    b = batch_;
    ++b.on_device.kv_indices;
    if (accepts(b)) return "page ids at another address";
    b = batch_;
    b.kv_indptr = p_.kv_indptr;
    if (accepts(b)) return "tables on both sides";
    return {};
  }

 private:
  Status put(GuardedMemory& to, const std::vector<std::int32_t>& values) {
    DeviceMemory& memory = scene_.stage->memory();
    if (Status s = memory.fill(to.data(), 0xff, to.size()); !s.ok()) return s;
    return values.empty()
               ? Status{}
               : memory.copy_in(to.data(), values.data(), values.size() * sizeof(std::int32_t));
  }

  Result<Bytes> on_the_host(const Tables& tables) {
    Stage& stage = *scene_.stage;
    BatchView batch = p_.batch;
    batch.kv_indptr = tables.indptr;
    batch.kv_indices = tables.indices;
    batch.kv_last_page_len = tables.last_page_len;
    auto workspace = stage.workspace(*scene_.backend, batch);
    if (!workspace.ok()) return workspace.status();
    const Stream stream = stage.memory().stream();
    auto plan = scene_.backend->plan(batch, workspace->view, stream);
    if (!plan.ok()) return plan.status();
    if (Status s = stage.blank(p_); !s.ok()) return s;
    if (Status s = scene_.backend->run(**plan, p_.call, stream); !s.ok()) return s;
    return answer_of(stage, p_);
  }

  Scene& scene_;
  const Case& case_;
  Prepared& p_;
  GuardedMemory indptr_, indices_, last_page_len_;
  BatchView batch_;
  StagedWorkspace workspace_;
  PlanHandle plan_;
  std::unique_ptr<Recording> recording_;
  std::map<std::vector<std::int64_t>, Bytes> of_host_;
};

Outcome plans_on_the_device(const Subject& subject, const Case& one) {
  auto scene = set_up(subject, one);
  if (!scene.ok()) return outcome_of(scene.status(), one);
  auto prepared = scene->stage->prepare(whole_step(one));
  if (!prepared.ok()) return failed(prepared.status().text());
  Prepared& p = **prepared;
  BothPlanners both(*scene, one, p);
  if (Status s = both.open(); !s.ok()) return outcome_of(s, one);

  std::vector<std::int64_t> whole;
  for (std::int64_t i = 0; i < p.batch.batch_size(); ++i) whole.push_back(p.batch.kv_len(i));
  const auto with = [&](auto length) {
    std::vector<std::int64_t> lengths = whole;
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = length(i, whole[i]);
    return lengths;
  };
  const auto longest =
      static_cast<std::size_t>(std::max_element(whole.begin(), whole.end()) - whole.begin());
  const auto as_is = [](Tables&) {};
  const struct {
    std::string_view what;
    std::vector<std::int64_t> lengths;
  } courses[] = {
      {"all keys", whole},
      {"every second request empty",
       with([](std::size_t i, std::int64_t n) { return i % 2 == 0 ? n : 0; })},
      {"one key each beside a long request", with([&](std::size_t i, std::int64_t n) {
         return i == longest ? n : std::min<std::int64_t>(n, 1);
       })},
      {"two thirds", with([](std::size_t, std::int64_t n) { return n * 2 / 3; })},
      {"no keys at all", with([](std::size_t, std::int64_t) { return std::int64_t{0}; })},
      {"all keys again", whole},
  };
  std::string place;
  const auto check = [&](std::string_view what, const auto& lengths, auto spoil) -> Outcome {
    const auto same = both.agree(lengths, spoil);
    if (!same.ok()) return outcome_of(same.status(), one);
    if (!*same) return failed(base::join(place, what, ": not the bits of a plan made on the host"));
    return {};
  };
  for (const bool recorded : {false, true}) {
    place = recorded ? "replayed, " : "refreshed, ";
    if (recorded)
      if (Status s = both.record(); !s.ok()) return outcome_of(s, one);
    for (const auto& course : courses)
      if (Outcome o = check(course.what, course.lengths, as_is); o.verdict != Verdict::passed)
        return o;
  }
  // Unsound entries are empty rows.
  const auto emptied = with([&](std::size_t i, std::int64_t n) { return i == longest ? 0 : n; });
  const Tables sound = tables_of(p, one.page_size, whole);
  for (const std::int32_t last : {0, -1, one.page_size + 1}) {
    const auto spoil = [&](Tables& t) {
      t = sound;
      t.last_page_len[longest] = last;
    };
    if (Outcome o = check(base::join("a last page of ", last), emptied, spoil);
        o.verdict != Verdict::passed)
      return o;
  }
  if (const std::string what = both.wrongly_accepted(); !what.empty())
    return failed(base::join("refresh accepted ", what));

  Answer answer = scene->stage->blank_answer();
  if (Outcome o = check("all keys", whole, as_is); o.verdict != Verdict::passed) return o;
  if (Status s = scene->stage->collect(p, answer); !s.ok()) return failed(s.text());
  return against_reference(subject, *scene->problem, answer);
}

}  // namespace

const Property kPlansOnTheDevice{"plans_on_the_device", plans_on_the_device};

}  // namespace attune::conformance
