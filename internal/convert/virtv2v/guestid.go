package virtv2v

import "strings"

// guestIDs contains VMware's guest types for Windows without their suffix, which is the processor. A
// Windows without a separate guest type uses the last one.
var guestIDs = map[string]Windows{
	"winxppro": {Build: 2600}, "winnetweb": {Build: 3790, Server: true}, "winnetstandard": {Build: 3790, Server: true},
	"winnetenterprise": {Build: 3790, Server: true}, "winnetbusiness": {Build: 3790, Server: true}, "winnetdatacenter": {Build: 3790, Server: true},
	"winvista": {Build: 6000}, "winlonghorn": {Build: 6000, Server: true}, "windows7": {Build: 7600}, "windows7server": {Build: 7600, Server: true},
	"windows8": {Build: 9200}, "windows8server": {Build: 9200, Server: true}, "windows9": {Build: 10240}, "windows9server": {Build: 10240, Server: true},
	"windows11": {Build: 22000}, "windows12": {Build: 22000},
	"windows2019srv": {Build: 17763, Server: true}, "windows2019srvnext": {Build: 20348, Server: true}, "windows2022srvnext": {Build: 26100, Server: true},
}

// WindowsOf returns the Windows of a configured guest type, such as windows2019srv_64Guest. It returns
// nil for other systems, for Windows without virtio drivers, and for unknown types. The installed
// system may be newer.
func WindowsOf(guestID string) *Windows {
	name, ok := strings.CutSuffix(strings.ToLower(guestID), "guest")
	arch := "i386"
	// Old types end in 64, newer ones in _64.
	if base, is64 := strings.CutSuffix(strings.TrimSuffix(name, "_64"), "64"); is64 || strings.HasSuffix(name, "_64") {
		name, arch = strings.TrimSuffix(base, "_"), "x86_64"
	}
	w, known := guestIDs[name]
	if !ok || !known {
		return nil
	}
	w.Arch, w.OrNewer = arch, true
	return &w
}
