#!/bin/bash
# docker26.sh DIR: unpack Debian trixie's dockerd 26 under DIR/root beside the installed one (nothing is installed).
# Its archives are OCI layouts. DOCKERD=DIR/root/usr/sbin/dockerd services.sh CMD runs it, CONTAINERD_STORE=1 with the other store.
set -e
W=$1
mirror=$(sed -n 's/^URIs: *//p; s/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\).*/\2/p' /etc/apt/sources.list.d/* /etc/apt/sources.list 2>/dev/null | grep -v security | head -n 1)
mkdir -p "$W"/{lists/partial,archives/partial,root}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" >"$W/sources.list"
O=(-o Dir::Etc::sourcelist="$W/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$W/lists" -o Dir::Cache::archives="$W/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
apt-get "${O[@]}" update -qq
cd "$W"
apt-get "${O[@]}" download -qq docker.io
dpkg -x docker.io_*.deb root
root/usr/sbin/dockerd --version
