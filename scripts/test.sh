#!/usr/bin/env bash
# Runs all checks and tests, as CI does. The log is build/test.log; build/test-times.txt lists the slowest packages and
# tests. A skipped test fails the run, as setup.sh installs all tools that tests need. With CPU=1, the run also records
# the processor time of each package, which does not depend on other load. With REVERSE=1, the slowest packages start
# last. Go's cache of results is not used: it does not detect changes of programs that tests build and start.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/static.sh
mkdir -p build

# The slowest packages, slowest first. They start first, so that the run ends early. Each run writes its own order to
# build/package-times.tsv, which replaces this one.
slowest='test/cli internal/targets/libvirt test/fleet internal/targets/proxmox test/convert internal/testboot
	internal/targets/openstack internal/esx internal/migrate internal/qcow2 test/nfs test/boot internal/transport/nfc
	internal/transport/landing internal/lab/vsphere cmd/decamp internal/fleetdb test/clients test/browser internal/fleet
	internal/workflow internal/mount internal/targets/kubevirt internal/targets/dir internal/guest/extwrite internal/guest
	internal/server internal/convert/virtv2v test/nbdkit'

# ordered_packages prints all packages of the module, slowest first.
ordered_packages() {
	go list ./... >build/packages || return
	{
		[ ! -e build/package-times.tsv ] || cut -f 2 build/package-times.tsv
		for package in $slowest; do
			echo "github.com/decamp/decamp/$package"
		done
		cat build/packages
	} | awk 'NR == FNR { listed[$0] = 1; next } listed[$0] && !seen[$0]++' build/packages -
}

# cpu_seconds prints the processor seconds of all processes that this script and their parents waited for.
cpu_seconds() {
	awk 'NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/); printf "%d", (u[1] + s[1]) * 60 + u[2] + s[2] }' build/cpu-total
}

# record_times writes how long packages and tests took. Packages without a new time keep their old one.
record_times() {
	awk -f scripts/times.awk build/test.log >build/times.tsv
	{
		awk -F '\t' -v OFS='\t' '$3 == "" { print $1, $2 }' build/times.tsv
		[ ! -e build/package-times.tsv ] || cat build/package-times.tsv
	} | awk -F '\t' '!seen[$2]++' | sort -rn >build/package-times.new
	mv build/package-times.new build/package-times.tsv
	{
		echo "test: $SECONDS seconds in all, with checks, guests and the demo; $(cpu_seconds) processor seconds"
		[ ! -e build/cpu-times.tsv ] || {
			echo "packages with the most processor time, in seconds:"
			sort -rn build/cpu-times.tsv | head -40
		}
		echo "slowest packages, in seconds:"
		awk -F '\t' '$3 == ""' build/times.tsv | sort -rn | head -20
		echo "slowest tests, in seconds:"
		awk -F '\t' '$3 != ""' build/times.tsv | sort -rn | head -40
	} >build/test-times.txt
	rm build/times.tsv
}

# use_memory sets TMPDIR to a folder in memory if this machine has 8 GiB for it: a file system on a disk takes about a
# fifth of the processor time of the tests, for small files. The folder must permit programs and support O_DIRECT.
use_memory() {
	[ -z "${TMPDIR:-}" ] || return 0
	memory=$(mktemp -d /dev/shm/dt.XXXX 2>/dev/null) || return 0
	chmod 1777 "$memory"
	available=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
	room=$(df --output=avail "$memory" | tail -n 1)
	if [ "$available" -gt $((8 << 20)) ] && [ "$room" -gt $((8 << 20)) ] && cp /bin/true "$memory" && "$memory/true" &&
		dd if=/dev/zero of="$memory/direct" bs=4096 count=1 oflag=direct 2>/dev/null; then
		rm "$memory/true" "$memory/direct"
		export TMPDIR=$memory
	fi
}

memory=
trap 'kill $(jobs -p) 2>/dev/null; [ -z "$memory" ] || rm -rf "$memory"' EXIT
use_memory
check_static
go run ./test/guest/cmd/buildguest >/dev/null || fail "could not build the test guests"

# staticcheck, the demo and the tests of Kubernetes run beside the other tests. They end with this script.
run_staticcheck >build/static.log 2>&1 &
static=$!
make demo >build/demo.log 2>&1 &
demo=$!
# Separate modules, because they depend on Kubernetes and Helm. Their tests check files of this module.
for module in kubevirt packaging; do
	# shellcheck disable=SC2086 # several arguments
	(cd "test/$module" && go test $test_flags -count 1 -v "$@" ./...) || exit
done >build/kubevirt.log 2>&1 &
kubevirt=$!
# The program that builds releases is a separate module.
# shellcheck disable=SC2086 # several arguments
(cd release && go test $test_flags -count 1 -v "$@" .) >build/release.log 2>&1 &
release=$!
packages=$(ordered_packages) || fail "go list"
[ -z "${REVERSE:-}" ] || packages=$(tac <<<"$packages")
rm -f build/cpu-times.tsv
export CPU_TIMES=$PWD/build/cpu-times.tsv
# shellcheck disable=SC2086 # one argument for each package
go test $test_flags -count 1 -timeout 60m ${CPU:+-exec "$PWD/scripts/cputime.sh"} -v "$@" $packages >build/test.log 2>&1
status=$?
wait "$kubevirt" || status=$?
wait "$release" || status=$?
cat build/kubevirt.log build/release.log >>build/test.log
wait "$static" || static=
wait "$demo" || {
	tail -20 build/demo.log
	fail "make demo; see build/demo.log"
}
times >build/cpu-total # not in a pipe: a subshell has other children
record_times
grep -E '^(ok|FAIL|panic:)' build/test.log
[ -n "$static" ] || cat build/static.log
if [ "$status" -ne 0 ]; then
	awk -f scripts/failures.awk build/test.log | tail -200
	echo "failed, in short:" # last, as logs are often cut in the middle
	grep -E '^ *--- FAIL|^FAIL	|^panic:|^	+Test.* \([0-9hms]+\)$' build/test.log # the last: tests that a time limit ended
	fail "go test failed; see build/test.log"
fi
[ -n "$static" ] || fail "staticcheck; see build/static.log"
skipped=$(grep -E -A 2 '^ *--- SKIP' build/test.log)
[ -z "$skipped" ] || fail "skipped tests are not permitted:
$skipped"
! grep -q 'no sample images' build/test.log || echo "test: not tested with sample images of VMware products; see docs/formats/vmdk.md"
echo "test: $(grep -cE '^ *--- PASS' build/test.log) passed, none skipped; slowest first in build/test-times.txt"
