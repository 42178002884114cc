#include "bench/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "bench/report.hpp"

namespace attune::bench {
namespace {

constexpr const char* kColours[] = {"#2563eb", "#dc2626", "#059669",
                                    "#d97706", "#7c3aed", "#0891b2"};

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      default: out += c;
    }
  }
  return out;
}

/// A colour a backend, in order of first appearance.
std::map<std::string, std::string> colours(const std::vector<Row>& rows) {
  std::map<std::string, std::string> out;
  for (const Row& row : rows)
    if (!out.contains(row.backend)) out[row.backend] = kColours[out.size() % std::size(kColours)];
  return out;
}

/// Log axes: flops a byte across, TFLOP/s up; the roof is the measured bandwidth and product rate.
std::string roofline(const Report& r, const std::map<std::string, std::string>& colour) {
  constexpr double kWidth = 720;
  constexpr double kHeight = 360;
  constexpr double kLeft = 56;
  constexpr double kBottom = 40;
  double low_x = 0.1;
  double high_x = 10.0;
  double low_y = r.ceilings.bf16_flops / 1e12;
  const double high_y = r.ceilings.bf16_flops / 1e12 * 1.5;
  for (const Row& row : r.rows) {
    const double x = row.tflops * 1e3 / row.gbps;
    low_x = std::min(low_x, x / 2);
    high_x = std::max(high_x, x * 2);
    low_y = std::min(low_y, row.tflops / 2);
  }
  const auto across = [&](double x) {
    return kLeft + (kWidth - kLeft - 10) * std::log(x / low_x) / std::log(high_x / low_x);
  };
  const auto up = [&](double y) {
    return kHeight - kBottom -
           (kHeight - kBottom - 10) * std::log(y / low_y) / std::log(high_y / low_y);
  };
  const double knee = r.ceilings.bf16_flops / r.ceilings.bytes_per_s;
  const double start = std::max(low_x, low_y * 1e12 / r.ceilings.bytes_per_s);
  std::string svg = fmt::format("<svg viewBox='0 0 {} {}' role='img'>", kWidth, kHeight);
  svg += fmt::format(
      "<polyline fill='none' stroke='#111' stroke-width='1.5' points='{:.1f},{:.1f} {:.1f},{:.1f} "
      "{:.1f},{:.1f}'/>",
      across(start), up(start * r.ceilings.bytes_per_s / 1e12), across(knee),
      up(r.ceilings.bf16_flops / 1e12), across(high_x), up(r.ceilings.bf16_flops / 1e12));
  for (double x = std::pow(10.0, std::ceil(std::log10(low_x))); x <= high_x; x *= 10)
    svg += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:g}</text>", across(x),
                       kHeight - 22, x);
  for (double y = std::pow(10.0, std::ceil(std::log10(low_y))); y <= high_y; y *= 10)
    svg += fmt::format("<text x='{}' y='{:.1f}' text-anchor='end'>{:g}</text>", kLeft - 6,
                       up(y) + 4, y);
  svg += fmt::format("<text x='{}' y='{}' text-anchor='middle'>flop a byte</text>", kWidth / 2,
                     kHeight - 4);
  svg += "<text x='12' y='180' transform='rotate(-90 12 180)' text-anchor='middle'>TFLOP/s</text>";
  for (const Row& row : r.rows)
    svg += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}'><title>{} {}: {:.4g} ms, {:.1f} % of the "
        "{} ceiling</title></circle>",
        across(row.tflops * 1e3 / row.gbps), up(row.tflops), colour.at(row.backend),
        escaped(row.case_name), escaped(row.backend), row.ms, row.percent_of_ceiling,
        name(row.bound));
  return svg + "</svg>";
}

