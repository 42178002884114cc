// The functions that every template can call.
#include <array>
#include <chrono>
#include <ctime>

#include "text/jinja/library.hpp"
#include "text/jinja/operations.hpp"
#include "text/jinja/strings.hpp"

namespace attune::text::jinja {
namespace {

using Kind = Value::Kind;

Value range(Run& run, const Args& args) {
  for (const Value& bound : args.positional) {
    if (!bound.is_integral()) return run.fail("range wants integers");
  }
  if (args.positional.empty() || args.positional.size() > 3) {
    return run.fail("range wants one to three integers");
  }
  const bool from_zero = args.positional.size() == 1;
  const std::int64_t start = from_zero ? 0 : args.positional[0].integer();
  const std::int64_t stop = args.positional[from_zero ? 0 : 1].integer();
  const std::int64_t step = args.positional.size() == 3 ? args.positional[2].integer() : 1;
  if (step == 0) return run.fail("range cannot have the step 0");
  constexpr std::int64_t kFarthest = std::int64_t{1} << 53;
  for (const std::int64_t bound : {start, stop, step}) {
    if (bound > kFarthest || bound < -kFarthest) return run.fail("range goes too far");
  }
  List out;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (!run.charge(kStepsPerItem)) return {};
    out.emplace_back(i);
  }
  return out;
}

Dict named_arguments(Run& run, const Args& args) {
  Dict members;
  for (const Value& source : args.positional) {
    if (source.is(Kind::dict))
      members = source.dict();
    else
      run.fail("dict and namespace want names and values");
  }
  for (const Member& member : args.named) members.set(member.first, member.second);
  return members;
}

Value dict(Run& run, const Args& args) { return run.checked(named_arguments(run, args)); }

Value make_namespace(Run& run, const Args& args) {
  return run.new_namespace(named_arguments(run, args));
}

Value raise_exception(Run& run, const Args& args) {
  return run.fail(args.positional.empty() ? "the template refuses"
                                          : to_text(run, args.positional.front()));
}

/// Broken-down UTC.
std::tm calendar(std::int64_t seconds) {
  using namespace std::chrono;
  const sys_seconds time{std::chrono::seconds(seconds)};
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  std::tm out{};
  out.tm_year = static_cast<int>(date.year()) - 1900;
  out.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
  out.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
  out.tm_hour = static_cast<int>(clock.hours().count());
  out.tm_min = static_cast<int>(clock.minutes().count());
  out.tm_sec = static_cast<int>(clock.seconds().count());
  out.tm_wday = static_cast<int>(weekday(day).c_encoding());
  out.tm_yday = static_cast<int>((day - sys_days(date.year() / January / 1)).count());
  return out;
}

Value strftime_now(Run& run, const Args& args) {
  constexpr std::string_view kDirectives = "aAbBdeHIjmMpSuUwWyY%-";
  const std::string format = string_argument(run, args, 0, "format");
  if (!run.now()) return run.fail("the template asks for the date, and none was given");
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    ++i;
    if (i >= format.size() || kDirectives.find(format[i]) == std::string_view::npos) {
      return run.fail("strftime_now does not know the format \"" + format + "\"");
    }
  }
  std::array<char, 1024> out{};
  const std::tm time = calendar(*run.now());
  // A result that does not fit gives length 0, as an empty format does.
  const std::size_t length = std::strftime(out.data(), out.size(), format.c_str(), &time);
  return std::string(out.data(), length);
}

}  // namespace

Dict global_functions() {
  Dict globals;
  globals.set("range", Value::function(range));
  globals.set("dict", Value::function(dict));
  globals.set("namespace", Value::function(make_namespace));
  globals.set("raise_exception", Value::function(raise_exception));
  globals.set("strftime_now", Value::function(strftime_now));
  return globals;
}

}  // namespace attune::text::jinja
