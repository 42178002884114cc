#include "model/weights/gguf.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

namespace attune::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

constexpr int kMaxArrayDepth = 4;
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 48;
constexpr std::uint64_t kDefaultAlignment = 32;

std::uint64_t bytes_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: break;
  }
  return 0;
}

/// The least a value can take: bounds counts before anything is reserved for them.
std::uint64_t least_bytes_of(GgufType type) {
  if (type == GgufType::string) return 8;
  if (type == GgufType::array) return 12;
  return bytes_of(type);
}

template <class T>
T load(const std::byte* p) {
  T value{};
  std::memcpy(&value, p, sizeof value);
  return value;
}

/// Reads forward; the first failure is kept with its place, later reads give zeros.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool ok() const { return problem_.empty(); }
  [[nodiscard]] const std::string& problem() const { return problem_; }
  [[nodiscard]] std::uint64_t position() const { return position_; }
  [[nodiscard]] std::uint64_t remaining() const { return bytes_.size() - position_; }

  void fail(const std::string& what) {
    if (ok()) problem_ = what + " at byte " + std::to_string(position_);
  }

  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (!ok()) return {};
    if (count > remaining()) {
      fail("the file ends inside " + std::string(what) + ": " + std::to_string(count) +
           " bytes wanted, " + std::to_string(remaining()) + " left,");
      return {};
    }
    const auto part = bytes_.subspan(position_, count);
    position_ += count;
    return part;
  }

  template <class T>
  T read(std::string_view what) {
    const auto part = take(sizeof(T), what);
    return part.empty() ? T{} : load<T>(part.data());
  }

  std::string_view string(std::string_view what) {
    const auto length = read<std::uint64_t>(what);
    const auto part = take(length, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t position_ = 0;
  std::string problem_;
};

std::optional<GgufType> known_type(std::uint32_t number) {
  if (number > static_cast<std::uint32_t>(GgufType::f64)) return std::nullopt;
  return static_cast<GgufType>(number);
}

GgufArray read_array(Cursor& in, int depth) {
  GgufArray array;
  const auto number = in.read<std::uint32_t>("an array's type");
  array.count = in.read<std::uint64_t>("an array's length");
  const std::optional<GgufType> element = known_type(number);
  if (!element) {
    in.fail("an array of the unknown type " + std::to_string(number));
    return {};
  }
  array.element = *element;
  if (in.ok() && array.count > in.remaining() / least_bytes_of(*element))
    in.fail("an array announces " + std::to_string(array.count) +
            " elements, more than the file holds,");
  if (!in.ok()) return {};
  if (*element == GgufType::string) {
    array.strings.reserve(array.count);
    for (std::uint64_t i = 0; i < array.count && in.ok(); ++i)
      array.strings.push_back(in.string("a string"));
  } else if (*element == GgufType::array) {
    if (depth == kMaxArrayDepth) {
      in.fail("arrays nested more than " + std::to_string(kMaxArrayDepth) + " deep");
      return {};
    }
    for (std::uint64_t i = 0; i < array.count && in.ok(); ++i)
      array.arrays.push_back(read_array(in, depth + 1));
  } else {
    array.data = in.take(array.count * bytes_of(*element), "an array");
  }
  return array;
}

GgufValue read_value(Cursor& in, GgufType type) {
  constexpr std::string_view kWhat = "a value";
  switch (type) {
    case GgufType::u8: return std::uint64_t{in.read<std::uint8_t>(kWhat)};
    case GgufType::u16: return std::uint64_t{in.read<std::uint16_t>(kWhat)};
    case GgufType::u32: return std::uint64_t{in.read<std::uint32_t>(kWhat)};
    case GgufType::u64: return in.read<std::uint64_t>(kWhat);
    case GgufType::i8: return std::int64_t{in.read<std::int8_t>(kWhat)};
    case GgufType::i16: return std::int64_t{in.read<std::int16_t>(kWhat)};
    case GgufType::i32: return std::int64_t{in.read<std::int32_t>(kWhat)};
    case GgufType::i64: return in.read<std::int64_t>(kWhat);
    case GgufType::f32: return double{in.read<float>(kWhat)};
    case GgufType::f64: return in.read<double>(kWhat);
    case GgufType::boolean: return in.read<std::uint8_t>(kWhat) != 0;
    case GgufType::string: return in.string(kWhat);
    case GgufType::array: return read_array(in, 1);
  }
  return std::uint64_t{0};
}

/// The entry of the tensor table; its place in the data goes to `offset`.
GgufTensor read_tensor(Cursor& in, std::uint64_t& offset) {
  GgufTensor tensor;
  tensor.name = in.string("a tensor's name");
  const auto rank = in.read<std::uint32_t>("a tensor's rank");
  if (in.ok() && rank > WeightView::kMaxRank) {
    in.fail("tensor " + std::string(tensor.name) + " has " + std::to_string(rank) +
            " dimensions, at most 4 are possible,");
    return tensor;
  }
  tensor.rank = static_cast<int>(rank);
  WeightView& view = tensor.view;
  view.rank = tensor.rank;
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto dim = in.read<std::uint64_t>("a tensor's shape");
    if (dim > kMaxElements || elements > kMaxElements / std::max<std::uint64_t>(dim, 1))
      in.fail("tensor " + std::string(tensor.name) + " has a shape too large to be true");
    if (!in.ok()) return tensor;
    elements *= std::max<std::uint64_t>(dim, 1);  // so that no product of the others overflows
    view.shape[rank - 1 - i] = static_cast<std::int64_t>(dim);
  }
  tensor.type = in.read<std::uint32_t>("a tensor's type");
  offset = in.read<std::uint64_t>("a tensor's offset");
  return tensor;
}

