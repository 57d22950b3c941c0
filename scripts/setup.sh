#!/bin/sh
# Installs what this machine lacks for a make target, and nothing else.
#
#   scripts/setup.sh [demo|test|slow|v2v|bench|guests|kube|release|clients|plugin]...     (default: test)
#
# It is called by every make target that needs tools, so it must be quick when there is
# nothing to do: one dpkg-query, a look into build/, no network, no root.
# Debian 12 or later, or a derivative; root or sudo where something has to be installed.
# shellcheck disable=SC2046,SC2086 # package lists are split into words on purpose
set -eu
cd "$(dirname "$0")/.."

# Building the test guests and booting them.
demo='qemu-system-x86 qemu-utils ovmf seabios e2fsprogs fdisk dosfstools mtools
      grub-common grub-pc-bin grub-efi-amd64-bin'
# Judges of what decamp writes, builds and serves: curl, cpio, modprobe, blkid, libvirt's schema of
# a domain, libnfs, QEMU's driver for nfs://, a server for the emulated host to mount, firewalls
# that doctor is to understand, OpenSSH, ESXi's shell, the database that several machines meet in, a
# browser, what schemathesis is installed with, the makers of file systems and archives that guests
# have, those that read packages, manual pages and signatures of a release, and those who write NTFS volumes and registry hives for decamp to read, or read the database
# of dynamic disks as decamp does; shells that complete; the judge of systemd's units, the maker of ISO images, boot loaders
# that Debian has signed, other readers and writers of VMDK and qcow2, a keyring on a D-Bus, NBD clients and the maker of their certificates.
test='curl cpio kmod util-linux libxml2-utils libvirt0 libnfs-utils qemu-block-extra nfs-ganesha nfs-ganesha-vfs rpcbind iproute2
      nftables iptables openssh-client busybox-static postgresql chromium python3-venv xfsprogs btrfs-progs zstd xz-utils lz4
      ntfs-3g attr libhivex-bin libwin-hivex-perl ldmtool systemd genisoimage shim-signed grub-efi-amd64-signed
      7zip python3-libvmdk python3-libqcow python3-vmdkstream rpm mandoc minisign shellcheck dbus-daemon gnome-keyring
      libnbd-bin python3-libnbd fish zsh openssl'
# A libvirt that tests start by hand (Debian may start its service too), volume groups for it, TPMs of its VMs, and ways to it.
libvirt='libvirt-daemon libvirt-daemon-driver-qemu libvirt-daemon-system libvirt-clients lvm2 mount swtpm swtpm-tools openssh-server netcat-openbsd'
# What fio is built with: Debian's own has no engines for NFS and NBD.
fio='gcc libc6-dev make patch libnfs-dev libnbd-dev pkgconf'
# Wireshark, 120 MB, that dissects what others' clients and decamp land say to each other.
slow='tshark'
# virt-v2v with its appliance, 200 MB, nbdkit, which it needs although its package does not depend on it, guestfish, and what
# builds the Debian that virt-v2v converts, and encrypts a volume.
v2v='virt-v2v nbdkit libguestfs-tools mmdebstrap cryptsetup-bin'
# What real guests are built with, and the checkers of their file systems.
guests='mmdebstrap lvm2 xfsprogs btrfs-progs util-linux mount kmod'
# What the API server of Kubernetes keeps its objects in.
kube='etcd-server'
# What builds the Debian that packages of a release are installed in, boots it, and reads and runs its images.
release='git iproute2 util-linux mmdebstrap rpm minisign skopeo runc systemd-container'
# The plugin for nbdkit: its compiler and header, the server that loads it, and clients.
nbdkit='gcc libc6-dev nbdkit nbdkit-plugin-dev libnbd-bin'
# Its compiler for the other architecture of a release.
arm='gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
# The peers that the benchmarks run beside decamp.
bench='aria2 rclone'

fail() {
	echo "setup: $*" >&2
	exit 1
}

fail_with_log() {
	cat "$tmp/log" >&2
	fail "$@"
}

# wanted GROUP... prints the packages those groups need.
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

# missing PACKAGE... prints those that are not installed.
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
		fail "needs root or sudo; as root, run: $*"
	fi
}

apt() {
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -y -o DPkg::Lock::Timeout=300 -o APT::Install-Recommends=false "$@"
}

