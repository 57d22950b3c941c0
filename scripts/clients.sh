#!/bin/sh
# Builds the wheel of the Python client and the archive of the Ansible collection.
#
#   scripts/clients.sh FOLDER VERSION      for example: scripts/clients.sh dist 0.1.0
#
# The files depend on the sources, VERSION and SOURCE_DATE_EPOCH (default: the time of the last commit) only.
set -eu
[ $# -eq 2 ] || { echo "usage: scripts/clients.sh FOLDER VERSION" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
version=$2
cd "$(dirname "$0")/.."
bin=$(pwd)/build/clients/bin
[ -x "$bin/python" ] || { echo "clients: no build/clients: run scripts/setup.sh test" >&2; exit 1; }
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" PYTHONDONTWRITEBYTECODE=1
echo "$version" | grep -Eq '^[0-9]+\.[0-9]+\.[0-9]+$' || { echo "clients: the version $version is not MAJOR.MINOR.PATCH" >&2; exit 2; }

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
git ls-files --cached --others --exclude-standard -z clients | xargs -0 cp --parents -t "$tmp"
cp LICENSE "$tmp/clients/python/"
cp LICENSE "$tmp/clients/ansible/"
find "$tmp" -exec chmod u=rwX,go=rX {} + -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

cd "$tmp/clients/python"
sed -i "s/^version = .*/version = \"$version\"/" pyproject.toml
"$bin/python" -m flit_core.wheel --outdir "$tmp/built" >/dev/null

cd "$tmp/clients/ansible"
sed -i "s/^version: .*/version: $version/" galaxy.yml
"$bin/ansible-galaxy" collection build --output-path "$tmp/built" >/dev/null
# ansible-galaxy records the time of the build in the archive
mkdir "$tmp/unpacked"
tar -xzf "$tmp/built/decamp-decamp-$version.tar.gz" -C "$tmp/unpacked"
(cd "$tmp/unpacked" && find . -mindepth 1 -printf '%P\n') | LC_ALL=C sort | # names without ./, as Ansible requires
	tar -C "$tmp/unpacked" --no-recursion -T - --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" -cf - |
	gzip -9n >"$tmp/built/decamp-decamp-$version.tar.gz"
mv "$tmp"/built/*.whl "$tmp"/built/*.tar.gz "$out/"
