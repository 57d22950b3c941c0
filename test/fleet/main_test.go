// Package fleet runs plans of many VMs with the real decamp binary against the lab, in one process, with a server, and
// on several machines. Processes, machines, the database and the network fail and return meanwhile. The tests check the
// images, the output of decamp, and the leftovers at the sources.
package fleet

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// binary is the path of the decamp binary that TestMain built.
var binary string

// parallelTests is the number of tests that run at a time. They mostly wait for slow disks, leases and retries.
const parallelTests = 6

func TestMain(m *testing.M) {
	program.Wide(parallelTests)
	code := program.Main(m, &binary)
	shared.End()
	os.Exit(code)
}
