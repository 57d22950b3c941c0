// Package planfile has the file in which people say what is to be moved: many VMs, where they
// go, how, and within which limits. It is YAML, read strictly: every key is known, stands
// there once and has a value of its type, or the file is refused with all that is wrong in it,
// each with line, column and the word that was meant.
//
// It is not package plan: a journal.Plan is the intent to move one VM, found and pinned; a File
// is what somebody wrote, of VMs that may or may not be there. Resolve makes the one step
// between them that needs the inventory.
//
//	Parse    text -> File, or Findings with their places
//	Resolve  File and inventory -> Moves: which VM, with which Options
//	Draft    inventory -> the text of a File
//	Schema   the JSON schema, made from the same Go types that Parse reads into
//
// # What is bounded
//
// The text has 4 MiB and 500,000 nodes at most; anchors, aliases, merge keys and tags, by
// which a small text becomes a large one, are not taken at all.
//
// # What is promised
//
// A file of version 1 that was read once will be read by every later decamp, and mean the
// same: testdata/v1 holds some. No secret is in a File: credentials are named, and passwords
// in URLs or keys are refused without being repeated.
package planfile

import "github.com/decamp/decamp/internal/inventory"

// Version is the one of the format that is written. It is the only one there is.
const Version = 1

// File is a plan of many VMs. What a key means stands in its doc tag, from which the JSON
// schema takes it.
type File struct {
	Version  int       `yaml:"version" required:"true" min:"1" max:"1" doc:"of this format: 1"`
	Name     Name      `yaml:"name" required:"true" doc:"of the plan, for lists and logs: letters, digits, . _ -"`
	Source   Source    `yaml:"source" required:"true" doc:"where the VMs are"`
	Defaults Options   `yaml:"defaults" doc:"what holds for each VM that does not say otherwise"`
	Maps     Maps      `yaml:"maps" doc:"what the source's names become"`
	Limits   Limits    `yaml:"limits" doc:"how much may be under way at once"`
	Weight   int       `yaml:"weight" min:"1" max:"100" doc:"share of what several plans wait for: a plan of weight 2 gets twice what a plan of weight 1 gets"`
	Hooks    Hooks     `yaml:"hooks" doc:"commands before the first VM and after the last"`
	Select   Selection `yaml:"select" doc:"the VMs to move, by an expression: folder=prod && !poweredOn"`
	VMs      []VM      `yaml:"vms" doc:"the VMs to migrate, by name; with select: options of single VMs"`

	positions map[string]Pos // position of each key by its path
}

// Source is an ESXi or a vCenter, and how to log in there.
type Source struct {
	URL         URL         `yaml:"url" required:"true" doc:"esxi://USER@HOST[:PORT] or vcenter://USER@HOST[:PORT], without a password"`
	Direct      bool        `yaml:"direct" doc:"with a vCenter: fetch the disks from its ESXi hosts, not through it"`
	Fingerprint Fingerprint `yaml:"fingerprint" doc:"SHA-256 of the certificate to accept; in a submitted plan it replaces no known one"`
	Credentials Credentials `yaml:"credentials" doc:"source of the password; without it decamp plan run reads the file in $DECAMP_PASSWORD_FILE, or prompts; a submitted plan requires it"`
	SSH         SSH         `yaml:"ssh" doc:"how to log in to hosts where the API does not do: sourceHash, landing by ssh"`
}

// Credentials name a secret. They hold none.
type Credentials struct {
	File Path `yaml:"file" doc:"a file that holds the password; from the plan's folder if it is relative"`
	Name Name `yaml:"name" doc:"a credential of the access file; if the access file has none of that name, for decamp plan run alone, the file of that name in $CREDENTIALS_DIRECTORY"`
}

// SSH is how to log in to ESXi hosts.
type SSH struct {
	User        Text            `yaml:"user" doc:"for SSH; the one of an esxi URL, else root"`
	Port        int             `yaml:"port" min:"1" max:"65535" doc:"of SSH"`
	Key         Path            `yaml:"key" doc:"a file with a private key; those of the agent at $SSH_AUTH_SOCK else"`
	Credentials Credentials     `yaml:"credentials" doc:"where the password for SSH is; that of the source else"`
	HostKeys    map[string]Text `yaml:"hostKeys" doc:"SHA256:… of the key to accept, by the host's name"`
	Enable      bool            `yaml:"enable" doc:"start SSH where it is off and needed, and stop it again in the end"`
}

