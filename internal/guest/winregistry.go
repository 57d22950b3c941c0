package guest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/guest/hive"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	softwareHive = "Windows/System32/config/SOFTWARE"
	systemHive   = "Windows/System32/config/SYSTEM"

	startBoot     = "boot"
	startDisabled = "disabled"
)

// A winSystem reads one Windows system.
type winSystem struct {
	d       *detector
	files   tree.FS
	control *hive.Key // the control set that Windows starts with
	out     *Windows
	os      OS
	warned  bool // a warning about an unreadable part was added
}

// read fills out and os from the registry. Missing values stay empty; unreadable ones become a warning.
func (s *winSystem) read() {
	s.out.Product, s.os = "Windows", OS{ID: WindowsID}
	if h := s.open(softwareHive); h != nil {
		s.version(h)
	}
	if h := s.open(systemHive); h != nil {
		s.system(h)
	}
	s.out.unread = s.control == nil
	s.os.Name = s.out.Product
}

// open opens a hive, or warns.
func (s *winSystem) open(path string) *hive.Hive {
	f, err := s.files.Open(path)
	if err != nil {
		s.warn(err)
		return nil
	}
	h, err := hive.Open(s.d.machine.budget, f)
	if err != nil {
		s.warn(fmt.Errorf("%s: %w", path, err))
		return nil
	}
	if h.Dirty() {
		s.d.warn("registry-dirty", "%s was not written in full: its last changes are in a log that is not looked into", path)
	}
	return h
}

// warn reports the first of what could not be read of the registry. That something is
// not in there is no news.
func (s *winSystem) warn(err error) {
	if err != nil && !missing(err) && !s.warned {
		s.warned = true
		s.d.warn("registry", "the registry of Windows cannot be read: %v", err)
	}
}

// text returns the text of a value, empty if it does not exist.
func (s *winSystem) text(k *hive.Key, name string) string {
	v, err := k.Value(name)
	s.warn(err)
	return v.Text()
}

// number returns the number of a value, or otherwise.
func (s *winSystem) number(k *hive.Key, name string, otherwise uint64) uint64 {
	v, err := k.Value(name)
	s.warn(err)
	if n, ok := v.Number(); ok {
		return n
	}
	return otherwise
}

// version reads the version of Windows. Before Windows 10 the registry has no separate major number.
func (s *winSystem) version(h *hive.Hive) {
	k, err := h.Key(`Microsoft\Windows NT\CurrentVersion`)
	if err != nil {
		s.warn(err)
		return
	}
	build := s.text(k, "CurrentBuild")
	if build == "" {
		build = s.text(k, "CurrentBuildNumber")
	}
	s.out.Build, _ = strconv.Atoi(build)
	s.out.Edition = s.text(k, "EditionID")
	if product := s.text(k, "ProductName"); product != "" {
		s.out.Product = displayName(product, s.out.Build)
	}
	release := s.text(k, "CurrentVersion")
	if major := s.number(k, "CurrentMajorVersionNumber", 0); major != 0 {
		release = fmt.Sprintf("%d.%d", major, s.number(k, "CurrentMinorVersionNumber", 0))
	}
	s.os.Version = strings.Trim(release+"."+build, ".")
}

// system reads the control set that Select names.
func (s *winSystem) system(h *hive.Hive) {
	choice, err := h.Key("Select")
	if err != nil {
		s.warn(err)
		return
	}
	set := fmt.Sprintf("ControlSet%03d", s.number(choice, "Current", 1))
	if s.control, err = h.Key(set); err != nil {
		s.warn(err)
		return
	}
	s.identity()
	for _, name := range services() {
		s.driver(name)
	}
	s.out.VMwareTools = s.service("VMTools") != nil
	s.out.GuestAgent = s.service("QEMU-GA") != nil
	s.power()
	s.addresses()
}

// key returns a key of the control set, nil if it does not exist.
func (s *winSystem) key(path string) *hive.Key {
	k, err := s.control.Key(path)
	if err != nil {
		s.warn(err)
		return nil
	}
	return k
}

func (s *winSystem) identity() {
	if k := s.key(`Control\Session Manager\Environment`); k != nil {
		switch arch := s.text(k, "PROCESSOR_ARCHITECTURE"); arch {
		case "AMD64":
			s.out.Arch = "x86_64"
		case "x86":
			s.out.Arch = "i386"
		case "ARM64":
			s.out.Arch = "aarch64"
		}
	}
	if k := s.key(`Control\ComputerName\ComputerName`); k != nil {
		s.out.Computer = s.text(k, "ComputerName")
	}
}

// service returns the key of a service that is not disabled.
func (s *winSystem) service(name string) *hive.Key {
	k := s.key(`Services\` + name)
	if k == nil || s.start(k) == startDisabled {
		return nil
	}
	return k
}

// start returns the start type of a service. Windows 8 and later override it for controllers that they
// did not find at the last start.
func (s *winSystem) start(k *hive.Key) string {
	n := s.number(k, "Start", 3)
	if override, err := k.Key("StartOverride"); err == nil {
		n = s.number(override, "0", n)
	}
	names := []string{startBoot, "system", "auto", "demand", startDisabled}
	return names[min(n, uint64(len(names)-1))]
}

// driver records the driver of a service, if it exists.
func (s *winSystem) driver(name string) {
	k := s.key(`Services\` + name)
	if k == nil {
		return
	}
	s.out.Drivers = append(s.out.Drivers, Driver{Name: name, Start: s.start(k), File: exists(s.files, driverFile(name, s.text(k, "ImagePath")))})
}

// driverFile is the path of a driver on its volume. Image paths are relative to Windows'
// folder, or spell it in ways that all end alike.
func driverFile(name, image string) string {
	const folder = `system32\`
	at := strings.LastIndex(strings.ToLower(image), folder)
	if at < 0 {
		return "Windows/System32/drivers/" + name + ".sys"
	}
	return "Windows/System32/" + strings.ReplaceAll(image[at+len(folder):], `\`, "/")
}

// power reads whether a shutdown is a hibernation (fast startup). Without a hiberfil.sys it is not,
// regardless of the registry.
func (s *winSystem) power() {
	k := s.key(`Control\Session Manager\Power`)
	s.out.FastStartup = k != nil && s.number(k, "HiberbootEnabled", 0) == 1 && exists(s.files, "hiberfil.sys")
}
