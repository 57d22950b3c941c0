package proxmox

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// wide is the number of parallel tests, which wait for programs, disks and each other.
const wide = 6

func TestMain(m *testing.M) {
	program.Wide(wide)
	os.Exit(m.Run())
}
