package roster

import (
	"errors"
	"time"
)

// Worker is a process that drives VMs.
type Worker struct {
	Name    string            `json:"name"`             // the same after a restart; by it its VMs are found again
	Version string            `json:"version"`          // of decamp
	Offers  map[string]string `json:"offers"`           // folder -> id of the storage behind it. The same id on two workers is shared storage
	VMs     int               `json:"vms"`              // that it drives at once, at most
	Drains  bool              `json:"drains,omitempty"` // is given nothing more
	Epoch   int64             `json:"epoch"`            // of this process: a second one of that name takes the place of the first
	Until   time.Time         `json:"until"`            // of its lease, by the database's clock
	Alive   bool              `json:"alive"`            // Until is not over, by the database's clock
	Rev     int64             `json:"rev"`
}

// Lease is the right to do something alone until a time.
type Lease struct {
	Name  string
	Owner string
	Epoch int64

	// Sure is until when the lease is certainly still ours by this process's own clock: the
	// moment before it was asked for, and its length.
	Sure time.Time
}

// Claim is a worker's right to drive a VM. What is written with a claim that somebody else has
// a newer one than is refused.
type Claim struct {
	Key
	Worker string
	Epoch  int64
}

// ErrFenced is for those whose lease or claim is another's now. They must stop at once.
var ErrFenced = errors.New("another process took over")
