package nfs_test

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/nfs"
)

// statOf returns the mode, with its special bits, and the owner of a file of the export.
func (r *rig) statOf(name string) (mode, uid, gid uint32) {
	r.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(r.filePath(name), &st); err != nil {
		r.Fatal(err)
	}
	return st.Mode &^ unix.S_IFMT, st.Uid, st.Gid
}

// wantMode fails unless a file has exactly this mode.
func (r *rig) wantMode(name string, want uint32) {
	r.Helper()
	if mode, _, _ := r.statOf(name); mode != want {
		r.Errorf("%s has mode %o, want %o", name, mode, want)
	}
}

// wantOwner fails unless a file has this owner. If the server does not run as root, its own user owns all files.
func (r *rig) wantOwner(name string, uid, gid uint32) {
	r.Helper()
	if os.Geteuid() != 0 {
		uid, gid = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	if _, u, g := r.statOf(name); u != uid || g != gid {
		r.Errorf("%s belongs to %d:%d, want %d:%d", name, u, g, uid, gid)
	}
}

// ownerSattr returns a sattr3 that sets the owner.
func ownerSattr(uid, gid int) raw { return raw(args(0, 1, uid, 1, gid, 0, 0, 0)) }

// No call of a client sets a setuid, setgid or sticky bit. Such bits that the administrator has set on a folder
// stay.
func TestClientSetsNoSpecialBits(t *testing.T) {
	r := newRig(t, nil)
	file, _ := r.callNFS(pCreate, r.root, "unchecked", 0, modeSattr(0o6755)).decodeCreated()
	r.callNFS(pCreate, r.root, "guarded", 1, modeSattr(0o7777)).decodeCreated()
	exclusive, _ := r.callNFS(pCreate, r.root, "exclusive", 2, uint64(7)).decodeCreated()
	folder, _ := r.callNFS(pMkdir, r.root, "folder", modeSattr(0o7777)).decodeCreated()
	r.callNFS(pSymlink, r.root, "link", modeSattr(0o7777), "folder").decodeCreated()
	r.wantMode("unchecked", 0o755)
	r.wantMode("guarded", 0o777)
	r.wantMode("folder", 0o777)
	r.callNFS(pSetattr, file, modeSattr(0o4711), 0).requireOK()
	r.callNFS(pSetattr, exclusive, modeSattr(0o2777), 0).requireOK()
	r.callNFS(pSetattr, folder, modeSattr(0o3700), 0).requireOK()
	r.callNFS(pSetattr, r.root, modeSattr(0o7755), 0).requireOK()
	r.wantMode("unchecked", 0o711)
	r.wantMode("exclusive", 0o777)
	r.wantMode("folder", 0o700)
	r.wantMode(".", 0o755)

	if err := unix.Chmod(r.filePath("folder"), 0o2770); err != nil {
		t.Fatal(err)
	}
	r.callNFS(pSetattr, folder, modeSattr(0o750), 0).requireOK()
	r.wantMode("folder", 0o2750)
}

// Root of a client acts as user nobody: it can create, rename and remove files, as ESXi does, and these do not
// belong to root.
func TestRootIsSquashed(t *testing.T) {
	const nobody = 65534
	r := newRig(t, nil)
	file := r.create(r.root, "file")
	r.write(file, 0, []byte("bytes"))
	folder := r.mkdir(r.root, "folder")
	r.callNFS(pSymlink, r.root, "link", emptySattr, "file").decodeCreated()
	r.callNFS(pCreate, r.root, "as root", 1, ownerSattr(0, 0)).decodeCreated()
	r.callNFS(pCreate, r.root, "as 1000", 1, ownerSattr(1000, 1000)).decodeCreated()
	for _, name := range []string{"file", "folder", "link", "as root", "as 1000"} {
		r.wantOwner(name, nobody, nobody)
	}
	r.callNFS(pSetattr, file, ownerSattr(0, 0), 0).requireOK() // nothing changes
	r.wantOwner("file", nobody, nobody)
	r.callNFS(pSetattr, file, ownerSattr(1000, nobody), 0).wantStatus(uint32(syscall.EPERM))
	r.callNFS(pSetattr, file, ownerSattr(nobody, 1000), 0).wantStatus(uint32(syscall.EPERM))
	r.wantOwner("file", nobody, nobody)
	r.callNFS(pRename, r.root, "file", folder, "file").requireOK()
	r.write(file, 5, []byte(" more"))
	if got := r.readFile("folder/file"); got != "bytes more" {
		t.Errorf("the file contains %q, want %q", got, "bytes more")
	}
	r.callNFS(pRemove, folder, "file").requireOK()
	r.callNFS(pRmdir, r.root, "folder").requireOK()

	r.UID = 1000
	other := r.create(r.root, "other")
	r.wantOwner("other", 1000, 1000)
	r.callNFS(pSetattr, other, ownerSattr(0, 0), 0).wantStatus(uint32(syscall.EPERM))
	r.callNFS(pSetattr, other, ownerSattr(1001, 1000), 0).wantStatus(uint32(syscall.EPERM))
	r.wantOwner("other", 1000, 1000)
}

// With NoRootSquash, root of a client is root. Setuid bits are still removed.
func TestNoRootSquash(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) { o.NoRootSquash = true })
	file, _ := r.callNFS(pCreate, r.root, "file", 1, modeSattr(0o4755)).decodeCreated()
	r.wantOwner("file", 0, 0)
	r.wantMode("file", 0o755)
	r.callNFS(pCreate, r.root, "given", 1, ownerSattr(1000, 1001)).decodeCreated()
	r.wantOwner("given", 1000, 1001)
	r.callNFS(pSetattr, file, ownerSattr(1000, 1001), 0).requireOK()
	r.wantOwner("file", 1000, 1001)
	r.UID = 1000
	r.callNFS(pSetattr, file, ownerSattr(0, 0), 0).wantStatus(uint32(syscall.EPERM))
}

