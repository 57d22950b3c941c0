// Package planfile parses plan files. A plan file lists VMs with their destinations, options
// and limits. It is YAML, parsed strictly: each key must be known, must occur once, and must
// have a value of its type. Parse reports all mistakes at once, with line, column and remedy.
//
// A File describes many VMs by the words of the user, and they may not exist. A journal.Plan
// describes the migration of one VM that was found. Resolve is the step between them: it
// requires the inventory.
//
//	Parse    text -> File, or Findings with their positions
//	Resolve  File and inventory -> Moves: a VM with its Options
//	Draft    inventory -> text of a File
//	Schema   the JSON schema, generated from the Go types that Parse decodes into
//
// # Limits
//
// A text may have 4 MiB and 500,000 nodes. Anchors, aliases, merge keys and tags are refused,
// because they can expand a small text to a large one.
//
// # Compatibility
//
// Every later version of decamp accepts a file of version 1, with the same meaning:
// testdata/v1 has examples. A File has no secrets: it names credentials. Parse refuses
// passwords in URLs and keys, and does not repeat them in messages.
package planfile

import "github.com/decamp/decamp/internal/inventory"

// Version is the version of the file format. There is only this one.
const Version = 1

// File is a plan for many VMs. The doc tag of a field describes its key; the JSON schema and
// the help of flags contain it. Fields have their default values if the text does not set them.
type File struct {
	// always 1
	Version int `yaml:"version" required:"true" min:"1" max:"1" doc:"version of the file format: 1"`
	// also the name of the plan in the fleet database
	Name Name `yaml:"name" required:"true" doc:"name of the plan, for lists and logs: letters, digits, . _ -"`
	// one source for all VMs
	Source Source `yaml:"source" required:"true" doc:"ESXi host or vCenter with the VMs"`
	// starts with DefaultOptions
	Defaults Options `yaml:"defaults" doc:"options of all VMs; keys of a VM take precedence"`
	Maps     Maps    `yaml:"maps" doc:"names of the target for names of the source"` // zero value: names are kept
	// zero value: defaults of package mover
	Limits Limits `yaml:"limits" doc:"limits of parallel work and of bandwidth"`
	// default 1
	Weight int `yaml:"weight" min:"1" max:"100" doc:"share of contended resources: a plan of weight 2 gets twice as much as a plan of weight 1"`
	// no command: no hook
	Hooks Hooks `yaml:"hooks" doc:"commands that run before the first VM and after the last one"`
	// zero value: only named VMs
	Select Selection `yaml:"select" doc:"expression that selects the VMs to migrate: folder=prod && !poweredOn"`
	// may be empty if Select is set
	VMs []VM `yaml:"vms" doc:"VMs to migrate, by name; with select: options of single VMs"`

	positions map[string]Pos // position of each key by its path
}

// Source is an ESXi host or a vCenter, and the login there.
type Source struct {
	// checked by esx.ParseURL
	URL URL `yaml:"url" required:"true" doc:"URL of the source without a password: esxi://USER@HOST[:PORT] or vcenter://USER@HOST[:PORT]"`
	// only for a vCenter
	Direct bool `yaml:"direct" doc:"with a vCenter: read the disks directly from its ESXi hosts"`
	// empty: known certificates decide
	Fingerprint Fingerprint `yaml:"fingerprint" doc:"SHA-256 of the certificate to accept; in a submitted plan it does not replace a known one"`
	// zero value: see Access.Source
	Credentials Credentials `yaml:"credentials" doc:"credentials for the source; required in a submitted plan; without them decamp plan run reads the file in $DECAMP_PASSWORD_FILE or prompts"`
	// port 22 by default
	SSH SSH `yaml:"ssh" doc:"login by SSH to hosts, for functions that the API does not have: sourceHash, landing by ssh"`
}

// Credentials name a secret, by a file or by a name. The secret itself is never in a File.
// The zero value names none.
type Credentials struct {
	File Path `yaml:"file" doc:"file with the password; a relative path starts at the plan's folder"` // excludes Name
	// excludes File
	Name Name `yaml:"name" doc:"name of a credential in the access file; if the access file does not have it, decamp plan run reads the file of that name in $CREDENTIALS_DIRECTORY"`
}

