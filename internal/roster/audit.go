package roster

import "time"

// Entry is one line of the audit trail: who did what.
type Entry struct {
	ID   int64     `json:"id"`
	Time time.Time `json:"time"`          // by the database's clock
	Who  string    `json:"who"`           // the token's or certificate's name, or the local user's
	Role string    `json:"role"`          // view, operate, admin
	From string    `json:"from"`          // the address, or "local"
	What string    `json:"what"`          // "cutover", "plan submit", "set limit"
	On   string    `json:"on"`            // the plan, VM, limit
	Err  string    `json:"err,omitempty"` // why it was refused or failed
}
