#!/usr/bin/env bash
# Runs all tests RUNS times (default 10). At least half of the runs are beside a load of about LOAD (default 20), to find
# tests that depend on time: up to five at once in copies of this commit, with busy processes if the load is lower.
# Every second copy keeps its temporary files on a disk, and starts with the fastest packages. The other runs come
# first, one after the other, without a load.
#
# Each run adds a line to build/repeat.tsv: commit, load beside it, seconds, failed tests. Runs of the same commit that
# are in the file already count, so that an interrupted series continues. The script fails if a run failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
commit=$(git rev-parse --short HEAD) || exit 2
. scripts/static.sh # its -trimpath lets the copies share Go's build cache
runs=${RUNS:-10} load=${LOAD:-20} results=$PWD/build/repeat.tsv copies=$PWD/build/repeat
mkdir -p build
touch "$results"

trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$copies"' EXIT
trap 'trap "" TERM; kill 0; exit 130' INT TERM # also the tests, which ignore Ctrl-C in the background

# keep_load LOAD keeps the load average of this machine at or above LOAD with busy processes, until it is killed.
keep_load() {
	local busy=()
	trap 'kill "${busy[@]}" 2>/dev/null; exit' TERM EXIT
	while sleep 5; do
		if [ "$(cut -d . -f 1 /proc/loadavg)" -lt "$1" ]; then
			while :; do :; done &
			busy+=($!)
		elif [ ${#busy[@]} -gt 0 ]; then
			kill "${busy[-1]}"
			unset 'busy[-1]'
		fi
	done
}

# run_tests DIR LOAD [FLAG...] runs all tests of a copy of this commit with flags of go test, and records the result.
run_tests() {
	local began=$SECONDS dir=$1 load=$2 failed=""
	shift 2
	mkdir -p "$dir/build"
	(cd "$dir" && scripts/setup.sh test && scripts/test.sh "$@") >"$dir/build/repeat.log" 2>&1 || failed=$(failed_tests "$dir")
	printf '%s\t%s\t%s\t%s\n' "$commit" "$load" $((SECONDS - began)) "${failed:-0}" | tee -a "$results"
	[ -z "$failed" ] || cat "$dir"/build/{repeat,test}.log >"$(mktemp build/repeat-XXXX.log)" # two runs may end at the same time
}

# failed_tests DIR prints the names of the tests that failed in a copy of this commit, on one line.
failed_tests() {
	{
		grep -ohE '^ *--- FAIL: \S+|^FAIL	\S+|^panic: test timed out' "$1/build/test.log" 2>/dev/null | sed -E 's/^ *--- FAIL: //; s/^FAIL	//' | sort -u
		tail -n 1 "$1/build/repeat.log" # the only line if another check failed
	} | paste -sd ' '
}

# count_runs CONDITION prints the number of runs of this commit whose load fulfils an awk condition.
count_runs() {
	awk -F '\t' -v commit="$commit" "\$1 == commit && \$2 $1 { n++ } END { print n + 0 }" "$results"
}

# run_beside_load N runs all tests N times, five at once, with one package of each at a time. With two, the load of
# two processors reached 56 while all copies ran the slowest packages. The copies use the tools that setup.sh installed here.
run_beside_load() {
	local n running=0 keeper folder reverse
	keep_load $((load + 5)) & # LOAD, and about 5 of the measured run itself
	keeper=$!
	for ((n = 1; n <= $1; n++)); do
		[ $running -lt 5 ] || { wait -n; running=$((running - 1)); }
		git clone -q . "$copies/$n" && mkdir "$copies/$n/build" && find build -mindepth 1 -maxdepth 1 ! -name 'repeat*' -exec cp -a -t "$copies/$n/build" {} + || exit
		folder="" reverse="" # test.sh chooses memory
		[ $((n % 2)) -ne 0 ] || folder=/tmp reverse=1
		TMPDIR=$folder REVERSE=$reverse run_tests "$copies/$n" "$load" -p 1 &
		running=$((running + 1))
	done
	for (( ; running > 0; running--)); do
		wait -n
	done
	kill "$keeper"
	wait "$keeper"
	rm -rf "$copies"
}

# compile_tests fills Go's build cache. Without it, the runs beside the load would compile all packages at once.
compile_tests() {
	go vet -tags guests,kube,slow,v2v ./... || return
	# shellcheck disable=SC2086 # several arguments
	go test $test_flags -exec true ./...
}

rm -rf "$copies"
half=$(((runs + 1) / 2))
for ((run = $(count_runs '== 0'); run < runs - half; run++)); do
	run_tests "$PWD" 0
done
loaded=$((half - $(count_runs '> 0')))
[ "$loaded" -le 0 ] || compile_tests >build/repeat-compile.log 2>&1 || { tail -20 build/repeat-compile.log; exit 1; }
run_beside_load "$loaded"
awk -F '\t' -v commit="$commit" '
	$1 == commit { runs++; failed += $4 != "0" }
	END { print runs + 0 " runs, " failed + 0 " failed"; exit failed > 0 || runs == 0 }' "$results"
