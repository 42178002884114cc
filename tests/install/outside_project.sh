#!/usr/bin/env bash
# Installs Attune into a fresh prefix and builds the examples against it, as their heads say: examples/embed with
# find_package and with pkg-config, the others with pkg-config.
# usage: outside_project.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source_dir=$1
build_dir=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build_dir" --prefix "$work/prefix" > "$work/install.log"

cmake -S "$source_dir/examples/embed" -B "$work/embed" -DCMAKE_PREFIX_PATH="$work/prefix" \
      -DCMAKE_BUILD_TYPE=Release > "$work/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build "$work/embed"
"$work/embed/embed" | tee "$work/found.txt"
grep -q "o\[0\] = 0.500, o\[last\] = 0.500" "$work/found.txt"

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name attune.pc)")
# shellcheck disable=SC2046
c++ "$source_dir/examples/embed/main.cpp" $(pkg-config --cflags --libs attune) \
    -Wl,-rpath,"$(pkg-config --variable=libdir attune)" -o "$work/by_hand"
"$work/by_hand" | grep -q "o\[0\] = 0.500"

# shellcheck disable=SC2046
c++ "$source_dir/examples/prefix_cache/main.cpp" $(pkg-config --cflags --libs attune) \
    -Wl,-rpath,"$(pkg-config --variable=libdir attune)" -o "$work/prefix_cache"
"$work/prefix_cache"
# shellcheck disable=SC2046
c++ -O2 "$source_dir/examples/flex/main.cpp" $(pkg-config --cflags --libs attune) \
    -Wl,-rpath,"$(pkg-config --variable=libdir attune)" -o "$work/flex"
"$work/flex" | tee "$work/flex.txt"
grep -q "^flex_attention: " "$work/flex.txt"
# shellcheck disable=SC2046
c++ -O2 -fPIC -shared "$source_dir/examples/python/glue.cpp" $(pkg-config --cflags --libs attune) \
    -Wl,-rpath,"$(pkg-config --variable=libdir attune)" -o "$work/libglue.so"
python3 "$source_dir/examples/python/attend.py" "$work/libglue.so" | tee "$work/python.txt"
grep -q "o\[0\] = 0.500, o\[last\] = 0.500" "$work/python.txt"

# shellcheck disable=SC2046
c++ -O3 -fPIC -shared "$source_dir/examples/plugin/plain.cpp" $(pkg-config --cflags --libs attune) \
    -Wl,-rpath,"$(pkg-config --variable=libdir attune)" -o "$work/libplain.so"
"$work/prefix/bin/attune" backends --plugin "$work/libplain.so" > "$work/backends.txt"
grep -q "^plain " "$work/backends.txt"
echo "an outside project builds and runs"
