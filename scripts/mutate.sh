#!/usr/bin/env bash
# Mutation tests: changes one operator of a package at a time and runs the package's tests.
# A mutant that no test detects has survived: a test is missing, or the code does not matter.
#
#   scripts/mutate.sh [PACKAGE[:FILE,...]]...      (below internal/; default: all of the list)
#
# The report of each package is build/mutate/PACKAGE.txt. The kill rate counts mutants that
# no test runs as survivors. SHORT=1 leaves out the tests that take long.
set -euo pipefail
cd "$(dirname "$0")/.."

gremlins=v0.6.0
packages="
blockcopy
manifest
image
behind
server:auth.go,role.go,throttle.go,token.go,session.go
esx:certificate.go,pass.go
target/kubevirt:deliver.go
target/libvirt:place.go
target/openstack:deliver.go
target/proxmox:deliver.go
migrate:refuse.go,commit.go,rollback.go"

[ $# -gt 0 ] || set -- $packages
out=$PWD/build/mutate
mkdir -p "$out"
export CGO_ENABLED=0
[ -x "$out/gremlins-$gremlins" ] || {
	GOBIN="$out" go install "github.com/go-gremlins/gremlins/cmd/gremlins@$gremlins"
	mv "$out/gremlins" "$out/gremlins-$gremlins"
}

# Each worker of gremlins copies the whole tree, so it gets one with nothing but sources.
tree=$(mktemp -d "$out/tree.XXXXXX")
trap 'rm -rf "$tree"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null -T - --ignore-failed-read -c | tar -x -C "$tree"
export GOFLAGS="-trimpath -vet=off -ldflags=-w${SHORT:+ -short}"

# others PACKAGE FILE,... prints options that exclude every other file of the package.
others() {
	local file
	for file in "$tree/internal/$1"/*.go "$tree/internal/$1"/*/*.go; do
		[ -e "$file" ] || continue
		file=${file#"$tree/internal/$1/"}
		[[ ,$2, == *",$file,"* ]] || printf -- '-E\n^%s$\n' "$file"
	done
}

for each in "$@"; do
	package=${each%%:*} files=${each#"$package"} files=${files#:}
	report=$out/${package//\//-}.txt
	excluded=()
	[ -z "$files" ] || mapfile -t excluded < <(others "$package" "$files")
	(cd "$tree" && "$out/gremlins-$gremlins" unleash --invert-logical "${excluded[@]}" "./internal/$package") >"$report" 2>&1 || {
		tail -20 "$report" >&2
		exit 1
	}
	awk -v name="$each" '
		/^ *(KILLED|TIMED OUT) / { killed++ }
		/^ *(LIVED|NOT COVERED) / { survived++ }
		END { printf "%-45s %4d mutants, %3d survived: kill rate %.1f %%\n", name, killed + survived, survived, killed + survived ? 100 * killed / (killed + survived) : 0 }
	' "$report"
done
