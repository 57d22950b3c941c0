#!/bin/sh
# Runs before dpkg or rpm removes the files. dpkg passes "remove", rpm 0; an upgrade passes other words and
# stops nothing.
set -e

case $1 in
remove | 0) ;;
*) exit 0 ;;
esac

[ -d /run/systemd/system ] || exit 0
for file in /usr/lib/systemd/system/decamp*; do
	if [ -e "$file" ]; then
		systemctl --quiet disable "${file##*/}" || : # static units
	fi
done
systemctl stop 'decamp*' # workers stop at a safe point; their migrations continue when a worker starts
