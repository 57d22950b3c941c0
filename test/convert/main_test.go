package convert

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// decampBinary is the path of the decamp that appliances run.
var decampBinary string

func TestMain(m *testing.M) { os.Exit(program.Main(m, &decampBinary)) }
