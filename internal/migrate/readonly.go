package migrate

import (
	"errors"

	"github.com/decamp/decamp/internal/fault"
)

// ErrReadOnly is what Live returns where the host's licence lets its API read only. There are
// no snapshots then, and so no rounds; change tracking is the least of it.
var ErrReadOnly = errors.New("the host's licence (free ESXi) lets its API change nothing: it takes no snapshots, so nothing can be copied while the VM runs")

// ReadOnly is ErrReadOnly with what can be done.
func ReadOnly() error {
	return fault.New(fault.Unsupported, "%w", ErrReadOnly).
		WithHint("shut the VM down on the host and run the command without --warm, or give the host an evaluation or paid licence for as long as it takes")
}
