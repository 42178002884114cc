#include "bench/growth.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "base/join.hpp"

namespace attune::bench {
namespace {

using base::join;

struct Number {
  std::string series;  ///< the name with N in the number's place
  int value = 0;
};

/// The number that follows `word` at the begin of a part of the name, or inside its last part.
std::optional<Number> number_after(std::string_view name, std::string_view word) {
  const std::size_t found = name.find(word);
  if (found == std::string_view::npos) return std::nullopt;
  const std::size_t begin = found + word.size();
  Number number;
  const auto [end, error] =
      std::from_chars(name.data() + begin, name.data() + name.size(), number.value);
  if (error != std::errc{} || number.value < 1) return std::nullopt;
  number.series = join(name.substr(0, begin), "N", name.substr(end - name.data()));
  return number;
}

std::optional<Number> varying(const GrowthPoint& point, std::string_view what) {
  if (what == "threads") return Number{point.case_name, point.threads};
  std::optional<Number> number;
  if (what == "heads") {
    number = number_after(point.case_name, "/gqa");
    // Linear operations say their heads after a head dim, which begins with the same letter.
    const std::size_t dim = point.case_name.find("/hd");
    if (!number && dim != std::string::npos) {
      number = number_after(std::string_view(point.case_name).substr(dim + 1), "/h");
      if (number) number->series.insert(0, point.case_name, 0, dim + 1);
    }
  } else {
    const std::size_t shape = point.case_name.rfind("/b");
    if (shape == std::string::npos) return std::nullopt;
    number =
        number_after(std::string_view(point.case_name).substr(shape), what == "batch" ? "/b" : "x");
    if (number) number->series.insert(0, point.case_name, 0, shape);
  }
  if (number)
    number->series += join(", ", point.threads, point.threads == 1 ? " thread" : " threads");
  return number;
}

/// The slope of log y over log x by least squares; 0 where x does not vary.
double slope(const std::vector<int>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0.0;
  double mean_y = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mean_x += std::log(x[i]) / n;
    mean_y += std::log(y[i]) / n;
  }
  double covariance = 0.0;
  double variance = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = std::log(x[i]) - mean_x;
    covariance += dx * (std::log(y[i]) - mean_y);
    variance += dx * dx;
  }
  return variance > 0.0 ? covariance / variance : 0.0;
}

struct Series {
  std::string name;
  std::map<int, const GrowthPoint*> points;
};

}  // namespace

std::vector<Growth> fit_growth(const std::vector<GrowthPoint>& points) {
  constexpr std::string_view kNumbers[] = {"length", "batch", "heads", "threads"};
  std::vector<Growth> fits;
  for (const std::string_view what : kNumbers) {
    std::vector<Series> all;
    for (const GrowthPoint& point : points) {
      if (point.ms <= 0.0 || point.floor_ms <= 0.0) continue;
      const std::optional<Number> number = varying(point, what);
      if (!number) continue;
      const std::string name = join(number->series, ", ", point.backend);
      auto found = std::find_if(all.begin(), all.end(), [&](auto& s) { return s.name == name; });
      if (found == all.end()) found = all.insert(all.end(), {.name = name, .points = {}});
      found->points.emplace(number->value, &point);
    }
    for (const Series& series : all) {
      if (series.points.size() < (what == "threads" ? 2u : 3u)) continue;
      Growth fit{.series = series.name, .varies = std::string(what), .values = {}, .ms = {}};
      std::vector<double> floors;
      for (const auto& [value, point] : series.points) {
        fit.values.push_back(value);
        fit.ms.push_back(point->ms);
        floors.push_back(point->floor_ms);
      }
      fit.exponent = slope(fit.values, fit.ms);
      fit.floor_exponent = slope(fit.values, floors);
      fits.push_back(std::move(fit));
    }
  }
  return fits;
}

}  // namespace attune::bench
