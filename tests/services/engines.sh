#!/bin/bash
# engines.sh CMD...: run CMD against real engines other than the installed one in turn (services.sh): docker 26, and docker
# 26 with containerd's store. Fails if one of the runs fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
"$here/docker26.sh" "$work/docker26"
export DOCKERD="$work/docker26/root/usr/sbin/dockerd"
"$here/services.sh" "$@"
CONTAINERD_STORE=1 "$here/services.sh" "$@"
