#!/bin/sh
# Runs after dpkg or rpm has removed the files. The state is kept, also when the package is purged: it lists changes
# on hosts that are not reverted yet, and migrations that can continue.
set -e

[ ! -d /run/systemd/system ] || systemctl daemon-reload
case $1 in
remove | purge | 0)
	if [ -n "$(ls -A /var/lib/decamp 2>/dev/null)" ]; then
		echo "decamp: the state in /var/lib/decamp is kept. To delete it, run: rm -r /var/lib/decamp"
	fi
	;;
esac
