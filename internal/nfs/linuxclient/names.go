package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// testNames creates, changes and removes files, links and folders.
func testNames() error {
	d := mountPoint + "/names"
	steps := []error{
		os.Mkdir(d, 0o755),
		os.WriteFile(d+"/a", []byte("bytes"), 0o600),
		os.Link(d+"/a", d+"/link"),
		os.Symlink("a", d+"/symlink"),
		os.Rename(d+"/a", d+"/b"),
		os.Chmod(d+"/b", 0o400),
		os.Chtimes(d+"/b", time.Unix(100, 0), time.Unix(200, 0)),
		os.WriteFile(d+"/sparse", nil, 0o644),
		os.Truncate(d+"/sparse", 6<<40),
		createExclusive(d + "/excl"),
	}
	if err := errors.Join(steps...); err != nil {
		return err
	}
	st, err := os.Stat(d + "/link")
	if err != nil || st.Size() != 5 || st.Mode().Perm() != 0o400 || st.ModTime().Unix() != 200 {
		return fmt.Errorf("the file is %v, %v", st, err)
	}
	if to, err := os.Readlink(d + "/symlink"); err != nil || to != "a" {
		return fmt.Errorf("the link leads to %q, %v", to, err)
	}
	if err := syscall.Mknod(d+"/fifo", syscall.S_IFIFO, 0); err == nil {
		return errors.New("there is a pipe")
	}
	return os.RemoveAll(d)
}

// createExclusive creates a file with O_EXCL: the client sends CREATE EXCLUSIVE and then SETATTR. A
// second attempt must fail.
func createExclusive(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o640)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil || st.Mode().Perm() != 0o640 || st.ModTime().Year() < 2020 {
		return fmt.Errorf("an exclusive file is %v of %v, %v", st.Mode(), st.ModTime(), err)
	}
	if _, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o640); !os.IsExist(err) {
		return fmt.Errorf("made twice: %v", err)
	}
	return f.Close()
}

// testRemoveWhileOpen uses a file after its name was removed. The client renames the file instead
// ("silly rename").
func testRemoveWhileOpen() error {
	name := mountPoint + "/open"
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := os.Remove(name); err != nil {
		return err
	}
	p := make([]byte, 5)
	if _, err := f.WriteAt([]byte("still"), 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(p, 0); err != nil || string(p) != "still" {
		return fmt.Errorf("it holds %q, %v", p, err)
	}
	return f.Close()
}

// dirent is an entry of a folder.
type dirent struct {
	name string // name of the entry
	off  int64  // offset after the entry, for seek
}

const (
	telldirFiles  = 200 // files in the test folder
	telldirBuffer = 300 // bytes read at a time: few entries, so that many calls are needed
)

// testTelldir does the same as cthon04's special/telldir. Offsets of a listing must stay valid while
// names are removed and created. A listing that removes all names must return each of them.
func testTelldir() error {
	d := mountPoint + "/telldir"
	if err := os.Mkdir(d, 0o755); err != nil {
		return err
	}
	name := func(i int) string { return fmt.Sprintf("%s/%03d", d, i) }
	for i := range telldirFiles {
		if err := os.WriteFile(name(i), nil, 0o644); err != nil {
			return err
		}
	}
	fd, err := syscall.Open(d, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	all, err := readEntries(fd, func(dirent) error { return nil })
	if err != nil {
		return err
	}
	if err := checkEachOnce(all); err != nil {
		return err
	}
	for i := 0; i < telldirFiles; i += 2 {
		if err := errors.Join(os.Remove(name(i)), os.WriteFile(name(i), nil, 0o644)); err != nil {
			return err
		}
	}
	for i := len(all) - 2; i >= 0; i -= 5 {
		if _, err := syscall.Seek(fd, all[i].off, 0); err != nil {
			return err
		}
		next, err := readNextEntries(fd)
		if err != nil || len(next) == 0 || next[0].name != all[i+1].name {
			return fmt.Errorf("behind %s is %v, want %s; %v", all[i].name, next, all[i+1].name, err)
		}
	}
	if _, err := syscall.Seek(fd, 0, 0); err != nil {
		return err
	}
	seen, err := readEntries(fd, func(e dirent) error {
		if e.name == "." || e.name == ".." {
			return nil
		}
		return os.Remove(d + "/" + e.name)
	})
	return errors.Join(err, checkEachOnce(seen), os.Remove(d))
}

// checkEachOnce fails unless the entries are those of the test folder, each once.
func checkEachOnce(entries []dirent) error {
	seen := map[string]bool{}
	for _, e := range entries {
		seen[e.name] = true
	}
	if want := telldirFiles + 2; len(seen) != want || len(entries) != want {
		return fmt.Errorf("%d entries with %d names, want %d", len(entries), len(seen), want)
	}
	return nil
}

// readEntries reads a folder to its end. It calls each for every entry, and stops if that fails.
func readEntries(fd int, each func(dirent) error) ([]dirent, error) {
	var all []dirent
	for {
		some, err := readNextEntries(fd)
		if err != nil || len(some) == 0 {
			return all, err
		}
		for _, e := range some {
			if err := each(e); err != nil {
				return all, err
			}
		}
		all = append(all, some...)
	}
}

// Layout of linux_dirent64.
const (
	direntOff    = 8  // offset of the seek position, 8 bytes
	direntReclen = 16 // offset of the entry's length, 2 bytes
	direntName   = 19 // offset of the name, which ends with a zero byte
)

// readNextEntries returns the entries of one read; none at the end.
func readNextEntries(fd int) ([]dirent, error) {
	buf := make([]byte, telldirBuffer)
	n, err := syscall.ReadDirent(fd, buf)
	if err != nil {
		return nil, err
	}
	var out []dirent
	for p := buf[:n]; len(p) > direntName; {
		end := int(binary.LittleEndian.Uint16(p[direntReclen:]))
		name := p[direntName:end]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		out = append(out, dirent{string(name), int64(binary.LittleEndian.Uint64(p[direntOff:]))})
		p = p[end:]
	}
	return out, nil
}
