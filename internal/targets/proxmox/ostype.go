package proxmox

import (
	"strings"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
)

// ostypes are Proxmox's words for the guests that VMware knows, by how VMware's begin; the longest
// that fits counts. What is not here is l26, as for Proxmox's own import.
var ostypes = map[string]string{
	"other24xlinux": "l24", "other3xlinux": "l26", "solaris": "solaris", "freebsd": "other", "dos": "other", "os2": "other",
	"netware": "other", "darwin": "other", "otherguest": "other",
	"win2000": "w2k", "winxp": "wxp", "winnet": "w2k3", "winvista": "wvista", "winlonghorn": "w2k8", "windows7": "win7",
	"windows8": "win8", "windows9": "win10", "windows2019srv": "win10", "windows2019srvnext": "win11",
	"windows2022srvnext": "win11", "windows11": "win11", "windows12": "win11",
}

func ostype(guestID string) string {
	id, best, found := strings.ToLower(guestID), "", "l26"
	for prefix, word := range ostypes {
		if strings.HasPrefix(id, prefix) && len(prefix) > len(best) {
			best, found = prefix, word
		}
	}
	return found
}

// isLinux reports whether the guest is Linux: by what was found in it, or else by what VMware was
// told.
func isLinux(vm *inventory.VM, found []guest.Report) bool {
	for _, g := range found {
		if g.OS.ID != "" {
			return g.OS.ID != guest.WindowsID
		}
	}
	word := ostype(vm.GuestID)
	return vm.GuestID != "" && (word == "l26" || word == "l24")
}

// ostypeOf prefers what was found to what VMware was told, where they disagree.
func ostypeOf(vm *inventory.VM, found []guest.Report) string {
	word := ostype(vm.GuestID)
	for _, g := range found {
		switch told := strings.HasPrefix(word, "w"); {
		case g.OS.ID == guest.WindowsID && !told:
			return "win11"
		case g.OS.ID != "" && g.OS.ID != guest.WindowsID && told:
			return "l26"
		}
	}
	return word
}
