#!/usr/bin/env bash
# Fuzzes every Fuzz function of the tree for the time given, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
each=${1:-30s}

# Without -fuzzminimizetime, each long input with new coverage would be minimized for a minute.

grep -rlE '^func Fuzz' --include='*_test.go' internal | sort | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | cut -d' ' -f2 | while read -r target; do
		echo "fuzz: ./$(dirname "$file") $target for $each"
		go test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$each" -fuzzminimizetime 1x </dev/null
	done
done
