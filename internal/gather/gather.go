// Package gather writes an archive for support: documents of a command, the journals of the state
// directory and logs, without secrets. Names and addresses are replaced by pseudonyms, and the same name
// by the same pseudonym in all files. Names are known from structured texts; patterns match addresses,
// paths and others that occur in free text only.
package gather

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Limits of an archive before compression.
const (
	defaultLimit = 32 << 20 // bytes of all files
	maxFile      = 8 << 20  // bytes of one file; of a longer one the end is kept
)

// endOfFile is the note of a file whose beginning is missing.
const endOfFile = "the end of a longer file"

// Options select the content of an archive.
type Options struct {
	State     string         // state directory; a missing one has no files
	Documents map[string]any // further documents by file name; each is encoded as JSON
	Logs      []string       // paths of logs
	Units     []string       // units of systemd whose logs are read
	Secrets   []string       // texts that are removed also with KeepNames, such as passwords
	Names     [][2]string    // kinds and names that are known, such as {"host", "mover1"}
	KeepNames bool           // replace no names and addresses
	Limit     int64          // bytes of all files; default 32 MiB
}

// Entry is a file of an archive.
type Entry struct {
	Name string // path in the archive
	Size int64  // bytes
	Note string // what is missing; empty: the file is complete
}

// Archive is the content of an archive in memory.
type Archive struct {
	files []collected
	Left  []string // files that do not fit, or cannot be read: NAME: REASON
}

// collected is a file with its text.
type collected struct {
	Entry
	text    []byte
	changed time.Time // modification time; zero for a document
	isLog   bool      // text that is not JSON
}

// Collect reads the files, and replaces secrets and names.
func Collect(ctx context.Context, o Options) (*Archive, error) {
	a := &Archive{}
	for _, name := range slices.Sorted(maps.Keys(o.Documents)) {
		text, err := json.Marshal(o.Documents[name])
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", name, err)
		}
		a.files = append(a.files, collected{Entry: Entry{Name: name, Size: int64(len(text))}, text: text})
	}
	if err := a.readState(o.State); err != nil {
		return nil, err
	}
	for i, log := range o.Logs {
		if err := a.readLog(log, fmt.Sprintf("logs/%d.log", i+1)); err != nil {
			return nil, err
		}
	}
	for _, unit := range o.Units {
		a.readUnit(ctx, unit)
	}
	a.limitSize(cmp.Or(o.Limit, defaultLimit))
	a.redact(o)
	return a, nil
}

// readState reads plans and journals of runs, and the records of leftovers. It follows no links.
func (a *Archive) readState(dir string) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.New(fault.Denied, "read the state directory: %w", err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			a.Left = append(a.Left, name+": "+err.Error())
		case d.IsDir():
			if name != "." && name != "runs" && name != "leftovers" && path.Dir(name) != "runs" {
				return fs.SkipDir
			}
		case !d.Type().IsRegular():
			if path.Dir(name) != "." {
				a.Left = append(a.Left, name+": not a regular file")
			}
		case path.Dir(name) != "." && (strings.HasSuffix(name, ".json") || strings.HasSuffix(name, ".jsonl")):
			a.readFile(name, name, false, func() (*os.File, error) {
				return root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
			})
		}
		return nil
	})
}

// readLog reads a log of the user as a file of the archive.
func (a *Archive) readLog(log, name string) error {
	if st, err := os.Stat(log); err != nil || !st.Mode().IsRegular() {
		return fault.New(fault.NotFound, "%s is not a file that can be read", log).WithHint("name the file of --log-file, or another log")
	}
	a.readFile(log, name, true, func() (*os.File, error) { return os.Open(log) })
	return nil
}

// readFile adds a file, or its end.
func (a *Archive) readFile(from, name string, isLog bool, open func() (*os.File, error)) {
	f, err := open()
	if err != nil {
		a.Left = append(a.Left, from+": "+err.Error())
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		a.Left = append(a.Left, from+": not a regular file")
		return
	}
	c := collected{Entry: Entry{Name: name}, changed: st.ModTime(), isLog: isLog}
	if over := st.Size() - maxFile; over > 0 {
		_, err = f.Seek(over, io.SeekStart)
		c.Note = endOfFile
	}
	if err == nil {
		c.text, err = io.ReadAll(io.LimitReader(f, maxFile))
	}
	if err != nil {
		a.Left = append(a.Left, from+": "+err.Error())
		return
	}
	if c.Note != "" { // the first line is incomplete
		_, c.text, _ = bytes.Cut(c.text, []byte("\n"))
	}
	c.Size = int64(len(c.text))
	a.files = append(a.files, c)
}

