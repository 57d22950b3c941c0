#!/bin/sh
# Installs the missing tools of a make target, and nothing else.
#
#   scripts/setup.sh [demo|test|slow|v2v|bench|guests|kube|release|clients|plugin]...     (default: test)
#
# Every make target that needs tools calls this script. If all tools are there, it runs one dpkg-query and looks into
# build/, without network and root. It requires Debian 12 or later, or a derivative, and root or sudo to install.
# shellcheck disable=SC2046,SC2086 # package lists are split into words on purpose
set -eu
cd "$(dirname "$0")/.."

# Programs that build and boot the test guests.
demo='qemu-system-x86 qemu-utils ovmf seabios e2fsprogs fdisk dosfstools mtools
      grub-common grub-pc-bin grub-efi-amd64-bin'
# Programs that tests run beside decamp, or that check its results: HTTP, NFS and NBD clients, an NFS server, firewalls,
# OpenSSH, the shell of ESXi, PostgreSQL, a browser, file systems and archives of guests, other readers and writers of
# NTFS, registry hives, dynamic disks, VMDK and qcow2, boot loaders signed by Debian, libvirt's schema, systemd's check of
# units, readers of packages, manual pages and signatures, shells with completion, a keyring on a D-Bus, OpenSSL.
test='curl cpio kmod util-linux libxml2-utils libvirt0 libnfs-utils qemu-block-extra nfs-ganesha nfs-ganesha-vfs rpcbind iproute2
      nftables iptables openssh-client busybox-static postgresql chromium python3-venv xfsprogs btrfs-progs zstd xz-utils lz4
      ntfs-3g attr libhivex-bin libwin-hivex-perl ldmtool systemd genisoimage shim-signed grub-efi-amd64-signed
      7zip python3-libvmdk python3-libqcow python3-vmdkstream rpm mandoc minisign shellcheck dbus-daemon gnome-keyring
      libnbd-bin python3-libnbd fish zsh openssl'
# The libvirt that tests start, volume groups for it, TPMs of its VMs, and connections to it.
libvirt='libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-system libvirt-clients lvm2 mount swtpm swtpm-tools openssh-server netcat-openbsd'
# Packages to build fio: Debian's fio has no engines for NFS and NBD.
fio='gcc libc6-dev make patch libnfs-dev libnbd-dev pkgconf'
# Wireshark, 120 MB, which decodes the traffic between NFS clients and decamp land.
slow='tshark'
# virt-v2v with its appliance, 200 MB; nbdkit, which it requires although its package does not depend on it; guestfish;
# packages to build the Debian guest that virt-v2v converts, and to encrypt a volume.
v2v='virt-v2v nbdkit libguestfs-tools mmdebstrap cryptsetup-bin'
# Packages to build Debian guests and to check their file systems.
guests='mmdebstrap lvm2 xfsprogs btrfs-progs util-linux mount kmod'
# The database of the API server of Kubernetes.
kube='etcd-server'
# Packages to build and boot the Debian in which a release is installed, and to read and run its images.
release='git iproute2 util-linux mmdebstrap rpm minisign skopeo runc systemd-container'
# The plugin for nbdkit: its compiler and header, the server that loads it, and clients.
nbdkit='gcc libc6-dev nbdkit nbdkit-plugin-dev libnbd-bin'
# The compiler of the plugin for arm64.
arm='gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
# Programs that the benchmarks compare with decamp.
bench='aria2 rclone'

fail() {
	echo "setup: $*" >&2
	exit 1
}

fail_with_log() {
	cat "$tmp/log" >&2
	fail "$@"
}

# wanted GROUP... prints the packages of the groups.
wanted() {
	for group in "$@"; do
		case $group in
		demo) echo $demo ;;
		test) echo $demo $test $libvirt $fio $nbdkit ;;
		slow) echo $demo $test $libvirt $fio $nbdkit $arm $slow $release ;;
		v2v) echo $demo $test $nbdkit $v2v ;;
		bench) echo $demo $test $nbdkit $bench ;;
		guests) echo $demo $guests ;;
		kube) echo $kube ;;
		release) echo $nbdkit $arm $release ;;
		plugin) echo $nbdkit $arm ;;
		clients) echo python3-venv ;;
		esac
	done | tr ' ' '\n' | sort -u
}

# missing PACKAGE... prints the packages that are not installed.
missing() {
	for package in "$@"; do
		echo "$package"
	done | sort >"$tmp/wanted"
	dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
		sed -n 's/ installed$//p' | sort -u >"$tmp/present"
	comm -23 "$tmp/wanted" "$tmp/present"
}

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		fail "root or sudo is required; as root, run: $*"
	fi
}

apt() {
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -y -o DPkg::Lock::Timeout=300 -o APT::Install-Recommends=false "$@"
}

