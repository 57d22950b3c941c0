package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

// Room converts only the errors of a full file system. It returns other errors unchanged.
func TestRoom(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		err := fmt.Errorf("record plan: %w", Room("/srv/state", &fs.PathError{Op: "write", Path: "/srv/state/x", Err: full}))
		if !errors.Is(err, ErrNoRoom) || !errors.Is(err, full) || !Is(err, Full) {
			t.Errorf("%v has kind %v, want %v", err, KindOf(err), Full)
		}
		if !strings.Contains(HintOf(err), "free space under /srv/state") || !strings.Contains(err.Error(), "no room under /srv/state") {
			t.Errorf("%q, remedy %q", err, HintOf(err))
		}
	}
	if err := Room("/srv/state", syscall.EIO); err != error(syscall.EIO) {
		t.Errorf("Room(EIO) = %v, want EIO", err)
	}
	if err := Room("/srv/state", nil); err != nil {
		t.Errorf("Room(nil) = %v, want nil", err)
	}
}
