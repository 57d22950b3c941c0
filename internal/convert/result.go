package convert

import "fmt"

// A Change is one file of the guest that is different now.
type Change struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// A Result is what a conversion did, for the journal and the report.
type Result struct {
	Engine  string   `json:"engine,omitempty"` // "linux-append", "virt-v2v 2.2.0"
	Changes []Change `json:"changes,omitempty"`
	Notes   []string `json:"notes,omitempty"` // parts that were left unchanged, with their possible effect

	GuestAgent bool `json:"guestAgent,omitempty"` // QEMU's will be installed at the guest's next boot
}

func (r *Result) change(path, format string, args ...any) {
	r.Changes = append(r.Changes, Change{path, fmt.Sprintf(format, args...)})
}

func (r *Result) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}
