// Package fleet runs plans of many VMs by the real decamp binary against the lab: alone, with
// a server, and as several machines, while processes, machines, the database and the network
// between them go away and come back. What it looks at is what people have in the end: the
// images, what decamp says of them, and what is left on the sources.
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
	os.Exit(program.Main(m, &binary))
}
