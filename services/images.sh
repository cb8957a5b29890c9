#!/usr/bin/env bash
# Builds the images with docker, podman or buildah, whichever is installed. `make images` calls it.
#
#   services/images.sh [slim] [cpu] [cuda]     slim and cpu, if none is named
#
# Variables:
#   ENGINE           the engine's command, with its own options
#   BUILD_OPTIONS    options of `build`, such as "--network host"
#   REPOSITORY, TAG  names of the images: REPOSITORY:TAG-slim, by default rampart:0.1.0-slim
#   TORCH_INDEX      package index with torch's CPU wheels
#   PIP_CONF         pip's configuration for a private package mirror; it stays out of the images
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
if [ -z "${ENGINE:-}" ]; then
  for ENGINE in docker podman buildah none; do
    [ "$ENGINE" = none ] || "$ENGINE" info > /dev/null 2>&1 && break
  done
  if [ "$ENGINE" = none ]; then
    echo "no container engine works here: install docker, podman or buildah" >&2
    exit 1
  fi
fi
read -r -a engine <<< "$ENGINE"
read -r -a options <<< "${BUILD_OPTIONS:-}"
[ -n "${PIP_CONF:-}" ] && options+=(--secret "id=pip,src=$PIP_CONF")
revision=$(git rev-parse HEAD 2> /dev/null || echo unknown)

for image in "${@:-slim cpu}"; do
  for target in $image; do
    name="${REPOSITORY:-rampart}:${TAG:-$version}-$target"
    "${engine[@]}" build "${options[@]}" -f services/Dockerfile --target "$target" -t "$name" \
      --build-arg "REVISION=$revision" \
      --build-arg "TORCH_INDEX=${TORCH_INDEX:-}" .
    echo "built $name"
  done
done
