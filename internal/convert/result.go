package convert

import "fmt"

// A Change is one changed file of the guest.
type Change struct {
	Path   string `json:"path"`   // path without a leading slash
	Reason string `json:"reason"` // reason for the change
}

// A Result is the outcome of a conversion, for the journal and the report.
type Result struct {
	Engine  string   `json:"engine,omitempty"`  // program that converted the guest: "linux-append", "virt-v2v 2.2.0"
	Changes []Change `json:"changes,omitempty"` // changed files
	Notes   []string `json:"notes,omitempty"`   // parts that stay unchanged, with the possible effect

	GuestAgent bool `json:"guestAgent,omitempty"` // QEMU's guest agent will be installed at the guest's next boot
}

// addChange records a changed file.
func (r *Result) addChange(path, format string, args ...any) {
	r.Changes = append(r.Changes, Change{path, fmt.Sprintf(format, args...)})
}

// addNote records a part that stays unchanged.
func (r *Result) addNote(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}
