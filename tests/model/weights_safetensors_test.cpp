#include "model/weights/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/scratch_folder.hpp"

namespace attune::model {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

Result<std::vector<SafetensorsEntry>> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "f.safetensors");
}

std::string problem(const std::string& file) {
  const auto parsed = parse(file);
  return parsed.ok() ? "" : parsed.status().text();
}

class Folder {
 public:
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

 private:
  testing_support::ScratchFolder folder_;
};

const std::string kTwo =
    R"({"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]},)"
    R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"x":"y"}})";

TEST(Safetensors, EntriesInOrderOfPlace) {
  const std::string file = file_of(kTwo, std::string("\0\0\x80\x3f\x80\x3f\0\x40", 8));
  const auto entries = parse(file);
  ASSERT_TRUE(entries.ok()) << entries.status().text();
  ASSERT_EQ(entries->size(), 2u);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[1].shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ((*entries)[1].data.size(), 4u);
}

TEST(Safetensors, HostileHeadersGetOneClearError) {
  EXPECT_NE(problem("abc").find("3 bytes long"), std::string::npos);
  EXPECT_NE(problem(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8)).find("announces a header"),
            std::string::npos);
  EXPECT_NE(problem(file_of("[1]", "")).find("not a JSON object"), std::string::npos);
  EXPECT_NE(problem(file_of("{\"a\":", "")).find("not a JSON object"), std::string::npos);
  EXPECT_NE(problem(file_of(std::string(100000, '['), "")).find("not a JSON object"),
            std::string::npos);
  const auto one = [](const std::string& body) {
    return file_of("{\"w\":" + body + "}", "12345678");
  };
  EXPECT_NE(problem(one("3")).find("not an object"), std::string::npos);
  EXPECT_NE(problem(one(R"({"shape":[2],"data_offsets":[0,8]})")).find("no dtype"),
            std::string::npos);
  EXPECT_NE(problem(one(R"({"dtype":"Q9","shape":[2],"data_offsets":[0,8]})")).find("Q9"),
            std::string::npos);
  EXPECT_NE(
      problem(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})")).find("whole number"),
      std::string::npos);
  EXPECT_NE(problem(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})")).find("12 bytes"),
            std::string::npos);
  EXPECT_NE(problem(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})")).find("truncated"),
            std::string::npos);
  EXPECT_NE(problem(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})")).find("truncated"),
            std::string::npos);
  EXPECT_NE(
      problem(one(R"({"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]})"))
          .find("too large"),
      std::string::npos);
  EXPECT_NE(problem(file_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                            R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                            "1"))
                .find("twice"),
            std::string::npos);
}

TEST(Safetensors, TensorsFillTheDataOneBehindTheOther) {
  const auto two = [](int begin, const std::string& data) {
    return problem(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                           R"("n":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
                           R"("b":{"dtype":"U8","shape":[2],"data_offsets":[)" +
                               std::to_string(begin) + "," + std::to_string(begin + 2) + "]}}",
                           data));
  };
  EXPECT_EQ(two(2, "1234"), "");
  EXPECT_NE(two(1, "1234").find("wanted 2"), std::string::npos);
  EXPECT_NE(two(3, "12345").find("wanted 2"), std::string::npos);
  EXPECT_NE(two(2, "12345").find("4 of 5 bytes"), std::string::npos);
}

TEST(Safetensors, StoreFindsAndExplains) {
  const Folder folder;
  const std::string header = R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("i":{"dtype":"I64","shape":[1],"data_offsets":[8,16]}})";
  const std::string path = folder.write(
      "m.safetensors",
      file_of(header, std::string("\0\0\x80\x3f\0\0\0\x40", 8) + std::string(8, '\0')));
  auto store = open_safetensors(path);
  ASSERT_TRUE(store.ok()) << store.status().text();
  const auto a = (*store)->find("a", std::array<std::int64_t, 2>{2, 1});
  ASSERT_TRUE(a.ok());
  std::array<float, 2> values{};
  read_f32(*a, values);
  EXPECT_EQ(values, (std::array<float, 2>{1.0f, 2.0f}));
  EXPECT_EQ((*store)->total_bytes(), 8);
  EXPECT_NE((*store)->find("a", std::array<std::int64_t, 1>{2}).status().text().find("[2, 1]"),
            std::string::npos);
  EXPECT_NE((*store)->find("nope").status().text().find("nope is missing"), std::string::npos);
  EXPECT_NE((*store)->find("i").status().text().find("I64"), std::string::npos);
}

TEST(Safetensors, Shards) {
  const Folder folder;
  folder.write("one.safetensors",
               file_of(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})", "\x80\x3f"));
  folder.write("two.safetensors",
               file_of(R"({"b":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})", "\x80\x3f"));
  const auto index = [&](const std::string& map) {
    return folder.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  };
  auto store = open_safetensors(index(R"("a":"one.safetensors","b":"two.safetensors")"));
  ASSERT_TRUE(store.ok()) << store.status().text();
  EXPECT_TRUE((*store)->has("a") && (*store)->has("b"));

  EXPECT_NE(open_safetensors(index(R"("c":"one.safetensors")")).status().text().find("places c"),
            std::string::npos);
  EXPECT_NE(open_safetensors(index(R"("a":"../one.safetensors")")).status().text().find("plain"),
            std::string::npos);
  EXPECT_NE(open_safetensors(index(R"("a":"none.safetensors")")).status().text().find("No such"),
            std::string::npos);
}

TEST(Safetensors, UnreadableFiles) {
  const Folder folder;
  EXPECT_NE(open_safetensors("/nonexistent/x.safetensors").status().text().find("No such"),
            std::string::npos);
  EXPECT_NE(open_safetensors("/tmp").status().text().find("not a regular file"), std::string::npos);
  EXPECT_NE(open_safetensors(folder.write("e.safetensors", "")).status().text().find("is empty"),
            std::string::npos);
}

}  // namespace
}  // namespace attune::model
