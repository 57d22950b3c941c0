package roster

import (
	"encoding/json"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
)

// Key names a VM of a plan.
type Key struct {
	Plan string `json:"plan"`
	VM   string `json:"vm"` // its reference at the source, "vm-42": names may be there twice
}

// VM is one VM of a plan: what is to be done, and how far it is.
type VM struct {
	Key

	// What is known from the listing. It never changes but by Relist.
	Name      string          `json:"name"`
	Seq       int64           `json:"seq"`       // its place in the plan
	Source    string          `json:"source"`    // host:port that is logged in to
	Host      string          `json:"host"`      // that it was on
	Datastore string          `json:"datastore"` // of its .vmx
	To        []string        `json:"to"`        // dir:/srv/vm, …
	Runs      []string        `json:"runs"`      // plan.ID of each To
	Warm      bool            `json:"warm,omitempty"`
	Priority  int             `json:"priority,omitempty"`
	Disks     int             `json:"disks"`
	Bytes     int64           `json:"bytes"`          // allocated, of all disks
	Line      int             `json:"line,omitempty"` // of its entry in the plan's text, and where it begins there
	Column    int             `json:"column,omitempty"`
	Spec      json.RawMessage `json:"spec,omitempty"` // its planfile.Options, for whoever drives it; left out of lists

	// Who drives it, and how far it is.
	State     State         `json:"state"`
	Step      string        `json:"step,omitempty"`     // of migrate's pipeline
	Waits     string        `json:"waits,omitempty"`    // why it waits, for people, where it is not the scheduler's line
	Worker    string        `json:"worker,omitempty"`   // that drives it, or did last
	Storage   []string      `json:"storage,omitempty"`  // ids of the storages that its images are on, once it began
	Epoch     int64         `json:"epoch"`              // of the last claim; 0: nobody ever drove it
	Asks      Stage         `json:"asks,omitempty"`     // the transfer that it wants to begin
	Holds     bool          `json:"holds,omitempty"`    // its transfer may go on: it has its slots
	Since     time.Time     `json:"since,omitzero"`     // of Holds
	Expected  time.Duration `json:"expected,omitempty"` // of the transfer that it asks for or has
	Order     Order         `json:"order,omitempty"`
	Rehearse  *Rehearsal    `json:"rehearse,omitempty"` // that is asked of it
	Attempts  int           `json:"attempts,omitempty"` // that failed, since somebody said retry
	NotBefore time.Time     `json:"notBefore,omitzero"` // of the next attempt
	Began     time.Time     `json:"began,omitzero"`
	Ended     time.Time     `json:"ended,omitzero"`
	Failure   *Failure      `json:"failure,omitempty"` // of the last attempt
	Rev       int64         `json:"rev"`

	signed signedVM // only Roster.VM reads it
}

// State is where a VM of a plan stands.
type State string

// The states of a VM.
const (
	Queued   State = "queued"   // nobody drives it: it waits for its turn, or its next attempt
	Assigned State = "assigned" // a worker is to drive it
	Running  State = "running"  // a worker drives it
	Stranded State = "stranded" // its worker is gone and has its images: it waits for that worker
	Done     State = "done"     // published
	Failed   State = "failed"   // an attempt failed for a reason that does not pass, or too often
	Canceled State = "canceled" // and undone
)

// Over reports whether nothing more happens unless somebody says retry.
func (s State) Over() bool { return s == Done || s == Failed || s == Canceled }

// Stage is the kind of transfer that a VM asks for; the words are sched's.
type Stage string

// Stages.
const (
	NoStage Stage = ""
	First   Stage = "first"   // nothing of it was copied yet
	Again   Stage = "again"   // a warm round, or a copy that goes on
	Cutover Stage = "cutover" // the VM is about to be switched off
)

// Progress is how far a VM's disks are, as its worker told last.
type Progress struct {
	Key
	Total  int64         `json:"total"`            // bytes
	Done   int64         `json:"done"`             // held or proven, data and zeros
	Moved  int64         `json:"moved"`            // read from the source since the worker took the VM; zeros that need no reading are not moved
	Rate   int64         `json:"rate"`             // Moved per second, lately
	Reread int64         `json:"reread,omitempty"` // bytes a second that verify reads back from images, lately
	Round  int           `json:"round,omitempty"`  // of a warm run
	Outage time.Duration `json:"outage,omitempty"` // projected, of a warm run
	Dirty  int64         `json:"dirty,omitempty"`  // bytes a second that the guest changes
	At     time.Time     `json:"at"`               // by the database's clock
	Silent bool          `json:"silent,omitempty"` // nothing was told since At, for silentAfter or longer: Rate and Reread are 0

	Busy bottleneck.Busy `json:"busy,omitzero"` // what was, lately
}