// SSH is the login to ESXi hosts by SSH.
type SSH struct {
	// empty: see the tag
	User Text `yaml:"user" doc:"user name for SSH; default: the user of an esxi URL, otherwise root"`
	Port int  `yaml:"port" min:"1" max:"65535" doc:"port of SSH"` // default 22
	// empty: agent, then password
	Key Path `yaml:"key" doc:"file with a private key; default: the keys of the agent at $SSH_AUTH_SOCK"`
	// zero value: those of the source
	Credentials Credentials `yaml:"credentials" doc:"credentials for SSH; default: those of the source"`
	// by the name of the host; nil: known keys decide
	HostKeys map[string]Text `yaml:"hostKeys" doc:"SHA256:… of the host key to accept, by the name of the host"`
	// decamp reverts the start of SSH
	Enable bool `yaml:"enable" doc:"start SSH on a host if it is needed and off, and stop it at the end"`
}

// VM is a named VM with its options. Options that its entry does not set are those of
// Defaults, except the destinations.
type VM struct {
	// resolved by a Finder
	VM Text `yaml:"vm" required:"true" doc:"name, reference (vm-42), UUID or inventory path of the VM"`
	// empty: any UUID
	UUID    UUID `yaml:"uuid" doc:"UUID that the VM must have; protects against a name that now belongs to another VM"`
	Options `yaml:",inline"`
	Pos     Pos `yaml:"-"` // position of the entry
}

// shortField implements shorthand: the name alone.
func (v *VM) shortField() any { return &v.VM }

// Program is a program and its arguments. One text is not accepted: a shell would split it, and decamp
// starts no shell.
type Program []Text

// Options describe the migration of one VM: in a plan, in decamp migrate, in checks and in workers.
// A flag tag names the flag of decamp migrate that sets the key.
type Options struct {
	// nil: by datastore, or those of Defaults
	To     []Destination `yaml:"to" doc:"destinations; with several, each disk is read once and written to all of them"`
	Format Format        `yaml:"format" flag:"format" doc:"format of the images"` // default raw
	// default kvm
	DomainType DomainType `yaml:"domainType" flag:"domain-type" doc:"type of the libvirt domain; qemu works without KVM"`
	// default compat
	Hardware VMHardware `yaml:"hardware" flag:"hardware" doc:"hardware of the VM at its target: compat; virtio, which requires changes to the guest; auto: virtio if the guest can be changed"`
	// default auto
	Engine Engine `yaml:"engine" flag:"engine" doc:"tool that changes a guest for virtio: linux-append; virt-v2v; auto: the first of them that is installed and supports the guest"`
	// empty: $VIRTIO_WIN
	VirtioWin Path `yaml:"virtioWin" flag:"virtio-win" doc:"drivers that virt-v2v installs in Windows: the ISO image virtio-win, or a folder with its contents; default: $VIRTIO_WIN of the machine"`
	// parsed by virtv2v.ParseKey
	KeyFiles []Text `yaml:"keyFiles" flag:"key-file" doc:"files with keys of encrypted volumes, for virt-v2v: PATH, or UUID=PATH or /dev/sda2=PATH for one volume; each file has one line with a LUKS passphrase or a BitLocker recovery key"`
	// empty: the newest installed kernel
	Kernel Path `yaml:"applianceKernel" flag:"appliance-kernel" doc:"kernel image of the appliance that changes XFS and btrfs of guests; its modules are in lib/modules beside it; default: the newest kernel in /boot of the machine"`
	// requires Hardware other than compat
	GuestAgent bool      `yaml:"guestAgent" flag:"guest-agent" doc:"with hardware virtio or auto: a Linux guest without QEMU's guest agent installs it at its first boot"`
	Transport  Transport `yaml:"transport" flag:"transport" doc:"transport of the disks"` // default https
	// default 8
	Connections int     `yaml:"connections" flag:"connections" min:"1" max:"12" doc:"maximum number of connections to a host"`
	NFC         NFC     `yaml:"nfc" doc:"options of transport nfc"`         // ignored by other transports
	Landing     Landing `yaml:"landing" doc:"options of transport landing"` // ignored by other transports
	// default cold
	Mode Mode `yaml:"mode" doc:"cold: the VM is off while it is copied; warm: it is copied in rounds while it runs"`
	Warm Warm `yaml:"warm" doc:"options of mode warm"` // ignored in mode cold
	// default never; a warm cutover always shuts down
	PowerOff PowerOff `yaml:"powerOff" doc:"never: the VM must be off; guest: shut the guest down; force: also power the VM off if the guest does not shut down"`
	// default 5m
	ShutdownWait Duration `yaml:"shutdownWait" flag:"shutdown-wait" doc:"time limit for the shutdown of the guest"`
	// default 0
	Priority int `yaml:"priority" min:"-1000" max:"1000" doc:"VMs with a higher priority start first"`
	// requires SSH to the host
	SourceHash bool `yaml:"sourceHash" flag:"source-hash" doc:"compare each disk with a hash that the host computes over SSH"`
	// zero value: the default sample
	Spot Spot `yaml:"spot" doc:"parts of each disk that are read from the source a second time and compared"`
	// excludes mode warm
	Trial bool `yaml:"trial" flag:"trial" doc:"boot the VM on temporary overlays before it is published; a VM that does not boot is not published"`
	// requires Trial
	Expect Text `yaml:"expect" flag:"expect" doc:"with trial: text on the serial port or text screen that means that the guest has booted"`
	// requires a single destination that runs VMs
	Start bool `yaml:"start" flag:"start" doc:"start the VM at its target after it is published; the source VM stays off"`
	// timeouts of 10m by default
	Hooks Hooks `yaml:"hooks" doc:"commands that run before and after each VM"`
}

