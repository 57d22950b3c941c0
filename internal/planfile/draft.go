package planfile

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/inventory"
)

// Draft is what a new plan is made of.
type Draft struct {
	Name     string
	URL      string // URL of the source
	Select   string // expression that selected the candidates; may be empty
	To       []string
	Mode     Mode // with warm, the draft also sets a transport that reads running VMs
	PowerOff PowerOff
	VMs      []Candidate
}

// Candidate is a VM for a new plan.
type Candidate struct {
	VM        *inventory.VM
	Obstacles []inventory.Warning // why it cannot be moved; it then becomes a comment
}

// planNameOf is what a plan calls a VM: its name, if that is text and means no other, or else its
// reference.
func planNameOf(vm *inventory.VM, names Finder) string {
	if found, err := names.Find(vm.Name); err == nil && found.Ref == vm.Ref && utf8.ValidString(vm.Name) && len(vm.Name) <= maxTextBytes {
		return vm.Name
	}
	return string(vm.Ref)
}

const draftHead = `# A plan for decamp, written by decamp plan init. Review it, change it, keep it in git.
#
#   decamp plan check FILE     says what would fail before anything is done
#   decamp plan schema         prints the JSON schema, for editors
#
# What holds for all VMs stands in defaults; a VM's own keys are on top of it. No secret
# belongs in here: passwords are in files that credentials name.
`

const draftCredentials = `  # credentials: {file: vc1.password}   # relative to this file; else $DECAMP_PASSWORD_FILE
  # fingerprint: "AB:CD:…"              # of the certificate, for machines that do not know it yet
`

const draftFormat = `  # format: raw              # or qcow2
`

const draftTransport = `  # transport: https         # or nfc, landing
`

// warmTransport reads the disks of every running VM; what https does of them depends on the host.
const warmTransport = Transport("nfc")

const draftDefaults = `  # warm: {interval: 1h, cutover: manual, downtimeBudget: 5m}
  # sourceHash: false        # have the hosts hash their disks, and compare
`

const draftLimits = `
# limits:
#   host: {vms: 20, disks: 40}          # on each ESXi host at a time
#   bandwidth:                          # the first entry that is in force counts
#     - {rate: 100M, days: [mon, tue, wed, thu, fri], from: "08:00", to: "18:00", zone: Europe/Berlin}
#     - {rate: 1G}
`

// Write writes the plan, with comments that say what else there is to say.
func (d *Draft) Write(w io.Writer, names Finder) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%sversion: %d\nname: %s\n\nsource:\n  url: %s\n", draftHead, Version, quoteWord(d.Name), quoteWord(d.URL))
	if strings.HasPrefix(d.URL, "vcenter:") {
		b.WriteString("  # direct: true                        # fetch the disks from the ESXi hosts, not through the vCenter\n")
	}
	b.WriteString(draftCredentials + "\ndefaults:\n")
	d.writeDestinations(&b)
	fmt.Fprintf(&b, "  mode: %-18s # %s\n", d.Mode, "cold, or warm: copied in rounds while the VM runs")
	fmt.Fprintf(&b, "  powerOff: %-14s # %s\n", d.PowerOff, "never, guest: ask it to shut down, or force")
	b.WriteString(draftFormat)
	if d.Mode == Warmly {
		fmt.Fprintf(&b, "  transport: %-13s # %s\n", warmTransport, "reads every running VM; or landing, or https where hosts let it")
	} else {
		b.WriteString(draftTransport)
	}
	b.WriteString(draftDefaults + draftLimits)
	d.writeVMs(&b, names)
	_, err := io.WriteString(w, b.String())
	return err
}

func (d *Draft) writeDestinations(b *strings.Builder) {
	if len(d.To) == 0 {
		b.WriteString("  # to: [dir:/srv/vm]      # fill in the destination of the VMs\n")
		return
	}
	words := make([]string, len(d.To))
	for i, to := range d.To {
		words[i] = quoteWord(to)
	}
	fmt.Fprintf(b, "  to: [%s]\n", strings.Join(words, ", "))
}

