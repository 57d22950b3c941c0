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
	if err := unix.Lstat(r.path(name), &st); err != nil {
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

// wantOwner fails unless a file has this owner. A server that is not root has no other than itself.
func (r *rig) wantOwner(name string, uid, gid uint32) {
	r.Helper()
	if os.Geteuid() != 0 {
		uid, gid = uint32(os.Geteuid()), uint32(os.Getegid())
	}
	if _, u, g := r.statOf(name); u != uid || g != gid {
		r.Errorf("%s belongs to %d:%d, want %d:%d", name, u, g, uid, gid)
	}
}

// owned is a sattr3 that sets the owner.
func owned(uid, gid int) raw { return raw(args(0, 1, uid, 1, gid, 0, 0, 0)) }

// A client sets no setuid, setgid or sticky bit, by whichever call. Those of a folder that its
// administrator has set stay.
func TestClientSetsNoSpecialBits(t *testing.T) {
	r := newRig(t, nil)
	file, _ := r.nfs(pCreate, r.root, "unchecked", 0, moded(0o6755)).made()
	r.nfs(pCreate, r.root, "guarded", 1, moded(0o7777)).made()
	exclusive, _ := r.nfs(pCreate, r.root, "exclusive", 2, uint64(7)).made()
	folder, _ := r.nfs(pMkdir, r.root, "folder", moded(0o7777)).made()
	r.nfs(pSymlink, r.root, "link", moded(0o7777), "folder").made()
	r.wantMode("unchecked", 0o755)
	r.wantMode("guarded", 0o777)
	r.wantMode("folder", 0o777)
	r.nfs(pSetattr, file, moded(0o4711), 0).ok()
	r.nfs(pSetattr, exclusive, moded(0o2777), 0).ok()
	r.nfs(pSetattr, folder, moded(0o3700), 0).ok()
	r.nfs(pSetattr, r.root, moded(0o7755), 0).ok()
	r.wantMode("unchecked", 0o711)
	r.wantMode("exclusive", 0o777)
	r.wantMode("folder", 0o700)
	r.wantMode(".", 0o755)

	if err := unix.Chmod(r.path("folder"), 0o2770); err != nil {
		t.Fatal(err)
	}
	r.nfs(pSetattr, folder, moded(0o750), 0).ok()
	r.wantMode("folder", 0o2750)
}

// A client's root is nobody: it creates, renames and removes what it likes, as ESXi does, and root owns
// none of it.
func TestRootIsNobody(t *testing.T) {
	const nobody = 65534
	r := newRig(t, nil)
	file := r.create(r.root, "file")
	r.write(file, 0, []byte("bytes"))
	folder := r.mkdir(r.root, "folder")
	r.nfs(pSymlink, r.root, "link", keep, "file").made()
	r.nfs(pCreate, r.root, "as root", 1, owned(0, 0)).made()
	r.nfs(pCreate, r.root, "as 1000", 1, owned(1000, 1000)).made()
	for _, name := range []string{"file", "folder", "link", "as root", "as 1000"} {
		r.wantOwner(name, nobody, nobody)
	}
	r.nfs(pSetattr, file, owned(0, 0), 0).ok() // nothing changes
	r.wantOwner("file", nobody, nobody)
	r.nfs(pSetattr, file, owned(1000, nobody), 0).is(uint32(syscall.EPERM))
	r.nfs(pSetattr, file, owned(nobody, 1000), 0).is(uint32(syscall.EPERM))
	r.wantOwner("file", nobody, nobody)
	r.nfs(pRename, r.root, "file", folder, "file").ok()
	r.write(file, 5, []byte(" more"))
	if got := r.get("folder/file"); got != "bytes more" {
		t.Errorf("it holds %q", got)
	}
	r.nfs(pRemove, folder, "file").ok()
	r.nfs(pRmdir, r.root, "folder").ok()

	r.UID = 1000
	other := r.create(r.root, "other")
	r.wantOwner("other", 1000, 1000)
	r.nfs(pSetattr, other, owned(0, 0), 0).is(uint32(syscall.EPERM))
	r.nfs(pSetattr, other, owned(1001, 1000), 0).is(uint32(syscall.EPERM))
	r.wantOwner("other", 1000, 1000)
}

// With NoRootSquash, a client's root is root. Setuid bits are removed all the same.
func TestNoRootSquash(t *testing.T) {
	r := newRig(t, func(o *nfs.Options) { o.NoRootSquash = true })
	file, _ := r.nfs(pCreate, r.root, "file", 1, moded(0o4755)).made()
	r.wantOwner("file", 0, 0)
	r.wantMode("file", 0o755)
	r.nfs(pCreate, r.root, "given", 1, owned(1000, 1001)).made()
	r.wantOwner("given", 1000, 1001)
	r.nfs(pSetattr, file, owned(1000, 1001), 0).ok()
	r.wantOwner("file", 1000, 1001)
	r.UID = 1000
	r.nfs(pSetattr, file, owned(0, 0), 0).is(uint32(syscall.EPERM))
}

// A setuid program that is in the folder already keeps its content.
func TestSetuidProgramIsNotWritten(t *testing.T) {
	r := newRig(t, nil)
	for name, mode := range map[string]uint32{"setuid": 0o4755, "setgid": 0o2755} {
		r.put(name, "program")
		if err := unix.Chmod(r.path(name), mode); err != nil {
			t.Fatal(err)
		}
		h := r.lookup(r.root, name)
		r.nfs(pWrite, h, uint64(0), 4, 2, "evil").is(errAcces)
		r.nfs(pSetattr, h, sized(0), 0).is(errAcces)
		r.nfs(pCreate, r.root, name, 0, sized(0)).is(errAcces)
		if got := r.get(name); got != "program" {
			t.Errorf("%s holds %q", name, got)
		}
		r.wantMode(name, mode)
	}
}

// A client creates no link that leads out of the export, wherever the link is moved to.
func TestLinksOutOfTheExportAreRefused(t *testing.T) {
	r := newRig(t, nil)
	for _, to := range []string{"/etc/shadow", "..", "../x", "a/..", "a/../../x", "/"} {
		r.nfs(pSymlink, r.root, "link", keep, to).is(uint32(syscall.EPERM))
		if _, err := os.Lstat(r.path("link")); !os.IsNotExist(err) {
			t.Errorf("%s: %v", to, err)
		}
	}
	for name, to := range map[string]string{"a": "file", "b": "folder/file", "c": "...", "d": "./x"} {
		r.nfs(pSymlink, r.root, name, keep, to).made()
	}
}
