// kernels/ptx/mailbox.cuh in plain C++: blocks of a cooperative launch run side by side.
#pragma once

#include <cstdint>
#include <cstring>

#include "machine.hpp"

namespace attune::kernels::ptx {

inline constexpr std::uint32_t kNoMail = 0xffffffffu;

template <class Vector>
void send(Vector* box, Vector v) {
  std::uint32_t words[sizeof(Vector) / 4];
  std::memcpy(words, &v, sizeof(v));
  for (std::uint32_t& word : words)
    if (word == kNoMail) word = 0x7fffffffu;
  std::memcpy(static_cast<void*>(box), words, sizeof(words));
}

namespace detail {

template <class Vector>
Vector receive(Vector* box) {
  std::uint32_t words[sizeof(Vector) / 4];
  for (bool all = false; !all;) {
    std::memcpy(words, static_cast<const void*>(box), sizeof(words));
    all = true;
    for (const std::uint32_t word : words) all = all && word != kNoMail;
    if (!all) emulated::yield();
  }
  Vector v;
  std::memcpy(static_cast<void*>(&v), words, sizeof(v));
  std::memset(static_cast<void*>(box), 0xff, sizeof(v));
  return v;
}

}  // namespace detail

template <class First, class Second>
void receive(First* box, Second* other, First& v, Second& w) {
  v = detail::receive(box);
  w = detail::receive(other);
}

}  // namespace attune::kernels::ptx
