package testboot

import (
	"strings"
	"testing"
	"time"
)

// These are outputs of guests on the serial port or on the screen.
func TestSigns(t *testing.T) {
	for text, want := range map[string]Verdict{
		"Debian GNU/Linux 12 db01 ttyS0\r\n\r\ndb01 login: ":                                  Booted,
		"Rocky Linux 9.4 (Blue Onyx)\nKernel 5.14.0 on an x86_64\n\nlocalhost login: \n\n\n":  Booted,
		"[  OK  ] Reached target \x1b[0;1;39mmulti-user.target\x1b[0m - Multi-User System.\n": Unclear,
		"Begin: Waiting for root file system ... done.\r\nGave up waiting for root file system device.  Common problems:\r\nALERT!  UUID=8d1a40a3 does not exist.  Dropping to a shell!\r\n\r\n(initramfs) ": Initramfs,
		"Warning: /dev/mapper/rl-root does not exist\n\nGenerating \"/run/initramfs/rdsosreport.txt\"\n\nEntering emergency mode. Exit the shell to continue.\ndracut:/# ":                                   Initramfs,
		"ERROR: device 'UUID=1234' not found. Skipping fsck.\n[rootfs ]# ":                                                                                 Initramfs,
		"You are in emergency mode. After logging in, type \"journalctl -xb\"":                                                                             Emergency,
		"[    1.23] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)":                                                        Panic,
		"error: no such device: 8d1a40a3.\r\nEntering rescue mode...\r\n\x1b[2Jgrub rescue> ":                                                              BootLoader,
		"BOOTMGR is missing\nPress Ctrl+Alt+Del to restart":                                                                                                BootLoader,
		"Booting from Hard Disk...\nMissing operating system":                                                                                              BootLoader,
		"Booting from Hard Disk...\nBoot failed: not a bootable disk\n\nNo bootable device.":                                                               NoDevice,
		"BdsDxe: failed to load Boot0001\r\nUEFI Interactive Shell v2.2\r\n\x1b[1;40HShell> ":                                                              UEFIShell,
		"BdsDxe: failed to load Boot0001 \"UEFI QEMU HARDDISK \" from Scsi(0x0,0x0): Access Denied\r\nBdsDxe: No bootable option or device was found.\r\n": Unsigned,
		"BdsDxe: failed to load Boot0001 \"UEFI QEMU HARDDISK \" from Scsi(0x0,0x0): Not Found\r\nBdsDxe: No bootable option or device was found.\r\n":     UEFIShell,
		"BdsDxe: failed to load Boot0001 \"UEFI QEMU HARDDISK \" from Scsi(0x0,0x0): Access Denied\r\nBdsDxe: starting Boot0002\r\n":                       Unclear,
		"Boot failed: not a bootable disk\nBooting from Hard Disk 2...\nGRUB loading.\nWelcome to GRUB!":                                                   Unclear,
		"last login: yesterday, and the wiki says (initramfs) in the middle":                                                                               Unclear,
		"": Unclear,
	} {
		s, seen := findSign(plainText(text))
		if s.verdict == "" {
			s.verdict = Unclear
		}
		if s.verdict != want {
			t.Errorf("%q: got %s from %q, want %s", text, s.verdict, seen, want)
		}
		if s.verdict != Booted && s.verdict != Unclear && s.remedy == "" {
			t.Errorf("%s has no remedy", s.verdict)
		}
	}
}

// If the guest does not find its root, the reason names the missing device.
func TestInitramfsNamesTheDisk(t *testing.T) {
	for text, want := range map[string]string{
		"Gave up waiting for root file system device.\nALERT!  /dev/sda1 does not exist.  Dropping to a shell!\n(initramfs) ":    "ALERT!  /dev/sda1 does not exist.",
		"Warning: /dev/sda2 does not exist\n\nEntering emergency mode. Exit the shell to continue.\nPress Enter for maintenance": "Warning: /dev/sda2 does not exist",
	} {
		if s, seen := findSign(plainText(text)); s.verdict != Initramfs || seen != want {
			t.Errorf("%q: got %s from %q, want %q", text, s.verdict, seen, want)
		}
	}
}

// A login prompt overrides earlier signs of failure.
func TestLoginOverridesFailures(t *testing.T) {
	text := plainText("Gave up waiting for root file system device.\nmounted after all\n\nhost login: ")
	if s, _ := findSign(text); s.verdict != Booted {
		t.Errorf("got %s, want %s", s.verdict, Booted)
	}
}

// A guest that sends packets counts as booted after its console is idle for some time. Each new text restarts that
// time. For a failure, only the verdict has to stay the same.
func TestNetworkVerdictRequiresIdleConsole(t *testing.T) {
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	after := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	w := &observer{}
	sends := Report{Verdict: Booted, Reason: "it sends packets on its network"}
	w.noteChange(sends, "Job boot.mount start running (9s)", after(0))
	w.noteChange(sends, "Job boot.mount start running (18s)", after(9))
	if w.noteChange(sends, "Job boot.mount start running (18s)", after(20)); !w.since.Equal(after(9)) {
		t.Errorf("packets: time starts at %v, want %v", w.since, after(9))
	}
	failed := Report{Verdict: Emergency, Reason: "You are in emergency mode"}
	w.noteChange(failed, "You are in emergency mode", after(30))
	if w.noteChange(failed, "You are in emergency mode. After", after(39)); !w.since.Equal(after(30)) {
		t.Errorf("failure: time starts at %v, want %v", w.since, after(30))
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("\x1b[2J\x1b[1;1Hgrub> \x1b[0m\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		p := plainText(text)
		if strings.ContainsAny(p, "\r\x00") {
			t.Errorf("plainText(%q) = %q, which has control characters", text, p)
		}
		findSign(p)
	})
}
