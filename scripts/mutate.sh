#!/usr/bin/env bash
# Mutation tests: changes one operator of a package at a time and runs the tests that reach it.
# A mutant that no test detects survives: a test is missing, or the code has no effect.
#
#   scripts/mutate.sh [PACKAGE[:[FILE,...][:SKIP]]]...   (below internal/; default: the list)
#
# SKIP is a regular expression of tests that do not run: slow tests of other
# files. The script fails before it starts if a package or a file does not exist, or if a name in
# SKIP matches no test. The report of each package is build/mutate/PACKAGE.txt. SHORT=1 runs no
# slow test; WORKERS=N runs N mutants at the same time (default: one for each processor).
set -euo pipefail
cd "$(dirname "$0")/.."

packages="
blockcopy
manifest
image
writebehind
server:authenticate.go,authorize.go,role.go,audited.go,audittrail.go,throttle.go,token.go,session.go
esx:certificate.go,soapclient.go:Roll|ListVMsRemoves|Tags|Fleet|OddNames
targets/kubevirt:deliver.go:HostileInventory
targets/libvirt:platform.go,deliver.go:Boots|StaleDataInHole|Console|VMOnLVM|Start|HostileInventory|Conformance|CanceledWhileOpening|EveryTransport|VolumeNamesForLVM|FailedConnections
targets/openstack:deliver.go:Boot|HostileInventory
targets/proxmox:delivery.go,importdelivery.go:Boot|HangingQemuNBD|Start|HostileInventory
migrate:obstacles.go,commit.go,rollback.go
migrate/warm:commands.go,estimate.go"

# die prints an error and ends the script.
die() {
	echo "scripts/mutate.sh: $*" >&2
	exit 2
}

# check_entry ends the script if PACKAGE[:[FILE,...][:SKIP]] names something that does not exist.
check_entry() {
	local package files skipped name
	IFS=: read -r package files skipped <<<"$1"
	[ -d "internal/$package" ] || die "$1: there is no folder internal/$package"
	for name in ${files//,/ }; do
		[ -f "internal/$package/$name" ] || die "$1: there is no file internal/$package/$name"
	done
	for name in ${skipped//|/ }; do
		grep -qE "^func (Test|Fuzz)\w*$name" "internal/$package"/*_test.go || die "$1: no test of internal/$package has a name with $name"
	done
}

[ $# -gt 0 ] || set -- $packages
for each in "$@"; do
	check_entry "$each"
done
mkdir -p build/mutate
export CGO_ENABLED=0
go build -trimpath -o build/mutate/mutate ./test/mutate
for each in "$@"; do
	IFS=: read -r package files skipped <<<"$each"
	report=build/mutate/${package//\//-}.txt
	build/mutate/mutate ${SHORT:+-short} ${WORKERS:+-workers "$WORKERS"} -skip "${skipped:-^$}" "./internal/$package" ${files//,/ } >"$report"
	tail -1 "$report"
done
