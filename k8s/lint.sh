#!/usr/bin/env bash
# Checks the Dockerfile with hadolint and the plain manifests with checkov: `make lint-deployment`.
# The script skips a linter that is not installed, and reports this; `make linters` installs both linters.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.linters/bin:$PATH

check() { # linter, arguments
  if ! command -v "$1" > /dev/null; then
    echo "NOT CHECKED: $1 is not installed; \`make linters\` installs it"
  else
    "$@"
    echo "$1 found nothing"
  fi
}

check hadolint --config services/hadolint.yaml services/Dockerfile
check checkov --config-file k8s/checkov.yaml --directory k8s/manifests
