package postgres

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/test/repository"
)

// createArgs are the arguments of initdb. Small log files make the data smaller.
var createArgs = []string{"-U", "decamp", "-A", "trust", "-N", "-E", "UTF8", "--locale=C", "--wal-segsize=1"}

// createData makes the data folder of a new server: a copy of the template in the folder build, if there is
// one. Otherwise it runs initdb, and its result becomes the template.
func (s *Server) createData() {
	s.t.Helper()
	initdb := s.command("initdb", append([]string{"-D", s.data()}, createArgs...)...)
	folder, err := repository.SharedFolder()
	if err != nil {
		s.t.Fatal(err)
	}
	identity := sha256.Sum256(fmt.Append(nil, initdb.Path, createArgs, os.Geteuid()))
	template := filepath.Join(folder, fmt.Sprintf("postgres-%x", identity[:8]))
	if isFolder(template) {
		s.copyFolder(template, s.data())
		return
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		s.t.Fatalf("initdb: %v\n%s", err, out)
	}
	unique, err := os.MkdirTemp(folder, "postgres-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(unique)
	s.copyFolder(s.data(), filepath.Join(unique, "data"))
	if err := os.Rename(filepath.Join(unique, "data"), template); err != nil && !isFolder(template) { // else another process was first
		s.t.Fatal(err)
	}
}

// memoryFolder returns the folder of files in memory if it has room for the data of several servers, or "". A
// database has hundreds of files, and a file system on a disk takes longer to create them than PostgreSQL to use them.
func memoryFolder() string {
	const folder, room = "/dev/shm", 2 << 30
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil || st.Bavail*uint64(st.Bsize) < room {
		return ""
	}
	return folder
}

// copyFolder copies a folder with its owners and modes.
func (s *Server) copyFolder(from, to string) {
	s.t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		s.t.Fatalf("copy the data of postgres: %v: %s", err, out)
	}
}

// isFolder reports whether path is a folder.
func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
