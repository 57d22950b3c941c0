package migrate

import (
	"slices"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/testboot"
)

// Facts are the results of the steps so far. They are plain data that package workflow records.
type Facts struct {
	VM *inventory.VM `json:"vm,omitempty"` // result of preflight: the VM as it was then, powered off
	// result of preflight, in the order of VM.Disks; copy adds the roots
	Images   []targets.Image   `json:"images,omitempty"`
	Guest    []guest.Report    `json:"guest,omitempty"`    // result of detect, in the order of Images
	Metadata map[int32][]int64 `json:"metadata,omitempty"` // result of detect: the chunks that it read, by disk
	// result of detect: firmware state that is published with the VM; nil without EFI
	EFI      *efi.State          `json:"efi,omitempty"`
	Profile  targets.Hardware    `json:"profile,omitempty"`  // result of convert
	Verified []Verified          `json:"verified,omitempty"` // result of verify, in the order of Images
	Trial    *testboot.Report    `json:"trial,omitempty"`    // result of verify's trial boot; nil if none was requested
	Warnings []inventory.Warning `json:"warnings,omitempty"` // warnings of all steps
	Stages   []journal.StageTime `json:"stages,omitempty"`   // time of each stage
	Warm     *Warm               `json:"warm,omitempty"`     // state of a warm run; nil for a cold run
	Outage   *journal.Outage     `json:"outage,omitempty"`   // result of commit in a warm run; nil if its beginning is unknown

	Started *targets.Started `json:"started,omitempty"` // result of commit's start of the VM; nil if none was requested

	Conversion *Conversion `json:"conversion,omitempty"` // result of convert for virtio; nil if the guest is unchanged
}

// Rooted reports whether the last round is complete: it ends with a root for every image.
func (f Facts) Rooted() bool {
	return !slices.ContainsFunc(f.Images, func(img targets.Image) bool { return img.Root == "" })
}

// Warm is the state of a warm run.
type Warm struct {
	Tracked bool `json:"tracked"` // the host tracked changes before the run
	// changes cannot be tracked: every round compares the whole disks
	Untracked bool `json:"blind,omitempty"`
	// change IDs by disk; the images are never older than that point in time
	Since   map[int32]inventory.ChangeID `json:"since,omitempty"`
	Rounds  []Round                      `json:"rounds,omitempty"`  // completed rounds
	Cutover bool                         `json:"cutover,omitempty"` // no further round follows while the VM runs
	WasOn   bool                         `json:"wasOn,omitempty"`   // the VM was on before it was powered off for the last round
	// when it was powered off; zero if unknown, after a crash in between
	PoweredOff time.Time `json:"off,omitzero"`
	Found      bool      `json:"found,omitempty"` // images that this record did not create: their point in time is unknown
	// sizes that disks had before they became larger since the last round, in bytes
	Grown map[int32]int64 `json:"grown,omitempty"`

	// InspectPending reports that the images must still be inspected. Records of releases without that step do
	// not have it.
	InspectPending bool `json:"toLook,omitempty"`

	Approached bool `json:"approached,omitempty"` // the round before the cutover is complete, or is the next one
}

// Round is one pass over the disks.
type Round struct {
	Began    time.Time     `json:"began"`  // time of the snapshot
	Duration time.Duration `json:"took"`   // time from Began until the images were up to date
	Read     int64         `json:"read"`   // bytes read from the source
	Copied   int64         `json:"copied"` // bytes written to the images

	Compared bool          `json:"compared,omitempty"` // a disk was compared because its changes were unknown, and will be compared again
	ReadBack time.Duration `json:"proved,omitempty"`   // time of reading back the written data

	Delivered time.Duration `json:"delivered,omitempty"` // time of delivering the changes to the target early; zero if the target cannot do that
}

