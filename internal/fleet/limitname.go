package fleet

import (
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// limitUnits contains the valid units for each kind of limit.
var limitUnits = map[string][]string{
	"fleet": {"rate"}, "plan": {"rate"},
	"host": {"vms", "disks", "nfc", "rate"}, "datastore": {"vms"},
	"source": {"vms", "rate"}, "target": {"vms", "rate"}, "worker": {"vms", "rate"},
}

// CheckLimit returns fault.Invalid for the name of a limit that would have no effect, such as one with
// a typing error. A name is KIND:NAME/UNIT: host:esx1/vms, target:dir:/srv/vm/rate, fleet:all/rate.
func CheckLimit(name string) error {
	at := strings.LastIndexByte(name, '/')
	kind, what, ok := strings.Cut(name[:max(at, 0)], ":")
	units, known := limitUnits[kind]
	if ok && known && what != "" && slices.Contains(units, name[at+1:]) {
		return nil
	}
	return fault.New(fault.Invalid, "%q is not the name of a limit", name).
		WithHint("use one of: host:NAME/vms, /disks, /nfc or /rate; datastore:NAME/vms (NAME@HOST of an ESXi that is logged in to itself); source:HOST:PORT, target:dir:/FOLDER or worker:NAME with /vms or /rate; plan:NAME/rate; fleet:all/rate")
}
