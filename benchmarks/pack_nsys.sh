#!/usr/bin/env bash
# Packs the target part of Debian trixie's nsight-systems (2023.4.4) into DIR/nsys.tar.xz (20 MB), without what
# a CUDA 12 or 13 driver does not need, and unpacks its host part beside (HOST/host-linux-x64/QdstrmImporter).
#
#     bash benchmarks/pack_nsys.sh DIR HOST
#
# Nothing is installed: apt only downloads, from the machine's own Debian mirror.
set -euo pipefail
DIR=$(realpath "${1:?folder for nsys.tar.xz}") HOST=$(realpath "${2:?folder for the host part}")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$WORK/lists/partial" "$WORK/sources" "$DIR" "$HOST"
source=$(grep -l -s debian-archive-keyring /etc/apt/sources.list.d/*.sources | head -n 1)
awk 'BEGIN { RS = ""; ORS = "\n\n" } !/debian-security/' "$source" |
  sed -E 's/^Suites:.*/Suites: trixie/; s/^Components:.*/Components: non-free/' > "$WORK/sources/trixie.sources"
options=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$WORK/sources"
  -o "Dir::State::Lists=$WORK/lists" -o APT::Sandbox::User=root)
apt-get "${options[@]}" -qq update
(cd "$WORK" && apt-get "${options[@]}" -qq download nsight-systems nsight-systems-target)
for package in "$WORK"/*.deb; do dpkg -x "$package" "$WORK/root"; done
target=$WORK/root/usr/lib/x86_64-linux-gnu/nsight-systems/target-linux-x64
rm -rf "$target"/{CollectX,GpuMetrics,reports,rules,vulkan-layers,nvgpucs,libnvperf_grfx_host.so} \
  "$target"/libcupti.so.1[01].* "$target"/libToolsInjection{CuDNN64_7,CuBLAS64_10}.so
tar -C "$(dirname "$target")" -c target-linux-x64 | xz -T0 -6 > "$DIR/nsys.tar.xz"
cp -a "$WORK/root/usr/lib/nsight-systems/host-linux-x64" "$target" "$HOST/"
for library in libssh.so libssh.so.4; do  # the package's own links lead nowhere on an older Debian
  ln -sf /usr/lib/x86_64-linux-gnu/libssh.so.4 "$HOST/host-linux-x64/$library"
done
ls -la "$DIR/nsys.tar.xz" "$HOST/host-linux-x64/QdstrmImporter"
