#!/bin/sh
# Installs qemu-guest-agent, and removes itself. decamp wrote this script when it converted the guest;
# decamp-guest-agent.service starts it.
etc=/etc
usr=/usr
most_boots=10
tries=5
pause=30 # seconds between tries

agent() { [ -e "$usr/bin/qemu-ga" ] || [ -e "$usr/sbin/qemu-ga" ]; }

# A package manager waits for its lock, or fails if another process has it; main tries again then.
install() {
	if command -v apt-get; then
		apt-get -q -o DPkg::Lock::Timeout=300 update &&
			apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install qemu-guest-agent
	elif command -v dnf; then
		dnf -q -y install qemu-guest-agent
	elif command -v yum; then
		yum -q -y install qemu-guest-agent
	elif command -v zypper; then
		zypper --non-interactive install --no-recommends qemu-guest-agent
	fi </dev/null
}

# Errors are ignored: udev may start the agent already, and without its channel it cannot start.
start() {
	systemctl enable qemu-guest-agent.service
	systemctl --no-block start qemu-guest-agent.service
} 2>/dev/null

leave() {
	rm -f "$etc/systemd/system/multi-user.target.d/50-decamp-guest-agent.conf" \
		"$etc/systemd/system/decamp-guest-agent.service" \
		"$etc/decamp-guest-agent.boots" "$etc/decamp-guest-agent"
	rmdir "$etc/systemd/system/multi-user.target.d" 2>/dev/null
	systemctl daemon-reload
}

main() {
	export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l ZYPP_LOCK_TIMEOUT=300
	boots=0
	[ -e "$etc/decamp-guest-agent.boots" ] && read -r boots <"$etc/decamp-guest-agent.boots"
	case $boots in '' | *[!0-9]*) boots=0 ;; esac
	boots=$((boots + 1))
	echo "$boots" >"$etc/decamp-guest-agent.boots"
	try=1
	until agent; do
		install
		agent && start && break
		agent && break
		if [ "$try" -ge "$tries" ]; then
			if [ "$boots" -ge "$most_boots" ]; then
				echo "qemu-guest-agent could not be installed in $boots boots; it is not tried again"
				leave
			else
				echo "qemu-guest-agent could not be installed: the next boot tries again ($boots of $most_boots)"
			fi
			exit 1
		fi
		try=$((try + 1))
		sleep "$pause"
	done
	echo "qemu-guest-agent is installed"
	leave
	exit 0
}

main
