#!/usr/bin/env bash
# What developers run before each commit: the static checks, and the tests that take less than a second and
# start no QEMU and no daemon. The tests that are left out run in scripts/test.sh. The log is build/check.log.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/static.sh
mkdir -p build

check_quickly
run_staticcheck
# shellcheck disable=SC2086 # several arguments
go test $quickly -short -timeout 10m "$@" ./... >build/check.log 2>&1 || {
	grep -vE '^(ok|\?)' build/check.log | tail -200
	fail "go test -short failed; see build/check.log"
}
echo "check: $(grep -cE '^ok' build/check.log) packages passed in $SECONDS seconds"