/// Points the view at its bytes. An error text, or empty.
std::string place(GgufTensor& tensor, std::uint64_t offset, std::span<const std::byte> data,
                  std::uint64_t alignment) {
  const std::optional<WeightType> type = weight_type_of_ggml(tensor.type);
  if (!type) {
    tensor.view.data = nullptr;
    return {};
  }
  WeightView& view = tensor.view;
  view.type = *type;
  const std::int64_t per_block = kernels::ops::block_size(*type).per_block;
  if (view.columns() % per_block != 0)
    return "has rows of " + std::to_string(view.columns()) + " numbers, not a multiple of " +
           std::to_string(per_block) + ", the block of " + std::string(kernels::ops::name(*type));
  if (offset % alignment != 0)
    return "lies at offset " + std::to_string(offset) + ", not aligned to " +
           std::to_string(alignment);
  const auto bytes = static_cast<std::uint64_t>(view.bytes());
  if (offset > data.size() || bytes > data.size() - offset)
    return "needs " + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
           " of the data, the file has " + std::to_string(data.size()) +
           " bytes of data; it is truncated or damaged";
  view.data = data.data() + offset;
  return {};
}

}  // namespace

std::string_view name(GgufType type) {
  switch (type) {
    case GgufType::u8: return "uint8";
    case GgufType::i8: return "int8";
    case GgufType::u16: return "uint16";
    case GgufType::i16: return "int16";
    case GgufType::u32: return "uint32";
    case GgufType::i32: return "int32";
    case GgufType::f32: return "float32";
    case GgufType::boolean: return "bool";
    case GgufType::string: return "string";
    case GgufType::array: return "array";
    case GgufType::u64: return "uint64";
    case GgufType::i64: return "int64";
    case GgufType::f64: return "float64";
  }
  return "?";
}

std::optional<WeightType> weight_type_of_ggml(std::uint32_t type) {
  constexpr std::pair<std::uint32_t, WeightType> kNumbers[] = {
      {0, WeightType::f32},   {1, WeightType::f16},   {2, WeightType::q4_0},
      {3, WeightType::q4_1},  {6, WeightType::q5_0},  {7, WeightType::q5_1},
      {8, WeightType::q8_0},  {10, WeightType::q2_k}, {11, WeightType::q3_k},
      {12, WeightType::q4_k}, {13, WeightType::q5_k}, {14, WeightType::q6_k},
      {30, WeightType::bf16}};
  for (const auto& [number, weight] : kNumbers)
    if (number == type) return weight;
  return std::nullopt;
}