// VM is a named VM with its options.
type VM struct {
	VM      Text `yaml:"vm" required:"true" doc:"its name, reference (vm-42), UUID or inventory path"`
	UUID    UUID `yaml:"uuid" doc:"the UUID that it must have: a name may come to mean another VM"`
	Options `yaml:",inline"`
	Pos     Pos `yaml:"-"`
}

// Options describe the migration of one VM: in a plan, in decamp migrate, in checks and in workers.
// A flag tag names the flag of decamp migrate that sets the key.
type Options struct {
	To           []Destination `yaml:"to" doc:"where it is to live; with several it is read once and lands in each"`
	Format       Format        `yaml:"format" flag:"format" doc:"of the images"`
	DomainType   DomainType    `yaml:"domainType" flag:"domain-type" doc:"of the libvirt domain; qemu needs no KVM"`
	Hardware     VMHardware    `yaml:"hardware" flag:"hardware" doc:"of the VM at its target: compat; virtio, for which a Linux guest is changed; auto, virtio where the guest can be changed"`
	Engine       Engine        `yaml:"engine" flag:"engine" doc:"that changes a guest for virtio: linux-append; virt-v2v; auto, the first of them that is there and takes the guest"`
	VirtioWin    Path          `yaml:"virtioWin" flag:"virtio-win" doc:"drivers that virt-v2v installs in Windows: the ISO image virtio-win, or a folder with its contents; default: $VIRTIO_WIN of the machine"`
	KeyFiles     []Text        `yaml:"keyFiles" flag:"key-file" doc:"files with keys of encrypted volumes, for virt-v2v: PATH, or UUID=PATH or /dev/sda2=PATH for one volume; in each, in one line, a LUKS passphrase or BitLocker's recovery key"`
	Kernel       Path          `yaml:"applianceKernel" flag:"appliance-kernel" doc:"image of the kernel that mounts XFS and btrfs of guests that are changed; its modules in lib/modules there; the newest in /boot of the machine else"`
	GuestAgent   bool          `yaml:"guestAgent" flag:"guest-agent" doc:"with hardware virtio or auto: a Linux without QEMU's guest agent installs it at its first boot"`
	Transport    Transport     `yaml:"transport" flag:"transport" doc:"how the disks come here"`
	Connections  int           `yaml:"connections" flag:"connections" min:"1" max:"12" doc:"to a host, at most"`
	NFC          NFC           `yaml:"nfc" doc:"with transport nfc"`
	Landing      Landing       `yaml:"landing" doc:"with transport landing"`
	Mode         Mode          `yaml:"mode" doc:"cold: powered off while it is copied; warm: copied in rounds while it runs"`
	Warm         Warm          `yaml:"warm" doc:"with mode warm"`
	PowerOff     PowerOff      `yaml:"powerOff" doc:"never: it must be off; guest: ask it to shut down; force: and cut the power if it does not"`
	ShutdownWait Duration      `yaml:"shutdownWait" flag:"shutdown-wait" doc:"the time the guest may take to shut down"`
	Priority     int           `yaml:"priority" min:"-1000" max:"1000" doc:"higher ones first"`
	SourceHash   bool          `yaml:"sourceHash" flag:"source-hash" doc:"have the host hash each disk, by SSH, and compare"`
	Spot         Spot          `yaml:"spot" doc:"parts of each disk that are read from the source a second time and compared"`
	Trial        bool          `yaml:"trial" flag:"trial" doc:"boot the VM on throw-away overlays before it is published; one that does not boot is not"`
	Expect       Text          `yaml:"expect" flag:"expect" doc:"with trial: text on the serial port or text screen that means the guest is up"`
	Start        bool          `yaml:"start" flag:"start" doc:"start the VM at its target once it is published there; the one at the source stays off"`
	Hooks        Hooks         `yaml:"hooks" doc:"commands before and after each VM"`
}

// NFC is how disks are read from port 902.
type NFC struct {
	Handles int  `yaml:"handles" flag:"nfc-handles" min:"1" max:"16" doc:"sessions on each disk"`
	Buffer  Size `yaml:"buffer" flag:"nfc-buffer" doc:"of a session on the host: a multiple of 64K up to 2M; without it chosen by whether the VM runs"`
	Buffers int  `yaml:"buffers" flag:"nfc-buffers" min:"1" max:"256" doc:"such buffers of a session, 16M together at the most"`
	Network Text `yaml:"network" flag:"network" doc:"the host's VMkernel NIC to read from: vmk1, its address, subnet or port group"`
	Plain   bool `yaml:"plain" flag:"nfc-plain" doc:"read without encryption: every machine on the path can read the data"`
}

