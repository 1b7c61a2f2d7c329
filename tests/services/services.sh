#!/bin/bash
# services.sh CMD...: start a real docker engine and a real registry on loopback, run CMD with DOCKER_HOST set, end both
# by pid. CMD finds the registry in IMGDIFF_TEST_REGISTRY.
# All state lies under $W (default: a fresh temporary directory); REGISTRY_PORT defaults to 5999. Another engine than the
# installed one: DOCKERD=/path/to/dockerd (see docker26.sh). CONTAINERD_STORE=1 keeps images in containerd's store (23 and newer).
set -euo pipefail
made=; [ -n "${W:-}" ] || { W=$(mktemp -d); made=$W; }; mkdir -p "$W"
need=(); for p in docker.io docker-registry skopeo; do dpkg -s $p >/dev/null 2>&1 || need+=($p); done
if [ ${#need[@]} -gt 0 ]; then apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null; fi
cat >"$W/registry.yml" <<Y
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $W/registry}, delete: {enabled: true}}
http: {addr: 127.0.0.1:${REGISTRY_PORT:-5999}}
Y
store=false; [ -z "${CONTAINERD_STORE:-}" ] || store=true
echo "{\"features\": {\"containerd-snapshotter\": $store}}" >"$W/daemon.json"
docker-registry serve "$W/registry.yml" >"$W/registry.log" 2>&1 & RP=$!
"${DOCKERD:-dockerd}" --data-root "$W/data" --exec-root "$W/exec" --pidfile "$W/dockerd.pid" --config-file "$W/daemon.json" -H "unix://$W/docker.sock" \
  --iptables=false --ip6tables=false --bridge=none --log-level=error >"$W/dockerd.log" 2>&1 & DP=$!
trap 'kill $RP $DP 2>/dev/null; wait $RP $DP 2>/dev/null || true; [ -z "$made" ] || rm -rf "$made"' EXIT
up=
for i in $(seq 300); do curl -sf --unix-socket "$W/docker.sock" http://d/_ping >/dev/null && curl -sf http://127.0.0.1:${REGISTRY_PORT:-5999}/v2/ >/dev/null && { up=1; break; }; sleep 0.1; kill -0 $DP; kill -0 $RP; done
[ -n "$up" ] || { echo "the engine or the registry did not answer within 30 s" >&2; exit 1; }
export DOCKER_HOST="unix://$W/docker.sock" IMGDIFF_TEST_REGISTRY="127.0.0.1:${REGISTRY_PORT:-5999}"
"$@"
