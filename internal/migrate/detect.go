package migrate

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/targets"
)

// detectStep reads the contents of the images: partitions, boot code, operating system. Facts.VM
// contains the data of the API already (firmware, controllers, cards, UUIDs, guest id). The state of
// the firmware is read from the host, while the VM is off.
type detectStep struct{}

// Name implements Step.
func (detectStep) Name() string { return StepDetect }

// Run implements Step.
func (detectStep) Run(ctx context.Context, r *Run) error {
	recorders := make([]*chunkRecorder, len(r.Record.Facts.Images))
	reports, err := detectGuests(ctx, r, r.Record.Facts.Images, func(i int, src disk.Source) disk.Source {
		recorders[i] = newChunkRecorder(src)
		return recorders[i]
	})
	if err != nil {
		return err
	}
	r.Record.Facts.Guest, r.Record.Facts.Metadata = reports, map[int32][]int64{}
	for i, img := range r.Record.Facts.Images {
		r.Record.Facts.Metadata[img.Key] = recorders[i].chunks
	}
	if r.Record.Facts.EFI, err = readFirmware(ctx, r, reports); err != nil {
		return err
	}
	for i, report := range reports {
		for _, w := range report.Warnings {
			r.Record.Warn(inventory.Warning{Code: w.Code, Text: fmt.Sprintf("disk %d: %s", r.Record.Facts.Images[i].Key, w.Text)})
		}
		if report.Verdict != "" {
			r.Record.Report(journal.Event{Kind: journal.Noted, Message: "guest: " + report.Verdict})
		}
	}
	return nil
}

// Undo does nothing, because detect changes nothing.
func (detectStep) Undo(context.Context, *Run) error { return nil }

// detectGuests examines all images together, because a guest may have its volumes on several. It reads
// image i through wrap.
func detectGuests(ctx context.Context, r *Run, images []targets.Image, wrap func(i int, src disk.Source) disk.Source) ([]guest.Report, error) {
	return guest.DetectEach(ctx, len(images), func(i int) (disk.Source, error) {
		src, err := r.Env.Target.Read(ctx, images[i])
		if err != nil {
			return nil, fmt.Errorf("image of disk %d: %w", images[i].Key, err)
		}
		return wrap(i, src), nil
	})
}

// A chunkRecorder records which chunks of a disk are read, in the order of the first reads.
type chunkRecorder struct {
	disk.Source
	most int // limit of the recorded chunks

	mu     sync.Mutex     // guards seen and chunks
	seen   map[int64]bool // recorded chunks
	chunks []int64        // recorded chunks in the order of their first reads
}

// newChunkRecorder returns a recorder of at most MostMetadata chunks.
func newChunkRecorder(src disk.Source) *chunkRecorder {
	info := manifest.Info{Size: src.Size()}
	return &chunkRecorder{Source: src, most: MostMetadata(info.Chunks()), seen: map[int64]bool{}}
}

// ReadAt is part of disk.Source.
func (c *chunkRecorder) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.recordChunks(off, int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

// recordChunks records the chunks of n bytes at off.
func (c *chunkRecorder) recordChunks(off, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for chunk := off / manifest.ChunkSize; chunk*manifest.ChunkSize < off+n && len(c.chunks) < c.most; chunk++ {
		if !c.seen[chunk] {
			c.seen[chunk] = true
			c.chunks = append(c.chunks, chunk)
		}
	}
}

// readFirmware returns the state of the VM's firmware that is transferred: its boot entries from its
// .nvram file, or entries for the boot loaders that detect found. It returns nil without EFI. An
// unreadable file is a warning: a guest also starts from the fallback loader on its disks.
func readFirmware(ctx context.Context, r *Run, reports []guest.Report) (*efi.State, error) {
	if r.Record.Facts.VM.Firmware != inventory.EFI {
		return nil, nil
	}
	held, err := readNVRAM(ctx, r)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		r.Record.Warn(inventory.Warning{Code: "efi-nvram", Text: fmt.Sprintf("the file with the VM's EFI variables cannot be read: %v", err),
			Remedy: "enroll keys of mokutil again in the guest; no other action is required if its boot entry was found on its disks"})
	}
	state := guest.EFIState(reports, held)
	if state.Empty() {
		return nil, nil
	}
	r.Record.Report(journal.Event{Kind: journal.Noted, Message: "EFI: " + describeEFI(state)})
	return &state, nil
}

// readNVRAM returns the state in the VM's .nvram file; the zero value if there is no file or the Environment
// cannot read it.
func readNVRAM(ctx context.Context, r *Run) (s efi.State, err error) {
	vm := r.Record.Facts.VM
	if r.Env.NVRAM == nil || vm.NVRAM.File == "" {
		return s, nil
	}
	var file []byte
	err = r.Retry.Do(ctx, 0, func() (_ bool, err error) {
		file, err = r.Env.NVRAM(ctx, vm)
		return false, err
	})
	if err != nil || len(file) == 0 { // the VM was never on
		return s, err
	}
	vars, err := efi.ReadVMware(file)
	if err != nil {
		return s, fmt.Errorf("%s: %w", vm.NVRAM, err)
	}
	s, _ = efi.StateOf(vars)
	return s, nil
}

// describeEFI returns the boot entries and keys of s as text.
func describeEFI(s efi.State) string {
	var what []string
	for _, e := range s.Entries {
		what = append(what, fmt.Sprintf("boot entry %q starts %q", e.Label, e.File))
	}
	for _, k := range s.Keys {
		what = append(what, "shim's "+k.Name)
	}
	return strings.Join(what, ", ")
}