// cloneFacts returns a copy that another goroutine may extend.
func (f Facts) cloneFacts() Facts {
	f.Images, f.Warnings, f.Stages = slices.Clone(f.Images), slices.Clone(f.Warnings), slices.Clone(f.Stages)
	if f.Warm != nil {
		w := *f.Warm
		w.Rounds = slices.Clone(w.Rounds)
		f.Warm = &w
	}
	return f
}

// Grew reports whether a disk became larger since the last round.
func (w *Warm) Grew(key int32) bool {
	_, grew := w.Grown[key]
	return grew
}

// The steps that both kinds of runs have. The names are part of the recorded state.
const (
	stepPreflight = "preflight" // checks, and the power-off of a cold run
	stepCopy      = "copy"      // copy of all disks
	StepDetect    = "detect"    // examination of the images
	StepConvert   = "convert"   // hardware, and changes in the guest
	StepVerify    = "verify"    // comparison of the images with their manifests and the source
	StepCommit    = "commit"    // publication
)

// Verified is the result of verify for one image.
type Verified struct {
	Key            int32            `json:"key"`                      // device key of the disk
	Root           string           `json:"root"`                     // root hash of the image's manifest
	SHA256         string           `json:"sha256"`                   // hash of the logical disk; empty if not all of it was read
	MD5            string           `json:"md5,omitempty"`            // like SHA256; empty also without Permit.SourceHash
	VerifiedBefore int64            `json:"verifiedBefore,omitempty"` // bytes that earlier rounds read back, and verify did not
	Read           int64            `json:"read,omitempty"`           // bytes that verify read back; the rest are holes, or VerifiedRecord
	Medium         string           `json:"medium"`                   // medium that the bytes were read from
	Reread         *manifest.Reread `json:"reread,omitempty"`         // second reading of the source; nil if an older decamp verified the disk
	Source         *SourceSum       `json:"source,omitempty"`         // hash of the disk that the host computed; nil if none
}

// SourceSum is the hash of a disk as the host itself read it.
type SourceSum struct {
	Algorithm string        `json:"algorithm"` // sha256 or md5, whichever the host has
	Hex       string        `json:"hex"`       // lower case
	By        string        `json:"by"`        // file on the host that was hashed
	Elapsed   time.Duration `json:"elapsed"`   // nanoseconds
}

// Checks returns the comparisons of each image. It leaves out images that an older decamp verified.
func (f Facts) Checks() []targets.Check {
	var checks []targets.Check
	for _, v := range f.Verified {
		if v.Reread == nil {
			continue // verified by a decamp that did not record it
		}
		c := targets.Check{Key: v.Key, Reread: *v.Reread}
		if v.Source != nil {
			c.SourceHash = v.Source.Algorithm
		}
		checks = append(checks, c)
	}
	return checks
}

// Conversion records the changes in the guest, and their location until publication.
//
// The image does not change before commit. Beside it lies an overlay: a qcow2 image on top of it with
// all changed chunks, whole. The trial boot starts from the overlay, and commit writes it into the
// image. The image's manifest always shows its state:
//
//	sealed with the root of the copy      not changed yet
//	not sealed, and lacks no other chunk  being changed: the overlay has all that it lacks
//	sealed with the root of the overlay   changed
type Conversion struct {
	convert.Result
	Images []ConvertedImage `json:"images,omitempty"` // images that the conversion changes
}

// ConvertedImage is an image that the conversion changes, with its overlay.
type ConvertedImage struct {
	Key     int32   `json:"key"`     // device key of the disk
	Overlay string  `json:"overlay"` // path of the overlay
	Chunks  []int64 `json:"chunks"`  // numbers of the changed chunks, in order
	Sum     string  `json:"sum"`     // hash of the hashes of the changed chunks, in order
	Root    string  `json:"root"`    // root hash of the manifest after the change
}

// forDisk returns the changes in the image of a disk; nil if none exists. c may be nil.
func (c *Conversion) forDisk(key int32) *ConvertedImage {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.Images, func(img ConvertedImage) bool { return img.Key == key })
	if i < 0 {
		return nil
	}
	return &c.Images[i]
}
