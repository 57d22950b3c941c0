package mount

import (
	"os/user"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func TestIdentityByNames(t *testing.T) {
	id := NewIdentity()
	if id.ChangesUser() {
		t.Error("ChangesUser of a new identity is true, want false")
	}
	for kind, err := range map[string]error{"user": id.SetUser("no such user"), "group": id.SetGroup("no such group")} {
		if !fault.Is(err, fault.Invalid) {
			t.Errorf("unknown %s: error %v, want kind Invalid", kind, err)
		}
	}
	root, err := user.LookupId("0")
	if err != nil {
		t.Fatal(err)
	}
	if err := id.SetUser(root.Username); err != nil || !id.ChangesUser() || id.uid != 0 || id.gid != -1 {
		t.Errorf("got %+v, error %v, want UID 0 and no GID", id, err)
	}
}
