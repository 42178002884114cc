// The checks are public: <attune/validate.hpp> (layer attention).
#pragma once

#include <attune/validate.hpp>
