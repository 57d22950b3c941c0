#!/usr/bin/env bash
# go test -exec runs this script for each package. It runs the test binary and adds a line to the file
# $CPU_TIMES: processor seconds of the tests and of their children that ended, and the package.
root=$(cd "$(dirname "$0")/.." && pwd)
TIMEFORMAT='%U %S'
{ time "$@" 2>&3 3>&-; } 3>&2 2>"$CPU_TIMES.$$"
status=$?
read -r user system <"$CPU_TIMES.$$"
rm "$CPU_TIMES.$$"
awk -v u="$user" -v s="$system" -v p="github.com/decamp/decamp${PWD#"$root"}" 'BEGIN { printf "%.1f\t%s\n", u + s, p }' >>"$CPU_TIMES"
exit $status