// writeVMs writes the VMs, those that can be moved before those that cannot.
func (d *Draft) writeVMs(b *strings.Builder, names Finder) {
	movable, others := d.splitVMs()
	if d.Select != "" {
		fmt.Fprintf(b, "\n# Chosen by: %s", toPrintable(d.Select))
	}
	fmt.Fprintf(b, "\n# %s\n", formatCount(len(movable), "VM that can be moved", "VMs that can be moved"))
	if len(movable) > 0 {
		b.WriteString("vms:\n")
	} else {
		b.WriteString("# vms:\n")
	}
	for _, c := range movable {
		d.writeEntry(b, c, "  ", names)
	}
	if len(others) == 0 {
		return
	}
	fmt.Fprintf(b, "\n  # %s, with the reasons\n", formatCount(len(others), "VM that cannot be moved as it is", "VMs that cannot be moved as they are"))
	for _, c := range others {
		b.WriteString("  #\n")
		for _, o := range c.Obstacles {
			fmt.Fprintf(b, "  # %s: %s\n  #   Remedy: %s\n", o.Code, toPrintable(o.Text), toPrintable(o.Remedy))
		}
		d.writeEntry(b, c, "  # ", names)
	}
}

func (d *Draft) splitVMs() (movable, others []Candidate) {
	for _, c := range d.VMs {
		if len(c.Obstacles) == 0 {
			movable = append(movable, c)
		} else {
			others = append(others, c)
		}
	}
	return movable, others
}

func (d *Draft) writeEntry(b *strings.Builder, c Candidate, indent string, names Finder) {
	fmt.Fprintf(b, "%s- vm: %s  # %s\n", indent, quoteWord(planNameOf(c.VM, names)), toPrintable(describeVM(c.VM)))
	if c.VM.UUID != "" && matchesPattern(uuidPattern, c.VM.UUID) {
		fmt.Fprintf(b, "%s  uuid: %s\n", indent, quoteWord(c.VM.UUID))
	}
}

// describeVM is what a reader wants to know of a VM.
func describeVM(v *inventory.VM) string {
	parts := []string{string(v.Power), formatCount(len(v.Disks), "disk", "disks"), fmt.Sprintf("%d GiB", (v.Provisioned+1<<30-1)>>30)}
	for _, s := range []string{v.Folder, v.GuestName} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	for _, w := range v.Warnings {
		if !w.Blocks && !slices.Contains(parts, w.Code) {
			parts = append(parts, w.Code)
		}
	}
	return strings.Join(parts, ", ")
}

func formatCount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// plainPattern matches text that needs no quotes in YAML, unless it is a reserved word.
const plainPattern = `^(dir:/)?[A-Za-z][A-Za-z0-9._/-]*$`

var reservedWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// quoteWord writes valid UTF-8 as a YAML value on one line. The escape sequences of Go mean the same in YAML.
func quoteWord(s string) string {
	if matchesPattern(plainPattern, s) && !slices.Contains(reservedWords, strings.ToLower(s)) || matchesPattern(uuidPattern, s) {
		return s
	}
	return strconv.Quote(s)
}

// toPrintable makes text from the source fit for a comment: one line, no escapes.
func toPrintable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Left is a VM that a draft leaves out, and why.
type Left struct {
	VM        string              `json:"vm"`
	Obstacles []inventory.Warning `json:"obstacles"`
}

// JSON returns the plan as a value whose encoding is the same plan, and the VMs that it leaves out.
func (d *Draft) JSON(names Finder) (plan map[string]any, left []Left) {
	movable, others := d.splitVMs()
	defaults := map[string]any{"mode": d.Mode, "powerOff": d.PowerOff}
	if len(d.To) > 0 {
		defaults["to"] = d.To
	}
	if d.Mode == Warmly {
		defaults["transport"] = warmTransport
	}
	plan = map[string]any{"version": Version, "name": d.Name, "source": map[string]any{"url": d.URL}, "defaults": defaults}
	var vms []map[string]any
	for _, c := range movable {
		vm := map[string]any{"vm": planNameOf(c.VM, names)}
		if matchesPattern(uuidPattern, c.VM.UUID) {
			vm["uuid"] = c.VM.UUID
		}
		vms = append(vms, vm)
	}
	if vms != nil {
		plan["vms"] = vms
	}
	left = []Left{}
	for _, c := range others {
		left = append(left, Left{planNameOf(c.VM, names), c.Obstacles})
	}
	return plan, left
}