# refresh fetches apt's lists, once per run: an old list names packages that are gone.
refresh() {
	[ ! -e "$tmp/refreshed" ] || return 0
	apt update >"$tmp/log" 2>&1 || cat "$tmp/log" >&2 # one broken source need not matter
	: >"$tmp/refreshed"
}

install_packages() {
	lacking=$(missing $(wanted "$@"))
	[ -n "$lacking" ] || return 0
	command -v apt-get >/dev/null || fail "this machine has no apt-get; install by hand:" $lacking
	echo "setup: installing" $lacking >&2
	refresh
	apt install $lacking >"$tmp/log" 2>&1 || fail_with_log "could not install" $lacking
}

# fetch_kernel unpacks Debian's cloud kernel into build/kernel for the test guests. It
# is not installed: this machine's own boot loader is none of our business.
fetch_kernel() {
	[ ! -e build/kernel/boot ] || return 0
	echo "setup: fetching a kernel for the test guests" >&2
	refresh
	package=$(apt-cache depends --important linux-image-cloud-amd64 | sed -n 's/^ *Depends: //p')
	[ -n "$package" ] || fail "apt knows no linux-image-cloud-amd64"
	chmod 755 "$tmp" # apt fetches as its own user where it can
	(cd "$tmp" && apt-get -q download "$package" >log 2>&1) || fail_with_log "could not fetch $package"
	mkdir -p build
	new=$(mktemp -d build/kernel.XXXXXX)
	dpkg-deb -x "$tmp/$package"_*.deb "$new"
	mv -T "$new" build/kernel || { rm -rf "$new"; [ -e build/kernel/boot ]; } # another run was first
}

# fetch_agent unpacks QEMU's guest agent into build/agent, for the test guest that has it. It is
# not installed: this machine need not answer to anybody.
fetch_agent() {
	[ ! -e build/agent/usr ] || return 0
	echo "setup: fetching a guest agent for the test guests" >&2
	refresh
	chmod 755 "$tmp"
	(cd "$tmp" && apt-get -q download qemu-guest-agent >log 2>&1) || fail_with_log "could not fetch qemu-guest-agent"
	mkdir -p build
	new=$(mktemp -d build/agent.XXXXXX)
	dpkg-deb -x "$tmp"/qemu-guest-agent_*.deb "$new"
	mv -T "$new" build/agent || { rm -rf "$new"; [ -e build/agent/usr ]; } # another run was first
}

# fetch_prometheus unpacks Prometheus and promtool into build/prometheus. They are not installed: Debian starts
# the service then.
fetch_prometheus() {
	[ ! -e build/prometheus/usr ] || return 0
	echo "setup: fetching Prometheus" >&2
	refresh
	chmod 755 "$tmp"
	(cd "$tmp" && apt-get -q download prometheus >log 2>&1) || fail_with_log "could not fetch prometheus"
	mkdir -p build
	new=$(mktemp -d build/prometheus.XXXXXX)
	dpkg-deb -x "$tmp"/prometheus_*.deb "$new"
	mv -T "$new" build/prometheus || { rm -rf "$new"; [ -e build/prometheus/usr ]; } # another run was first
}

# index_kernel lists that kernel's modules, as an installed one has them: appliances look there.
index_kernel() {
	for dir in build/kernel/lib/modules/*; do
		[ -e "$dir/modules.dep" ] || PATH="$PATH:/usr/sbin:/sbin" depmod -b build/kernel "${dir##*/}"
	done
}

# The release of fio that is built, as Debian 12 has it, the SHA-256 of its source, and how
# it is built: not optimised, as that takes three times as long.
fio_release=3.33
fio_sum=d2410e13e0f379d061d077cc5ae325835bb7c6186aa7bafc1df954cbc9b014fc
fio_options='--enable-libnfs --enable-libnbd --disable-optimizations --disable-native'

# fio_version prints the version that the build has, and no other: of its patch, too.
fio_version() {
	made=$(echo "$fio_sum $fio_options" | cat - scripts/fio-nfs.patch | sha256sum)
	echo "fio-$fio_release-decamp-$(echo "$made" | cut -c 1-12)"
}

# fetch_fio unpacks fio's source into $tmp. It is next to the binary package on the mirror.
fetch_fio() {
	refresh
	binary=$(apt-get -q download --print-uris fio | sed -n "s/^'\([^']*\)'.*/\1/p")
	[ -n "$binary" ] || fail "apt knows no fio"
	chmod 755 "$tmp" # apt fetches as its own user where it can
	/usr/lib/apt/apt-helper download-file "${binary%/*}/fio_$fio_release.orig.tar.gz" "$tmp/fio.tar.gz" "SHA256:$fio_sum" \
		>"$tmp/log" 2>&1 || fail_with_log "could not fetch the source of fio $fio_release"
	tar -xzf "$tmp/fio.tar.gz" -C "$tmp"
}