// NFC has the options of transport nfc, which reads disks from TCP port 902 of hosts.
type NFC struct {
	Handles int `yaml:"handles" flag:"nfc-handles" min:"1" max:"16" doc:"sessions for each disk"` // default 4
	// bytes; 0: chosen by the transport
	Buffer Size `yaml:"buffer" flag:"nfc-buffer" doc:"size of a session's buffers on the host: a multiple of 64K up to 2M; default: depends on whether the VM runs"`
	// default 4
	Buffers int `yaml:"buffers" flag:"nfc-buffers" min:"1" max:"256" doc:"number of buffers of a session, at most 16M together"`
	// empty: the NIC with the backup tag
	Network Text `yaml:"network" flag:"network" doc:"VMkernel NIC of the host to read from: vmk1, its address, subnet or port group"`
	// off by default
	Plain bool `yaml:"plain" flag:"nfc-plain" doc:"read without encryption: every machine on the path can read the data"`
}

// Landing has the options of transport landing: hosts copy their disks to an NFS datastore
// that decamp serves.
type Landing struct {
	// bytes; default 1 GiB
	Memory Size `yaml:"memory" flag:"landing-memory" doc:"memory for the data of all disks together"`
	// zero value: by the route
	Advertise IP   `yaml:"advertise" flag:"advertise" doc:"IP address of this machine for hosts; default: the address of the route to each host"`
	Listen    Text `yaml:"listen" flag:"landing-listen" doc:"address to serve NFS on"` // default :2049
	// default :111
	Portmap Text `yaml:"portmap" flag:"landing-portmap" doc:"address of the port mapper; ESXi expects port 111"`
	// in addition to the host of the VM
	Allow []Text `yaml:"allow" flag:"landing-allow" doc:"more hosts that may mount the datastore: names, addresses or networks"`
	// default auto
	Copy Copy `yaml:"copy" flag:"landing-copy" doc:"method of the copy on hosts; auto: the API, or SSH if the API must not copy"`
}

