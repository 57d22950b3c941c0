package testboot

import (
	"regexp"
	"strings"
)

// Verdict is how far a guest booted. The values are stable.
type Verdict string

const (
	Booted     Verdict = "booted"         // a login prompt appears, its agent answers, or it sends on its network
	Initramfs  Verdict = "initramfs"      // the guest is in its initial RAM disk and does not find its root
	Emergency  Verdict = "emergency"      // the guest found its root, and systemd stopped the boot
	Panic      Verdict = "panic"          // the kernel gave up
	BootLoader Verdict = "boot-loader"    // GRUB or Windows' boot manager does not get on
	NoDevice   Verdict = "no-boot-device" // BIOS found nothing to boot
	UEFIShell  Verdict = "uefi-shell"     // UEFI found nothing to boot
	Unsigned   Verdict = "secure-boot"    // UEFI found a loader, and Secure Boot refused it
	BlueScreen Verdict = "blue-screen"    // Windows gave up
	RebootLoop Verdict = "reboot-loop"    // the guest restarts repeatedly
	Stopped    Verdict = "stopped"        // the guest powered itself off
	Unclear    Verdict = "unclear"        // the guest runs, without a sign in time: check its screen
)

// A sign is text that shows how far a guest has booted.
type sign struct {
	verdict Verdict        // verdict if the text occurs
	text    *regexp.Regexp // pattern of the text
	remedy  string         // remedy for the user; empty if the guest is up
}

const (
	// remedy for a guest without access to its disks
	driverRemedy = "it has no driver for its disk controller, or its disks have other names: boot it with its previous hardware (--hardware compat), or convert it (--hardware virtio)"
	// remedy for a boot loader without its files
	loaderRemedy = "its boot loader does not find its files: check that all of its disks were migrated, or repair it from rescue media: grub-install, update-grub"
	// remedy for a VM without a bootable disk
	deviceRemedy = "check that the boot disk was migrated, and that the firmware (BIOS or EFI) is that of the source VM"
	// remedy for a loader that Secure Boot rejects
	signRemedy = "its boot loader has no signature that this firmware trusts: install a signed one at the source (shim-signed), or start the VM without Secure Boot; keys that the guest enrolled are not migrated"
	// remedy for an EFI guest without a boot entry
	efiRemedy = `its EFI boot entry was not migrated, and it has no \EFI\BOOT\BOOTX64.EFI: run grub-install --removable at the source, or choose the loader in the firmware's menu`
)

// signs lists the signs in the order of the search. Each is the final text of a state,
// not a text on the way to another one.
var signs = []sign{
	{Booted, regexp.MustCompile(`(?m)^.{0,80}\blogin: ?$`), ""},
	{Booted, regexp.MustCompile(`(?m)^Reached target .{0,20}(Multi-User System|Graphical Interface)`), ""},
	{Panic, regexp.MustCompile(`Kernel panic - not syncing: .{0,120}`), driverRemedy},
	{Initramfs, regexp.MustCompile(`(?m)^.{0,20}ALERT! .{0,100} does not exist\.|^Warning: /dev/.{0,100} does not exist`), driverRemedy}, // names the disk
	{Initramfs, regexp.MustCompile(`(?m)^\(initramfs\) ?`), driverRemedy},
	{Initramfs, regexp.MustCompile(`(?m)^dracut:/# ?|Entering emergency mode\. Exit the shell to continue`), driverRemedy},
	{Initramfs, regexp.MustCompile(`Gave up waiting for root .{0,20}device`), driverRemedy},
	{Initramfs, regexp.MustCompile(`(?m)^\[rootfs .{0,3}\]# ?$|ERROR: device '.{0,80}' not found`), driverRemedy},
	{Emergency, regexp.MustCompile(`You are in (emergency|rescue) mode`), "a file system of its fstab is missing: see the log for the failed unit; names such as /dev/sdb1 may have changed"},
	{BootLoader, regexp.MustCompile(`(?m)^grub( rescue)?> ?`), loaderRemedy},
	{BootLoader, regexp.MustCompile(`BOOTMGR is (missing|compressed)|NTLDR is missing|(?i:missing operating system|operating system not found|error loading operating system|a disk read error occurred)`), loaderRemedy},
	{BootLoader, regexp.MustCompile(`(?i)your (pc|device) (needs to be|couldn't start)|Windows failed to start`), loaderRemedy},
	{NoDevice, regexp.MustCompile(`No bootable device\.?`), deviceRemedy},
	{Unsigned, regexp.MustCompile(`BdsDxe: failed to load [^\n]{0,300}: Access Denied(?s:.*)No bootable option or device was found`), signRemedy},
	{UEFIShell, regexp.MustCompile(`UEFI Interactive Shell|(?m)^Shell> ?$|BdsDxe: No bootable option or device was found`), efiRemedy},
}

// findSign returns the first sign in a text and its first line, or the zero sign.
func findSign(text string) (sign, string) {
	// The order of signs is significant: the first match counts.
	for _, s := range signs {
		if seen := strings.TrimSpace(s.text.FindString(text)); seen != "" {
			seen, _, _ = strings.Cut(seen, "\n")
			return s, seen
		}
	}
	return sign{}, ""
}

// escapes matches control sequences of terminals.
var escapes = regexp.MustCompile(`\x1b\[[0-9;?=]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>78cDM]|[\x00-\x08\x0b\x0c\x0e-\x1a\x7f]`)

// plainText returns a terminal's output without control sequences. Firmware and boot
// loaders position their lines with them, so each move of the cursor starts a line.
func plainText(text string) string {
	text = moves.ReplaceAllString(text, "\n")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	return escapes.ReplaceAllString(text, "")
}

// moves matches control sequences that move the cursor or clear the screen.
var moves = regexp.MustCompile(`\x1b\[[0-9;]*[HfJ]`)
