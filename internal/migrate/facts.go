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
	Trial    *testboot.Report    `json:"trial,omitempty"`    // verify, where a trial boot was asked for
	Warnings []inventory.Warning `json:"warnings,omitempty"` // from all steps
	Stages   []journal.Stage     `json:"stages,omitempty"`   // where the time went
	Warm     *Warm               `json:"warm,omitempty"`     // of a warm run
	Outage   *journal.Outage     `json:"outage,omitempty"`   // commit, of a warm run; nil where it is not known when it began

	Started *targets.Started `json:"started,omitempty"` // commit, where that was asked for

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
	Found   bool                         `json:"found,omitempty"`   // images that are not of this record: nobody knows of which moment
	Grown   map[int32]int64              `json:"grown,omitempty"`   // bytes that disks had, which became larger since the last round

	// ToLook says that the images are still to be looked into. It is not set in what was recorded
	// before there was such a step.
	ToLook bool `json:"toLook,omitempty"`

	Approached bool `json:"approached,omitempty"` // the round before the cutover is done, or to be
}

// Round is one pass over the disks.
type Round struct {
	Began  time.Time     `json:"began"`  // when the disks were frozen
	Took   time.Duration `json:"took"`   // from there until the images were up to date
	Read   int64         `json:"read"`   // bytes of the source
	Copied int64         `json:"copied"` // bytes that were written

	Compared bool          `json:"compared,omitempty"` // a disk that changed nobody knew where, as it will again
	Proved   time.Duration `json:"proved,omitempty"`   // reading back what was written

	Delivered time.Duration `json:"delivered,omitempty"` // bringing the target up to it, where that can be done early
}

// copied returns facts to which another goroutine may add.
func (f Facts) copied() Facts {
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
	SHA256 string           `json:"sha256"` // of the logical disk; empty if not all of it was read now
	MD5    string           `json:"md5"`
	Proven int64            `json:"proven,omitempty"` // bytes that were read back by earlier rounds, and not now
	Read   int64            `json:"read,omitempty"`   // bytes that were read back now; the rest are holes, or Proven
	Medium string           `json:"medium"`           // where the bytes were read from
	Reread *manifest.Reread `json:"reread,omitempty"` // what was read from the source again; nil if verified by an older decamp
	Source *SourceSum       `json:"source,omitempty"` // what the host says the disk's hash is
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

// Conversion is what was changed in the guest, and where that is kept until it is published.
//
// The image is left alone until commit. Beside it lies an overlay: a qcow2 image above it with
// all chunks that change, whole. The trial boot starts from that, commit writes it into the
// image. Which of the two an image is can be told from its manifest at any time:
//
//	sealed with the root of the copy      not changed yet
//	not sealed, and lacks no other chunk  being changed: the overlay has all that it lacks
//	sealed with the root of the overlay   changed
type Conversion struct {
	convert.Result
	Images []ConvertedImage `json:"images,omitempty"` // those that change
}

// ConvertedImage is an image with its overlay.
type ConvertedImage struct {
	Key     int32   `json:"key"`
	Overlay string  `json:"overlay"` // path
	Chunks  []int64 `json:"chunks"`  // those that change, in order
	Sum     string  `json:"sum"`     // of their hashes, one after the other
	Root    string  `json:"root"`    // the manifest's, once they are in the image
}

// of returns what changes in the image of a disk; nil if nothing does.
func (c *Conversion) of(key int32) *ConvertedImage {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.Images, func(img ConvertedImage) bool { return img.Key == key })
	if i < 0 {
		return nil
	}
	return &c.Images[i]
}
