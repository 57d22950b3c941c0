package pve

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A qemuCommand builds a QEMU command line from the options of a guest. The first error is kept in err,
// so that the add methods need no error results.
type qemuCommand struct {
	server *Server           // node whose storages contain the guest's volumes
	config map[string]string // options of the guest, as in its configuration file; not modified
	args   []string          // arguments so far, without the name of the program
	err    error             // first error; nil if all options are understood
}

// add appends arguments to the command line.
func (l *qemuCommand) add(args ...string) { l.args = append(l.args, args...) }

// fail records err unless an earlier error is recorded. A nil err is ignored.
func (l *qemuCommand) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

// commandLine returns the arguments that start QEMU for g. It fails if a value cannot be parsed or a
// volume does not exist. Server.mu must be held.
func (s guestStart) commandLine(g *guest) ([]string, error) {
	l := &qemuCommand{server: s.Server, config: g.config}
	l.add("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-cpu", "max")
	l.addMachine() // includes processors and memory
	l.addIdentity()
	l.addFirmware()
	l.addDisks()
	l.addNetworkCards()
	if l.config["serial0"] == "socket" {
		l.add("-serial", "file:"+s.Serial(g.vmid))
	}
	return l.args, l.err
}

// addMachine adds machine type, processors and memory. Defaults are those of Proxmox: pc, one socket,
// one core, 512 MiB. The accelerator is always TCG. One thread emulates all processors, because threads
// that wait for each other are slow on a busy machine.
func (l *qemuCommand) addMachine() {
	l.add("-accel", "tcg,thread=single", "-machine", cmp.Or(l.config["machine"], "pc"))
	sockets, cores := cmp.Or(l.config["sockets"], "1"), cmp.Or(l.config["cores"], "1")
	n, errN := strconv.Atoi(sockets)
	m, errM := strconv.Atoi(cores)
	l.fail(errors.Join(errN, errM))
	l.add("-smp", fmt.Sprintf("%d,sockets=%s,cores=%s", n*m, sockets, cores), "-m", cmp.Or(l.config["memory"], "512"))
}

// addIdentity adds the UUID and the serial number of smbios1. The value of serial is base64 if the
// option contains base64=1.
func (l *qemuCommand) addIdentity() {
	words := map[string]string{}
	for _, word := range strings.Split(l.config["smbios1"], ",") {
		name, value, _ := strings.Cut(word, "=")
		words[name] = value
	}
	if words["uuid"] != "" {
		l.add("-uuid", words["uuid"])
	}
	if serial := words["serial"]; serial != "" {
		if words["base64"] == "1" {
			plain, err := base64.StdEncoding.DecodeString(serial)
			l.fail(err)
			serial = string(plain)
		}
		l.add("-smbios", "type=1,serial="+strings.ReplaceAll(serial, ",", ",,"))
	}
}

// ovmf is the folder in which Debian's package ovmf installs the firmware.
const ovmf = "/usr/share/OVMF/"

// ovmfSuffix returns the part of the firmware's file name that selects the image with Microsoft's keys;
// it is empty if no keys are enrolled.
func ovmfSuffix(enrolled bool) string {
	if enrolled {
		return ".ms"
	}
	return ""
}

// variablesSize is the size of the variable store on an EFI disk, in bytes. The rest of a block volume
// is unused.
const variablesSize = 528 << 10

// firmwareVariables creates the variable store of a new EFI disk at path and returns the size for the
// option. If file is false, path is a block volume of one extent: its content beyond the store is that
// of an earlier volume.
func firmwareVariables(ctx context.Context, path, format string, enrolled, file bool) (size string, err error) {
	template := ovmf + "OVMF_VARS_4M" + ovmfSuffix(enrolled) + ".fd"
	if file {
		return "528K", runTool(ctx, "qemu-img", "convert", "-f", "raw", "-O", format, template, path)
	}
	store, err := os.ReadFile(template)
	if err != nil {
		return "", err
	}
	if err := os.Remove(path); err != nil { // allocateVolume created it
		return "", err
	}
	if err := makeVolume(path, extent, true); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = f.WriteAt(store, 0)
	return "4M", errors.Join(err, f.Close())
}

