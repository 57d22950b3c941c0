#!/usr/bin/env bash
# The checks before each commit: static checks, and the tests that take less than a second and start no QEMU and no
# daemon. scripts/test.sh runs all tests. The log is build/check.log.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/static.sh
mkdir -p build

check_static
run_staticcheck
# shellcheck disable=SC2086 # several arguments
go test $test_flags -short -timeout 10m "$@" ./... >build/check.log 2>&1 || {
	grep -vE '^(ok|\?)' build/check.log | tail -200
	fail "go test -short failed; see build/check.log"
}
echo "check: $(grep -cE '^ok' build/check.log) packages passed in $SECONDS seconds"
