#!/usr/bin/env bash
# Installs the packages the build needs on a fresh Debian 12 or Ubuntu 24.04; does nothing where they are all there.
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config git python3 python3-pip libdnnl-dev nlohmann-json3-dev libfmt-dev
          libcli11-dev libpcre2-dev libutf8proc-dev libsentencepiece-dev libgtest-dev libgmock-dev
          libboost-context-dev ocl-icd-opencl-dev)  # the last: libdnnl-dev's CMake file looks for it

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

sudo=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "missing: ${missing[*]}; install them as root, or install sudo" >&2; exit 2; }
  sudo=sudo
fi
echo "installing: ${missing[*]}" >&2
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
