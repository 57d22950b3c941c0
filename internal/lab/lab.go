// Package lab starts emulated systems for tests, benchmarks, the demo and cmd/decamp-lab. Start runs
// an ESXi host or a vCenter (package vsphere); the other packages below emulate what decamp
// delivers to, and parts of hosts.
//
//	l, err := lab.Start(ctx, lab.Config{
//		VMs: []lab.VM{{
//			Name:  "web01",
//			Disks: []lab.Disk{{Capacity: 64 << 20, Fill: 30, Seed: 1}},
//		}},
//	})
//	defer l.Close()
//	l.URL()         // https://127.0.0.1:PORT/sdk
//	l.Fingerprint() // SHA-256 of the certificate, hex in pairs with colons
//	l.Disk("web01", 0).ReadAt(p, off) // the bytes that a copy must have
package lab

import (
	"context"

	"github.com/decamp/decamp/internal/lab/vsphere"
)

// Start runs an emulated ESXi or vCenter until Close, or until ctx ends.
func Start(ctx context.Context, cfg Config) (*Lab, error) { return vsphere.Start(ctx, cfg) }

// LoadConfig reads a JSON file; unknown fields are errors.
func LoadConfig(path string) (Config, error) { return vsphere.LoadConfig(path) }

// The types of a configuration and of a lab; package vsphere documents them.
type (
	// emulated host or vCenter
	Config = vsphere.Config
	// datacenter of a vCenter
	Datacenter = vsphere.Datacenter
	// datastore of a datacenter
	Datastore = vsphere.Datastore
	// answer of the query for allocated areas
	MapKind = vsphere.MapKind
	// virtual machine
	VM = vsphere.VM
	// behaviour of a guest
	Guest = vsphere.Guest
	// writes of a running guest
	Writes = vsphere.Writes
	// virtual disk with its content
	Disk = vsphere.Disk
	// file system that VMware Tools report
	Volume = vsphere.Volume
	// byte range of a disk
	Span = vsphere.Span
	// network card
	NIC = vsphere.NIC
	// tag of a vCenter
	Tag = vsphere.Tag
	// REST service for tags
	Tagging = vsphere.Tagging
	// available forms of that service
	TagPaths = vsphere.TagPaths
	// settings of each host
	HostState = vsphere.HostState
	// behaviour of NFS mounts
	NFS = vsphere.NFS
	// behaviour of port 902
	NFC = vsphere.NFC
	// SSH servers of the hosts
	SSH = vsphere.SSH
	// rules for sessions and logins
	Sessions = vsphere.Sessions
	// limits of connections and rates
	Limits = vsphere.Limits
	// files of running VMs that cannot be read
	LockMode = vsphere.LockMode
	// answers of changed block tracking
	CBT = vsphere.CBT
	// size, in JSON with a unit
	Bytes = vsphere.Bytes
	// duration, in JSON as text
	Duration = vsphere.Duration

	// failure of requests or operations
	Fault = vsphere.Fault
	// kind of a failure
	FaultKind = vsphere.FaultKind
	// set of active faults
	Faults = vsphere.Faults

	// running emulation
	Lab = vsphere.Lab
	// content of a disk, for comparison
	DiskContent = vsphere.DiskContent
	// counters of requests and data
	Stats = vsphere.Stats
	// NFS datastore on a host
	Mount = vsphere.Mount
	// SSH server of a host
	SSHServer = vsphere.SSHServer
)

