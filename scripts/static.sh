# shellcheck shell=bash
# Static checks. check.sh and test.sh read this file.

# The same flags for the demo, the guests and the tests: with others, Go would compile all packages twice.
export GOFLAGS="${GOFLAGS:-} -trimpath"

# Arguments of go test. check_static runs vet. Without symbols and DWARF, a binary links in half of the time. More
# packages than processors run, because many tests wait for processes or slow hosts.
# shellcheck disable=SC2034 # the scripts that read this file use it
test_flags="-vet=off -ldflags=-s -p $((2 * $(nproc)))"

fail() {
	echo "$(basename "$0" .sh): $*" >&2
	exit 1
}

# check_static ends the script if gofmt, vet or shellcheck report something.
check_static() {
	unformatted=$(gofmt -l cmd internal release test) || fail "gofmt could not read the tree"
	[ -z "$unformatted" ] || fail "run gofmt -w on: $unformatted"
	go vet -tags guests,kube,slow,v2v ./... || fail "go vet" # nothing else compiles the files with these tags here
	command -v shellcheck >/dev/null || fail "shellcheck is not installed: scripts/setup.sh test"
	shellcheck -S warning scripts/*.sh packaging/*/*.sh .ci/run || fail "shellcheck"
}

# run_staticcheck runs staticcheck with these arguments. The garbage collector's settings save a quarter of its
# processor time.
run_staticcheck() {
	GOGC=400 GOMEMLIMIT=3GiB go tool staticcheck "$@" ./... || fail "staticcheck"
}