// A client cannot write to an existing setuid or setgid program.
func TestSetuidProgramIsNotWritten(t *testing.T) {
	r := newRig(t, nil)
	for name, mode := range map[string]uint32{"setuid": 0o4755, "setgid": 0o2755} {
		r.writeFile(name, "program")
		if err := unix.Chmod(r.filePath(name), mode); err != nil {
			t.Fatal(err)
		}
		h := r.lookup(r.root, name)
		r.callNFS(pWrite, h, uint64(0), 4, 2, "evil").wantStatus(errAcces)
		r.callNFS(pSetattr, h, sizeSattr(0), 0).wantStatus(errAcces)
		r.callNFS(pCreate, r.root, name, 0, sizeSattr(0)).wantStatus(errAcces)
		if got := r.readFile(name); got != "program" {
			t.Errorf("%s contains %q, want %q", name, got, "program")
		}
		r.wantMode(name, mode)
	}
}

// A client cannot create a link whose target is absolute or has the element .., because it could lead out of the
// export. A move does not change the target.
func TestLinksOutOfTheExportAreRefused(t *testing.T) {
	r := newRig(t, nil)
	for _, to := range []string{"/etc/shadow", "..", "../x", "a/..", "a/../../x", "/"} {
		r.callNFS(pSymlink, r.root, "link", emptySattr, to).wantStatus(uint32(syscall.EPERM))
		if _, err := os.Lstat(r.filePath("link")); !os.IsNotExist(err) {
			t.Errorf("link to %s: Lstat returned error %v, want not exist", to, err)
		}
	}
	folder := r.mkdir(r.root, "folder")
	for name, to := range map[string]string{"a": "file", "b": "folder/file", "c": "...", "d": "./x"} {
		r.callNFS(pSymlink, folder, name, emptySattr, to).decodeCreated()
		r.callNFS(pRename, folder, name, r.root, name).requireOK()
		if got, err := os.Readlink(r.filePath(name)); err != nil || got != to {
			t.Errorf("the moved link leads to %q, error %v, want %q", got, err, to)
		}
	}
}