# refresh updates apt's lists once per run: packages of an old list may be gone.
refresh() {
	[ ! -e "$tmp/refreshed" ] || return 0
	apt update >"$tmp/log" 2>&1 || cat "$tmp/log" >&2 # the other sources may suffice
	: >"$tmp/refreshed"
}

install_packages() {
	lacking=$(missing $(wanted "$@"))
	[ -n "$lacking" ] || return 0
	command -v apt-get >/dev/null || fail "this machine has no apt-get; install these packages:" $lacking
	echo "setup: installing" $lacking >&2
	refresh
	apt install $lacking >"$tmp/log" 2>&1 || fail_with_log "could not install" $lacking
}

# fetch_deb PACKAGE FOLDER unpacks a Debian package into build/FOLDER, without installing it.
fetch_deb() {
	chmod 755 "$tmp" # apt downloads as its own user
	(cd "$tmp" && apt-get -q download "$1" >log 2>&1) || fail_with_log "could not fetch $1"
	mkdir -p build
	new=$(mktemp -d "build/$2.XXXXXX")
	dpkg-deb -x "$tmp/$1"_*.deb "$new"
	mv -T "$new" "build/$2" || { rm -rf "$new"; [ -e "build/$2" ]; } # another run was first
}

# fetch_kernel unpacks Debian's cloud kernel for the test guests. It is not installed, so that the boot loader of this
# machine is not changed.
fetch_kernel() {
	[ ! -e build/kernel/boot ] || return 0
	echo "setup: fetching a kernel for the test guests" >&2
	refresh
	package=$(apt-cache depends --important linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p')
	[ -n "$package" ] || fail "apt has no package linux-image-cloud-amd64"
	fetch_deb "$package" kernel
}

# fetch_agent unpacks QEMU's guest agent for a test guest. It is not installed, as it would start on this machine.
fetch_agent() {
	[ ! -e build/agent/usr ] || return 0
	echo "setup: fetching a guest agent for the test guests" >&2
	refresh
	fetch_deb qemu-guest-agent agent
}

# fetch_prometheus unpacks Prometheus and promtool. They are not installed, as Debian would start the service.
fetch_prometheus() {
	[ ! -e build/prometheus/usr ] || return 0
	echo "setup: fetching Prometheus" >&2
	refresh
	fetch_deb prometheus prometheus
}

# index_kernel creates the index of the kernel's modules, which appliances read.
index_kernel() {
	for dir in build/kernel/lib/modules/*; do
		[ -e "$dir/modules.dep" ] || PATH="$PATH:/usr/sbin:/sbin" depmod -b build/kernel "${dir##*/}"
	done
}

# Release of fio in Debian 12, SHA-256 of its source, and options of the build. An optimised build takes three times as
# long.
fio_release=3.33
fio_sum=d2410e13e0f379d061d077cc5ae325835bb7c6186aa7bafc1df954cbc9b014fc
fio_options='--enable-libnfs --enable-libnbd --disable-optimizations --disable-native'

# fio_version prints the version of the build, which depends on the release, the options and the patch.
fio_version() {
	made=$(echo "$fio_sum $fio_options" | cat - scripts/fio-nfs.patch | sha256sum)
	echo "fio-$fio_release-decamp-$(echo "$made" | cut -c 1-12)"
}

# fetch_fio unpacks the source of fio into $tmp. It is beside the binary package on the mirror.
fetch_fio() {
	refresh
	binary=$(apt-get -q download --print-uris fio | sed -n "s/^'\([^']*\)'.*/\1/p")
	[ -n "$binary" ] || fail "apt has no package fio"
	chmod 755 "$tmp" # apt downloads as its own user
	/usr/lib/apt/apt-helper download-file "${binary%/*}/fio_$fio_release.orig.tar.gz" "$tmp/fio.tar.gz" "SHA256:$fio_sum" \
		>"$tmp/log" 2>&1 || fail_with_log "could not fetch the source of fio $fio_release"
	tar -xzf "$tmp/fio.tar.gz" -C "$tmp"
}

# build_fio builds build/fio with its engines for NFS and NBD. Without scripts/fio-nfs.patch, the engine for NFS does not
# detect missing data.
build_fio() {
	version=$(fio_version)
	[ "$(build/fio --version 2>/dev/null)" != "$version" ] || return 0
	echo "setup: building fio with its engines for NFS and NBD" >&2
	fetch_fio
	(
		unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL # variables of the calling make
		patch -d "$tmp/fio-$fio_release" -p 1 <scripts/fio-nfs.patch &&
			cd "$tmp/fio-$fio_release" && echo "$version" >version &&
			./configure $fio_options && make -j "$(nproc)" fio
	) >"$tmp/log" 2>&1 || fail_with_log "could not build fio"
	mkdir -p build
	new=$(mktemp build/fio.XXXXXX)
	install "$tmp/fio-$fio_release/fio" "$new"
	mv "$new" build/fio # atomically: a program of another run may use the old file
}

# Release of schemathesis, which fuzzes the server's API from its OpenAPI document.
schemathesis_release=4.32.5

