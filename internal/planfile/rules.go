package planfile

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// checkRules returns findings on values that are valid separately, but contradict others.
func (f *File) checkRules() Findings {
	r := &ruleChecker{file: f}
	r.checkSource()
	r.checkVMs()
	r.checkOptions("defaults", &f.Defaults)
	for i := range f.VMs {
		r.checkOptions(fmt.Sprintf("vms[%d]", i), &f.VMs[i].Options)
	}
	r.checkHook("hooks.pre", &f.Hooks.Pre)
	r.checkHook("hooks.post", &f.Hooks.Post)
	r.checkBandwidth()
	r.checkMapping("maps", &f.Maps.Mapping)
	return r.found
}

// ruleChecker collects findings on the rules of a file.
type ruleChecker struct {
	file  *File    // the checked file; only its positions are set for an access file or a map
	found Findings // findings so far
}

// addError adds a finding at a key, or at the nearest enclosing key if the file does not have it.
func (r *ruleChecker) addError(path, remedy, format string, args ...any) {
	err := fault.New(fault.Invalid, path+": "+format, args...).WithHint("%s", remedy)
	r.found = append(r.found, ErrorFinding("file", r.file.At(path), "", err))
}

// At returns the position of a key, or of the nearest enclosing key; the zero Pos if the file has
// neither. path is such as vms[3].warm.interval.
func (f *File) At(path string) Pos {
	for path != "" {
		if pos, ok := f.positions[path]; ok {
			return pos
		}
		path = path[:max(lastByte(path, '.'), lastByte(path, '['), 0)]
	}
	return Pos{}
}

// lastByte returns the index of the last c in s; otherwise -1.
func lastByte(s string, c byte) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == c {
			return i
		}
	}
	return -1
}

// checkSource checks keys of source that depend on others.
func (r *ruleChecker) checkSource() {
	s := &r.file.Source
	if s.Direct && !s.URL.VCenter() {
		r.addError("source.direct", "remove it", "only a vCenter has this option")
	}
	r.checkCredentials("source.credentials", s.Credentials)
	r.checkCredentials("source.ssh.credentials", s.SSH.Credentials)
}

// checkCredentials refuses credentials with both a file and a name.
func (r *ruleChecker) checkCredentials(path string, c Credentials) {
	if c.File != "" && c.Name != "" {
		r.addError(path, "keep one of the two", "file and name exclude each other")
	}
}

// checkVMs requires at least one VM, no VM twice, and a destination for each.
func (r *ruleChecker) checkVMs() {
	f := r.file
	if f.Select.IsZero() && len(f.VMs) == 0 {
		r.addError("vms", "name VMs in vms, or select them with select", "the plan migrates no VM")
	}
	everywhere := len(f.Defaults.To) > 0 || len(f.Maps.Datastores) > 0
	if !f.Select.IsZero() && !everywhere {
		r.addError("select", "set it in defaults: {to: [dir:/FOLDER]}", "the destination of the VMs is missing")
	}
	first := map[Text]int{}
	for i, vm := range f.VMs {
		path := fmt.Sprintf("vms[%d]", i)
		if len(vm.To) == 0 && !everywhere {
			r.addError(path, "set it here, or in defaults: {to: [dir:/FOLDER]}", "the destination of the VM is missing")
		}
		if line, twice := first[vm.VM]; twice {
			r.addError(path+".vm", "keep one of the two", "%s occurs twice, first in line %d", vm.VM, line)
			continue
		}
		first[vm.VM] = vm.Pos.Line
	}
}

// checkOptions checks the options of defaults or of one VM. Most checks apply only to keys that are in
// the text, so that a mistake in defaults is not repeated for each VM.
func (r *ruleChecker) checkOptions(path string, o *Options) {
	r.checkDestinations(path+".to", o)
	r.checkNFC(path+".nfc", &o.NFC)
	r.checkWarm(path, o)
	r.checkTrial(path, o)
	r.checkStart(path, o)
	r.checkGuestAgent(path, o)
	r.checkWindow(path+".warm.window", &o.Warm.Window)
	r.checkHook(path+".hooks.pre", &o.Hooks.Pre)
	r.checkHook(path+".hooks.post", &o.Hooks.Post)
}

// checkTrial refuses trial boots in warm mode: the VM would be off while its copy boots. In defaults,
// expect may be set for VMs that set trial.
func (r *ruleChecker) checkTrial(path string, o *Options) {
	if o.Trial && o.Mode == WarmMode {
		r.addError(path+".trial", "set mode: cold, or boot it before the cutover with decamp rehearse PLAN/VM", "trial and mode warm exclude each other: the VM would be off for as long as its copy boots")
	}
	if r.hasKey(path+".expect") && !o.Trial && path != "defaults" { // there it is for those that are tried
		r.addError(path+".expect", "set trial: true, or remove expect", "expect applies to a trial boot, and trial is not set")
	}
}

// checkStart permits start only with a single destination that runs VMs.
func (r *ruleChecker) checkStart(path string, o *Options) {
	to := o.To
	if len(to) == 0 {
		to = r.file.Defaults.To
	}
	isFolder := func(d Destination) bool { return d.Kind() == Dir }
	switch {
	case !o.Start || path == "defaults" && len(to) == 0:
	case len(to) > 1:
		r.addError(path+".start", "set one destination, or start the VM manually", "start requires one destination, not %d: several copies would run with the same addresses", len(to))
	case slices.ContainsFunc(to, isFolder):
		r.addError(path+".start", "remove it, or use a destination of libvirt, proxmox, openstack or kubevirt", "a folder cannot start VMs")
	}
}

