#!/usr/bin/env bash
# Renders the plain manifests in k8s/manifests from the charts: `make manifests`. Needs helm.
#
#   k8s/render.sh [FOLDER]     into another folder
set -euo pipefail
cd "$(dirname "$0")"
folder=${1:-manifests}
mkdir -p "$folder"

# Releases of helm differ in the blank lines between documents.
without_blank_ends() {
  awk '/^ *$/ { blank = blank $0 "\n"; next } { if (!/^---/) printf "%s", blank; blank = ""; print }'
}

render() { # name of the file, presets
  local name=$1 preset files=()
  shift
  for preset in "$@"; do files+=(--values "values/$preset.yaml"); done
  {
    echo "# Rendered from k8s/chart by k8s/render.sh, with the presets: ${*:-none}."
    "${HELM:-helm}" template rampart chart --namespace rampart --no-hooks "${files[@]}" | without_blank_ends
  } > "$folder/$name.yaml"
}

render standard backup
render dev dev
render dev-redteam dev redteam
render gpu gpu
render cloud cloud
{
  echo "# Rendered from k8s/client-chart by k8s/render.sh, with its example.yaml."
  "${HELM:-helm}" template site client-chart --namespace site --values client-chart/example.yaml |
    without_blank_ends
} > "$folder/client.yaml"
