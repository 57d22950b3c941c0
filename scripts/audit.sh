#!/usr/bin/env bash
# Examines the code and its dependencies with gosec, staticcheck, go-licenses and govulncheck, of pinned versions.
# A finding of gosec that is not in scripts/gosec.tsv, with a reason, fails the audit. Without a connection to
# vuln.go.dev, known vulnerabilities are not looked up, which is reported.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
mkdir -p build
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath"

gosec=github.com/securego/gosec/v2/cmd/gosec@v2.30.0
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.9.0
licenses=github.com/google/go-licenses@v1.6.0
allowed=Apache-2.0,BSD-2-Clause,BSD-3-Clause,CC0-1.0,MIT,PostgreSQL,Unlicense

failed=0
fail() {
	echo "audit: $*" >&2
	failed=1
}

# gosec does not examine the emulated ESXi and test helpers: they read no foreign data.
# G304 reports each file whose path is a variable: users give paths to decamp.
# G115 reports each conversion to a smaller integer: 450, mostly of sizes that were checked. Parsers of foreign data are
# fuzzed instead (make fuzz).
folders=$(go list -f '{{.Dir}}' ./cmd/... ./internal/... | grep -vE '/internal/lab(/|$)|/cmd/decamp-lab$|test$|/linuxclient$') || exit 1
# shellcheck disable=SC2086 # a list of folders
go run "$gosec" -quiet -no-fail -exclude G115,G304 -fmt json -out build/gosec.json $folders || fail "gosec did not run"
go run ./test/audit scripts/gosec.tsv build/gosec.json ||
	fail "fix the findings, or add them with: go run ./test/audit -add scripts/gosec.tsv build/gosec.json; then write a reason for each"

go tool staticcheck ./... && echo "staticcheck: no findings" || fail "staticcheck"

# The tool does not recognise the licence of mathutil, which is BSD-3-Clause.
mathutil=$(go list -m -f '{{.Dir}}' modernc.org/mathutil)/LICENSE
grep -q 'Redistributions in binary form must reproduce' "$mathutil" && grep -q 'Neither the name' "$mathutil" || fail "modernc.org/mathutil has another licence"
go run "$licenses" check ./cmd/decamp --allowed_licenses "$allowed" --ignore modernc.org/mathutil 2>build/licenses.log &&
	echo "licences: all are among $allowed" || {
	tail -5 build/licenses.log >&2
	fail "a dependency has another licence or an unknown one; see build/licenses.log"
}

if go run "$govulncheck" ./... >build/govulncheck.log 2>&1; then
	echo "govulncheck: the code reaches no known vulnerability"
elif grep -q 'fetching vulnerabilities: Get .*dial tcp' build/govulncheck.log; then
	echo "govulncheck: NOT CHECKED: https://vuln.go.dev is not reachable"
else
	tail -50 build/govulncheck.log >&2
	fail "govulncheck; see build/govulncheck.log"
fi
[ "$failed" -eq 0 ] || exit 1
echo "audit: passed"
