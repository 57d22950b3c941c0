package migrate

import (
	"slices"
	"time"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/trial"
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
	Trial    *trial.Report       `json:"trial,omitempty"`    // verify, where a trial boot was asked for
	Warnings []inventory.Warning `json:"warnings,omitempty"` // from all steps
	Stages   []plan.Stage        `json:"stages,omitempty"`   // where the time went
	Warm     *Warm               `json:"warm,omitempty"`     // of a warm run
	Outage   *plan.Outage        `json:"outage,omitempty"`   // commit, of a warm run; nil where it is not known when it began

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
