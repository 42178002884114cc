// Everything an engine needs of Attune.
#pragma once

#include <attune/backend.hpp>
#include <attune/batch.hpp>
#include <attune/cache.hpp>
#include <attune/descriptor.hpp>
#include <attune/device.hpp>
#include <attune/flex.hpp>
#include <attune/prefix_cache.hpp>
#include <attune/registry.hpp>
#include <attune/spec.hpp>
#include <attune/status.hpp>
#include <attune/tensor.hpp>
