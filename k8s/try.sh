#!/usr/bin/env bash
# Creates a cluster in containers, builds the images, installs the chart, waits for three rounds, and
# shows the federation.
# Needs docker, kind, kubectl and helm. Delete the cluster with: kind delete cluster --name rampart
# We have not run this script on a cluster yet.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

kind get clusters | grep -qx rampart || kind create cluster --name rampart --wait 120s
make images
kind load docker-image --name rampart "rampart:$version-slim" "rampart:$version-cpu"

kubectl apply -f k8s/namespace.yaml
kubectl -n rampart get secret rampart-secrets > /dev/null 2>&1 ||
  kubectl -n rampart create secret generic rampart-secrets \
    --from-literal=rampart_operator_token="$(openssl rand -hex 32)" \
    --from-literal=rampart_redis_password="$(openssl rand -hex 32)"
helm upgrade --install rampart k8s/chart --namespace rampart --values k8s/values/dev.yaml
kubectl -n rampart rollout status deployment/rampart-api --timeout 300s
helm test rampart --namespace rampart --timeout 10m
token=$(kubectl -n rampart get secret rampart-secrets -o jsonpath='{.data.rampart_operator_token}' | base64 -d)
echo "The operators' page: run kubectl -n rampart port-forward service/rampart-api 8440, then open"
echo "http://localhost:8440/ and sign in with the token $token"
kubectl -n rampart exec -it deployment/rampart-api -- rampart watch --url http://localhost:8440
