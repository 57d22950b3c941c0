package guest

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// A builder makes one image in its scratch folder.
type builder struct {
	ctx     context.Context
	dir     string
	kernel  kernel
	agent   agent  // guest agent; nil if it is not installed
	init    string // the init program's path
	variant variant
}

func (b builder) imagePath() string  { return filepath.Join(b.dir, "image") }
func (b builder) rootPath() string   { return filepath.Join(b.dir, "root") }
func (b builder) earlyGrub() string  { return filepath.Join(b.dir, "early.cfg") }
func (b builder) grubImage() string  { return filepath.Join(b.dir, "grub.img") }
func (b builder) espImage() string   { return filepath.Join(b.dir, "esp.img") }
func (b builder) rootOffset() int64  { return map[bool]int64{false: mib, true: 17 * mib}[b.variant.gpt] }
func (b builder) rootSizeKiB() int64 { return (Size - mib - b.rootOffset()) / 1024 }

// build goes from an empty file to a bootable disk.
func (b builder) build() error {
	steps := []func() error{b.writeRoot, b.writeInitramfs, b.writePartitions, b.makeRootFS, b.makeGRUB, b.installBIOS}
	if b.variant.gpt {
		steps[len(steps)-1] = b.installESP
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeRoot lays out the root file system's files.
func (b builder) writeRoot() error {
	text := map[string]string{
		"etc/os-release":     fmt.Sprintf("PRETTY_NAME=%q\nNAME=\"decamp tiny guest\"\nID=%s\nVERSION_ID=\"1\"\n", OSName, OSID),
		"etc/fstab":          b.variant.root + " / ext4 defaults 0 1\n",
		"etc/hostname":       "tiny\n",
		"var/lib/boots":      "0\n",
		"boot/grub/grub.cfg": b.grubConfig(),
	}
	if b.variant.agent {
		text["etc/network/interfaces"] = fmt.Sprintf("auto %s\niface %s inet static\n\taddress %s/24\n", AgentCard, AgentCard, AgentAddress)
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "sbin", "etc/network", "var/lib", "boot/grub"} {
		if err := os.MkdirAll(filepath.Join(b.rootPath(), dir), 0o755); err != nil {
			return err
		}
	}
	for name, content := range text {
		if err := os.WriteFile(filepath.Join(b.rootPath(), name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := os.Link(b.init, filepath.Join(b.rootPath(), "sbin/init")); err != nil {
		return err
	}
	if b.variant.kept {
		if err := b.writeModules(); err != nil {
			return err
		}
	}
	if b.variant.agent {
		if err := b.agent.installInto(b.rootPath()); err != nil {
			return err
		}
	}
	return copyFile(b.kernel.imagePath(), filepath.Join(b.rootPath(), "boot/vmlinuz-"+b.kernel.release))
}

// grubConfig boots at once. A panic reboots, which ends a QEMU run with -no-reboot. The timer
// is not checked: on a busy machine an emulated one ticks too late, and the kernel panics. Nor are the
// ciphers, which no guest uses: that takes an eighth of the kernel's start.
func (b builder) grubConfig() string {
	return "set timeout=0\nmenuentry tiny {\n" +
		"\tlinux /boot/vmlinuz-" + b.kernel.release + " root=" + b.variant.root + " console=ttyS0 loglevel=5 panic=1 no_timer_check cryptomgr.notests\n" +
		"\tinitrd /boot/initrd.img-" + b.kernel.release + "\n}\n"
}

func (b builder) writeInitramfs() error {
	modules, err := b.kernel.modulesWithNeeds(b.variant.modules...)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	c := &cpio{w: z}
	for _, dir := range []string{"proc", "sys", "dev", "root"} {
		c.addDir(dir)
	}
	c.addCharDevice("dev/console", 5, 1)
	if err := addFile(c, "init", b.init); err != nil {
		return err
	}
	if err := b.addModules(c, modules); err != nil {
		return err
	}
	if err := c.close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.rootPath(), "boot/initrd.img-"+b.kernel.release), out.Bytes(), 0o644)
}

// addModules adds the modules where depmod would look for them, its list of what needs what,
// and the names of those to be loaded.
func (b builder) addModules(c *cpio, modules []string) error {
	made := map[string]bool{".": true}
	for _, m := range modules {
		addDirs(c, path.Dir(m), made)
		if err := addFile(c, m, filepath.Join(b.kernel.dir, m)); err != nil {
			return err
		}
	}
	index, err := b.kernel.modulesDep(modules)
	if err != nil {
		return err
	}
	c.addFile(b.kernel.modulesDir()+"/modules.dep", []byte(index))
	c.addDir("conf")
	c.addFile("conf/initramfs.conf", []byte("MODULES=list\n"))
	c.addFile("conf/modules", []byte(strings.Join(b.variant.modules, "\n")+"\n"))
	return nil
}

// writeModules lays out the modules of the installed kernel: all that any guest uses, whether
// its initramfs has them or not.
func (b builder) writeModules() error {
	modules, err := b.kernel.modulesWithNeeds(append(vmwareModules(), virtioModules()...)...)
	if err != nil {
		return err
	}
	for _, m := range modules {
		to := filepath.Join(b.rootPath(), m)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(b.kernel.dir, m), to); err != nil {
			return err
		}
	}
	index, err := b.kernel.modulesDep(modules)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.rootPath(), b.kernel.modulesDir(), "modules.dep"), []byte(index), 0o644)
}