// Warm has the options of a warm migration: its rounds and its cutover.
type Warm struct {
	// default 1h
	Interval Duration `yaml:"interval" flag:"interval" doc:"time from the start of one round to the start of the next"`
	// default manual
	Cutover Cutover `yaml:"cutover" doc:"time of the cutover: manual, window, or a time with its zone such as 2026-12-01T02:00Z"`
	// requires Cutover.Window
	Window Window `yaml:"window" doc:"with cutover window: times at which the VM may be powered off"`
	// 0: no limit
	DowntimeBudget Duration `yaml:"downtimeBudget" flag:"downtime-budget" doc:"maximum expected outage: the cutover waits until the estimate is not longer; 0s: no limit"`
	// unknown by default
	Boot Boot `yaml:"bootTime" doc:"boot time of the guest; it is added to the outage"`
	// lengthens the outage
	Paranoid bool `yaml:"paranoid" flag:"paranoid" doc:"read all disks again during the outage, and compare"`
}

// Window is a part of the week. Without days it opens every day. A window from 22:00 to 04:00
// closes on the next day. The zero value is always open.
type Window struct {
	Days []Day `yaml:"days" doc:"days on which the window opens; default: every day"` // nil: every day
	// equal to To only if both are missing
	From Clock `yaml:"from" doc:"time of day when the window opens, such as \"22:00\""`
	To   Clock `yaml:"to" doc:"time of day when the window closes"`                              // at or before From: on the next day
	Zone Zone  `yaml:"zone" doc:"time zone of these times, such as Europe/Berlin; default: UTC"` // empty: UTC
}

// Maps has the names of the target for names of the source, and destinations by datastore.
type Maps struct {
	Mapping `yaml:",inline"`
	// used if the entry of the VM has no destination
	Datastores map[string]Destination `yaml:"datastores" doc:"destination by the datastore of a VM's .vmx, for VMs whose entry has no destination"`
}

// Limits bound parallel work and bandwidth. Without an entry of Bandwidth the rate is unlimited.
type Limits struct {
	Host HostLimits `yaml:"host" doc:"limits of each ESXi host"` // applies to each host
	// the first entry in force applies; empty: unlimited
	Bandwidth []Bandwidth `yaml:"bandwidth" doc:"bytes per second of all transfers together; the first entry that is in force applies"`
}

// HostLimits bound the parallel work on one ESXi host. Zero means the default of package mover.
type HostLimits struct {
	VMs   int `yaml:"vms" min:"1" max:"1000" doc:"VMs at a time"`     // 0: default
	Disks int `yaml:"disks" min:"1" max:"1000" doc:"disks at a time"` // 0: default
}

// Bandwidth is a rate that applies within its window. Without a window it always applies.
type Bandwidth struct {
	// bytes per second; 0 stops all transfers
	Rate   Rate `yaml:"rate" required:"true" doc:"decimal rate, such as 400M for 400 MB/s; 0: pause"`
	Window `yaml:",inline"`
}

// Spot selects the parts of each disk that are read from the source a second time. The zero
// value is the default: the first and the last MiB, 64 random MiB, and those with partition
// tables and file-system structures.
type Spot struct {
	First  Size `yaml:"first" doc:"bytes from the start of the disk, at least 1 MiB"`              // bytes; 0: 1 MiB
	Ranges int  `yaml:"ranges" min:"0" max:"100000" doc:"number of random ranges of 1 MiB; 0: 64"` // 0: 64
	Off    bool `yaml:"off" doc:"do not read anything a second time"`                              // the other fields are then ignored
}

// Hooks are commands of the user that run before and after a plan or a VM.
type Hooks struct {
	// its failure keeps the plan or VM from starting
	Pre  Hook `yaml:"pre" doc:"command before; if it fails, the plan or VM does not start"`
	Post Hook `yaml:"post" doc:"command after, also if the plan or VM failed"` // run after the end, also after a failure
}

// Hook is one command. It runs without a shell: its arguments are passed unchanged.
type Hook struct {
	Command Program `yaml:"command" doc:"program and its arguments, as a list"` // nil: no hook; never run by a shell
	// default 10m
	Timeout Duration `yaml:"timeout" doc:"time limit; a command that exceeds it is killed and has failed"`
}

// Pos is a position in the text. Line and column start at 1; the zero value is unknown.
type Pos struct{ Line, Column int }

// Move is one VM that the file selects.
type Move struct {
	VM      *inventory.VM // description from the source
	Options Options       // options with defaults and destinations applied
	Pos     Pos           // position of the entry, or of the selection
}
