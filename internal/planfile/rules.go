package planfile

import (
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/fault"
)

// rules looks for what no value is wrong by itself in, but with others.
func (f *File) rules() Findings {
	r := &ruler{file: f}
	r.source()
	r.whatAndWhere()
	r.options("defaults", &f.Defaults)
	for i := range f.VMs {
		r.options(fmt.Sprintf("vms[%d]", i), &f.VMs[i].Options)
	}
	r.hook("hooks.pre", &f.Hooks.Pre)
	r.hook("hooks.post", &f.Hooks.Post)
	r.bandwidth()
	r.mapping("maps", &f.Maps.Mapping)
	return r.found
}

type ruler struct {
	file  *File
	found Findings
}

// wrong adds a finding at a key; if the file does not have it, at the enclosing one.
func (r *ruler) wrong(path, remedy, format string, args ...any) {
	err := fault.New(fault.Invalid, path+": "+format, args...).WithHint("%s", remedy)
	r.found = append(r.found, Found("file", r.file.At(path), "", err))
}

// At is where a key stands, or else the nearest one around it.
func (f *File) At(path string) Pos {
	for path != "" {
		if pos, ok := f.where[path]; ok {
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

func (r *ruler) source() {
	s := &r.file.Source
	if s.Direct && !s.URL.VCenter() {
		r.wrong("source.direct", "take it out: an ESXi host is the one that has the disks", "it is for a vCenter")
	}
	r.credentials("source.credentials", s.Credentials)
	r.credentials("source.ssh.credentials", s.SSH.Credentials)
}

func (r *ruler) credentials(path string, c Credentials) {
	if c.File != "" && c.Name != "" {
		r.wrong(path, "keep one of the two", "file and name are two ways to say where the secret is")
	}
}

// whatAndWhere: some VM, each once, and a place for all.
func (r *ruler) whatAndWhere() {
	f := r.file
	if f.Select.IsZero() && len(f.VMs) == 0 {
		r.wrong("vms", "name VMs under vms, or choose them with select", "the plan moves no VM")
	}
	everywhere := len(f.Defaults.To) > 0 || len(f.Maps.Datastores) > 0
	if !f.Select.IsZero() && !everywhere {
		r.wrong("select", "set it in defaults: {to: [dir:/FOLDER]}", "the destination of the VMs is missing")
	}
	first := map[Text]int{}
	for i, vm := range f.VMs {
		path := fmt.Sprintf("vms[%d]", i)
		if len(vm.To) == 0 && !everywhere {
			r.wrong(path, "set it here, or in defaults: {to: [dir:/FOLDER]}", "the destination of the VM is missing")
		}
		if line, twice := first[vm.VM]; twice {
			r.wrong(path+".vm", "keep one of the two", "%s is there twice, first in line %d", vm.VM, line)
			continue
		}
		first[vm.VM] = vm.Pos.Line
	}
}

// options are looked at once with the defaults, and in VMs where they are other than those.
func (r *ruler) options(path string, o *Options) {
	r.to(path+".to", o)
	r.nfc(path+".nfc", &o.NFC)
	r.warm(path, o)
	r.trial(path, o)
	r.start(path, o)
	r.agent(path, o)
	r.window(path+".warm.window", &o.Warm.Window)
	r.hook(path+".hooks.pre", &o.Hooks.Pre)
	r.hook(path+".hooks.post", &o.Hooks.Post)
}

// trial: a VM that is off for as long as its copy boots is not moved warm.
func (r *ruler) trial(path string, o *Options) {
	if o.Trial && o.Mode == Warmly {
		r.wrong(path+".trial", "move it cold, or rehearse it before the cutover: decamp rehearse PLAN/VM", "trial and mode warm exclude each other: the VM would be off for as long as its copy boots")
	}
	if r.says(path+".expect") && !o.Trial && path != "defaults" { // there it is for those that are tried
		r.wrong(path+".expect", "write trial: true, or take it out", "expect applies to a trial boot, and trial is not set")
	}
}

// start: a VM runs once, and where something runs VMs.
func (r *ruler) start(path string, o *Options) {
	to := o.To
	if len(to) == 0 {
		to = r.file.Defaults.To
	}
	isFolder := func(d Destination) bool { return d.Kind() == Dir }
	switch {
	case !o.Start || path == "defaults" && len(to) == 0:
	case len(to) > 1:
		r.wrong(path+".start", "give it one destination, or start it by hand", "two of one VM would run, with the same addresses: it has %d destinations", len(to))
	case slices.ContainsFunc(to, isFolder):
		r.wrong(path+".start", "take it out, or move the VM to libvirt, proxmox, openstack or kubevirt", "a folder starts no VMs")
	}
}

// agent: only a guest that is changed is made to install anything.
func (r *ruler) agent(path string, o *Options) {
	if o.GuestAgent && r.says(path+".guestAgent") && o.Hardware == "compat" && path != "defaults" { // there it is for those that are changed
		r.wrong(path+".guestAgent", "write hardware: virtio or auto, or take it out", "it changes the guest, and hardware is compat")
	}
}

// says reports whether the file itself has a key, not the defaults.
func (r *ruler) says(path string) bool {
	_, ok := r.file.where[path]
	return ok
}

func (r *ruler) to(path string, o *Options) {
	for i, to := range o.To {
		sameFolder := func(other Destination) bool { return other.Folder() == to.Folder() }
		if slices.ContainsFunc(o.To[:i], sameFolder) {
			r.wrong(fmt.Sprintf("%s[%d]", path, i), "keep one of the two", "%s is there twice", to)
		}
	}
}

// Bounds of NFC buffers, as decamp migrate has them: hosts refuse more.
const (
	bufferUnit    = 64 << 10
	largestBuffer = 2 << 20
	mostBuffers   = 16 << 20
	usualBuffer   = 1 << 20
)

func (r *ruler) nfc(path string, n *NFC) {
	if !r.says(path) {
		return
	}
	size := n.Buffer
	switch {
	case size != 0 && (size < bufferUnit || size > largestBuffer || size%bufferUnit != 0):
		r.wrong(path+".buffer", "", "want a multiple of 64K up to 2M")
		return
	case size == 0:
		size = usualBuffer
	}
	if int64(size)*int64(n.Buffers) > mostBuffers {
		r.wrong(path+".buffers", "take fewer or smaller ones", "all of a session together have 16M at the most")
	}
}

func (r *ruler) warm(path string, o *Options) {
	to := o.To
	if len(to) == 0 {
		to = r.file.Defaults.To
	}
	if o.Mode == Warmly && len(to) > 1 {
		r.wrong(path+".to", "give it one destination, or move it cold", "a warm migration has one destination, not %d", len(to))
	}
	if !r.says(path + ".warm") {
		return
	}
	if o.Warm.Interval <= 0 {
		r.wrong(path+".warm.interval", "", "want a time above 0")
	}
	if o.Warm.Cutover.Window && o.Warm.Window.empty() {
		r.wrong(path+".warm.cutover", `say which: window: {from: "22:00", to: "04:00"}`, "there is no window")
	}
	if r.says(path+".warm.window") && !o.Warm.Cutover.Window {
		r.wrong(path+".warm.window", "write cutover: window, or take the window out", "the cutover is not by a window")
	}
}

func (w *Window) empty() bool { return w.From == 0 && w.To == 0 && len(w.Days) == 0 }

func (r *ruler) window(path string, w *Window) {
	if !r.says(path) {
		return
	}
	if r.says(path+".from") != r.says(path+".to") {
		r.wrong(path, "give both or none", "a window has from and to")
	}
	if r.says(path+".from") && w.From == w.To {
		r.wrong(path+".to", "leave both out for all of the day", "the window ends when it begins")
	}
	if r.says(path+".zone") && w.empty() {
		r.wrong(path+".zone", "", "the zone applies to times, and there are no times")
	}
	for i, day := range w.Days {
		if slices.Contains(w.Days[:i], day) {
			r.wrong(fmt.Sprintf("%s.days[%d]", path, i), "keep one of the two", "%s is there twice", day)
		}
	}
}

func (r *ruler) hook(path string, h *Hook) {
	if r.says(path) && len(h.Command) == 0 {
		r.wrong(path, `say which: command: ["/usr/local/bin/announce", "begin"]`, "there is no command")
	}
	if r.says(path) && h.Timeout <= 0 {
		r.wrong(path+".timeout", "", "want a time above 0")
	}
}

// bandwidth: an entry without a window is in force always, so none behind it ever is.
func (r *ruler) bandwidth() {
	list := r.file.Limits.Bandwidth
	for i := range list {
		path := fmt.Sprintf("limits.bandwidth[%d]", i)
		r.window(path, &list[i].Window)
		if i > 0 && list[i-1].empty() {
			r.wrong(path, "put the entry without hours last", "it is never in force: the one before it always is")
		}
	}
}
