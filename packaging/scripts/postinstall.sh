#!/bin/sh
# Runs after dpkg or rpm has installed the files. dpkg passes "configure OLD-VERSION", rpm the number of installed
# versions. It starts and restarts nothing: running migrations continue with the old program.
set -e

old=
case $1 in
configure) old=$2 ;;
1) ;;
2) old=installed ;;
*) exit 0 ;; # dpkg undoes a failed change
esac

for file in /usr/lib/sysusers.d/decamp*.conf; do
	if [ -e "$file" ] && command -v systemd-sysusers >/dev/null; then
		systemd-sysusers "$file"
	fi
done
for file in /usr/lib/tmpfiles.d/decamp*.conf; do
	if [ -e "$file" ] && command -v systemd-tmpfiles >/dev/null; then
		systemd-tmpfiles --create "$file"
	fi
done

running=
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	running=$(systemctl list-units --no-legend --plain --state=running 'decamp*.service' | cut -d ' ' -f 1 | tr '\n' ' ')
fi
if [ -n "$old" ]; then
	echo "decamp: running processes continue with the previous version."
	if [ -n "$running" ]; then
		echo "decamp: to use this version, drain the workers and run: systemctl restart $running"
	fi
fi