// addFirmware adds OVMF with the store of efidisk0. A guest with SeaBIOS needs no argument.
func (l *qemuCommand) addFirmware() {
	if l.config["bios"] != "ovmf" { // SeaBIOS is QEMU's default
		return
	}
	d := parseDrive(l.config["efidisk0"]) // the variable store
	path, err := l.server.volumePath(d.volume)
	l.fail(err)
	kind := fmt.Sprintf("raw,size=%d", variablesSize)
	if strings.HasSuffix(path, ".qcow2") {
		kind = "qcow2"
	}
	l.add("-drive", "if=pflash,unit=0,format=raw,readonly=on,file="+ovmf+"OVMF_CODE_4M"+ovmfSuffix(d.words["pre-enrolled-keys"] == "1")+".fd",
		"-drive", fmt.Sprintf("if=pflash,unit=1,format=%s,file=%s", kind, path))
}

// deviceOption returns the value of -device for the disk of an option such as scsi3. For
// virtio-scsi-single it also adds the disk's own controller, as Proxmox does.
func (l *qemuCommand) deviceOption(name string) (device string) {
	kind := strings.TrimRight(name, "0123456789")
	n, _ := strconv.Atoi(strings.TrimPrefix(name, kind)) // the key matched
	switch {
	case kind == "sata":
		return fmt.Sprintf("ide-hd,bus=sata.%d", n)
	case kind == "ide" && l.config["machine"] == "q35": // a bus for each disk
		return fmt.Sprintf("ide-hd,bus=ide.%d", n)
	case kind == "ide": // two buses with two units
		return fmt.Sprintf("ide-hd,bus=ide.%d,unit=%d", n/2, n%2)
	case l.config["scsihw"] == "virtio-scsi-single":
		l.add("-device", fmt.Sprintf("virtio-scsi-pci,id=scsihw%d", n))
		return fmt.Sprintf("scsi-hd,bus=scsihw%d.0,scsi-id=0,lun=%d", n, n)
	}
	return fmt.Sprintf("scsi-hd,bus=scsihw0.0,scsi-id=%d", n)
}

// addControllers adds the SATA and SCSI controllers that names need. A controller of virtio-scsi-single
// belongs to one disk: deviceOption adds it.
func (l *qemuCommand) addControllers(names []string) {
	has := func(kind string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, kind) })
	}
	if has("sata") {
		l.add("-device", "ahci,id=sata")
	}
	model := map[string]string{
		"": "lsi53c895a", "lsi": "lsi53c895a", "pvscsi": "pvscsi", "virtio-scsi-pci": "virtio-scsi-pci", "megasas": "megasas",
	}[l.config["scsihw"]]
	if has("scsi") && model != "" {
		l.add("-device", model+",id=scsihw0")
	}
}

// addDisks adds the drives in the order of their option names. The boot order becomes a bootindex from
// 100 on; a CD-ROM drive without a medium is left out.
func (l *qemuCommand) addDisks() {
	names := slices.DeleteFunc(sortedKeys(l.config), func(name string) bool {
		return !driveKey.MatchString(name) || name == "efidisk0" || name == "tpmstate0"
	})
	l.addControllers(names)
	order := strings.Split(strings.TrimPrefix(l.config["boot"], "order="), ";")
	for _, name := range names {
		d := parseDrive(l.config[name])
		if d.volume == "none" {
			continue // a drive without a disk in it
		}
		path, err := l.server.volumePath(d.volume)
		l.fail(err)
		format := "raw"
		if strings.HasSuffix(path, ".qcow2") {
			format = "qcow2"
		}
		l.add("-drive", fmt.Sprintf("if=none,id=%s,format=%s,file=%s", name, format, path))
		device := l.deviceOption(name) + ",drive=" + name
		if d.words["serial"] != "" { // shown in /dev/disk/by-id of the guest
			device += ",serial=" + d.words["serial"]
		}
		if at := slices.Index(order, name); at >= 0 { // position in the boot order
			device += fmt.Sprintf(",bootindex=%d", 100+at)
		}
		l.add("-device", device)
	}
}

// addNetworkCards adds a card for each net option. Each card has its own user network with restrict=on,
// so that guests reach no network.
func (l *qemuCommand) addNetworkCards() {
	for _, name := range sortedKeys(l.config) {
		if !strings.HasPrefix(name, "net") {
			continue
		}
		model, rest, _ := strings.Cut(l.config[name], "=")
		mac, _, _ := strings.Cut(rest, ",")
		if model == "virtio" {
			model = "virtio-net-pci"
		}
		l.add("-netdev", "user,id="+name+",restrict=on", "-device", fmt.Sprintf("%s,netdev=%s,mac=%s", model, name, mac))
	}
}

// sortedKeys returns the names of the options in ascending order.
func sortedKeys(config map[string]string) []string {
	var names []string
	for name := range config {
		names = append(names, name)
	}
	return sortedNames(names)
}
