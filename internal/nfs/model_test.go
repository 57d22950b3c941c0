package nfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file behaves like a byte slice for random writes, reads and changes of the size, as in fsx.
func TestFileModel(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := newRig(t, nil)
			rnd := rand.New(rand.NewPCG(seed, 0))
			h := r.create(r.root, "f")
			var model []byte
			const ops, largest = 600, 256 << 10
			for op := range ops {
				off, n := rnd.IntN(largest), rnd.IntN(32<<10)
				switch rnd.IntN(6) {
				case 0, 1, 2:
					data := make([]byte, n)
					for i := range data {
						data[i] = byte(rnd.Uint32())
					}
					r.write(h, uint64(off), data)
					if n > 0 {
						model = resizeBytes(model, max(len(model), off+n))
					}
					copy(model[min(off, len(model)):], data)
				case 3:
					r.callNFS(pSetattr, h, sizeSattr(uint64(off)), 0).requireOK()
					model = resizeBytes(model, off)
				case 4:
					r.callNFS(pCommit, h, uint64(0), 0).requireOK()
				}
				got, eof := r.read(h, uint64(off), n)
				want := model[min(off, len(model)):min(off+n, len(model))]
				if !bytes.Equal(got, want) || eof != (off+n >= len(model)) {
					t.Fatalf("operation %d: READ %d at %d differs, eof %v", op, n, off, eof)
				}
				if size := r.getattr(h).size; size != uint64(len(model)) {
					t.Fatalf("operation %d: size %d, want %d", op, size, len(model))
				}
			}
			if got := r.readFile("f"); got != string(model) {
				t.Error("the file differs from the model at the end")
			}
		})
	}
}

func resizeBytes(p []byte, n int) []byte {
	if n <= len(p) {
		return p[:n:n]
	}
	return append(p, make([]byte, n-len(p))...)
}

// Random operations on names give the same status over NFS and by system calls in a second folder, and leave both
// folders equal.
func TestNamesModel(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3, 4} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := &namesModel{rig: newRig(t, nil), twin: t.TempDir(), rnd: rand.New(rand.NewPCG(seed, 0))}
			const ops = 900
			for op := range ops {
				name, got, want := m.runStep()
				if got != want {
					t.Fatalf("operation %d, %s: status %d, want %d", op, name, got, want)
				}
				if op%300 == 299 {
					m.restart()
				}
			}
			if got, want := listTree(t, m.dir), listTree(t, m.twin); got != want {
				t.Errorf("the export is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

type namesModel struct {
	*rig
	twin string
	rnd  *rand.Rand
}

// place is a name in a folder of the export and of its twin.
type place struct {
	path string // relative path
	dir  []byte // handle of the folder; nil if it is missing or a link, which system calls would follow
}

func (m *namesModel) randomPlace() place {
	var p place
	p.dir = m.root
	parts := make([]string, 1+m.rnd.IntN(3))
	for i := range parts {
		parts[i] = string(rune('a' + m.rnd.IntN(4)))
	}
	p.path = filepath.Join(parts...)
	for _, part := range parts[:len(parts)-1] {
		r := m.callNFS(pLookup, p.dir, part)
		if p.dir = r.Opaque(64); r.status != 0 || m.getattr(p.dir).kind == 5 {
			p.dir = nil
			return p
		}
	}
	return p
}

func (p place) name() string { return filepath.Base(p.path) }

// runStep executes one operation over NFS and by a system call, and returns both statuses.
func (m *namesModel) runStep() (name string, got, want uint32) {
	p, q := m.randomPlace(), m.randomPlace()
	local, other := filepath.Join(m.twin, p.path), filepath.Join(m.twin, q.path)
	if p.dir == nil || q.dir == nil {
		return "", 0, 0
	}
	switch m.rnd.IntN(8) {
	case 0, 1:
		f, err := os.OpenFile(local, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
		if err == nil {
			f.Close()
		}
		return "CREATE " + p.path, m.callNFS(pCreate, p.dir, p.name(), 1, emptySattr).status, statusOf(err)
	case 2, 3:
		return "MKDIR " + p.path, m.callNFS(pMkdir, p.dir, p.name(), emptySattr).status, statusOf(os.Mkdir(local, 0o755))
	case 4:
		return "REMOVE " + p.path, m.callNFS(pRemove, p.dir, p.name()).status, statusOf(unix.Unlink(local))
	case 5:
		return "RMDIR " + p.path, m.callNFS(pRmdir, p.dir, p.name()).status, statusOf(unix.Rmdir(local))
	case 6:
		return "SYMLINK " + p.path, m.callNFS(pSymlink, p.dir, p.name(), emptySattr, q.path).status, statusOf(unix.Symlink(q.path, local))
	default:
		err := unix.Rename(local, other)
		got := m.callNFS(pRename, p.dir, p.name(), q.dir, q.name()).status
		want := statusOf(err)
		if got == errExist && (want == errIsDir || want == errNotDir) {
			want = errExist // status of RFC 1813 for the replacement of one file type by another
		}
		return "RENAME " + p.path + " " + q.path, got, want
	}
}

func statusOf(err error) uint32 {
	var errno unix.Errno
	if err == nil {
		return 0
	}
	if !errors.As(err, &errno) {
		return 5
	}
	return uint32(map[unix.Errno]int{
		unix.ENOENT: errNoEnt, unix.EEXIST: errExist, unix.ENOTDIR: errNotDir, unix.EISDIR: errIsDir,
		unix.EINVAL: errInval, unix.ENOTEMPTY: errNotEmpty,
	}[errno])
}

// listTree lists a folder and its subfolders.
func listTree(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		line := fmt.Sprint(strings.TrimPrefix(path, dir), " ", d.Type())
		if to, err := os.Readlink(path); err == nil {
			line += " " + to
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
