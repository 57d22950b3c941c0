package proxmox

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// parallelTests is the number of parallel tests. They wait for programs, disks and each other.
const parallelTests = 6

func TestMain(m *testing.M) {
	program.Wide(parallelTests)
	os.Exit(m.Run())
}
