// Package clients runs the tests of the Python client and of the Ansible collection against a real decamp serve, which
// migrates VMs of an emulated host.
package clients

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// binary is the path of the decamp that TestMain built.
var binary string

func TestMain(m *testing.M) { os.Exit(program.Main(m, &binary)) }
