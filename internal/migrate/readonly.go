package migrate

import (
	"cmp"
	"errors"

	"github.com/decamp/decamp/internal/fault"
)

// ErrReadOnly is what Live returns where the host's licence lets its API read only, and nothing
// else may freeze or switch a VM. There are no rounds then; change tracking is the least of it.
var ErrReadOnly = errors.New("the host's licence (free ESXi) lets its API change nothing")

// ReadOnly is ErrReadOnly with why it cannot be done by SSH either, and what can be done.
func ReadOnly(why error) error {
	remedy := "shut the VM down on the host and run the command without --warm and --power-off, or give the host an evaluation or paid licence for as long as it takes"
	return fault.New(fault.KindOf(why), "%w, and it cannot be done by SSH: %w", ErrReadOnly, why).
		WithHint("%s; or %s", cmp.Or(fault.HintOf(why), "let decamp log in to the host by SSH"), remedy)
}
