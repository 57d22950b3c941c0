package writebehind

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// grain is the smallest run of zeros that becomes a hole in the image, and the smallest part of a
// chunk that is rewritten, in bytes: a qcow2 cluster, and a size that any file system can leave as
// a hole.
const grain = 64 << 10

// chunkGrains is the grains of a whole chunk; the last grain of a disk may be shorter.
const chunkGrains = manifest.ChunkSize / grain

// zeros is compared with the grains of a run, and never changed.
var zeros [grain]byte

// An action is the way in which a grain reaches the target.
type action uint8

const (
	leave action = iota // the target has the bytes already
	write               // Target.WriteAt
	zero                // Target.Zero
)

// A run is a sequence of adjacent chunks on their way to the target. One writer owns it.
type run struct {
	disk.Range
	chunks  []*chunk      // chunks of the run, in order
	written []chunkResult // results for the chunks
	memory  []byte        // the bytes of Range
	actions []action      // actions for the grains

	gathered bool // memory is a window; otherwise the memory of the only chunk

	hashing, writing time.Duration // times of the writer for this run
}

// chunkResult is the information about one chunk of a run.
type chunkResult struct {
	blank     bool          // the chunk read as zeros when the writer took it
	wasListed bool          // the log lists the chunk
	unchanged bool          // the log has the same hash, so that the chunk is not written
	hash      manifest.Hash // hash of the new content; unset without a log
}

// writeRun writes a run to the target. Before bytes of a listed chunk change, it drops the chunk from
// the log, durably.
func (m *image) writeRun(r *run) error {
	began := time.Now()
	r.actions, r.writing = r.actions[:0], 0
	err := m.planRun(r)
	r.hashing = time.Since(began)
	if err != nil {
		return err
	}
	defer func() { r.writing = time.Since(began) - r.hashing }()
	if err := m.unlistRun(r); err != nil {
		return err
	}
	return m.applyActions(r)
}

// planRun gathers the data of a run and determines its actions.
func (m *image) planRun(r *run) error {
	for i := range r.chunks {
		if err := m.gatherChunk(r, i); err != nil {
			return err
		}
		m.planChunk(r, i)
	}
	return nil
}

// gatherChunk copies the pieces of a chunk into the window, and fills its gaps with zeros or from the
// target.
func (m *image) gatherChunk(r *run, i int) error {
	c, within := r.chunks[i], m.rangeOf(r.chunks[i].number)
	if !r.gathered {
		return nil
	}
	to := r.chunkMemory(within)
	err := c.writing.eachGap(within, func(g disk.Range) error {
		p := to[g.Off-within.Off : g.End()-within.Off]
		if r.written[i].blank {
			clear(p)
			return nil
		}
		return m.readBack(m.ctx, p, g.Off)
	})
	if err != nil {
		return err
	}
	c.writing.copyTo(to, within.Off)
	return nil
}

// chunkMemory returns the bytes of a chunk, whose range is within.
func (r *run) chunkMemory(within disk.Range) []byte {
	return r.memory[within.Off-r.Off : within.End()-r.Off]
}

// planChunk chooses the action for each grain of a chunk, and hashes it while it is in the processor's
// cache. Zeros are zeroed, and unchanged grains skipped.
func (m *image) planChunk(r *run, i int) {
	within := m.rangeOf(r.chunks[i].number)
	memory := r.chunkMemory(within)
	first := len(r.actions)
	for off := 0; off < len(memory); off += grain {
		g := memory[off:min(off+grain, len(memory))]
		if bytes.Equal(g, zeros[:len(g)]) {
			r.actions = append(r.actions, zero)
		} else {
			r.actions = append(r.actions, write)
		}
	}
	actions := r.actions[first:]
	w := &r.written[i]
	if m.log != nil {
		w.hash = hashOf(memory, actions)
		w.unchanged = w.wasListed && m.logHasHash(r.chunks[i].number, w.hash)
	}
	if w.unchanged || !w.blank {
		leaveUntouched(actions, within, r.chunks[i].writing, w.unchanged)
	}
}

// hashOf returns the hash of a chunk. It does not compute the hash of zeros.
func hashOf(memory []byte, actions []action) manifest.Hash {
	if !slices.Contains(actions, write) {
		return manifest.ZeroHash(len(memory))
	}
	return manifest.HashOf(memory)
}

// logHasHash reports whether the log lists a chunk with that hash. If the hash cannot be read, it
// returns false: then the chunk is written again, which is always correct.
func (m *image) logHasHash(number int64, h manifest.Hash) bool {
	had, ok, err := m.log.Hash(number)
	return err == nil && ok && had == h
}

// leaveUntouched changes the action of all grains without new pieces to leave; of all grains if all is
// set.
func leaveUntouched(actions []action, within disk.Range, touched pieces, all bool) {
	var changed [chunkGrains]bool
	if !all {
		for _, p := range touched {
			for g := (p.Off - within.Off) / grain; g*grain < p.End()-within.Off; g++ {
				changed[g] = true
			}
		}
	}
	for g := range actions {
		if !changed[g] {
			actions[g] = leave
		}
	}
}

// unlistRun drops the chunks from the log that are listed and will change.
func (m *image) unlistRun(r *run) error {
	for i := 0; i < len(r.written); i++ {
		n := 0
		for i+n < len(r.written) && r.written[i+n].wasListed && !r.written[i+n].unchanged {
			n++
		}
		if n == 0 {
			continue
		}
		if err := m.log.Drop(r.chunks[i].number, int64(n)); err != nil {
			return err
		}
		i += n
	}
	return nil
}

// applyActions writes the run to the target, adjacent grains with the same action in one call.
func (m *image) applyActions(r *run) error {
	for g := 0; g < len(r.actions); {
		end := g + 1
		for end < len(r.actions) && r.actions[end] == r.actions[g] {
			end++
		}
		off := int64(g) * grain
		part := disk.Range{Off: r.Off + off, Len: min(int64(end)*grain, r.Len) - off}
		if err := m.applyAction(r.actions[g], part, r.memory[off:off+part.Len]); err != nil {
			return err
		}
		g = end
	}
	return nil
}

// applyAction writes or zeroes r of the target. p contains the bytes of r.
func (m *image) applyAction(a action, r disk.Range, p []byte) error {
	switch a {
	case write:
		if err := m.target.WriteAt(m.ctx, p, r.Off); err != nil {
			return fmt.Errorf("write behind at %v: %w", r, err)
		}
	case zero:
		if err := m.target.Zero(m.ctx, r); err != nil {
			return fmt.Errorf("zero behind at %v: %w", r, err)
		}
	case leave:
	}
	return nil
}
