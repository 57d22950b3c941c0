package shell

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// killedStatus is the exit status of a command that signal 9 ended.
const killedStatus = 128 + 9

// VolumePath returns the path of a datastore file in the host's file system. Datastores
// have links with their names in /vmfs/volumes. The error is fault.Invalid unless p
// names a file below the root of a datastore.
func VolumePath(p inventory.Path) (string, error) {
	if p == (inventory.Path{}) || !p.Valid() {
		return "", fault.New(fault.Invalid, "%q does not name a file below the root of a datastore", p.String()).
			WithHint("remove the VM from the inventory and register it again")
	}
	return path.Join("/vmfs/volumes", p.Datastore, p.File), nil
}

// Clone describes a copy of a disk by vmkfstools.
type Clone struct {
	// Name is the name of the job; see JobName. A running job with the same name and
	// another destination is ended first.
	Name     string
	From, To string            // absolute paths of the descriptors on the host
	Progress func(percent int) // called with percentages; may be nil
}

// JobName derives the name of a job from its purpose. The same words give the same name
// in every process, so that a job is found again after a crash.
func JobName(verb string, words ...string) string {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d:%s", len(w), w)
	}
	return verb + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// CloneDisk copies a disk by its descriptor to a thin disk: blocks of zeros are not
// written. It also copies disks without a flat file (RDM pointers and vSAN objects) and
// the base of a running VM that a snapshot froze. A failed copy leaves its files.
func (s *Shell) CloneDisk(ctx context.Context, c Clone) error {
	if err := s.cloneDisk(ctx, c); err != nil {
		return fmt.Errorf("copy %s to %s: %w", c.From, c.To, err)
	}
	return nil
}

// cloneDisk runs vmkfstools as a job and converts its exit status to an error.
func (s *Shell) cloneDisk(ctx context.Context, c Clone) error {
	for _, p := range []string{c.From, c.To} {
		if !path.IsAbs(p) {
			return fault.New(fault.Internal, "%q is no absolute path", p)
		}
	}
	job := Job{Name: c.Name, Argv: []string{"vmkfstools", "-i", c.From, "-d", "thin", c.To}}
	if c.Progress != nil {
		job.Progress = func(log []byte) {
			if percent, ok := clonePercent(log); ok {
				c.Progress(percent)
			}
		}
	}
	res, err := s.Jobs.Do(ctx, job)
	switch {
	case err != nil:
		return err
	case res.Status == 0:
		return nil
	// The host's kernel kills commands when their memory pool is full.
	case res.Status == killedStatus:
		return fault.New(fault.Transient, "vmkfstools was killed on the host").
			WithHint("the host has memory for a few commands at once (hostd-tmp): copy fewer disks at once")
	}
	return fault.New(fault.Internal, "vmkfstools ended with status %d: %s", res.Status, cloneFailure(res.Log)).
		WithHint("see vmkernel.log on the host")
}

const (
	cloneBegin = "Clone: " // text before the percentage in the output of vmkfstools
	cloneEnd   = "% done." // text after the percentage
)

// clonePercent returns the last percentage in the end of a log. Lines are separated by
// carriage returns. The log may start and end within a line. ok is false if it has no
// percentage.
func clonePercent(log []byte) (percent int, ok bool) {
	// The search runs backwards, because the last percentage is near the end of the
	// log.
	for end := len(log); ; {
		end = bytes.LastIndex(log[:end], []byte(cloneEnd))
		if end < 0 {
			return 0, false
		}
		at := bytes.LastIndex(log[:end], []byte(cloneBegin))
		if at < 0 {
			return 0, false
		}
		n, err := strconv.Atoi(string(log[at+len(cloneBegin) : end]))
		if err == nil && n >= 0 && n <= 100 {
			return n, true
		}
	}
}

// cloneFailure returns the messages of a log other than progress. A message may follow
// the last percentage, which may be 100, on the same line.
func cloneFailure(log []byte) string {
	var said []string
	for _, line := range strings.FieldsFunc(strings.ToValidUTF8(string(log), "?"), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if _, after, ok := strings.Cut(line, cloneEnd); ok && strings.HasPrefix(line, cloneBegin) {
			line = after
		}
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "Destination disk format:") && !strings.HasPrefix(line, "Cloning disk") {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return "it printed no message"
	}
	return lastLines(strings.Join(said, "\n"))
}
