package planfile

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/units"
)

// Draft describes a new plan, for decamp plan init.
type Draft struct {
	Name     string      // name of the plan
	URL      string      // URL of the source
	Select   string      // expression that selected the candidates; may be empty
	To       []string    // destinations of all VMs; may be empty
	Mode     Mode        // with warm, the draft also sets a transport that reads running VMs
	PowerOff PowerOff    // written as powerOff in defaults
	VMs      []Candidate // VMs in the order of the inventory
}

// Candidate is a VM for a new plan.
type Candidate struct {
	VM        *inventory.VM       // description of the VM
	Obstacles []inventory.Warning // why it cannot be moved; it then becomes a comment
}

// planNameOf returns the word that identifies a VM in the plan: its name if that is valid text and
// unique, or else its reference.
func planNameOf(vm *inventory.VM, names Finder) string {
	if found, err := names.Find(vm.Name); err == nil && found.Ref == vm.Ref && utf8.ValidString(vm.Name) && len(vm.Name) <= maxTextBytes {
		return vm.Name
	}
	return string(vm.Ref)
}

// draftHead is the comment at the top of a draft.
const draftHead = `# yaml-language-server: $schema=` + SchemaID + `
# A plan for decamp, written by decamp plan init. Review it, change it, keep it in git.
#
#   decamp plan check FILE     reports problems before anything is changed
#   decamp plan schema         prints the JSON schema, for editors
#
# Keys in defaults apply to all VMs; keys of a VM take precedence. Do not write secrets
# here: credentials name the files that contain passwords.
`

// draftCredentials has commented-out keys of source.
const draftCredentials = `  # credentials: {file: vc1.password}   # relative to this file; else $DECAMP_PASSWORD_FILE
  # fingerprint: "AB:CD:…"              # certificate of the source, for machines that do not know it yet
`

// draftFormat has the commented-out format in defaults.
const draftFormat = `  # format: raw              # or qcow2
`

// draftTransport has the commented-out transport of a cold plan.
const draftTransport = `  # transport: https         # or nfc, landing
`

// warmTransport reads the disks of every running VM. Whether https can do so depends on the host.
const warmTransport = Transport("nfc")

// draftDefaults has further commented-out keys of defaults.
const draftDefaults = `  # warm: {interval: 1h, cutover: manual, downtimeBudget: 5m}
  # sourceHash: false        # compare each disk with a hash that its host computes
`

// draftLimits has commented-out limits.
const draftLimits = `
# limits:
#   host: {vms: 20, disks: 40}          # limits of each ESXi host
#   bandwidth:                          # the first entry that is in force applies
#     - {rate: 100M, days: [mon, tue, wed, thu, fri], from: "08:00", to: "18:00", zone: Europe/Berlin}
#     - {rate: 1G}
`

// Write writes the plan as YAML, with comments that show further keys.
func (d *Draft) Write(w io.Writer, names Finder) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%sversion: %d\nname: %s\n\nsource:\n  url: %s\n", draftHead, Version, quoteWord(d.Name), quoteWord(d.URL))
	if strings.HasPrefix(d.URL, "vcenter:") {
		b.WriteString("  # direct: true                        # read the disks directly from the ESXi hosts\n")
	}
	b.WriteString(draftCredentials + "\ndefaults:\n")
	d.writeDestinations(&b)
	fmt.Fprintf(&b, "  mode: %-18s # %s\n", d.Mode, "cold; or warm: copy in rounds while the VM runs")
	fmt.Fprintf(&b, "  powerOff: %-14s # %s\n", d.PowerOff, "never; guest: shut the guest down; or force")
	b.WriteString(draftFormat)
	if d.Mode == WarmMode {
		fmt.Fprintf(&b, "  transport: %-13s # %s\n", warmTransport, "reads every running VM; others: landing, https")
	} else {
		b.WriteString(draftTransport)
	}
	b.WriteString(draftDefaults + draftLimits)
	d.writeVMs(&b, names)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeDestinations writes the key to of defaults; without destinations a comment that shows its form.
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

// writeVMs writes the VMs that can be migrated, then the others as comments with the reasons.
func (d *Draft) writeVMs(b *strings.Builder, names Finder) {
	movable, others := d.splitVMs()
	if d.Select != "" {
		fmt.Fprintf(b, "\n# Selected by: %s", toPrintable(d.Select))
	}
	fmt.Fprintf(b, "\n# %s\n", formatCount(len(movable), "VM that can be migrated", "VMs that can be migrated"))
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
	fmt.Fprintf(b, "\n  # %s, with the reasons\n", formatCount(len(others), "VM that cannot be migrated now", "VMs that cannot be migrated now"))
	for _, c := range others {
		b.WriteString("  #\n")
		for _, o := range c.Obstacles {
			fmt.Fprintf(b, "  # %s: %s\n  #   Remedy: %s\n", o.Code, toPrintable(o.Text), toPrintable(o.Remedy))
		}
		d.writeEntry(b, c, "  # ", names)
	}
}

// splitVMs separates VMs without obstacles from the others.
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

// writeEntry writes the entry of a VM. indent precedes each line, and may begin with a comment sign.
func (d *Draft) writeEntry(b *strings.Builder, c Candidate, indent string, names Finder) {
	fmt.Fprintf(b, "%s- vm: %s  # %s\n", indent, quoteWord(planNameOf(c.VM, names)), toPrintable(describeVM(c.VM)))
	if c.VM.UUID != "" && matchesPattern(uuidPattern, c.VM.UUID) {
		fmt.Fprintf(b, "%s  uuid: %s\n", indent, quoteWord(c.VM.UUID))
	}
}

// describeVM returns the comment of an entry: power state, disks, size, folder, guest and warnings.
func describeVM(v *inventory.VM) string {
	parts := []string{string(v.Power), formatCount(len(v.Disks), "disk", "disks"), units.Binary(v.Provisioned)}
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

// formatCount returns a number with its noun in singular or plural.
func formatCount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// plainPattern matches text that needs no quotes in YAML, unless it is a reserved word.
const plainPattern = `^(dir:/)?[A-Za-z][A-Za-z0-9._/-]*$`

// reservedWords are text that YAML 1.1 parsers read as booleans or null.
var reservedWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// quoteWord writes valid UTF-8 as a YAML value on one line. The escape sequences of Go are also valid
// in YAML.
func quoteWord(s string) string {
	if matchesPattern(plainPattern, s) && !slices.Contains(reservedWords, strings.ToLower(s)) || matchesPattern(uuidPattern, s) {
		return s
	}
	return strconv.Quote(s)
}

// toPrintable replaces control characters by question marks: a comment must stay on one line.
func toPrintable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Left is a VM that a draft excludes, with the reasons.
type Left struct {
	VM        string              `json:"vm"`        // name or reference, as in the plan
	Obstacles []inventory.Warning `json:"obstacles"` // reasons; not empty
}

// JSON returns the plan as a value that is encoded as the same plan, and the excluded VMs. left is not
// nil.
func (d *Draft) JSON(names Finder) (plan map[string]any, left []Left) {
	movable, others := d.splitVMs()
	defaults := map[string]any{"mode": d.Mode, "powerOff": d.PowerOff}
	if len(d.To) > 0 {
		defaults["to"] = d.To
	}
	if d.Mode == WarmMode {
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
