#!/usr/bin/env bash
# Tunes and merges on a Kubernetes cluster, from this folder's repository. Jobs of an earlier run are replaced; the
# caches on the volume stay, so what they hold is not measured again.
set -euo pipefail

run() {
    kubectl delete --ignore-not-found --wait -f "$1"
    kubectl apply -f "$1"
    kubectl wait --for=condition=complete --timeout="${TIMEOUT:-6h}" -f "$1"
}
run examples/fleet/kubernetes.yaml
run examples/fleet/kubernetes-merge.yaml
