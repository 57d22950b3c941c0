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
	Config     = vsphere.Config
	Datacenter = vsphere.Datacenter
	Datastore  = vsphere.Datastore
	MapKind    = vsphere.MapKind
	VM         = vsphere.VM
	Guest      = vsphere.Guest
	Writes     = vsphere.Writes
	Disk       = vsphere.Disk
	Volume     = vsphere.Volume
	Span       = vsphere.Span
	NIC        = vsphere.NIC
	Tag        = vsphere.Tag
	Tagging    = vsphere.Tagging
	TagPaths   = vsphere.TagPaths
	HostState  = vsphere.HostState
	NFS        = vsphere.NFS
	NFC        = vsphere.NFC
	SSH        = vsphere.SSH
	Sessions   = vsphere.Sessions
	Limits     = vsphere.Limits
	LockMode   = vsphere.LockMode
	CBT        = vsphere.CBT
	Bytes      = vsphere.Bytes
	Duration   = vsphere.Duration

	Fault     = vsphere.Fault
	FaultKind = vsphere.FaultKind
	Faults    = vsphere.Faults

	Lab         = vsphere.Lab
	DiskContent = vsphere.DiskContent
	Stats       = vsphere.Stats
	Mount       = vsphere.Mount
	SSHServer   = vsphere.SSHServer
)

// The kinds of faults, and the values of fields of Config; package vsphere documents them.
const (
	FaultStatus      = vsphere.FaultStatus
	FaultSlow        = vsphere.FaultSlow
	FaultStall       = vsphere.FaultStall
	FaultReset       = vsphere.FaultReset
	FaultShort       = vsphere.FaultShort
	FaultShortLength = vsphere.FaultShortLength
	FaultWrongRange  = vsphere.FaultWrongRange
	FaultOtherBytes  = vsphere.FaultOtherBytes
	FaultIgnoreRange = vsphere.FaultIgnoreRange
	FaultFlip        = vsphere.FaultFlip
	FaultReadFlip    = vsphere.FaultReadFlip

	FaultCloneKill  = vsphere.FaultCloneKill
	FaultCloneFail  = vsphere.FaultCloneFail
	FaultCloneStall = vsphere.FaultCloneStall
	FaultCloneFlip  = vsphere.FaultCloneFlip

	FaultSnapshotCreate      = vsphere.FaultSnapshotCreate
	FaultSnapshotRemove      = vsphere.FaultSnapshotRemove
	FaultSnapshotConsolidate = vsphere.FaultSnapshotConsolidate
	FaultVMBusy              = vsphere.FaultVMBusy
	FaultCBTFail             = vsphere.FaultCBTFail
	FaultCBTLose             = vsphere.FaultCBTLose

	FaultVimCmdQuiet = vsphere.FaultVimCmdQuiet
	FaultVimCmdStall = vsphere.FaultVimCmdStall
	FaultVimCmdLate  = vsphere.FaultVimCmdLate

	FaultREST        = vsphere.FaultREST
	FaultRESTGarbage = vsphere.FaultRESTGarbage

	FaultNFCTicket     = vsphere.FaultNFCTicket
	FaultNFCThumbprint = vsphere.FaultNFCThumbprint
	FaultNFCError      = vsphere.FaultNFCError
	FaultNFCStatus     = vsphere.FaultNFCStatus
	FaultNFCRefuse     = vsphere.FaultNFCRefuse
	FaultNFCOtherCert  = vsphere.FaultNFCOtherCert
	FaultNFCCut        = vsphere.FaultNFCCut
	FaultNFCStall      = vsphere.FaultNFCStall
	FaultNFCMagic      = vsphere.FaultNFCMagic
	FaultNFCOpID       = vsphere.FaultNFCOpID
	FaultNFCRange      = vsphere.FaultNFCRange
	FaultNFCOverlap    = vsphere.FaultNFCOverlap
	FaultNFCEmpty      = vsphere.FaultNFCEmpty
	FaultNFCLength     = vsphere.FaultNFCLength
	FaultNFCHuge       = vsphere.FaultNFCHuge
	FaultNFCSum        = vsphere.FaultNFCSum
	FaultNFCRun        = vsphere.FaultNFCRun
	FaultNFCFalling    = vsphere.FaultNFCFalling
	FaultNFCMatch      = vsphere.FaultNFCMatch
	FaultNFCFlip       = vsphere.FaultNFCFlip

	MapAreas = vsphere.MapAreas
	MapFault = vsphere.MapFault
	MapWhole = vsphere.MapWhole

	LockActive = vsphere.LockActive
	LockAll    = vsphere.LockAll

	TagsBoth  = vsphere.TagsBoth
	TagsMixed = vsphere.TagsMixed
	TagsNone  = vsphere.TagsNone
	TagsRest  = vsphere.TagsRest
)
