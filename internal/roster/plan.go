package roster

import "time"

// Plan is a plan file that is to be carried out. Its text never changes.
type Plan struct {
	Name    string    `json:"name"`
	Text    string    `json:"text,omitempty"`   // the file; left out of lists
	Folder  string    `json:"folder,omitempty"` // what its relative paths begin from
	By      string    `json:"by,omitempty"`     // who submitted it
	Role    string    `json:"role,omitempty"`   // of By when it was submitted: what the plan may do
	Created time.Time `json:"created"`          // by the database's clock
	Listed  time.Time `json:"listed,omitzero"`  // when all its VMs were found; zero: not yet
	Order   Order     `json:"order,omitempty"`  // to all of its VMs
	State   PlanState `json:"state"`
	Failure *Failure  `json:"failure,omitempty"` // why its VMs could not be listed, or its hook failed; of one that is over: why it failed
	Ended   time.Time `json:"ended,omitzero"`
	Counts  Counts    `json:"counts"`
	Rev     int64     `json:"rev"`

	signature string // of the row; only Roster.Plan reads it
}

// PlanState is where a plan stands.
type PlanState string

// The states of a plan.
const (
	PlanListing PlanState = "listing" // its VMs are being found; those that were found go on already
	PlanRunning PlanState = "running"
	PlanEnded   PlanState = "ended"  // every VM has ended; the counts show how
	PlanFailed  PlanState = "failed" // it ended with a Failure: its VMs were never all found, or a hook failed
)

// Over reports whether nothing more happens to the plan unless it is retried.
func (s PlanState) Over() bool { return s == PlanEnded || s == PlanFailed }

// Counts is how many VMs of a plan are in each state.
type Counts map[State]int

// Order is what operators want of a VM, or of all VMs of a plan. It stands until the next one;
// Retry and Rollback are carried out once.
type Order string

// Orders.
const (
	GoOn     Order = ""         // also: resume
	Pause    Order = "pause"    // begin no transfer; one that is under way goes on
	CutOver  Order = "cutover"  // of warm VMs: switch over as soon as the round is done
	Cancel   Order = "cancel"   // stop, and undo what is not published
	Retry    Order = "retry"    // of failed and canceled ones: begin again where they stopped
	Rollback Order = "rollback" // of those that are not published: as cancel; the source runs again if it ran
	Withdraw Order = "withdraw" // of one VM: as rollback, also of one that is published, which is removed from its target
)

// Under returns what stands for a VM that has order o, of a plan that has another: to give up is
// never overruled, else what was said of the VM alone is meant.
func (o Order) Under(plan Order) Order {
	if plan.ends() && !o.ends() || o == GoOn {
		return plan
	}
	return o
}

// Failure is why something ended, as it is shown.
type Failure struct {
	Kind string `json:"kind"` // fault.Kind's name
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`

	// Ours says that the source and its host had no part in it.
	Ours bool `json:"ours,omitempty"`
}
