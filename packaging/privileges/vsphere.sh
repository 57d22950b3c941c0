#!/bin/sh
# Creates the role "decamp" on a vCenter or an ESXi host, with the fewest privileges that the
# named uses need, and grants it to an account. It needs govc, and GOVC_URL of an administrator.
#
#   vsphere.sh ACCOUNT USE...
#
#   vsphere.sh 'VSPHERE.LOCAL\decamp' https warm power-off
#
# Uses: https, nfc, landing (the transports), warm, warm-landing, power-off, enable-ssh.
# decamp doctor reports each privilege that an account lacks.
set -eu

[ $# -ge 2 ] || {
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
account=$1
shift

snapshots="VirtualMachine.State.CreateSnapshot VirtualMachine.State.RemoveSnapshot
	VirtualMachine.Config.ChangeTracking VirtualMachine.Provisioning.DiskRandomRead
	VirtualMachine.Interact.PowerOff VirtualMachine.Interact.PowerOn"
privileges=
for use in "$@"; do
	case $use in
	https) needed="Datastore.Browse Datastore.FileManagement VirtualMachine.Provisioning.DiskRandomRead" ;;
	nfc) needed="VirtualMachine.Provisioning.GetVmFiles VirtualMachine.Provisioning.DiskRandomRead" ;;
	landing) needed="Host.Config.Storage Datastore.FileManagement" ;;
	warm) needed=$snapshots ;;
	warm-landing) needed="$snapshots VirtualMachine.Provisioning.GetVmFiles" ;; # the rounds are read by NFC
	power-off) needed="VirtualMachine.Interact.PowerOff VirtualMachine.Interact.PowerOn" ;; # on again after a rollback
	enable-ssh) needed="Host.Config.NetService" ;;
	*)
		echo "vsphere.sh: unknown use \"$use\"; run it without arguments for the list" >&2
		exit 2
		;;
	esac
	privileges="$privileges $needed"
done
# shellcheck disable=SC2046,SC2086 # the names are split into words on purpose
set -- $(printf '%s\n' $privileges | sort -u)

if govc role.ls decamp >/dev/null 2>&1; then
	govc role.update decamp "$@" # replaces the privileges it had
else
	govc role.create decamp "$@"
fi
govc permissions.set -principal "$account" -role decamp -propagate=true /
echo "$account has the role decamp with: $*"
