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

// killedStatus is that of a command which signal 9 ended.
const killedStatus = 128 + 9

// VolumePath is where a host has a file of a datastore. Datastores go by their names there,
// as links to what they are. It returns an error unless p names a file below the root of a datastore.
func VolumePath(p inventory.Path) (string, error) {
	if p == (inventory.Path{}) || !p.Valid() {
		return "", fault.New(fault.Invalid, "%q does not name a file below the root of a datastore", p.String()).
			WithHint("remove the VM from the inventory and register it again")
	}
	return path.Join("/vmfs/volumes", p.Datastore, p.File), nil
}

// Clone is a disk that vmkfstools copies.
type Clone struct {
	// Name is the job's, see JobName: a copy of that name to another place is ended first.
	Name     string
	From, To string // descriptors, by their paths on the host
	Progress func(percent int)
}

// JobName makes a name for a job out of what it does: the same words, the same name.
func JobName(verb string, words ...string) string {
	h := sha256.New()
	for _, w := range words {
		fmt.Fprintf(h, "%d:%s", len(w), w)
	}
	return verb + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// CloneDisk copies a disk by its descriptor, thin: blocks of zeros are not written. It works
// for what has no flat file too, RDM pointers and vSAN objects, and for the base of a
// running VM that a snapshot froze. What a copy that failed has written is left there.
func (s *Shell) CloneDisk(ctx context.Context, c Clone) error {
	if err := s.cloneDisk(ctx, c); err != nil {
		return fmt.Errorf("copy %s to %s: %w", c.From, c.To, err)
	}
	return nil
}

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
	case res.Status == killedStatus:
		return fault.New(fault.Transient, "vmkfstools was killed on the host").
			WithHint("the host has memory for a few commands at once (hostd-tmp): copy fewer disks at once")
	}
	return fault.New(fault.Internal, "vmkfstools ended with status %d: %s", res.Status, cloneFailure(res.Log)).
		WithHint("see vmkernel.log on the host")
}

const (
	cloneBegin = "Clone: "
	cloneEnd   = "% done."
)

// clonePercent finds the last progress in the end of a log, whose lines are separated by
// carriage returns. The log may begin and end anywhere.
func clonePercent(log []byte) (percent int, ok bool) {
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

// cloneFailure is what a log says beside progress. The words come right behind the last
// progress, which may be 100.
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
		return "it said nothing"
	}
	return lastLines(strings.Join(said, "\n"))
}
