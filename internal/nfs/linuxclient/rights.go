package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// testRights tries, as root, to create files that would help an attack on the server's local users.
func testRights() error {
	d := mountPoint + "/rights"
	if err := os.Mkdir(d, 0o777); err != nil {
		return err
	}
	fd, err := unix.Open(d+"/program", unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o6755)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Close(fd), unix.Chmod(d+"/program", 0o7755), unix.Chmod(d, 0o7777)); err != nil {
		return err
	}
	for name, want := range map[string]uint32{d: 0o777, d + "/program": 0o755} {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil || st.Mode&^unix.S_IFMT != want || st.Uid == 0 || st.Gid == 0 {
			return fmt.Errorf("%s has mode %o and owner %d:%d, %v", name, st.Mode, st.Uid, st.Gid, err)
		}
	}
	for name, err := range map[string]error{
		"a device node":                unix.Mknod(d+"/disk", unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))),
		"a pipe":                       unix.Mkfifo(d+"/pipe", 0o666),
		"a link to /etc/shadow":        os.Symlink("/etc/shadow", d+"/link"),
		"a link to ../../etc/shadow":   os.Symlink("../../etc/shadow", d+"/link"),
		"a link to a/../../etc/shadow": os.Symlink("a/../../etc/shadow", d+"/link"),
		"a file of user 1000":          os.Chown(d+"/program", 1000, -1),
		"a file of group 1000":         os.Chown(d+"/program", -1, 1000),
		"a capability":                 unix.Setxattr(d+"/program", "security.capability", make([]byte, 20), 0),
		"an extended attribute":        unix.Setxattr(d+"/program", "user.note", []byte("x"), 0),
		"an access control list":       unix.Setxattr(d+"/program", "system.posix_acl_access", []byte{2, 0, 0, 0}, 0),
	} {
		if err == nil {
			return errors.New("the client could create " + name)
		}
	}
	return errors.Join(syscall.Unlink(d+"/program"), syscall.Rmdir(d))
}