// checkGuestAgent refuses guestAgent with hardware compat, which leaves the guest unchanged. In
// defaults it may be set for VMs with other hardware.
func (r *ruleChecker) checkGuestAgent(path string, o *Options) {
	if o.GuestAgent && r.hasKey(path+".guestAgent") && o.Hardware == "compat" && path != "defaults" { // there it is for those that are changed
		r.addError(path+".guestAgent", "set hardware: virtio or auto, or remove guestAgent", "guestAgent changes the guest, and hardware compat does not permit that")
	}
}

// hasKey reports whether the text of the file has a key. Default values do not count.
func (r *ruleChecker) hasKey(path string) bool {
	_, ok := r.file.positions[path]
	return ok
}

// checkDestinations refuses two destinations with the same folder.
func (r *ruleChecker) checkDestinations(path string, o *Options) {
	for i, to := range o.To {
		sameFolder := func(other Destination) bool { return other.Folder() == to.Folder() }
		if slices.ContainsFunc(o.To[:i], sameFolder) {
			r.addError(fmt.Sprintf("%s[%d]", path, i), "keep one of the two", "%s occurs twice", to)
		}
	}
}

// Bounds of NFC buffers, as decamp migrate has them: hosts refuse more.
const (
	bufferUnit      = 64 << 10 // size of an NFC buffer unit in bytes
	maxBuffer       = 2 << 20  // largest buffer in bytes
	maxBuffersBytes = 16 << 20 // all buffers of a session in bytes
	defaultBuffer   = 1 << 20  // buffer size in bytes if the plan sets only their number
)

// checkNFC checks the size and number of NFC buffers.
func (r *ruleChecker) checkNFC(path string, n *NFC) {
	if !r.hasKey(path) {
		return
	}
	size := n.Buffer
	switch {
	case size != 0 && (size < bufferUnit || size > maxBuffer || size%bufferUnit != 0):
		r.addError(path+".buffer", "", "want a multiple of 64K up to 2M")
		return
	case size == 0:
		size = defaultBuffer
	}
	if int64(size)*int64(n.Buffers) > maxBuffersBytes {
		r.addError(path+".buffers", "use fewer or smaller buffers", "the buffers of a session may have at most 16M together")
	}
}

// checkWarm permits a single destination in warm mode, and requires cutover and window to match.
func (r *ruleChecker) checkWarm(path string, o *Options) {
	to := o.To
	if len(to) == 0 {
		to = r.file.Defaults.To
	}
	if o.Mode == WarmMode && len(to) > 1 {
		r.addError(path+".to", "set one destination, or mode: cold", "a warm migration has one destination, not %d", len(to))
	}
	if !r.hasKey(path + ".warm") {
		return
	}
	if o.Warm.Interval <= 0 {
		r.addError(path+".warm.interval", "", "want a duration above 0")
	}
	if o.Warm.Cutover.Window && o.Warm.Window.isEmpty() {
		r.addError(path+".warm.cutover", `add window: {from: "22:00", to: "04:00"}`, "the window is missing")
	}
	if r.hasKey(path+".warm.window") && !o.Warm.Cutover.Window {
		r.addError(path+".warm.window", "set cutover: window, or remove the window", "cutover is not window")
	}
}

// isEmpty reports whether the window has neither times nor days.
func (w *Window) isEmpty() bool { return w.From == 0 && w.To == 0 && len(w.Days) == 0 }

// checkWindow checks a window of a cutover or of a bandwidth.
func (r *ruleChecker) checkWindow(path string, w *Window) {
	if !r.hasKey(path) {
		return
	}
	if r.hasKey(path+".from") != r.hasKey(path+".to") {
		r.addError(path, "set both or none", "from and to belong together")
	}
	if r.hasKey(path+".from") && w.From == w.To {
		r.addError(path+".to", "remove both for the whole day", "from and to are equal")
	}
	if r.hasKey(path+".zone") && w.isEmpty() {
		r.addError(path+".zone", "", "a zone requires from and to")
	}
	for i, day := range w.Days {
		if slices.Contains(w.Days[:i], day) {
			r.addError(fmt.Sprintf("%s.days[%d]", path, i), "keep one of the two", "%s occurs twice", day)
		}
	}
}

// checkHook requires a command and a positive timeout in a hook that the text has.
func (r *ruleChecker) checkHook(path string, h *Hook) {
	if r.hasKey(path) && len(h.Command) == 0 {
		r.addError(path, `add command: ["/usr/local/bin/announce", "begin"]`, "the command is missing")
	}
	if r.hasKey(path) && h.Timeout <= 0 {
		r.addError(path+".timeout", "", "want a duration above 0")
	}
}

// checkBandwidth checks the windows of all entries, and reports entries after one without a window:
// that one is always in force, so the others never are.
func (r *ruleChecker) checkBandwidth() {
	list := r.file.Limits.Bandwidth
	for i := range list {
		path := fmt.Sprintf("limits.bandwidth[%d]", i)
		r.checkWindow(path, &list[i].Window)
		if i > 0 && list[i-1].isEmpty() {
			r.addError(path, "move the entry without a window to the end", "this entry is never in force: the one before it always is")
		}
	}
}