double GgufArray::number(std::uint64_t i) const {
  require(i < count && bytes_of(element) > 0, "a number of the array");
  const std::byte* p = data.data() + i * bytes_of(element);
  switch (element) {
    case GgufType::u8:
    case GgufType::boolean: return load<std::uint8_t>(p);
    case GgufType::i8: return load<std::int8_t>(p);
    case GgufType::u16: return load<std::uint16_t>(p);
    case GgufType::i16: return load<std::int16_t>(p);
    case GgufType::u32: return load<std::uint32_t>(p);
    case GgufType::i32: return load<std::int32_t>(p);
    case GgufType::f32: return load<float>(p);
    case GgufType::u64: return static_cast<double>(load<std::uint64_t>(p));
    case GgufType::i64: return static_cast<double>(load<std::int64_t>(p));
    case GgufType::f64: return load<double>(p);
    case GgufType::string:
    case GgufType::array: break;
  }
  return 0;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> file, const std::string& path) {
  const auto refuse = [&](const std::string& what) { return invalid_argument(path + ": " + what); };
  Cursor in(file);
  const auto magic = in.take(4, "the first four bytes");
  if (magic.empty() || std::memcmp(magic.data(), "GGUF", 4) != 0)
    return refuse("the first four bytes are not GGUF; this is no GGUF file");
  GgufFile gguf;
  gguf.version_ = in.read<std::uint32_t>("the version");
  if (in.ok() && gguf.version_ != 2 && gguf.version_ != 3) {
    const bool big_endian = gguf.version_ == 0x02000000 || gguf.version_ == 0x03000000;
    return refuse(big_endian ? "this GGUF file is big-endian; little-endian files are read"
                             : "GGUF version " + std::to_string(gguf.version_) +
                                   "; versions 2 and 3 are read");
  }
  const auto num_tensors = in.read<std::uint64_t>("the number of tensors");
  const auto num_values = in.read<std::uint64_t>("the number of keys");

  for (std::uint64_t i = 0; i < num_values && in.ok(); ++i) {
    const std::string_view key = in.string("a key");
    const auto number = in.read<std::uint32_t>("a value's type");
    const std::optional<GgufType> type = known_type(number);
    if (in.ok() && !type)
      in.fail("key " + std::string(key) + " has the unknown type " + std::to_string(number));
    if (!in.ok()) break;
    if (!gguf.values_.try_emplace(key, read_value(in, *type)).second)
      in.fail("key " + std::string(key) + " appears twice, the second time");
  }

  std::vector<std::uint64_t> offsets;
  std::set<std::string_view> names;
  for (std::uint64_t i = 0; i < num_tensors && in.ok(); ++i) {
    gguf.tensors_.push_back(read_tensor(in, offsets.emplace_back()));
    if (in.ok() && !names.insert(gguf.tensors_.back().name).second)
      in.fail("tensor " + std::string(gguf.tensors_.back().name) +
              " appears twice, the second time");
  }
  if (!in.ok()) return refuse(in.problem() + "; it is truncated or damaged");

  std::uint64_t alignment = kDefaultAlignment;
  if (const GgufValue* wanted = gguf.find("general.alignment")) {
    const auto* number = std::get_if<std::uint64_t>(wanted);
    if (number == nullptr || !std::has_single_bit(*number) || *number > (1u << 20))
      return refuse("general.alignment should be a power of two of at most 2^20");
    alignment = *number;
  }
  const std::uint64_t start = (in.position() + alignment - 1) / alignment * alignment;
  const auto data = start <= file.size() ? file.subspan(start) : std::span<const std::byte>{};
  for (std::size_t i = 0; i < gguf.tensors_.size(); ++i)
    if (const std::string problem = place(gguf.tensors_[i], offsets[i], data, alignment);
        !problem.empty())
      return refuse("tensor " + std::string(gguf.tensors_[i].name) + " " + problem);
  return gguf;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* i = std::get_if<std::int64_t>(value)) return *i;
  if (const auto* u = std::get_if<std::uint64_t>(value); u != nullptr && *u <= INT64_MAX)
    return static_cast<std::int64_t>(*u);
  return std::nullopt;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* d = std::get_if<double>(value)) return *d;
  if (const auto i = integer(key)) return static_cast<double>(*i);
  return std::nullopt;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* b = std::get_if<bool>(value)) return *b;
  return std::nullopt;
}

std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* s = std::get_if<std::string_view>(value)) return *s;
  return std::nullopt;
}

const GgufArray* GgufFile::array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value == nullptr ? nullptr : std::get_if<GgufArray>(value);
}

}  // namespace attune::model
