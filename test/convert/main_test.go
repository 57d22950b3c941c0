package convert

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// decamp is the decamp that appliances run.
var decamp string

func TestMain(m *testing.M) { os.Exit(program.Main(m, &decamp)) }