# Release of fakepve, which checks the requests of decamp to Proxmox VE. Its licence is the AGPL: tests run it, and no
# part of it is in the tree.
fakepve_release=0.5.0

# Release of virt-firmware, which reads the EFI variables that decamp writes.
virt_firmware_release=26.10

# Release of dissect.hypervisor, which reads the same images as decamp in test/differential. Its licence is the AGPL:
# tests run it, and no part of it is in the tree.
dissect_release=3.21

# Release of the SMTP server that receives the e-mail notifications of tests.
aiosmtpd_release=1.4.6

# Release of check-jsonschema, which contains GitLab's schema of CI definitions.
check_jsonschema_release=0.39.0

# pip_install FOLDER ARGUMENT... creates a virtual environment and installs packages into it. To save time, it uses the
# pip of build/clients, if that exists, and does not compile the modules.
pip_install() {
	folder=$1
	shift
	mkdir -p build
	rm -rf "$folder"
	if [ "$folder" != build/clients ] && [ -x build/clients/bin/pip ]; then
		/usr/bin/python3 -m venv --without-pip "$folder" && set -- --python "$folder/bin/python" install "$@"
		pip=build/clients/bin/pip
	else
		/usr/bin/python3 -m venv "$folder" && set -- install "$@"
		pip=$folder/bin/pip
	fi >"$folder.log" 2>&1 || return
	"$pip" -q --disable-pip-version-check "$@" --no-compile >"$folder.log" 2>&1 && rm "$folder.log"
}

# install_pypi NAME RELEASE [PROGRAM] installs a program from PyPI and its dependencies in build/NAME.
install_pypi() {
	program=build/$1/bin/${3-$1}
	[ "$(cat "build/$1/release" 2>/dev/null)" != "$2" ] || [ ! -x "$program" ] || return 0
	echo "setup: installing $1 $2" >&2
	pip_install "build/$1" "$1==$2" || { cat "build/$1.log" >&2; fail "could not install $1 $2"; }
	echo "$2" >"build/$1/release" # last: an interrupted installation is repeated
}

# install_clients installs the pinned tools of the clients in build/clients: the generator, pytest, Ansible.
install_clients() {
	! cmp -s clients/requirements.txt build/clients/requirements.txt || return 0
	echo "setup: installing the tools of the clients" >&2
	pip_install build/clients -r clients/requirements.txt || { cat build/clients.log >&2; fail "could not install the tools of the clients"; }
	cp clients/requirements.txt build/clients/ # last: an interrupted installation is repeated
}

[ $# -gt 0 ] || set -- test
for group in "$@"; do
	case $group in
	demo | test | slow | v2v | bench | guests | kube | release | clients | plugin) ;;
	*) fail "unknown group \"$group\"; the groups are demo, test, slow, v2v, bench, guests, kube, release, clients and plugin" ;;
	esac
done
command -v dpkg-query >/dev/null || fail "this is not Debian; install the packages of your distribution that correspond to:" $(wanted "$@")
tmp=$(mktemp -d)
jobs=
trap 'kill $jobs 2>/dev/null || :; rm -rf "$tmp"' EXIT
install_packages "$@"
[ "$*" = kube ] || [ "$*" = release ] || [ "$*" = clients ] || [ "$*" = plugin ] || [ "$*" = "clients plugin" ] || { fetch_kernel; fetch_agent; } # these groups boot no guest
case " $* " in
*" test "* | *" slow "* | *" v2v "* | *" bench "* | *" guests "*) index_kernel ;;
esac
case " $* " in
*" v2v "*) [ -d /lib/modules ] || as_root mkdir -p /lib/modules ;; # supermin requires the folder, even if it is empty
esac

# run_beside runs a function in the background: most of these steps use one processor. The script waits for them at its end.
run_beside() {
	"$@" &
	jobs="$jobs $!"
}

# build_and_fetch runs two functions in order, as both use the same log.
build_and_fetch() {
	build_fio
	fetch_prometheus
}
case " $* " in
*" test "* | *" slow "*) run_beside build_and_fetch ;;
esac
case " $* " in
*" test "* | *" slow "* | *" clients "*) install_clients ;; # its pip installs the others
esac
case " $* " in
*" test "* | *" slow "* | *" bench "*) run_beside install_pypi dissect.hypervisor "$dissect_release" envelope-decrypt ;;
esac
case " $* " in
*" test "* | *" slow "*)
	run_beside install_pypi schemathesis "$schemathesis_release"
	run_beside install_pypi fakepve "$fakepve_release"
	run_beside install_pypi virt-firmware "$virt_firmware_release" virt-fw-vars
	run_beside install_pypi aiosmtpd "$aiosmtpd_release"
	run_beside install_pypi check-jsonschema "$check_jsonschema_release"
	;;
esac
for job in $jobs; do
	wait "$job" || exit
done
jobs=
