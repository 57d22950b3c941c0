package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// runOnRoot prints the marker with the hardware of the VM, and then runs the guest agent.
func runOnRoot() error {
	n, err := countBoot("/var/lib/boots")
	if err != nil {
		return err
	}
	root := os.Getenv("ROOT_DEVICE")
	fmt.Printf("\nDECAMP-MARKER boot=ok n=%d root=%s disk=%s net=%s uuid=%s fw=%s up=%s\n",
		n, root, rootDisk(root), networkCards(), productUUID(), firmwareKind(), readUptime())
	return serveAgent()
}

// countBoot increments the number in a file and returns it. A number that survives a reboot shows that
// the guest can write to its disk.
func countBoot(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, err
	}
	return n + 1, os.WriteFile(path, fmt.Appendln(nil, n+1), 0o644)
}

// rootDisk returns the disk of the root partition and its driver: "sda,vmw_pvscsi"; "?" if it cannot be
// determined.
func rootDisk(root string) string {
	part, err := filepath.EvalSymlinks("/sys/class/block/" + filepath.Base(root))
	if err != nil {
		return "?"
	}
	whole := filepath.Dir(part) // /sys/.../sda for sda1
	return filepath.Base(whole) + "," + driverOf(whole+"/device")
}

// networkCards returns the network cards as NAME=MAC/DRIVER, separated by commas; "none" if there are
// none.
func networkCards() string {
	var cards []string
	links, _ := filepath.Glob("/sys/class/net/*")
	for _, link := range links {
		if d := driverOf(link + "/device"); d != "?" {
			cards = append(cards, filepath.Base(link)+"="+readLine(link+"/address")+"/"+d)
		}
	}
	if cards == nil { // no card with a driver
		return "none"
	}
	return strings.Join(cards, ",")
}

// driverOf returns the driver of the controller of a device: the first one above the device that is not
// the SCSI disk driver.
func driverOf(device string) string {
	dir, err := filepath.EvalSymlinks(device)
	if err != nil {
		return "?"
	}
	for ; len(dir) > len("/sys"); dir = filepath.Dir(dir) {
		link, err := os.Readlink(dir + "/driver")
		if name := filepath.Base(link); err == nil && name != "sd" {
			return name
		}
	}
	return "?"
}

// productUUID returns the SMBIOS system UUID.
func productUUID() string { return readLine("/sys/class/dmi/id/product_uuid") }

// firmwareKind returns "efi" or "bios".
func firmwareKind() string {
	if _, err := os.Stat("/sys/firmware/efi"); err == nil {
		return "efi"
	}
	return "bios"
}

// readUptime returns the seconds since the kernel started.
func readUptime() string {
	seconds, _, _ := strings.Cut(readLine("/proc/uptime"), " ")
	return seconds
}

// readLine returns the text of a file without surrounding blanks; "?" if it cannot be read.
func readLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}
