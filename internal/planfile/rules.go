package planfile

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// checkRules looks for what no value is wrong by itself in, but with others.
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

type ruleChecker struct {
	file  *File
	found Findings
}

// addError adds a finding at a key; if the file does not have it, at the enclosing one.
func (r *ruleChecker) addError(path, remedy, format string, args ...any) {
	err := fault.New(fault.Invalid, path+": "+format, args...).WithHint("%s", remedy)
	r.found = append(r.found, Found("file", r.file.At(path), "", err))
}

// At is where a key stands, or else the nearest one around it.
func (f *File) At(path string) Pos {
	for path != "" {
		if pos, ok := f.positions[path]; ok {
			return pos
		}
		path = path[:max(lastByte(path, '.'), lastByte(path, '['), 0)]
	}
	return Pos{}
}

func lastByte(s string, c byte) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == c {
			return i
		}
	}
	return -1
}

func (r *ruleChecker) checkSource() {
	s := &r.file.Source
	if s.Direct && !s.URL.VCenter() {
		r.addError("source.direct", "take it out: an ESXi host is the one that has the disks", "it is for a vCenter")
	}
	r.checkCredentials("source.credentials", s.Credentials)
	r.checkCredentials("source.ssh.credentials", s.SSH.Credentials)
}

func (r *ruleChecker) checkCredentials(path string, c Credentials) {
	if c.File != "" && c.Name != "" {
		r.addError(path, "keep one of the two", "file and name are two ways to say where the secret is")
	}
}

// whatAndWhere: some VM, each once, and a place for all.
func (r *ruleChecker) checkVMs() {
	f := r.file
	if f.Select.IsZero() && len(f.VMs) == 0 {
		r.addError("vms", "name VMs under vms, or choose them with select", "the plan moves no VM")
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
			r.addError(path+".vm", "keep one of the two", "%s is there twice, first in line %d", vm.VM, line)
			continue
		}
		first[vm.VM] = vm.Pos.Line
	}
}

// checkOptions are looked at once with the defaults, and in VMs where they are other than those.
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

// trial: a VM that is off for as long as its copy boots is not moved warm.
func (r *ruleChecker) checkTrial(path string, o *Options) {
	if o.Trial && o.Mode == Warmly {
		r.addError(path+".trial", "move it cold, or rehearse it before the cutover: decamp rehearse PLAN/VM", "trial and mode warm exclude each other: the VM would be off for as long as its copy boots")
	}
	if r.hasKey(path+".expect") && !o.Trial && path != "defaults" { // there it is for those that are tried
		r.addError(path+".expect", "write trial: true, or take it out", "expect applies to a trial boot, and trial is not set")
	}
}

// start: a VM runs once, and where something runs VMs.
func (r *ruleChecker) checkStart(path string, o *Options) {
	to := o.To
	if len(to) == 0 {
		to = r.file.Defaults.To
	}
	isFolder := func(d Destination) bool { return d.Kind() == Dir }
	switch {
	case !o.Start || path == "defaults" && len(to) == 0:
	case len(to) > 1:
		r.addError(path+".start", "give it one destination, or start it by hand", "two of one VM would run, with the same addresses: it has %d destinations", len(to))
	case slices.ContainsFunc(to, isFolder):
		r.addError(path+".start", "take it out, or move the VM to libvirt, proxmox, openstack or kubevirt", "a folder starts no VMs")
	}
}

// agent: only a guest that is changed is made to install anything.
func (r *ruleChecker) checkGuestAgent(path string, o *Options) {
	if o.GuestAgent && r.hasKey(path+".guestAgent") && o.Hardware == "compat" && path != "defaults" { // there it is for those that are changed
		r.addError(path+".guestAgent", "write hardware: virtio or auto, or take it out", "it changes the guest, and hardware is compat")
	}
}

// hasKey reports whether the file itself has a key, not the defaults.
func (r *ruleChecker) hasKey(path string) bool {
	_, ok := r.file.positions[path]
	return ok
}

func (r *ruleChecker) checkDestinations(path string, o *Options) {
	for i, to := range o.To {
		sameFolder := func(other Destination) bool { return other.Folder() == to.Folder() }
		if slices.ContainsFunc(o.To[:i], sameFolder) {
			r.addError(fmt.Sprintf("%s[%d]", path, i), "keep one of the two", "%s is there twice", to)
		}
	}
}

// Bounds of NFC buffers, as decamp migrate has them: hosts refuse more.
const (
	bufferUnit    = 64 << 10
	maxBuffer = 2 << 20
	maxBuffersBytes   = 16 << 20
	defaultBuffer   = 1 << 20
)

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
		r.addError(path+".buffers", "take fewer or smaller ones", "all of a session together have 16M at the most")
	}
}

func (r *ruleChecker) checkWarm(path string, o *Options) {
	to := o.To
	if len(to) == 0 {
		to = r.file.Defaults.To
	}
	if o.Mode == Warmly && len(to) > 1 {
		r.addError(path+".to", "give it one destination, or move it cold", "a warm migration has one destination, not %d", len(to))
	}
	if !r.hasKey(path + ".warm") {
		return
	}
	if o.Warm.Interval <= 0 {
		r.addError(path+".warm.interval", "", "want a time above 0")
	}
	if o.Warm.Cutover.Window && o.Warm.Window.isEmpty() {
		r.addError(path+".warm.cutover", `say which: window: {from: "22:00", to: "04:00"}`, "there is no window")
	}
	if r.hasKey(path+".warm.window") && !o.Warm.Cutover.Window {
		r.addError(path+".warm.window", "write cutover: window, or take the window out", "the cutover is not by a window")
	}
}

func (w *Window) isEmpty() bool { return w.From == 0 && w.To == 0 && len(w.Days) == 0 }

func (r *ruleChecker) checkWindow(path string, w *Window) {
	if !r.hasKey(path) {
		return
	}
	if r.hasKey(path+".from") != r.hasKey(path+".to") {
		r.addError(path, "give both or none", "a window has from and to")
	}
	if r.hasKey(path+".from") && w.From == w.To {
		r.addError(path+".to", "leave both out for all of the day", "the window ends when it begins")
	}
	if r.hasKey(path+".zone") && w.isEmpty() {
		r.addError(path+".zone", "", "the zone applies to times, and there are no times")
	}
	for i, day := range w.Days {
		if slices.Contains(w.Days[:i], day) {
			r.addError(fmt.Sprintf("%s.days[%d]", path, i), "keep one of the two", "%s is there twice", day)
		}
	}
}

func (r *ruleChecker) checkHook(path string, h *Hook) {
	if r.hasKey(path) && len(h.Command) == 0 {
		r.addError(path, `say which: command: ["/usr/local/bin/announce", "begin"]`, "there is no command")
	}
	if r.hasKey(path) && h.Timeout <= 0 {
		r.addError(path+".timeout", "", "want a time above 0")
	}
}

// bandwidth: an entry without a window is in force always, so none behind it ever is.
func (r *ruleChecker) checkBandwidth() {
	list := r.file.Limits.Bandwidth
	for i := range list {
		path := fmt.Sprintf("limits.bandwidth[%d]", i)
		r.checkWindow(path, &list[i].Window)
		if i > 0 && list[i-1].isEmpty() {
			r.addError(path, "put the entry without hours last", "it is never in force: the one before it always is")
		}
	}
}
