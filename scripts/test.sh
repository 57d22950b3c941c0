#!/usr/bin/env bash
# All checks and tests, as CI runs them. The full log is build/test.log. A skipped test
# fails the run: setup.sh has installed what every test here needs, so a skip means that
# something was not tested.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build

# What is compiled for the demo's binary and the guests serves the tests, too: with other flags
# the standard library and all that is imported would be compiled once more.
export GOFLAGS="${GOFLAGS:-} -trimpath"

fail() {
	echo "test: $*" >&2
	exit 1
}

unformatted=$(gofmt -l cmd internal test) || fail "gofmt could not read the tree"
[ -z "$unformatted" ] || fail "not gofmt'd: $unformatted"
go vet ./... || fail "go vet"
go vet -tags guests,kube,slow,v2v ./... || fail "go vet of the slow lanes" # which nothing else compiles here
go tool staticcheck ./... || fail "staticcheck"
go run ./test/guest/cmd/buildguest >/dev/null || fail "could not build the test guests"

make demo >build/demo.log 2>&1 || {
	tail -20 build/demo.log
	fail "make demo; see build/demo.log"
}

go test -timeout 60m -v "$@" ./... >build/test.log 2>&1
status=$?
# A module of its own, which brings Kubernetes along. It judges files of this one: no result of old ones counts.
(cd test/kubevirt && go vet ./... && go test -count 1 -v "$@" ./...) >>build/test.log 2>&1 || status=$?
grep -E '^(ok|FAIL|panic:)' build/test.log
if [ "$status" -ne 0 ]; then
	awk -f scripts/failures.awk build/test.log | tail -200
	fail "go test failed; see build/test.log"
fi
skipped=$(grep -E -A 2 '^ *--- SKIP' build/test.log)
[ -z "$skipped" ] || fail "skipped, but nothing may be:
$skipped"
echo "test: $(grep -cE '^ *--- PASS' build/test.log) passed, none skipped"