func addDirs(c *cpio, dir string, made map[string]bool) {
	if made[dir] {
		return
	}
	addDirs(c, path.Dir(dir), made)
	c.addDir(dir)
	made[dir] = true
}

func addFile(c *cpio, name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	c.addFile(name, data)
	return nil
}

func (b builder) writePartitions() error {
	if err := os.WriteFile(b.imagePath(), nil, 0o644); err != nil {
		return err
	}
	if err := os.Truncate(b.imagePath(), Size); err != nil {
		return err
	}
	script := "label: dos\nlabel-id: 0x7d1ac3de\nstart=2048, type=83, bootable\n"
	if b.variant.gpt {
		script = "label: gpt\nlabel-id: " + DiskID + "\nstart=2048, size=32768, type=uefi, name=esp\nstart=34816, type=linux, name=root\n"
	}
	return b.runTool(script, "sfdisk", "-q", b.imagePath())
}

func (b builder) makeRootFS() error {
	return b.runTool("", "mke2fs", "-q", "-t", "ext4", "-U", RootUUID, "-d", b.rootPath(),
		"-E", fmt.Sprintf("offset=%d,root_owner=0:0", b.rootOffset()),
		b.imagePath(), fmt.Sprintf("%dk", b.rootSizeKiB()))
}

// makeGRUB makes one GRUB file that finds the root file system by its UUID.
func (b builder) makeGRUB() error {
	early := "search.fs_uuid " + RootUUID + " root\nset prefix=($root)/boot/grub\n"
	if err := os.WriteFile(b.earlyGrub(), []byte(early), 0o644); err != nil {
		return err
	}
	args := []string{"-p", "/boot/grub", "-c", b.earlyGrub(), "-o", b.grubImage(), "-O", "i386-pc", "biosdisk", "part_msdos"}
	if b.variant.gpt {
		args = append(args[:6], "-O", "x86_64-efi", "part_gpt", "fat")
	}
	args = append(args, "ext2", "search_fs_uuid", "normal", "configfile", "linux", "search")
	return b.runTool("", "grub-mkimage", args...)
}

// installBIOS puts GRUB's boot sector and core image where their defaults expect each
// other, sectors 0 and 1, and leaves the partition table in sector 0 alone.
func (b builder) installBIOS() error {
	sector, err := os.ReadFile("/usr/lib/grub/i386-pc/boot.img")
	if err != nil {
		return err
	}
	core, err := os.ReadFile(b.grubImage())
	if err != nil {
		return err
	}
	const codeLen = 440
	if err := b.writeAt(sector[:codeLen], 0); err != nil {
		return err
	}
	return b.writeAt(core, 512)
}

// installESP makes the EFI system partition with GRUB as its fallback boot loader, or a vendor's.
func (b builder) installESP() error {
	const sizeKiB = "16384"
	folder, loader := "BOOT", "BOOTX64.EFI"
	if b.variant.folder != "" {
		folder, loader = b.variant.folder, "grubx64.efi"
	}
	if err := b.runTool("", "mkfs.fat", "--invariant", "-C", "-n", "ESP", b.espImage(), sizeKiB); err != nil {
		return err
	}
	if err := b.runTool("", "mmd", "-i", b.espImage(), "::EFI", "::EFI/"+folder); err != nil {
		return err
	}
	if err := b.runTool("", "mcopy", "-i", b.espImage(), b.grubImage(), "::EFI/"+folder+"/"+loader); err != nil {
		return err
	}
	esp, err := os.ReadFile(b.espImage())
	if err != nil {
		return err
	}
	return b.writeAt(bytes.TrimRight(esp, "\x00"), mib)
}

func (b builder) writeAt(p []byte, off int64) error {
	f, err := os.OpenFile(b.imagePath(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(p, off); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// runTool runs a tool with text as its standard input.
func (b builder) runTool(text, tool string, args ...string) error {
	file, err := lookTool(tool)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(b.ctx, file, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", tool, err, out)
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