// limitSize removes the oldest files above the limit.
func (a *Archive) limitSize(limit int64) {
	slices.SortStableFunc(a.files, func(x, y collected) int {
		if x.changed.IsZero() != y.changed.IsZero() { // documents precede files
			return map[bool]int{true: -1, false: 1}[x.changed.IsZero()]
		}
		return y.changed.Compare(x.changed)
	})
	var kept []collected
	for _, f := range a.files {
		if limit -= f.Size; limit < 0 {
			a.Left = append(a.Left, f.Name+": the archive is full")
			continue
		}
		kept = append(kept, f)
	}
	a.files = kept
}

// redact replaces secrets and names in all files and in their names.
func (a *Archive) redact(o Options) {
	p := newPseudonyms(o.KeepNames)
	for _, s := range o.Secrets {
		p.addSecret(s)
	}
	for _, n := range o.Names {
		p.addText(n[0], n[1])
	}
	values := make([][]any, len(a.files))
	for i, f := range a.files {
		if !f.isLog {
			values[i] = parseLines(f.text)
		}
	}
	for _, plans := range []bool{true, false} { // plans have the names, journals only words of them
		for i, f := range a.files {
			if path.Base(f.Name) == "plan.json" == plans {
				for _, v := range values[i] {
					p.harvest(v)
				}
			}
		}
	}
	for _, f := range a.files {
		if f.isLog {
			p.harvestLog(string(f.text))
		}
	}
	for i := range a.files {
		f := &a.files[i]
		if f.isLog {
			f.text = []byte(p.replace(string(f.text)))
		} else {
			f.text = p.encodeLines(values[i])
		}
		f.Name, f.Size = p.replaceName(f.Name), int64(len(f.text))
	}
	for i, left := range a.Left {
		name, reason, _ := strings.Cut(left, ": ")
		a.Left[i] = p.replaceName(name) + ": " + p.replace(reason)
	}
}

// replaceName replaces names in the parts of a path of the archive.
func (p *pseudonyms) replaceName(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if i < len(parts)-1 || path.Ext(part) == "" { // names of files are words of decamp
			parts[i] = strings.NewReplacer("<", "", ">", "").Replace(p.replace(part))
		}
	}
	return strings.Join(parts, "/")
}

// parseLines parses JSON values that follow each other. It ends at text that is not JSON, such as the last
// line of a process that was killed.
func parseLines(text []byte) (all []any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		var v any
		if d.Decode(&v) != nil {
			return all
		}
		all = append(all, v)
	}
}

// encodeLines encodes values, one on each line, with names replaced.
func (p *pseudonyms) encodeLines(all []any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, v := range all {
		_ = e.Encode(p.replaceJSON("", v)) // values of a decoder can be encoded
	}
	return b.Bytes()
}

// Entries returns the files of the archive.
func (a *Archive) Entries() []Entry {
	list := make([]Entry, len(a.files))
	for i, f := range a.files {
		list[i] = f.Entry
	}
	slices.SortFunc(list, func(x, y Entry) int { return cmp.Compare(x.Name, y.Name) })
	return list
}

// Create writes the archive to a new file that only its owner can read. On an error it leaves no file.
func (a *Archive) Create(name string, at time.Time) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Conflict, "%s exists already", name).WithHint("name another file")
	}
	if err != nil {
		return fault.New(fault.Invalid, "create the archive: %w", err)
	}
	if err = errors.Join(a.write(f, at), f.Sync(), f.Close()); err != nil {
		return errors.Join(fault.Room(name, err), os.Remove(name))
	}
	return nil
}

// write writes the archive as tar.gz. All files are from the time at.
func (a *Archive) write(w io.Writer, at time.Time) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	add := func(name string, text []byte) error {
		err := t.WriteHeader(&tar.Header{Name: "decamp-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: at, Format: tar.FormatPAX})
		if err == nil {
			_, err = t.Write(text)
		}
		return err
	}
	var errs []error
	for _, f := range a.files {
		errs = append(errs, add(f.Name, f.text))
	}
	if len(a.Left) > 0 {
		errs = append(errs, add("left-out.txt", []byte(strings.Join(a.Left, "\n")+"\n")))
	}
	return errors.Join(append(errs, t.Close(), z.Close())...)
}
