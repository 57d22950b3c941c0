//go:build guests

package guests

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// decamp is the program that TestMain built.
var decamp string

// wide is how many guests go through at a time: each is a machine emulated by one processor.
const wide = 2

func TestMain(m *testing.M) {
	program.Wide(wide)
	os.Exit(program.Main(m, &decamp))
}