// The kinds of faults, and the values of fields of Config; package vsphere documents them.
const (
	FaultStatus      = vsphere.FaultStatus      // HTTP status in place of the file
	FaultSlow        = vsphere.FaultSlow        // delay before the first byte
	FaultStall       = vsphere.FaultStall       // no further bytes until Release
	FaultReset       = vsphere.FaultReset       // TCP reset in the body
	FaultShort       = vsphere.FaultShort       // clean end before Content-Length
	FaultShortLength = vsphere.FaultShortLength // shorter body with matching Content-Length
	FaultWrongRange  = vsphere.FaultWrongRange  // wrong Content-Range
	FaultOtherBytes  = vsphere.FaultOtherBytes  // bytes of another range
	FaultIgnoreRange = vsphere.FaultIgnoreRange // whole file in place of a range
	FaultFlip        = vsphere.FaultFlip        // flipped bit at a byte of the body
	FaultReadFlip    = vsphere.FaultReadFlip    // flipped bit at a byte of the file

	FaultCloneKill  = vsphere.FaultCloneKill  // killed copy, whose files remain
	FaultCloneFail  = vsphere.FaultCloneFail  // I/O error of a copy
	FaultCloneStall = vsphere.FaultCloneStall // copy without progress until Release
	FaultCloneFlip  = vsphere.FaultCloneFlip  // flipped bit in a copy

	FaultSnapshotCreate      = vsphere.FaultSnapshotCreate      // failed snapshot
	FaultSnapshotRemove      = vsphere.FaultSnapshotRemove      // failed removal of a snapshot
	FaultSnapshotConsolidate = vsphere.FaultSnapshotConsolidate // removal that leaves the delta
	FaultVMBusy              = vsphere.FaultVMBusy              // TaskInProgress for snapshots and shutdowns
	FaultCBTFail             = vsphere.FaultCBTFail             // FileFault for changed areas
	FaultCBTLose             = vsphere.FaultCBTLose             // missing changed areas, without an error

	FaultVimCmdQuiet = vsphere.FaultVimCmdQuiet // status 0 of a failed vim-cmd
	FaultVimCmdStall = vsphere.FaultVimCmdStall // vim-cmd without effect until Release
	FaultVimCmdLate  = vsphere.FaultVimCmdLate  // vim-cmd that takes effect after it has returned

	FaultREST        = vsphere.FaultREST        // HTTP status of the REST service
	FaultRESTGarbage = vsphere.FaultRESTGarbage // truncated answer of the REST service

	FaultNFCTicket     = vsphere.FaultNFCTicket     // no ticket for NFC
	FaultNFCThumbprint = vsphere.FaultNFCThumbprint // ticket with another certificate
	FaultNFCError      = vsphere.FaultNFCError      // ERROR record
	FaultNFCStatus     = vsphere.FaultNFCStatus     // status in a reply
	FaultNFCRefuse     = vsphere.FaultNFCRefuse     // rejected ticket or handshake
	FaultNFCOtherCert  = vsphere.FaultNFCOtherCert  // another certificate in the second TLS session
	FaultNFCCut        = vsphere.FaultNFCCut        // TCP reset in a fragment
	FaultNFCStall      = vsphere.FaultNFCStall      // no further data until Release
	FaultNFCMagic      = vsphere.FaultNFCMagic      // wrong magic in a reply
	FaultNFCOpID       = vsphere.FaultNFCOpID       // reply to an unknown request
	FaultNFCRange      = vsphere.FaultNFCRange      // fragment after the end of a read
	FaultNFCOverlap    = vsphere.FaultNFCOverlap    // repeated fragment
	FaultNFCEmpty      = vsphere.FaultNFCEmpty      // fragment of length 0
	FaultNFCLength     = vsphere.FaultNFCLength     // length on the wire that is one too small
	FaultNFCHuge       = vsphere.FaultNFCHuge       // length on the wire of 4 GiB
	FaultNFCSum        = vsphere.FaultNFCSum        // zlib with a wrong checksum
	FaultNFCRun        = vsphere.FaultNFCRun        // SkipZ with a run beyond the end
	FaultNFCFalling    = vsphere.FaultNFCFalling    // SkipZ with runs in descending order
	FaultNFCMatch      = vsphere.FaultNFCMatch      // FastLZ with a match before the start
	FaultNFCFlip       = vsphere.FaultNFCFlip       // flipped bit without an error

	MapAreas = vsphere.MapAreas // allocated areas
	MapFault = vsphere.MapFault // FileFault
	MapWhole = vsphere.MapWhole // the whole disk as one area

	LockActive = vsphere.LockActive // only the file that is written
	LockAll    = vsphere.LockAll    // all data files of a running VM

	TagsBoth  = vsphere.TagsBoth  // /api and /rest
	TagsMixed = vsphere.TagsMixed // sessions of /api, tags of /rest
	TagsNone  = vsphere.TagsNone  // no tags
	TagsRest  = vsphere.TagsRest  // /rest only
)
