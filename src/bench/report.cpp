#include "bench/report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <sstream>

#include "base/whole_file.hpp"
#include "bench/growth.hpp"
#include "bench/html.hpp"

namespace attune::bench {
namespace {

using Json = nlohmann::ordered_json;

Result<Json> read_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) return invalid_argument("cannot read " + path);
  Json json = Json::parse(in, nullptr, false);
  if (json.is_discarded() || !json.contains("rows") || !json["rows"].is_array())
    return invalid_argument(path + " is no result of attune bench: it holds no JSON with rows");
  return json;
}

/// Milliseconds by "case backend device".
Result<std::map<std::string, double>> times(const std::string& path) {
  const Result<Json> json = read_json(path);
  if (!json.ok()) return json.status();
  std::map<std::string, double> found;
  for (const Json& row : (*json)["rows"]) {
    if (!row.contains("case") || !row.contains("backend") || !row.contains("device") ||
        !row.contains("ms") || !row["ms"].is_number() || !(row["ms"].get<double>() > 0.0) ||
        !row["case"].is_string() || !row["backend"].is_string() || !row["device"].is_string())
      return invalid_argument(path + ": a row lacks case, backend, device or ms");
    found[row["case"].get<std::string>() + " " + row["backend"].get<std::string>() + " " +
          row["device"].get<std::string>()] = row["ms"].get<double>();
  }
  return found;
}

}  // namespace

std::string to_json(const Report& r) {
  Json out;
  out["machine"] = {
      {"name", r.device.name}, {"device", name(r.device.kind)},         {"isa", name(r.device.isa)},
      {"threads", r.threads},  {"memory_bytes", r.device.memory_bytes}, {"attune", r.version}};
  out["ceilings"] = {
      {"read_gbps", r.ceilings.bytes_per_s / 1e9},   {"read_how", r.ceilings.bandwidth_how},
      {"bf16_tflops", r.ceilings.bf16_flops / 1e12}, {"bf16_how", r.ceilings.bf16_how},
      {"fp32_tflops", r.ceilings.f32_flops / 1e12},  {"fp32_how", r.ceilings.f32_how}};
  if (r.ceilings.int8_ops > 0.0) {
    out["ceilings"]["int8_tops"] = r.ceilings.int8_ops / 1e12;
    out["ceilings"]["int8_how"] = r.ceilings.int8_how;
  }
  out["rows"] = Json::array();
  for (const Row& row : r.rows)
    out["rows"].push_back({{"case", row.case_name},
                           {"backend", row.backend},
                           {"device", row.device},
                           {"ms", row.ms},
                           {"ms_min", row.ms_min},
                           {"ms_max", row.ms_max},
                           {"tflops", row.tflops},
                           {"gbps", row.gbps},
                           {"percent_of_ceiling", row.percent_of_ceiling},
                           {"bound", name(row.bound)}});
  out["skipped"] = r.skipped;
  return out.dump(2) + "\n";
}

std::string to_csv(const Report& r) {
  std::string out = "case,backend,device,ms,ms_min,ms_max,tflops,gbps,percent_of_ceiling,bound\n";
  for (const Row& row : r.rows)
    out += fmt::format("{},{},{},{:.6g},{:.6g},{:.6g},{:.6g},{:.6g},{:.4g},{}\n", row.case_name,
                       row.backend, row.device, row.ms, row.ms_min, row.ms_max, row.tflops,
                       row.gbps, row.percent_of_ceiling, name(row.bound));
  return out;
}

Status check_output(const std::string& path) {
  if (!path.ends_with(".json") && !path.ends_with(".csv") && !path.ends_with(".html"))
    return invalid_argument("--output " + path +
                            ": wanted a name that ends in .json, .csv or .html");
  return base::check_writable(path);
}

Status write_report(const Report& report, const std::string& path) {
  std::string text;
  if (path.ends_with(".json")) {
    text = to_json(report);
  } else if (path.ends_with(".csv")) {
    text = to_csv(report);
  } else {
    text = to_html(report);
  }
  return base::write_whole(path, text);
}

Result<std::vector<Change>> compare(const std::string& old_path, const std::string& new_path,
                                    double max_regression) {
  const auto before = times(old_path);
  if (!before.ok()) return before.status();
  const auto after = times(new_path);
  if (!after.ok()) return after.status();
  std::vector<Change> changes;
  for (const auto& [what, old_ms] : *before) {
    const auto found = after->find(what);
    Change change{.what = what, .old_ms = old_ms};
    if (found != after->end()) change.new_ms = found->second;
    change.regressed = found == after->end() || change.new_ms > old_ms * (1.0 + max_regression);
    changes.push_back(change);
  }
  return changes;
}

Result<std::vector<GrowthPoint>> read_growth(const std::vector<std::string>& paths) {
  std::vector<GrowthPoint> points;
  std::string device;
  for (const std::string& path : paths) {
    const Result<Json> json = read_json(path);
    if (!json.ok()) return json.status();
    const Json& machine = json->value("machine", Json::object());
    if (!machine.is_object() || !machine.value("threads", Json()).is_number_integer())
      return invalid_argument(path + ": its machine lacks threads");
    for (const Json& row : (*json)["rows"]) {
      const Json& share = row.value("percent_of_ceiling", Json());
      if (!row.value("case", Json()).is_string() || !row.value("backend", Json()).is_string() ||
          !row.value("device", Json()).is_string() || !row.value("ms", Json()).is_number() ||
          !share.is_number())
        return invalid_argument(path +
                                ": a row lacks case, backend, device, ms or percent_of_ceiling");
      const auto on = row["device"].get<std::string>();
      if (device.empty()) device = on;
      if (device != on)
        return invalid_argument(path + ": rows of " + on + " beside rows of " + device +
                                "; growth is fitted on one device");
      const double ms = row["ms"].get<double>();
      points.push_back({.case_name = row["case"].get<std::string>(),
                        .backend = row["backend"].get<std::string>(),
                        .threads = machine["threads"].get<int>(),
                        .ms = ms,
                        .floor_ms = ms * share.get<double>() / 100.0});
    }
  }
  return points;
}

}  // namespace attune::bench
