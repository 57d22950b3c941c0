package guest

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/guest/hive"
	"github.com/decamp/decamp/internal/guest/tree"
)

const (
	softwareHive = "Windows/System32/config/SOFTWARE" // hive with version and edition
	systemHive   = "Windows/System32/config/SYSTEM"   // hive with services, devices and network

	startBoot     = "boot"     // start type of drivers that the boot loader loads
	startDisabled = "disabled" // start type of services that never start
)

// A winSystem reads the registry of one Windows system.
type winSystem struct {
	d       *detector // detector that receives warnings
	files   tree.FS   // files of the system volume
	control *hive.Key // control set that Windows starts with; nil if it is not readable
	out     *Windows  // description to fill in
	os      OS        // OS for the report
	warned  bool      // a warning about an unreadable part was added; there is at most one
}

// readRegistry sets out and os from the registry. Missing values stay empty; unreadable ones cause a
// warning.
func (s *winSystem) readRegistry() {
	s.out.Product, s.os = "Windows", OS{ID: WindowsID}
	if h := s.openHive(softwareHive); h != nil {
		s.readVersion(h)
	}
	if h := s.openHive(systemHive); h != nil {
		s.readSystemHive(h)
	}
	s.out.driversUnknown = s.control == nil
	s.os.Name = s.out.Product
}

// openHive opens a hive. It returns nil if that fails, and warns unless the file is missing. If the
// hive is not up to date, openHive only warns.
func (s *winSystem) openHive(path string) *hive.Hive {
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
		s.d.warn("registry-dirty", "registry file %s is incomplete: its last changes are in a log that decamp does not read", path)
	}
	return h
}

// warn adds a warning for the first unreadable part of the registry. Missing keys and values are
// normal and ignored.
func (s *winSystem) warn(err error) {
	if err != nil && !isMissing(err) && !s.warned {
		s.warned = true
		s.d.warn("registry", "the registry of Windows cannot be read: %v", err)
	}
}

// readText returns the text of a value; empty if it does not exist.
func (s *winSystem) readText(k *hive.Key, name string) string {
	v, err := k.Value(name)
	s.warn(err)
	return v.Text()
}

// readNumber returns the number of a value, or otherwise if it does not exist.
func (s *winSystem) readNumber(k *hive.Key, name string, otherwise uint64) uint64 {
	v, err := k.Value(name)
	s.warn(err)
	if n, ok := v.Number(); ok {
		return n
	}
	return otherwise
}

// readVersion reads the version of Windows. Before Windows 10 the registry has no separate major
// number.
func (s *winSystem) readVersion(h *hive.Hive) {
	k, err := h.Key(`Microsoft\Windows NT\CurrentVersion`)
	if err != nil {
		s.warn(err)
		return
	}
	build := s.readText(k, "CurrentBuild")
	if build == "" {
		build = s.readText(k, "CurrentBuildNumber")
	}
	s.out.Build, _ = strconv.Atoi(build)
	s.out.Edition = s.readText(k, "EditionID")
	if product := s.readText(k, "ProductName"); product != "" {
		s.out.Product = displayName(product, s.out.Build)
	}
	release := s.readText(k, "CurrentVersion")
	if major := s.readNumber(k, "CurrentMajorVersionNumber", 0); major != 0 {
		release = fmt.Sprintf("%d.%d", major, s.readNumber(k, "CurrentMinorVersionNumber", 0))
	}
	s.os.Version = strings.Trim(release+"."+build, ".")
}

// readSystemHive reads the control set that the key Select refers to.
func (s *winSystem) readSystemHive(h *hive.Hive) {
	choice, err := h.Key("Select")
	if err != nil {
		s.warn(err)
		return
	}
	// CurrentControlSet is a link that exists only while Windows runs.
	set := fmt.Sprintf("ControlSet%03d", s.readNumber(choice, "Current", 1))
	if s.control, err = h.Key(set); err != nil {
		s.warn(err)
		return
	}
	s.readIdentity()
	for _, name := range serviceNames() {
		s.addDriver(name)
	}
	s.out.VMwareTools = s.enabledService("VMTools") != nil
	s.out.GuestAgent = s.enabledService("QEMU-GA") != nil
	s.readPower()
	s.readAddresses()
}

// controlKey returns a key of the control set; nil if it does not exist.
func (s *winSystem) controlKey(path string) *hive.Key {
	k, err := s.control.Key(path)
	if err != nil {
		s.warn(err)
		return nil
	}
	return k
}

// readIdentity reads architecture and computer name.
func (s *winSystem) readIdentity() {
	if k := s.controlKey(`Control\Session Manager\Environment`); k != nil {
		switch arch := s.readText(k, "PROCESSOR_ARCHITECTURE"); arch {
		case "AMD64":
			s.out.Arch = "x86_64"
		case "x86":
			s.out.Arch = "i386"
		case "ARM64":
			s.out.Arch = "aarch64"
		}
	}
	if k := s.controlKey(`Control\ComputerName\ComputerName`); k != nil {
		s.out.Computer = s.readText(k, "ComputerName")
	}
}

// enabledService returns the key of a service; nil if it is disabled or does not exist.
func (s *winSystem) enabledService(name string) *hive.Key {
	k := s.controlKey(`Services\` + name)
	if k == nil || s.startType(k) == startDisabled {
		return nil
	}
	return k
}

// startType returns the start type of a service. Windows 8 and later override it for controllers
// that they did not find at the last start.
func (s *winSystem) startType(k *hive.Key) string {
	n := s.readNumber(k, "Start", 3)
	if override, err := k.Key("StartOverride"); err == nil {
		n = s.readNumber(override, "0", n)
	}
	// The index is the value of Start: 0 boot, 1 system, 2 auto, 3 demand, 4 disabled.
	names := []string{startBoot, "system", "auto", "demand", startDisabled}
	return names[min(n, uint64(len(names)-1))]
}

// addDriver adds the driver of a service, if the service exists.
func (s *winSystem) addDriver(name string) {
	k := s.controlKey(`Services\` + name)
	if k == nil {
		return
	}
	s.out.Drivers = append(s.out.Drivers, Driver{Name: name, Start: s.startType(k), File: fileExists(s.files, driverFile(name, s.readText(k, "ImagePath")))})
}

// driverFile returns the path of a driver on its volume. An image path is relative to the Windows
// folder or absolute in one of several notations; all have system32 in common. Without an image
// path it is the default.
func driverFile(name, image string) string {
	const folder = `system32\`
	at := strings.LastIndex(strings.ToLower(image), folder)
	if at < 0 {
		return "Windows/System32/drivers/" + name + ".sys"
	}
	return "Windows/System32/" + strings.ReplaceAll(image[at+len(folder):], `\`, "/")
}

// readPower determines whether a shutdown hibernates (fast startup). Without hiberfil.sys it does not,
// regardless of the registry.
func (s *winSystem) readPower() {
	k := s.controlKey(`Control\Session Manager\Power`)
	s.out.FastStartup = k != nil && s.readNumber(k, "HiberbootEnabled", 0) == 1 && fileExists(s.files, "hiberfil.sys")
}
