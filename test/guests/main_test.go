//go:build guests

package guests

import (
	"os"
	"testing"

	"github.com/decamp/decamp/test/program"
)

// decampBinary is the path of the decamp that TestMain built.
var decampBinary string

// parallelGuests is the number of guests that are tested at a time. Each of them is emulated by one processor.
const parallelGuests = 2

func TestMain(m *testing.M) {
	program.Wide(parallelGuests)
	os.Exit(program.Main(m, &decampBinary))
}
