package proxmox

import (
	"strings"

	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
)

// ostypes contains Proxmox's guest types by prefixes of VMware's guest IDs. The longest matching prefix
// counts. Other
// guests are l26, as in Proxmox's import.
var ostypes = map[string]string{
	"other24xlinux": "l24", "other3xlinux": "l26", "solaris": "solaris", "freebsd": "other", "dos": "other", "os2": "other",
	"netware": "other", "darwin": "other", "otherguest": "other",
	"win2000": "w2k", "winxp": "wxp", "winnet": "w2k3", "winvista": "wvista", "winlonghorn": "w2k8", "windows7": "win7",
	"windows8": "win8", "windows9": "win10", "windows2019srv": "win10", "windows2019srvnext": "win11",
	"windows2022srvnext": "win11", "windows11": "win11", "windows12": "win11",
}

// osTypeByID returns the guest type for a guest ID of vSphere.
func osTypeByID(guestID string) string {
	id, best, found := strings.ToLower(guestID), "", "l26"
	for prefix, word := range ostypes {
		if strings.HasPrefix(id, prefix) && len(prefix) > len(best) {
			best, found = prefix, word
		}
	}
	return found
}

// isLinux reports whether the guest is Linux: from the detected system, or else from the guest ID in
// vSphere.
func isLinux(vm *inventory.VM, found []guest.Report) bool {
	for _, g := range found {
		if g.OS.ID != "" {
			return g.OS.ID != guest.WindowsID
		}
	}
	word := osTypeByID(vm.GuestID)
	return vm.GuestID != "" && (word == "l26" || word == "l24")
}

// ostypeOf returns the guest type. If the detected system and the guest ID disagree, the detected
// system counts.
func ostypeOf(vm *inventory.VM, found []guest.Report) string {
	word := osTypeByID(vm.GuestID)
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
