# shellcheck shell=bash
# The checks that need no test to run. check.sh and test.sh read this file.

# What is compiled for the demo's binary and the guests serves the tests, too: with other flags
# the standard library and all that is imported would be compiled once more.
export GOFLAGS="${GOFLAGS:-} -trimpath"

# Arguments of go test. Vet runs once, below; without symbols and DWARF a binary links in half of the time; and many
# tests wait, for a process or a host that is slow on purpose, so that more packages than processors run.
# shellcheck disable=SC2034 # the scripts that read this file use it
quickly="-vet=off -ldflags=-s -p $((2 * $(nproc)))"

fail() {
	echo "$(basename "$0" .sh): $*" >&2
	exit 1
}

# check_quickly ends the script if the tree is not formatted, or vet or shellcheck report something.
check_quickly() {
	unformatted=$(gofmt -l cmd internal release test) || fail "gofmt could not read the tree"
	[ -z "$unformatted" ] || fail "not gofmt'd: $unformatted"
	go vet -tags guests,kube,slow,v2v ./... || fail "go vet" # nothing else compiles the files with these tags here
	command -v shellcheck >/dev/null || fail "shellcheck is not installed: scripts/setup.sh test"
	shellcheck -S warning scripts/*.sh packaging/*/*.sh .ci/run || fail "shellcheck"
}

# run_staticcheck runs staticcheck with these arguments. The garbage collector's settings save a quarter of its
# processor time.
run_staticcheck() {
	GOGC=400 GOMEMLIMIT=3GiB go tool staticcheck "$@" ./... || fail "staticcheck"
}
