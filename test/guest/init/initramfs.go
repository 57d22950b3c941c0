package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// rootWait limits how long the root disk may take to appear. With its driver in the initramfs it takes
// less than two seconds on an idle machine.
const rootWait = 20 * time.Second

// runInitramfs loads drivers and runs the init of the root file system. It returns only on error.
func runInitramfs() error {
	root, err := bootArg("root")
	if err != nil {
		return err
	}
	if err := loadModules(root); err != nil {
		return err
	}
	dev, err := waitFor(root)
	if err != nil {
		return err
	}
	return switchRoot(dev)
}

// waitFor returns the block device for the value of root=: "/dev/sda1" or "UUID=…". Its message for a
// missing device is that of initramfs-tools.
func waitFor(root string) (string, error) {
	for end := time.Now().Add(rootWait); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		if dev := findRoot(root); dev != "" {
			return dev, nil
		}
	}
	fmt.Printf("ALERT!  %s does not exist.  Dropping to a shell!\n", root) // message of initramfs-tools
	return "", fmt.Errorf("no root device %s", root)
}

// findRoot returns the device of root; empty while it does not exist.
func findRoot(root string) string {
	uuid, byUUID := strings.CutPrefix(root, "UUID=")
	if !byUUID {
		return scsiDisk(root)
	}
	blocks, _ := filepath.Glob("/sys/class/block/*")
	for _, b := range blocks {
		dev := "/dev/" + filepath.Base(b)
		if got, err := ext4UUID(dev); err == nil && got == uuid {
			return dev
		}
	}
	return ""
}

// scsiDisk returns the partition for a name such as "/dev/sda1": sda is the first disk by its address.
// The kernel assigns names in the order in which probes end, so that with two concurrent probes either
// disk can be sda.
func scsiDisk(root string) string {
	name, ok := strings.CutPrefix(root, "/dev/sd")
	if !ok || name == "" {
		return ""
	}
	disks, _ := filepath.Glob("/sys/class/scsi_disk/*/device/block/*")
	slices.SortFunc(disks, func(a, b string) int { return slices.Compare(scsiAddress(a), scsiAddress(b)) })
	n := int(name[0] - 'a') // sda is 0
	if n >= len(disks) {
		return ""
	}
	dev := "/dev/" + filepath.Base(disks[n]) + name[1:]
	if _, err := os.Stat(dev); err != nil {
		return ""
	}
	return dev
}

// scsiAddress returns host, channel, target and unit in a path /sys/class/scsi_disk/H:C:T:U/….
func scsiAddress(disk string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.Split(disk, "/")[4], ":") {
		n, _ := strconv.Atoi(part) // the kernel writes numbers
		out = append(out, n)
	}
	return out
}

// ext4UUID returns the UUID of the ext file system on dev. Other content is an error.
func ext4UUID(dev string) (string, error) {
	f, err := os.Open(dev)
	if err != nil {
		return "", err
	}
	defer f.Close()
	super := make([]byte, 0x78)                      // up to the end of s_uuid
	if _, err := f.ReadAt(super, 1024); err != nil { // the superblock follows the boot block
		return "", err
	}
	if super[0x38] != 0x53 || super[0x39] != 0xef { // s_magic: 0xEF53, little-endian
		return "", errors.New("no ext file system")
	}
	u := hex.EncodeToString(super[0x68:0x78]) // s_uuid
	return u[:8] + "-" + u[8:12] + "-" + u[12:16] + "-" + u[16:20] + "-" + u[20:], nil
}

// switchRoot mounts dev, makes it the root directory and executes its init. It returns only on error.
func switchRoot(dev string) error {
	if err := syscall.Mount(dev, "/root", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", dev, err)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := syscall.Mount(dir, "/root"+dir, "", syscall.MS_MOVE, ""); err != nil {
			return fmt.Errorf("move %s: %w", dir, err)
		}
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	if err := syscall.Mount(".", "/", "", syscall.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	return syscall.Exec("/sbin/init", []string{"/sbin/init"}, []string{"ROOT_DEVICE=" + dev})
}
