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

// A builder builds one image in a temporary folder.
type builder struct {
	ctx     context.Context // cancels the programs that it runs
	dir     string          // temporary folder
	kernel  kernel          // kernel of the guest
	agent   agent           // guest agent; nil if it is not installed
	init    string          // path of the init program
	variant variant         // guest to build
}

// imagePath returns the file of the image.
func (b builder) imagePath() string { return filepath.Join(b.dir, "image") }

// rootPath returns the folder with the files of the root file system.
func (b builder) rootPath() string { return filepath.Join(b.dir, "root") }

// earlyGrub returns the file with GRUB's embedded configuration.
func (b builder) earlyGrub() string { return filepath.Join(b.dir, "early.cfg") }

// grubImage returns the file of GRUB's core image.
func (b builder) grubImage() string { return filepath.Join(b.dir, "grub.img") }

// espImage returns the file of the EFI system partition.
func (b builder) espImage() string { return filepath.Join(b.dir, "esp.img") }

// rootOffset returns the offset of the root partition in bytes.
func (b builder) rootOffset() int64 { return map[bool]int64{false: mib, true: 17 * mib}[b.variant.gpt] }

// rootSizeKiB returns the size of the root file system in KiB. It leaves 1 MiB at the end of the disk.
func (b builder) rootSizeKiB() int64 { return (Size - mib - b.rootOffset()) / 1024 }

// build runs all steps from an empty file to a bootable disk.
func (b builder) build() error {
	steps := []func() error{b.writeRoot, b.writeInitramfs, b.writePartitions, b.makeRootFS, b.makeGRUB, b.installBIOS}
	if b.variant.gpt {
		steps[len(steps)-1] = b.installESP // replaces installBIOS
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// writeRoot writes the files of the root file system into its folder.
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

// grubConfig boots without a menu. A panic reboots, which ends QEMU with -no-reboot. no_timer_check: on
// a busy machine an emulated timer is late, and the kernel would panic. cryptomgr.notests: no guest
// uses ciphers, and their tests take an eighth of the kernel's start. mitigations=off: QEMU emulates
// each retpoline. no5lvl, nokaslr, init_on_alloc=0: QEMU emulates each step of a translation of
// addresses, the relocation of the kernel, and the initialization of memory. With a BIOS, linux16 loads
// the kernel in place. linux copies all its memory bytewise, a quarter of the processor time of an
// emulated boot.
func (b builder) grubConfig() string {
	linux, initrd := "linux16", "initrd16"
	if b.variant.gpt {
		linux, initrd = "linux", "initrd"
	}
	return "set timeout=0\nmenuentry tiny {\n" +
		"\t" + linux + " /boot/vmlinuz-" + b.kernel.release + " root=" + b.variant.root +
		" console=ttyS0 loglevel=5 panic=1 no_timer_check cryptomgr.notests mitigations=off no5lvl nokaslr init_on_alloc=0\n" +
		"\t" + initrd + " /boot/initrd.img-" + b.kernel.release + "\n}\n"
}

// writeInitramfs writes the compressed initramfs, with init and the modules of the variant.
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
	c.addCharDevice("dev/console", 5, 1) // the kernel opens it for init
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

// addModules adds the modules at the paths of depmod, modules.dep, modules.alias, and the names of the
// modules to load.
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
	aliases, err := b.kernel.modulesAlias(modules)
	if err != nil {
		return err
	}
	c.addFile(b.kernel.modulesDir()+"/modules.alias", []byte(aliases))
	c.addDir("conf")
	c.addFile("conf/initramfs.conf", []byte("MODULES=list\n"))
	c.addFile("conf/modules", []byte(strings.Join(b.variant.modules, "\n")+"\n"))
	return nil
}

// writeModules copies the modules of all guests to the root file system, in addition to those in the
// initramfs.
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

// addDirs adds a directory and its parents, unless made contains them.
func addDirs(c *cpio, dir string, made map[string]bool) {
	if made[dir] {
		return
	}
	addDirs(c, path.Dir(dir), made)
	c.addDir(dir)
	made[dir] = true
}

// addFile adds a file of this machine to the archive.
func addFile(c *cpio, name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	c.addFile(name, data)
	return nil
}

// writePartitions creates the image with an MBR or a GPT.
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

// makeRootFS creates the ext4 file system in the image and copies the files into it, without a mount.
func (b builder) makeRootFS() error {
	return b.runTool("", "mke2fs", "-q", "-t", "ext4", "-U", RootUUID, "-d", b.rootPath(),
		"-E", fmt.Sprintf("offset=%d,root_owner=0:0", b.rootOffset()),
		b.imagePath(), fmt.Sprintf("%dk", b.rootSizeKiB()))
}

// makeGRUB creates GRUB's core image, which finds the root file system by its UUID.
func (b builder) makeGRUB() error {
	early := "search.fs_uuid " + RootUUID + " root\nset prefix=($root)/boot/grub\n"
	if err := os.WriteFile(b.earlyGrub(), []byte(early), 0o644); err != nil {
		return err
	}
	args := []string{"-p", "/boot/grub", "-c", b.earlyGrub(), "-o", b.grubImage(), "-O", "i386-pc", "biosdisk", "part_msdos", "linux16"}
	if b.variant.gpt {
		args = append(args[:6], "-O", "x86_64-efi", "part_gpt", "fat", "linux")
	}
	args = append(args, "ext2", "search_fs_uuid", "normal", "configfile", "search")
	return b.runTool("", "grub-mkimage", args...)
}

// installBIOS writes GRUB's boot sector and core image to sectors 0 and 1, where their defaults expect
// each other. It does not change the partition table in sector 0.
func (b builder) installBIOS() error {
	sector, err := os.ReadFile("/usr/lib/grub/i386-pc/boot.img")
	if err != nil {
		return err
	}
	core, err := os.ReadFile(b.grubImage())
	if err != nil {
		return err
	}
	const codeLen = 440 // boot code ends before the disk signature
	if err := b.writeAt(sector[:codeLen], 0); err != nil {
		return err
	}
	return b.writeAt(core, 512) // sector 1
}

// installESP writes the EFI system partition, with GRUB as fallback boot loader or as a vendor's.
func (b builder) installESP() error {
	const sizeKiB = "16384" // 16 MiB
	folder, loader := "BOOT", "BOOTX64.EFI"
	if b.variant.folder != "" {
		folder, loader = b.variant.folder, "grubx64.efi" // needs a boot entry
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
	return b.writeAt(bytes.TrimRight(esp, "\x00"), mib) // holes stay holes
}

// writeAt writes p to the image.
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

// runTool runs a program with text as standard input. Its error contains the output.
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

// copyFile copies the content of a file.
func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
