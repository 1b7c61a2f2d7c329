#!/bin/bash
# engines.sh CMD...: run CMD against each real engine in turn (services.sh): the installed docker, docker 26, and docker
# 26 with containerd's store. Fails if one of the three runs fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
"$here/services.sh" "$@"
"$here/docker26.sh" "$work/docker26"
export DOCKERD="$work/docker26/root/usr/sbin/dockerd"
"$here/services.sh" "$@"
CONTAINERD_STORE=1 "$here/services.sh" "$@"
