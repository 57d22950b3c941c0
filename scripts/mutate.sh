#!/usr/bin/env bash
# Mutation tests: changes one operator of a package at a time and runs the package's tests.
# A mutant that no test detects has survived: a test is missing, or the code does not matter.
#
#   scripts/mutate.sh [PACKAGE[:[FILE,...][:SKIP]]]...   (below internal/; default: the list)
#
# SKIP is a regular expression of tests that are left out, as in go test -skip: those that
# take long and test other files. The report of each package is build/mutate/PACKAGE.txt.
# The kill rate counts mutants that no test runs as survivors. SHORT=1 leaves out all tests
# that take long.
set -euo pipefail
cd "$(dirname "$0")/.."

gremlins=v0.6.0
packages="
blockcopy
manifest
image
behind
server:authenticate.go,role.go,audit.go,throttle.go,token.go,session.go
esx:certificate.go,pass.go:Roll|OneVMIsDescribed|Tags|Fleet|OddNames
targets/kubevirt:deliver.go:HostileInventory|StreamIsTheDisk|Start
targets/libvirt:place.go,job.go:Boots|DeviceThatKeeps|Console|LVM|Start|HostileInventory
targets/openstack:deliver.go:Start|Boot|HostileInventory
targets/proxmox:deliver.go:Boot|ServerThatDoesNotEnd|Start|HostileInventory
migrate:refuse.go,commit.go,rollback.go:WarmMetamorphic|Rehearsal|InLine"

[ $# -gt 0 ] || set -- $packages
out=$PWD/build/mutate
mkdir -p "$out"
[ -x "$out/gremlins-$gremlins" ] || {
	GOBIN="$out" go install "github.com/go-gremlins/gremlins/cmd/gremlins@$gremlins"
	mv "$out/gremlins" "$out/gremlins-$gremlins"
}

# Each worker of gremlins copies the whole tree, so it gets one with nothing but sources.
tree=$(mktemp -d "$out/tree.XXXXXX")
trap 'rm -rf "$tree"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null -T - --ignore-failed-read -c | tar -x -C "$tree"
export CGO_ENABLED=0 options="-trimpath -vet=off -ldflags=-w${SHORT:+ -short}"

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
	IFS=: read -r package files skipped <<<"$each"
	report=$out/${package//\//-}.txt
	excluded=()
	[ -z "$files" ] || mapfile -t excluded < <(others "$package" "$files")
	(cd "$tree" && GOFLAGS="$options${skipped:+ -skip=$skipped}" "$out/gremlins-$gremlins" unleash --invert-logical "${excluded[@]}" "./internal/$package") >"$report" 2>&1 || {
		tail -20 "$report" >&2
		exit 1
	}
	awk -v name="$package${files:+:$files}" '
		/^ *(KILLED|TIMED OUT) / { killed++ }
		/^ *(LIVED|NOT COVERED) / { survived++ }
		END { printf "%-60s %4d mutants, %3d survived: kill rate %.1f %%\n", name, killed + survived, survived, killed + survived ? 100 * killed / (killed + survived) : 0 }
	' "$report"
done
