#!/usr/bin/env bash
# Copies the libraries of the operators' page from npm into the package, with their licences.
# After a change of package.json, run `npm install` in this folder, and then this script. Then update
# the digests in tests/services/aggregator/api/routes/test_page.py.
set -euo pipefail
cd "$(dirname "$0")"
npm ci --ignore-scripts --omit=dev
target=../../services/aggregator/page/assets/vendor
mkdir -p "$target"
cp node_modules/htm/preact/standalone.module.js "$target/preact.js"
cp node_modules/uplot/dist/uPlot.esm.js "$target/uplot.js"
cp node_modules/uplot/dist/uPlot.min.css "$target/uplot.css"
for package in htm preact uplot; do
  cp node_modules/$package/LICENSE "$target/$package-license.txt"
done