# build_fio builds build/fio with its engines for NFS and NBD, the first mended by scripts/fio-nfs.patch, which
# says why: a client that does not notice what is missing proves nothing.
build_fio() {
	version=$(fio_version)
	[ "$(build/fio --version 2>/dev/null)" != "$version" ] || return 0
	echo "setup: building fio with its engines for NFS and NBD" >&2
	fetch_fio
	(
		unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL # of the make that called us
		patch -d "$tmp/fio-$fio_release" -p 1 <scripts/fio-nfs.patch &&
			cd "$tmp/fio-$fio_release" && echo "$version" >version &&
			./configure $fio_options && make -j "$(nproc)" fio
	) >"$tmp/log" 2>&1 || fail_with_log "could not build fio"
	mkdir -p build
	new=$(mktemp build/fio.XXXXXX)
	install "$tmp/fio-$fio_release/fio" "$new"
	mv "$new" build/fio # at once: another run may have been first, and use it
}

# The release of schemathesis that fuzzes the server's API from its own document.
schemathesis_release=4.32.5

# The release of fakepve that judges what decamp asks of Proxmox VE. It is under the AGPL: it is run, and
# nothing of it is in the tree.
fakepve_release=0.5.0

# The release of virt-firmware that reads the variables of EFI which decamp writes.
virt_firmware_release=26.10

# The release of dissect.hypervisor that reads the same images as decamp in test/differential. It is under
# the AGPL: it is run, and nothing of it is in the tree.
dissect_release=3.21

# The release of the SMTP server that receives the mail of notifications in tests.
aiosmtpd_release=1.4.6

# The release of check-jsonschema, which contains GitLab's schema of its definitions of CI.
check_jsonschema_release=0.39.0

# pip_install FOLDER ARGUMENT... makes a virtual environment and installs packages into it. pip itself is installed in
# build/clients, if that is there, and Python compiles what it imports: both take more time than the rest.
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

# install_pypi NAME RELEASE [PROGRAM] puts a program of PyPI's and what it needs into build/NAME.
install_pypi() {
	program=build/$1/bin/${3-$1}
	[ "$(cat "build/$1/release" 2>/dev/null)" != "$2" ] || [ ! -x "$program" ] || return 0
	echo "setup: installing $1 $2" >&2
	pip_install "build/$1" "$1==$2" || { cat "build/$1.log" >&2; fail "could not install $1 $2"; }
	echo "$2" >"build/$1/release" # last: another run may have been cut off
}

# install_clients puts the pinned tools of the clients into build/clients: the generator, pytest, Ansible.
install_clients() {
	! cmp -s clients/requirements.txt build/clients/requirements.txt || return 0
	echo "setup: installing the tools of the clients" >&2
	pip_install build/clients -r clients/requirements.txt || { cat build/clients.log >&2; fail "could not install the tools of the clients"; }
	cp clients/requirements.txt build/clients/ # last: another run may have been cut off
}

[ $# -gt 0 ] || set -- test
for group in "$@"; do
	case $group in
	demo | test | slow | v2v | bench | guests | kube | release | clients | plugin) ;;
	*) fail "no group \"$group\"; there are demo, test, slow, v2v, bench, guests, kube, release, clients and plugin" ;;
	esac
done
command -v dpkg-query >/dev/null || fail "this is not Debian; install the counterparts of:" $(wanted "$@")
tmp=$(mktemp -d)
jobs=
trap 'kill $jobs 2>/dev/null || :; rm -rf "$tmp"' EXIT
install_packages "$@"
[ "$*" = kube ] || [ "$*" = release ] || [ "$*" = clients ] || [ "$*" = plugin ] || [ "$*" = "clients plugin" ] || { fetch_kernel; fetch_agent; } # no guest boots there
case " $* " in
*" test "* | *" slow "* | *" v2v "* | *" bench "* | *" guests "*) index_kernel ;;
esac
case " $* " in
*" v2v "*) [ -d /lib/modules ] || as_root mkdir -p /lib/modules ;; # supermin wants it, whatever is in it
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
