#!/usr/bin/env bash
# Runs scripts/test.sh RUNS times (default 10). The first, third, ... run has LOAD busy processes beside it (default
# 20), so that tests that depend on time fail. Each run adds a line to build/repeat.tsv: commit, load, seconds, failed
# tests. Runs of the same commit that are in the file already count, so that an interrupted series continues.
# The script fails if a run failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
commit=$(git rev-parse --short HEAD) || exit 2
runs=${RUNS:-10} load=${LOAD:-20} results=build/repeat.tsv
mkdir -p build
touch "$results"

busy=()
trap 'stop_load' EXIT
trap 'exit 130' INT TERM

start_load() {
	for _ in $(seq "$1"); do
		while :; do :; done &
		busy+=($!)
	done
}

stop_load() {
	[ ${#busy[@]} -eq 0 ] || kill "${busy[@]}"
	busy=()
}

# failed_tests prints the names of the tests that failed in the last run, on one line.
failed_tests() {
	grep -ohE '^ *--- FAIL: \S+|^FAIL	\S+|^panic: test timed out' build/test.log | sed -E 's/^ *--- FAIL: //; s/^FAIL	//' | sort -u | paste -sd ' '
}

for ((run = 1 + $(grep -c "^$commit	" "$results"); run <= runs; run++)); do
	beside=$((run % 2 ? load : 0))
	start_load $beside
	began=$SECONDS
	failed=
	scripts/test.sh -count 1 >build/repeat.log 2>&1 || failed=$(failed_tests) failed=${failed:-$(tail -1 build/repeat.log)}
	stop_load
	printf '%s\t%s\t%s\t%s\n' "$commit" $beside $((SECONDS - began)) "${failed:-0}" | tee -a "$results"
	[ -z "$failed" ] || cp build/test.log "build/repeat-$run.log"
done
awk -F '\t' -v commit="$commit" '
	$1 == commit { runs++; failed += $4 != "0" }
	END { print runs " runs, " failed + 0 " failed"; exit failed > 0 }' "$results"
