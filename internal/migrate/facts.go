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

// Facts are what the steps found out so far. They are plain data: flow records them.
type Facts struct {
	VM       *inventory.VM       `json:"vm,omitempty"`       // preflight: as it was then, powered off
	Images   []targets.Image     `json:"images,omitempty"`   // preflight, in the order of VM.Disks; copy adds the roots
	Guest    []guest.Report      `json:"guest,omitempty"`    // detect, in the order of Images
	Metadata map[int32][]int64   `json:"metadata,omitempty"` // detect, the chunks that it read, by disk
	EFI      *efi.State          `json:"efi,omitempty"`      // detect, what goes with the VM of its firmware
	Profile  targets.Hardware    `json:"profile,omitempty"`  // convert
	Verified []Verified          `json:"verified,omitempty"` // verify, in the order of Images
	Trial    *testboot.Report    `json:"trial,omitempty"`    // result of verify's trial boot; nil if none was requested
	Warnings []inventory.Warning `json:"warnings,omitempty"` // warnings of all steps
	Stages   []journal.Stage     `json:"stages,omitempty"`   // time of each stage
	Warm     *Warm               `json:"warm,omitempty"`     // state of a warm run; nil for a cold run
	Outage   *journal.Outage     `json:"outage,omitempty"`   // commit, of a warm run; nil where it is not known when it began

	Started *targets.Started `json:"started,omitempty"` // result of commit's start of the VM; nil if none was requested

	Conversion *Conversion `json:"conversion,omitempty"` // convert, for virtio
}

// Rooted reports whether the last round was done: it ends with a root for every image.
func (f Facts) Rooted() bool {
	return !slices.ContainsFunc(f.Images, func(img targets.Image) bool { return img.Root == "" })
}

// Warm is what a warm run found out so far.
type Warm struct {
	Tracked bool                         `json:"tracked"`         // changes were tracked before
	Blind   bool                         `json:"blind,omitempty"` // and cannot be: every round compares all of it
	Since   map[int32]inventory.ChangeID `json:"since,omitempty"` // the moment before which no proven chunk is
	Rounds  []Round                      `json:"rounds,omitempty"`
	Cutover bool                         `json:"cutover,omitempty"` // no further round while the VM runs
	WasOn   bool                         `json:"wasOn,omitempty"`   // before it was switched off for the last round
	Off     time.Time                    `json:"off,omitzero"`      // when it was; not known if a crash came between
	Found   bool                         `json:"found,omitempty"`   // images that this record did not create: their point in time is unknown
	Grown   map[int32]int64              `json:"grown,omitempty"`   // bytes that disks had, which became larger since the last round

	// ToLook reports that the images must still be inspected. Records of releases without that step do
	// not have it.
	ToLook bool `json:"toLook,omitempty"`

	Approached bool `json:"approached,omitempty"` // the round before the cutover is done, or to be
}

// Round is one pass over the disks.
type Round struct {
	Began  time.Time     `json:"began"`  // when the disks were frozen
	Took   time.Duration `json:"took"`   // time from there until the images were up to date
	Read   int64         `json:"read"`   // bytes of the source
	Copied int64         `json:"copied"` // bytes that were written

	Compared bool          `json:"compared,omitempty"` // a disk was compared because its changes were unknown, and will be compared again
	Proved   time.Duration `json:"proved,omitempty"`   // time of reading back the written data

	Delivered time.Duration `json:"delivered,omitempty"` // time of delivering the changes to the target early; zero if the target cannot do that
}

// cloneFacts returns facts to which another goroutine may add.
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
	stepPreflight = "preflight"
	stepCopy      = "copy"
	StepDetect    = "detect"
	StepConvert   = "convert"
	StepVerify    = "verify"
	StepCommit    = "commit"
)

// Verified is what verify proved of one image.
type Verified struct {
	Key    int32            `json:"key"`
	Root   string           `json:"root"`
	SHA256 string           `json:"sha256"` // hash of the logical disk; empty if not all of it was read
	MD5    string           `json:"md5"`
	Proven int64            `json:"proven,omitempty"` // bytes that were read back by earlier rounds, and not now
	Read   int64            `json:"read,omitempty"`   // bytes that were read back now; the rest are holes, or Proven
	Medium string           `json:"medium"`           // where the bytes were read from
	Reread *manifest.Reread `json:"reread,omitempty"` // second reading of the source; nil if an older decamp verified the disk
	Source *SourceSum       `json:"source,omitempty"` // hash of the disk that the host computed; nil if none
}

// SourceSum is the hash of a disk as the host itself read it.
type SourceSum struct {
	Algorithm string        `json:"algorithm"` // sha256 or md5, whichever the host has
	Hex       string        `json:"hex"`       // lower case
	By        string        `json:"by"`        // the file that was hashed, on the host
	Elapsed   time.Duration `json:"elapsed"`   // nanoseconds
}

// Checks returns what verify compared of each image. It is empty if an older decamp verified them.
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

// ConvertedImage is an image with its overlay.
type ConvertedImage struct {
	Key     int32   `json:"key"`
	Overlay string  `json:"overlay"` // path
	Chunks  []int64 `json:"chunks"`  // numbers of the changed chunks, in order
	Sum     string  `json:"sum"`     // hash of their hashes in order
	Root    string  `json:"root"`    // the manifest's, once they are in the image
}

// forDisk returns what changes in the image of a disk; nil if nothing does.
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
