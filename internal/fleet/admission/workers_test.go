package admission

import "testing"

func TestStorageOfNearestFolderIsUsed(t *testing.T) {
	offers := map[string]string{"/srv": "a", "/srv/vm/fast": "b", "/": "root"}
	for to, want := range map[string]string{"dir:/srv/vm": "a", "dir:/srv/vm/fast/x": "b", "dir:/srv/vm/faster": "a", "dir:/other": "root", "proxmox:https://pve1:8006/pve1?staging=/srv/vm/x": "a"} {
		if got := StorageOf(offers, to); got != want {
			t.Errorf("%s is on %q, want %q", to, got, want)
		}
	}
	if got := StorageOf(map[string]string{"/srv/vm": "a"}, "dir:/srv/vm2"); got != "" {
		t.Errorf("a folder that is not offered is on %q", got)
	}
}
