#include "text/subword_model.hpp"

#include <cstddef>

namespace attune::text {

std::vector<TokenId> byte_fallback_ids(const Vocabulary& vocabulary) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::vector<TokenId> ids(256, -1);
  for (std::size_t byte = 0; byte < ids.size(); ++byte) {
    const char piece[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    ids[byte] = vocabulary.id_of(std::string_view(piece, sizeof piece)).value_or(-1);
  }
  return ids;
}

}  // namespace attune::text
