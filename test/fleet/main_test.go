// Package fleet runs plans of many VMs with the real decamp binary against the lab: alone, with a server, and on several
// machines. Meanwhile processes, machines, the database and the network fail and return. The tests check the results:
// the images, the output of decamp, and the leftovers at the sources.
package fleet

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// binary is the decamp that TestMain built.
var binary string

// wide is how many tests run at a time: they mostly wait, for slow disks, leases and retries.
const wide = 6

func TestMain(m *testing.M) {
	program.Wide(wide)
	code := program.Main(m, &binary)
	shared.End()
	os.Exit(code)
}
