#!/usr/bin/env bash
# Mutation tests: changes one operator of a package at a time and runs the tests that reach it.
# A mutant that no test detects has survived: a test is missing, or the code does not matter.
#
#   scripts/mutate.sh [PACKAGE[:[FILE,...][:SKIP]]]...   (below internal/; default: the list)
#
# SKIP is a regular expression of tests that are left out: those that take long and test other
# files. The report of each package is build/mutate/PACKAGE.txt. SHORT=1 leaves out all tests
# that take long; WORKERS=N runs N mutants at the same time (default: one for each processor).
set -euo pipefail
cd "$(dirname "$0")/.."

packages="
blockcopy
manifest
image
behind
server:authenticate.go,role.go,audit.go,throttle.go,token.go,session.go
esx:certificate.go,soapclient.go:Roll|OneVMIsDescribed|Tags|Fleet|OddNames
targets/kubevirt:deliver.go:HostileInventory
targets/libvirt:platform.go,deliver.go:Boots|DeviceThatKeeps|Console|VMOnLVM|Start|HostileInventory
targets/openstack:deliver.go:Boot|HostileInventory
targets/proxmox:delivery.go,importdelivery.go:Boot|ServerThatDoesNotEnd|Start|HostileInventory
migrate:refuse.go,commit.go,rollback.go"

[ $# -gt 0 ] || set -- $packages
mkdir -p build/mutate
export CGO_ENABLED=0
go build -trimpath -o build/mutate/mutate ./test/mutate
for each in "$@"; do
	IFS=: read -r package files skipped <<<"$each"
	report=build/mutate/${package//\//-}.txt
	build/mutate/mutate ${SHORT:+-short} ${WORKERS:+-workers "$WORKERS"} -skip "${skipped:-^$}" "./internal/$package" ${files//,/ } >"$report"
	tail -1 "$report"
done