// Landing is how hosts push their disks to a datastore that decamp serves.
type Landing struct {
	Memory    Size   `yaml:"memory" flag:"landing-memory" doc:"held of all disks together"`
	Advertise IP     `yaml:"advertise" flag:"advertise" doc:"the IP of this machine for hosts; default: that of the route to each host"`
	Listen    Text   `yaml:"listen" flag:"landing-listen" doc:"the address to serve NFS on"`
	Portmap   Text   `yaml:"portmap" flag:"landing-portmap" doc:"the address of the port mapper, which ESXi looks for on 111"`
	Allow     []Text `yaml:"allow" flag:"landing-allow" doc:"who may mount it too: names, addresses or networks"`
	Copy      Copy   `yaml:"copy" flag:"landing-copy" doc:"how hosts are asked to copy; auto is by the API, and by SSH where that may not"`
}

// Warm is how a VM is copied while it runs, and when it is not any more.
type Warm struct {
	Interval       Duration `yaml:"interval" flag:"interval" doc:"from the beginning of one round to the next"`
	Cutover        Cutover  `yaml:"cutover" doc:"manual, window, or a time with its zone such as 2026-12-01T02:00Z"`
	Window         Window   `yaml:"window" doc:"when it may be powered off, with cutover window"`
	DowntimeBudget Duration `yaml:"downtimeBudget" flag:"downtime-budget" doc:"cut over only once the outage is expected to be this at most; 0s is any"`
	Boot           Boot     `yaml:"bootTime" doc:"the time the guest takes to boot, counted into the outage"`
	Paranoid       bool     `yaml:"paranoid" flag:"paranoid" doc:"read all of the disks once more in the outage, and compare"`
}

// Window is a part of the week. Without days it is of every day; from 22:00 to 04:00 goes on
// until the next day.
type Window struct {
	Days []Day `yaml:"days" doc:"on which it begins; every day else"`
	From Clock `yaml:"from" doc:"the time of day it begins, as \"22:00\""`
	To   Clock `yaml:"to" doc:"the time of day it ends"`
	Zone Zone  `yaml:"zone" doc:"of these times, such as Europe/Berlin; UTC else"`
}

// Maps say what the names of the source become, and where VMs live by where they are.
type Maps struct {
	Mapping    `yaml:",inline"`
	Datastores map[string]Destination `yaml:"datastores" doc:"datastore of a VM's .vmx: destination of the VM if its entry has none"`
}

// Limits bound concurrent work.
type Limits struct {
	Host      HostLimits  `yaml:"host" doc:"on each ESXi host"`
	Bandwidth []Bandwidth `yaml:"bandwidth" doc:"bytes a second of all transfers; the first entry that is in force counts"`
}

// HostLimits are per ESXi host.
type HostLimits struct {
	VMs   int `yaml:"vms" min:"1" max:"1000" doc:"VMs at a time"`
	Disks int `yaml:"disks" min:"1" max:"1000" doc:"disks at a time"`
}

// Bandwidth is a rate that holds within its window; without one, always.
type Bandwidth struct {
	Rate   Rate `yaml:"rate" required:"true" doc:"decimal, such as 400M for 400 MB/s; 0 is a pause"`
	Window `yaml:",inline"`
}

// Spot selects the parts of each disk that are read from the source a second time. The zero value is
// the default: the first and the last MiB, 64 random ones, and those with tables and file-system
// structures.
type Spot struct {
	First  Size `yaml:"first" doc:"bytes from its beginning, at least 1 MiB"`
	Ranges int  `yaml:"ranges" min:"0" max:"100000" doc:"random ranges of 1 MiB; 0 is 64"`
	Off    bool `yaml:"off" doc:"read nothing a second time"`
}

// Hooks are commands of the user.
type Hooks struct {
	Pre  Hook `yaml:"pre" doc:"runs before; if it fails, the plan or VM does not start"`
	Post Hook `yaml:"post" doc:"after, whatever the end was"`
}

// Hook is one command. There is no shell between: the words are given to it as they are.
type Hook struct {
	Command []Text   `yaml:"command" doc:"the program and its arguments, as a list"`
	Timeout Duration `yaml:"timeout" doc:"after which it is ended and counts as failed"`
}

// Pos is a place in the text, from 1.
type Pos struct{ Line, Column int }

// Move is one VM that the file selects.
type Move struct {
	VM      *inventory.VM
	Options Options
	Pos     Pos // position of its entry, or of the selection
}
