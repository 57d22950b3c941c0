#!/bin/sh
# Builds the nbdkit plugin "nfc" into FILE, a C shared library that needs libc only:
#
#   scripts/nbdkit-plugin.sh FILE [VERSION [ARCH]]
#
# ARCH is amd64 or arm64, by default that of this machine. It requires a C compiler for ARCH and nbdkit-plugin-dev.
# The result does not depend on this machine's paths; it depends on the release of the C compiler.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { echo "usage: $0 FILE [VERSION [ARCH]]" >&2; exit 2; }
out=$(realpath -m "$1") version=${2:-$(cat "$root/VERSION")-dev} arch=${3:-$(go env GOARCH)}
case $arch in
amd64) compiler=x86_64-linux-gnu-gcc ;;
arm64) compiler=aarch64-linux-gnu-gcc ;;
*) echo "$0: no compiler for the architecture $arch" >&2; exit 2 ;;
esac
cd "$root"
mkdir -p "$(dirname "$out")"
object=$out.version.o
trap 'rm -f "$object" "${out%.so}.h"' EXIT
echo "const char plugin_version[] = \"$version\";" | $compiler -fPIC -fvisibility=hidden -x c -c -o "$object" -
CGO_ENABLED=1 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOFLAGS=-trimpath CC=$compiler \
	go build -buildmode=c-shared -buildvcs=false -tags netgo,osusergo -o "$out" -ldflags "-s -w -buildid= \
	-X github.com/decamp/decamp/internal/buildinfo.linked=$version \
	-extldflags '$object -Wl,-T,$root/cmd/nbdkit-nfc-plugin/late.ld -Wl,--build-id=none'" ./cmd/nbdkit-nfc-plugin
