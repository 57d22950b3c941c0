#!/bin/sh
# Creates the user decamp@pve, a token and the role of least privileges that decamp needs to
# deliver guests. Run it as root on a node of the cluster.
#
#   proxmox.sh DISKS UPLOADS BRIDGE...
#
#   proxmox.sh local-lvm local vmbr0 vmbr1/20
#
# DISKS is the storage for disks, UPLOADS the storage with content "import", BRIDGE a bridge or
# BRIDGE/VLAN. For a VNet, name its path below /sdn/zones: ZONE/VNET, as "zone1/vnet7".
# For delivery over SSH (ssh=), which uploads nothing, name the storage for disks twice.
# The last line it prints is the content of the file that token= names.
set -eu

[ $# -ge 3 ] || {
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
disks=$1 uploads=$2
shift 2

pveum user add decamp@pve --comment "decamp: takes VMs from VMware"
# grant NAME PATH PRIVILEGES
grant() {
	pveum role add "$1" --privs "$3"
	pveum acl modify "$2" --users decamp@pve --roles "$1"
}
# VM.PowerMgmt is only needed for --start, VM.Config.CDROM only for VMs with a CD-ROM drive.
grant DecampGuests /vms "VM.Allocate VM.Audit VM.Config.Disk VM.Config.CPU VM.Config.Memory VM.Config.Network VM.Config.HWType VM.Config.Options VM.Config.CDROM VM.PowerMgmt"
if [ "$disks" = "$uploads" ]; then
	grant DecampStorage "/storage/$disks" "Datastore.AllocateSpace Datastore.AllocateTemplate Datastore.Audit Datastore.Allocate"
else
	grant DecampDisks "/storage/$disks" "Datastore.AllocateSpace"
	# Proxmox requires Datastore.Allocate to delete an upload. Nothing less does.
	grant DecampUploads "/storage/$uploads" "Datastore.AllocateTemplate Datastore.Audit Datastore.Allocate"
fi
pveum role add DecampNetwork --privs SDN.Use
for bridge in "$@"; do
	case $bridge in
	vmbr*) path=/sdn/zones/localnetwork/$bridge ;;
	*) path=/sdn/zones/$bridge ;;
	esac
	pveum acl modify "$path" --users decamp@pve --roles DecampNetwork
done
# Without privilege separation the token has what its user has, and no more.
pveum user token add decamp@pve mover --privsep 0 --output-format json |
	sed -n 's/.*"value" *: *"\([^"]*\)".*/decamp@pve!mover=\1/p'