std::string bars(const Report& r, const std::map<std::string, std::string>& colour) {
  constexpr double kRow = 18;
  constexpr double kLabel = 380;
  constexpr double kFull = 300;  // pixels of 100 %
  const double height = kRow * static_cast<double>(r.rows.size()) + 24;
  std::string svg = fmt::format("<svg viewBox='0 0 760 {}' role='img'>", height);
  svg += fmt::format("<line x1='{0}' y1='0' x2='{0}' y2='{1}' stroke='#999' stroke-dasharray='3'/>",
                     kLabel + kFull, height - 20);
  double y = 0;
  std::string last;
  for (const Row& row : r.rows) {
    if (row.case_name != last)
      svg += fmt::format("<text x='{}' y='{}' text-anchor='end'>{}</text>", kLabel - 8, y + 13,
                         escaped(row.case_name));
    last = row.case_name;
    svg += fmt::format("<rect x='{}' y='{}' width='{:.1f}' height='{}' fill='{}'/>", kLabel, y + 2,
                       std::min(kFull * row.percent_of_ceiling / 100, kFull * 1.1), kRow - 4,
                       colour.at(row.backend));
    svg += fmt::format("<text x='{:.1f}' y='{}'>{:.0f} %</text>",
                       kLabel + kFull * std::min(row.percent_of_ceiling / 100, 1.1) + 4, y + 13,
                       row.percent_of_ceiling);
    y += kRow;
  }
  svg +=
      fmt::format("<text x='{}' y='{}' text-anchor='middle'>100 % of the ceiling that binds</text>",
                  kLabel + kFull, height - 4);
  return svg + "</svg>";
}

}  // namespace

std::string to_html(const Report& r) {
  const std::map<std::string, std::string> colour = colours(r.rows);
  std::string out =
      "<!doctype html><meta charset='utf-8'><title>attune bench</title><style>body{font:14px "
      "system-ui,sans-serif;"
      "max-width:820px;margin:2em auto;padding:0 1em;color:#111}svg{width:100%}svg "
      "text{font-size:11px;fill:#333}"
      "table{border-collapse:collapse;width:100%;font-size:12px}td,th{padding:3px "
      "8px;border-bottom:1px solid #ddd;"
      "text-align:right}td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:"
      "left}"
      ".key{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px}</style>";
  out += "<h1>Attention, measured</h1>";
  out += fmt::format(
      "<p>{}, {} threads, {}. Reads {:.1f} GB/s ({}); products {:.3f} TFLOP/s ({}), fp32 {:.3f} "
      "({}). "
      "Cold caches, median of repeats.</p>",
      escaped(r.device.name), r.threads, name(r.device.isa), r.ceilings.bytes_per_s / 1e9,
      escaped(r.ceilings.bandwidth_how), r.ceilings.bf16_flops / 1e12, escaped(r.ceilings.bf16_how),
      r.ceilings.f32_flops / 1e12, escaped(r.ceilings.f32_how));
  if (r.ceilings.int8_ops > 0.0)
    out += fmt::format("<p>int8 products {:.3f} TOP/s ({}).</p>", r.ceilings.int8_ops / 1e12,
                       escaped(r.ceilings.int8_how));
  out += "<p>";
  for (const auto& [backend, fill] : colour)
    out += fmt::format("<span class='key' style='background:{}'></span>{}", fill, escaped(backend));
  out += "</p>";
  if (!r.rows.empty()) {
    out += "<h2>Roofline</h2>" + roofline(r, colour);
    out += "<h2>Percent of the ceiling that binds</h2>" + bars(r, colour);
  }
  out += "<h2>Numbers</h2><table><tr><th>case<th>backend<th>ms<th>TFLOP/s<th>GB/s<th>%<th>bound";
  for (const Row& row : r.rows)
    out += fmt::format("<tr><td>{}<td>{}<td>{:.4g}<td>{:.4g}<td>{:.4g}<td>{:.1f}<td>{}",
                       escaped(row.case_name), escaped(row.backend), row.ms, row.tflops, row.gbps,
                       row.percent_of_ceiling, name(row.bound));
  out += "</table>";
  if (!r.skipped.empty()) {
    out += "<h2>Not run</h2><ul>";
    for (const std::string& line : r.skipped) out += "<li>" + escaped(line);
    out += "</ul>";
  }
  return out + "\n";
}

}  // namespace attune::bench
