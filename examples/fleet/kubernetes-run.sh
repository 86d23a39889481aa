#!/usr/bin/env bash
# Tunes and merges on a Kubernetes cluster, from this folder's repository. Replaces the Jobs of an earlier run, but
# keeps the caches on the volume, so nothing in them is measured again.
set -euo pipefail

run() {
    kubectl delete --ignore-not-found --wait -f "$1"
    kubectl apply -f "$1"
    kubectl wait --for=condition=complete --timeout="${TIMEOUT:-6h}" -f "$1"
}
run examples/fleet/kubernetes.yaml
run examples/fleet/kubernetes-merge.yaml
