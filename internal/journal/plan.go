// Package journal records runs: a Plan is the intent of a run, a Run its execution, an Event one thing that
// happened in it.
//
// A plan does not change once its run has begun. Its ID is derived from its source, VM and target, so that
// the same command finds its unfinished run. Permissions, such as powering the VM off, are not part of the
// plan and may differ between starts.
//
// A Store has a folder for each run, readable without a lock while decamp works:
//
//	runs/web01-3f9a1c/plan.json       the plan
//	runs/web01-3f9a1c/journal.jsonl   one Event per line, append-only; progress is left out
//	runs/web01-3f9a1c/command         the operator's command to a warm run: pause, cutover, cancel
//	runs/web01-3f9a1c/rehearse        the request for a rehearsal of a warm run
//	runs/web01-3f9a1c/rehearsed.json  the result of the last rehearsal
//
// The journal does not determine the next step: package workflow records the steps. The journal serves
// users, status displays and audits. It contains no secrets.
package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
)

// ID identifies a run. It is readable, deterministic, and valid as a file name.
type ID string

// RollbackCommand returns the command that discards the run.
func (id ID) RollbackCommand() string { return "decamp rollback " + fault.Quote(string(id)) }

// VM identifies the VM of a run. The name is for users; Ref and UUIDs identify the VM.
type VM struct {
	Ref          inventory.MoRef `json:"ref"`          // reference at the source
	Name         string          `json:"name"`         // name when the plan was made
	UUID         string          `json:"uuid"`         // SMBIOS UUID
	InstanceUUID string          `json:"instanceUuid"` // UUID that is unique within a vCenter
}

// Plan is the intent to migrate one VM.
type Plan struct {
	Version   int      `json:"version"`            // version of this format: 1
	ID        ID       `json:"id"`                 // ID of the run
	Source    string   `json:"source"`             // URL of the source without a password: esxi://root@esx1
	VM        VM       `json:"vm"`                 // VM to migrate
	Target    string   `json:"target"`             // URL or folder of the target: dir:/srv/vm
	Format    string   `json:"format"`             // format of the images: raw, qcow2
	Transport string   `json:"transport"`          // https, landing
	Warm      bool     `json:"warm,omitempty"`     // copied in rounds while the VM runs
	Hardware  Hardware `json:"hardware,omitempty"` // hardware of the VM at the target
	Engine    Engine   `json:"engine,omitempty"`   // how the guest is changed for Virtio

	// Kernel is the image of the kernel that mounts the guest's file systems; "" searches for one. Another
	// kernel is not another intent.
	Kernel string `json:"applianceKernel,omitempty"`

	// GuestAgent installs QEMU's guest agent at the first boot of a guest that is changed.
	GuestAgent bool `json:"guestAgent,omitempty"`

	// Maps has the entries of a map for the VM: they locate it at the target.
	Maps namemap.Map `json:"maps,omitzero"`

	Created time.Time `json:"created"` // when the plan was made
}

// Hardware is the hardware of the VM at the target. The empty value is Compat.
type Hardware string

const (
	Compat       Hardware = "compat" // VMware's hardware, as far as QEMU supports it
	Virtio       Hardware = "virtio" // hardware that requires changes in the guest
	AutoHardware Hardware = "auto"   // virtio if the guest can be changed, else compat
)

// Engine is the means of changing the guest for Virtio. The empty value is AutoEngine.
type Engine string

const (
	AutoEngine  Engine = "auto"         // first engine that is available and supports the guest
	LinuxAppend Engine = "linux-append" // decamp's engine for Linux
	VirtV2V     Engine = "virt-v2v"     // the program virt-v2v
)

// version is the version of the plan's format.
const version = 1

// New returns the plan to migrate vm from source to target.
func New(source *url.URL, vm *inventory.VM, target, format, transport string, now time.Time) Plan {
	p := Plan{
		Version: version, Source: withoutPassword(source), Target: target, Format: format, Transport: transport,
		VM:      VM{Ref: vm.Ref, Name: vm.Name, UUID: vm.UUID, InstanceUUID: vm.InstanceUUID},
		Created: now.UTC().Truncate(time.Second),
	}
	p.ID = p.newID(source.Host)
	return p
}

// withoutPassword returns the URL with the user's name, but without password and query.
func withoutPassword(u *url.URL) string {
	clean := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		clean.User = url.User(u.User.Username())
	}
	return clean.String()
}

// newID returns the letters and digits of the VM's name, and six hex digits that depend on source, VM
// and target. It ignores the user's name, which may change.
func (p Plan) newID(host string) ID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", strings.ToLower(host), p.VM.Ref, p.VM.InstanceUUID, p.Target))
	return ID(nameSlug(p.VM.Name) + "-" + hex.EncodeToString(sum[:3]))
}

// isValid reports whether the ID is the name of a single folder. IDs come from command lines.
func (id ID) isValid() bool {
	name := string(id)
	return filepath.IsLocal(name) && filepath.Base(name) == name && name != "."
}

// nameSlug returns the ASCII letters and digits of a name in lower case, with single dashes in place of
// others. It returns "vm" for a name without them.
func nameSlug(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	s := strings.Join(words, "-")
	if s == "" {
		return "vm"
	}
	return strings.TrimRight(s[:min(len(s), 40)], "-")
}

// Same returns nil if q is the same intent, else fault.Conflict with the first difference. It ignores
// the time and the user.
func (p Plan) Same(q Plan) error {
	for _, f := range []struct{ word, p, q string }{
		{"VM", string(p.VM.Ref) + " " + p.VM.UUID, string(q.VM.Ref) + " " + q.VM.UUID},
		{"target", p.Target, q.Target},
		{"format", p.Format, q.Format},
		{"transport", p.Transport, q.Transport},
		{"warm", fmt.Sprint(p.Warm), fmt.Sprint(q.Warm)},
		{"hardware", string(cmp.Or(p.Hardware, Compat)), string(cmp.Or(q.Hardware, Compat))},
		{"engine", string(cmp.Or(p.Engine, AutoEngine)), string(cmp.Or(q.Engine, AutoEngine))},
		{"guest agent", fmt.Sprint(p.GuestAgent), fmt.Sprint(q.GuestAgent)},
		{"name", p.Maps.Name(p.VM.Name), q.Maps.Name(p.VM.Name)},
		{"storages", fmt.Sprint(p.Maps.Storages), fmt.Sprint(q.Maps.Storages)},
	} {
		if f.p != f.q {
			return fault.New(fault.Conflict, "run %s was begun with %s %s, not %s", p.ID, f.word, f.p, f.q).
				WithHint("use the same options; or discard the copy with %s", p.ID.RollbackCommand())
		}
	}
	return nil
}
