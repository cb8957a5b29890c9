#!/usr/bin/env bash
# Makes .bench-peers: ByzFL, Flower and pfl in an environment of their own, since ByzFL replaces
# torch. Run by `make bench-peers`; benchmarks/aggregation.py and benchmarks/studies.py find it.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3)}
VENV=.bench-peers
PIP="$VENV/bin/python -m pip --disable-pip-version-check"
"$PYTHON" -m venv "$VENV"
$PIP install torch==2.13.0
$PIP install "flwr[simulation]==1.41.0" pfl==0.6.0 scipy scikit-learn matplotlib seaborn psutil pydantic
# ByzFL asks for torchvision, and that for another torch: it comes without what it asks for, and
# benchmarks/aggregation.py puts a stub in torchvision's place (no aggregator uses it).
$PIP install --no-deps byzfl==0.0.11
touch "$VENV/.ready"
"$VENV/bin/python" -c 'import torch; print("peers ready, torch", torch.__version__)'
